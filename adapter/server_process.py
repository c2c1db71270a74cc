"""The server's process: the engine, and the API server that answers from its snapshots."""

from adapter.apiserver.provider import MetricsProvider
from adapter.apiserver.server import ApiServer
from adapter.apiserver.upstream import upstreams
from adapter.assembly import Process
from adapter.kube.scale import ScaleReader
from adapter.kube.session import Session
from adapter.settings import Settings, needs_restart
from adapter.telemetry.metrics import Metrics


class ServerProcess(Process):
    """The engine and the API server that answers from its snapshots."""

    def __init__(self, settings: Settings, session: Session, metrics: Metrics) -> None:
        super().__init__(settings, session, metrics)
        self._started, self._latest = settings, settings
        engine, scales = self.engine, ScaleReader(session, metrics)
        provider = MetricsProvider(engine.snapshots, scales, engine.stale, engine.filling, session.now)
        self._api = ApiServer(provider, session, metrics, settings.server, upstreams(settings.upstreams, metrics))
        self.tasks["api"] = self._api.run
        self.ready |= self._api.ready
        self.warnings |= {**self._api.warnings, "settings": self._restart_warning}

    def apply_settings(self, settings: Settings) -> None:
        """Apply changed settings; those of the server itself need a restart, but for what it serves."""
        super().apply_settings(settings)
        self._latest = settings
        served = {"external_metrics": settings.server.external_metrics}
        self._api.apply_settings(self._started.server.model_copy(update=served))

    def _restart_warning(self) -> str | None:
        """Which settings wait for a restart. It is no fault of readiness: every replica would fail at once."""
        keys = needs_restart(self._started, self._latest)
        return f"settings wait for a restart: {', '.join(keys)}; kubectl rollout restart" if keys else None
