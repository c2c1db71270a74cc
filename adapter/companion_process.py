"""The companion's process: the engine, and the companion that acts on its snapshots."""

import socket
import uuid

from adapter.assembly import Process
from adapter.companion.companion import Companion
from adapter.kube.leader_election import LeaderElector
from adapter.kube.session import Session
from adapter.settings import Settings
from adapter.telemetry.metrics import Metrics


class CompanionProcess(Process):
    """The engine and the companion that acts on its snapshots."""

    def __init__(self, settings: Settings, session: Session, metrics: Metrics) -> None:
        super().__init__(settings, session, metrics)
        options, index = settings.companion, self.engine.index
        identity = f"{socket.gethostname()}_{uuid.uuid4()}"
        self._companion = Companion(
            session,
            LeaderElector(session, options.namespace, options.lease, identity, options.lease_seconds),
            self.engine.snapshots,
            index.hpa,
            index.neighbours,
            index.tolerance_seen,
            self.engine.stale,
            options,
            metrics,
        )
        self.engine.snapshots.subscribe(self._companion.changed)
        self.tasks["companion"] = self._companion.run

    def apply_settings(self, settings: Settings) -> None:
        """Apply changed settings, to the companion as well."""
        super().apply_settings(settings)
        self._companion.settings = settings.companion
