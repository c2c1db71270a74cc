"""The server's process: the engine, and the API server that answers from its snapshots."""

import asyncio
from pathlib import Path

from adapter.apiserver.server import ApiServer, ServerOptions
from adapter.apiserver.serving.certificate_manager import TlsOptions
from adapter.apiserver.upstream.upstreams import Upstreams
from adapter.assembly import run
from adapter.engine import Engine
from adapter.kube.scale import ScaleReader
from adapter.kube.session import Session
from adapter.settings import ServerSettings, Settings
from adapter.telemetry.metrics import Metrics


async def run_server(settings_path: str | None, kubeconfig: str | None) -> int:
    """Run the server until SIGTERM or SIGINT. Raises SettingsError for unusable settings."""
    return await run(ServerProcess, settings_path, kubeconfig)


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
