"""The composition root: builds the rooms from the settings, joins them, and runs them in one TaskGroup."""

import asyncio
import gc
import signal
import socket
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import structlog

from adapter.apiserver.server import ApiServer, ServerOptions
from adapter.apiserver.serving.certificate_manager import TlsOptions
from adapter.companion.companion import Companion
from adapter.engine import Engine
from adapter.kube.leader_election import LeaderElector
from adapter.kube.scale import ScaleReader
from adapter.kube.session import Session
from adapter.settings import ServerSettings, Settings, load_settings
from adapter.telemetry import logs
from adapter.telemetry import server as telemetry
from adapter.telemetry.metrics import Metrics

log = structlog.get_logger(__name__)


class Process(Protocol):
    """What a command runs."""

    async def run(self, settings_path: str | None) -> None:
        """Run until cancelled."""


async def serve(settings_path: str | None, kubeconfig: str | None) -> int:
    """Run the server until SIGTERM or SIGINT. Raises SettingsError where the settings cannot be used."""
    return await _run(Server, settings_path, kubeconfig)


async def accompany(settings_path: str | None, kubeconfig: str | None) -> int:
    """Run the companion until SIGTERM or SIGINT. Raises SettingsError where the settings cannot be used."""
    return await _run(Companionship, settings_path, kubeconfig)


async def _run(
    process: Callable[[Settings, Session, Metrics], Process], settings_path: str | None, kubeconfig: str | None
) -> int:
    settings = await asyncio.to_thread(load_settings, settings_path) if settings_path else Settings()
    logs.configure(settings.logging.level, settings.logging.format)
    gc.disable()  # until the caches are filled: what is made by then stays
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for name in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(name, stop.set)
    metrics = Metrics()
    async with await Session.open(kubeconfig, metrics=metrics) as session:
        made = process(settings, session, metrics)
        async with telemetry.listen(metrics, settings.telemetry.address, settings.telemetry.port) as port:
            log.info("telemetry is served", port=port)
            running = asyncio.create_task(made.run(settings_path))
            stopping = asyncio.create_task(stop.wait())
            await asyncio.wait({running, stopping}, return_when=asyncio.FIRST_COMPLETED)
            return await _end(running, stopping)


async def _end(running: asyncio.Task[None], stopping: asyncio.Task[Any]) -> int:
    stopping.cancel()
    if not running.done():
        running.cancel()
    try:
        await running
    except asyncio.CancelledError:
        log.info("stopped")
    return 0


class Server:
    """The metrics API over the engine's picture. `run` runs both."""

    def __init__(self, settings: Settings, session: Session, metrics: Metrics) -> None:
        self._engine = Engine(settings, session, metrics)
        self._scales = ScaleReader(session, metrics)
        self._api = ApiServer(
            snapshots=self._engine.picture,
            session=session,
            scales=self._scales,
            stale_reason=self._engine.stale,
            unsynced_reason=self._engine.filling,
            ready={"watches": self._engine.unready},
            warnings={"watches": self._engine.trouble},
            metrics=metrics,
            options=_server_options(settings.server),
            registries=self._engine.registries,
        )

    async def run(self, settings_path: str | None) -> None:
        """Serve until cancelled."""
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._engine.run(settings_path), name="engine")
                tasks.create_task(self._api.run(), name="api")
        finally:
            await self._scales.close()


class Companionship:
    """The companion over the engine's picture. `run` runs both."""

    def __init__(self, settings: Settings, session: Session, metrics: Metrics) -> None:
        self._engine = Engine(settings, session, metrics)
        where = settings.companion
        self._companion = Companion(
            session,
            LeaderElector(session, where.namespace, where.lease, f"{socket.gethostname()}_{uuid.uuid4()}"),
            self._engine.picture,
            self._engine.hpa,
            self._engine.neighbours,
            self._engine.tolerance_seen,
            self._engine.stale,
            where,
            settings.kubernetes.namespaces,
            metrics,
        )
        self._engine.follow_views(self._companion.changed)
        self._engine.on_settings = self._take_over

    def _take_over(self, settings: Settings) -> None:
        self._companion.settings = settings.companion

    async def run(self, settings_path: str | None) -> None:
        """Accompany until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._engine.run(settings_path), name="engine")
            tasks.create_task(self._companion.run(), name="companion")


def _server_options(server: ServerSettings) -> ServerOptions:
    versions = ("v1beta2.custom", "v1beta1.custom", *(("v1beta1.external",) if server.external_metrics else ()))
    files = server.tls.mode == "Files"
    return ServerOptions(
        address=server.address,
        port=server.port,
        external=server.external_metrics,
        tls=TlsOptions(
            namespace=server.tls.namespace,
            service=server.tls.service,
            secret=server.tls.secret,
            api_services=tuple(f"{name}.metrics.k8s.io" for name in versions) if server.tls.inject_ca_bundle else (),
            certificate=Path(server.tls.cert_file) if files else None,
            key=Path(server.tls.key_file) if files else None,
        ),
    )
