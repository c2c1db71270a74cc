"""The composition root: builds the rooms from the settings, joins them, and runs them in one TaskGroup."""

import asyncio
import gc
import signal
from pathlib import Path
from typing import Any

import structlog

from adapter.apiserver.manager import TlsOptions
from adapter.apiserver.server import ApiServer, ServerOptions
from adapter.engine import Engine
from adapter.kube.scale import ScaleReader
from adapter.kube.session import Session
from adapter.settings import Server as ServerSettings
from adapter.settings import Settings, load
from adapter.telemetry import logs
from adapter.telemetry import server as telemetry
from adapter.telemetry.metrics import Metrics

log = structlog.get_logger(__name__)


async def serve(settings_path: str | None, kubeconfig: str | None) -> int:
    """Run the server until SIGTERM or SIGINT. Raises SettingsError where the settings cannot be used."""
    settings = await asyncio.to_thread(load, settings_path) if settings_path else Settings()
    logs.configure(settings.logging.level, settings.logging.format)
    gc.disable()  # until the caches are filled: what is made by then stays
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for name in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(name, stop.set)
    metrics = Metrics()
    async with await Session.open(kubeconfig, metrics=metrics) as session:
        server = Server(settings, session, metrics)
        async with telemetry.serve(metrics, settings.telemetry.address, settings.telemetry.port) as port:
            log.info("telemetry is served", port=port)
            running = asyncio.create_task(server.run(settings_path))
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
            picture=self._engine.picture,
            session=session,
            scales=self._scales,
            stale=self._engine.stale,
            metrics=metrics,
            options=_server_options(settings.server),
        )

    async def run(self, settings_path: str | None) -> None:
        """Serve until cancelled."""
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._engine.run(settings_path), name="engine")
                tasks.create_task(self._api.run(), name="api")
        finally:
            await self._scales.close()


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
