"""The companion's process: the engine, and the companion that acts on its snapshots."""

import asyncio
import socket
import uuid
from collections.abc import Mapping

from adapter.companion.companion import Companion
from adapter.engine import Engine
from adapter.kube.leader_election import LeaderElector
from adapter.kube.session import Session
from adapter.settings import Settings
from adapter.telemetry.health import Check
from adapter.telemetry.metrics import Metrics


class CompanionProcess:
    """The engine and the companion that acts on its snapshots."""

    def __init__(self, settings: Settings, session: Session, metrics: Metrics) -> None:
        self.engine = Engine(settings, session, metrics)
        options = settings.companion
        self._companion = Companion(
            session,
            LeaderElector(
                session,
                options.namespace,
                options.lease,
                f"{socket.gethostname()}_{uuid.uuid4()}",
                options.lease_seconds,
            ),
            self.engine.snapshots,
            self.engine.hpa,
            self.engine.neighbours,
            self.engine.tolerance_seen,
            self.engine.stale,
            options,
            metrics,
        )
        self.engine.snapshots.subscribe(self._companion.changed)
        self.ready: Mapping[str, Check] = {"watches": self.engine.unready}
        self.warnings: Mapping[str, Check] = {"watches": self.engine.warning, "clock": session.clock_warning}

    async def run(self) -> None:
        """Run the engine and the companion until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.engine.run(), name="engine")
            tasks.create_task(self._companion.run(), name="companion")

    def apply_settings(self, settings: Settings) -> None:
        """Apply changed settings, to the companion as well."""
        self.engine.apply_settings(settings)
        self._companion.settings = settings.companion
