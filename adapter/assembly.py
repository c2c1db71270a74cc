"""The composition root: builds the rooms from the settings, connects them, and runs them in one TaskGroup."""

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
from adapter.apiserver.upstream.upstreams import Upstreams
from adapter.companion.companion import Companion
from adapter.engine import Engine
from adapter.kube.leader_election import LeaderElector
from adapter.kube.scale import ScaleReader
from adapter.kube.session import Session
from adapter.settings import ServerSettings, Settings, SettingsError, SettingsFile, load_settings, needs_restart
from adapter.telemetry import logs
from adapter.telemetry import server as telemetry
from adapter.telemetry.metrics import Metrics

_log = structlog.get_logger(__name__)

SETTINGS_SECONDS = 5.0
GC_THRESHOLDS = (1_000, 3, 1_000_000)
"""Collect young objects often: a thousand take half a millisecond, and most of them stay alive. Automatic full
collections are off: one blocks the loop for tenths of a second."""
COLLECT_SECONDS = 300.0


class Process(Protocol):
    """The engine with the rooms that one command adds to it."""

    engine: Engine

    async def run(self) -> None:
        """Run until cancelled."""

    def apply_settings(self, settings: Settings) -> None:
        """Apply changed settings."""


async def run_server(settings_path: str | None, kubeconfig: str | None) -> int:
    """Run the server until SIGTERM or SIGINT. Raises SettingsError for unusable settings."""
    return await _run(ServerProcess, settings_path, kubeconfig)


async def run_companion(settings_path: str | None, kubeconfig: str | None) -> int:
    """Run the companion until SIGTERM or SIGINT. Raises SettingsError for unusable settings."""
    return await _run(CompanionProcess, settings_path, kubeconfig)


async def _run(
    new_process: Callable[[Settings, Session, Metrics], Process], settings_path: str | None, kubeconfig: str | None
) -> int:
    settings = await asyncio.to_thread(load_settings, settings_path) if settings_path else Settings()
    logs.configure(settings.logging.level, settings.logging.format)
    gc.disable()  # until every policy is assessed: what is created by then stays
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for name in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(name, stop.set)
    metrics = Metrics()
    async with await Session.open(kubeconfig, metrics=metrics) as session:
        process = new_process(settings, session, metrics)
        async with telemetry.listen(metrics, settings.telemetry.address, settings.telemetry.port) as port:
            _log.info("telemetry server started", port=port)
            running = asyncio.create_task(_run_tasks(process, settings, settings_path, metrics))
            stopping = asyncio.create_task(stop.wait())
            await asyncio.wait({running, stopping}, return_when=asyncio.FIRST_COMPLETED)
            return await _end(running, stopping)


async def _run_tasks(process: Process, settings: Settings, settings_path: str | None, metrics: Metrics) -> None:
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(process.run(), name="process")
        tasks.create_task(_collect_garbage(process.engine), name="garbage")
        if settings_path is not None:
            following = _follow_settings(process, settings, SettingsFile(settings_path), metrics)
            tasks.create_task(following, name="settings")


async def _end(running: asyncio.Task[None], stopping: asyncio.Task[Any]) -> int:
    stopping.cancel()
    if not running.done():
        running.cancel()
    try:
        await running
    except asyncio.CancelledError:
        _log.info("process stopped")
    return 0


async def _collect_garbage(engine: Engine) -> None:
    """Keep the garbage collector's pauses short: collect young objects often, and those of the start never."""
    await engine.assessed.wait()
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)
    gc.enable()
    while True:
        await asyncio.sleep(COLLECT_SECONDS)
        gc.collect()


async def _follow_settings(process: Process, settings: Settings, file: SettingsFile, metrics: Metrics) -> None:
    """Apply changes of the settings file; an invalid file changes nothing and is logged once."""
    while True:
        try:
            latest = await asyncio.to_thread(file.changed)
        except SettingsError as error:
            metrics.settings_reloads.labels(result="refused").inc()
            metrics.settings_accepted.set(0)
            _log.warning("settings file rejected", error=str(error))
            latest = None
        if latest is not None:
            metrics.settings_accepted.set(1)
        if latest is not None and latest != settings:
            if keys := needs_restart(settings, latest):
                _log.warning("settings need a restart", keys=list(keys))
            logs.configure(latest.logging.level, latest.logging.format)
            process.apply_settings(latest)
            settings = latest
            metrics.settings_reloads.labels(result="taken").inc()
            _log.info("settings file applied")
        await asyncio.sleep(SETTINGS_SECONDS)


class ServerProcess:
    """The engine and the API server that answers from its snapshots."""

    def __init__(self, settings: Settings, session: Session, metrics: Metrics) -> None:
        self.engine = Engine(settings, session, metrics)
        self._scales = ScaleReader(session, metrics)
        self._upstreams = Upstreams(settings.upstreams, settings.prometheus.queries, metrics)
        self._api = ApiServer(
            snapshots=self.engine.snapshots,
            session=session,
            scales=self._scales,
            stale_reason=self.engine.stale,
            unsynced_reason=self.engine.filling,
            ready={"watches": self.engine.unready},
            warnings={"watches": self.engine.warning, "upstreams": self._upstreams.warning},
            metrics=metrics,
            options=_server_options(settings.server),
            registries=self.engine.registries,
            upstreams=self._upstreams,
        )

    async def run(self) -> None:
        """Serve until cancelled."""
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self.engine.run(), name="engine")
                tasks.create_task(self._api.run(), name="api")
                tasks.create_task(self._upstreams.run(), name="upstreams")
        finally:
            await self._scales.close()

    def apply_settings(self, settings: Settings) -> None:
        """Apply changed settings; those of the server itself need a restart."""
        self.engine.apply_settings(settings)
        self._upstreams.apply_settings(settings.upstreams, settings.prometheus.queries)


class CompanionProcess:
    """The engine and the companion that acts on its snapshots."""

    def __init__(self, settings: Settings, session: Session, metrics: Metrics) -> None:
        self.engine = Engine(settings, session, metrics)
        options = settings.companion
        self._companion = Companion(
            session,
            LeaderElector(session, options.namespace, options.lease, f"{socket.gethostname()}_{uuid.uuid4()}"),
            self.engine.snapshots,
            self.engine.hpa,
            self.engine.neighbours,
            self.engine.tolerance_seen,
            self.engine.stale,
            options,
            settings.kubernetes.namespaces,
            metrics,
        )
        self.engine.snapshots.subscribe(self._companion.changed)

    async def run(self) -> None:
        """Run the engine and the companion until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.engine.run(), name="engine")
            tasks.create_task(self._companion.run(), name="companion")

    def apply_settings(self, settings: Settings) -> None:
        """Apply changed settings, to the companion as well."""
        self.engine.apply_settings(settings)
        self._companion.settings = settings.companion


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
