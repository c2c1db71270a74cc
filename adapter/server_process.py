"""The server's process: the engine, and the API server that answers from its snapshots."""

import asyncio
from collections.abc import Mapping

from adapter.apiserver.server import ApiServer
from adapter.apiserver.upstream import Upstreams
from adapter.engine import Engine
from adapter.kube.scale import ScaleReader
from adapter.kube.session import Session
from adapter.settings import Settings, needs_restart
from adapter.telemetry.health import Check
from adapter.telemetry.metrics import Metrics


class ServerProcess:
    """The engine and the API server that answers from its snapshots."""

    def __init__(self, settings: Settings, session: Session, metrics: Metrics) -> None:
        self.engine = Engine(settings, session, metrics)
        self._started, self._latest = settings, settings
        self._scales = ScaleReader(session, metrics)
        self._upstreams = Upstreams(settings.upstreams, settings.prometheus.queries, metrics)
        self._api = ApiServer(
            snapshots=self.engine.snapshots,
            session=session,
            scales=self._scales,
            stale_reason=self.engine.stale,
            unsynced_reason=self.engine.filling,
            metrics=metrics,
            settings=settings.server,
            upstreams=self._upstreams,
        )
        self.ready: Mapping[str, Check] = {**self._api.ready, "watches": self.engine.unready}
        self.warnings: Mapping[str, Check] = {
            **self._api.warnings,
            "watches": self.engine.warning,
            "clock": session.clock_warning,
            "upstreams": self._upstreams.warning,
            "settings": self._restart_warning,
        }

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
        """Apply changed settings; those of the server itself need a restart, but for what it serves."""
        self._latest = settings
        served = {"external_metrics": settings.server.external_metrics}
        self._api.apply_settings(self._started.server.model_copy(update=served))
        self.engine.apply_settings(settings)
        self._upstreams.apply_settings(settings.upstreams, settings.prometheus.queries)

    def _restart_warning(self) -> str | None:
        """Which settings wait for a restart. It is no fault of readiness: every replica would fail at once."""
        keys = needs_restart(self._started, self._latest)
        return f"settings wait for a restart: {', '.join(keys)}; kubectl rollout restart" if keys else None
