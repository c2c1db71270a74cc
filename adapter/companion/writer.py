"""Carries out what was planned. Nothing is written by a process that does not lead."""

from typing import Protocol

import msgspec
import structlog

from adapter.companion.actions import Action, WriteStatus
from adapter.kube.errors import ApiStatusError, KubeError, NotFound
from adapter.kube.session import Session
from adapter.snapshot import Key
from adapter.telemetry.metrics import Metrics

WRITE_SECONDS = 2.0
"""How long one write may take: less than others wait before they take the lease."""
POLICIES = "/apis/effective-load.io/v1alpha1/namespaces/{namespace}/watermarkpolicies/{name}"

_JSON_PATCH = "application/json-patch+json"
_log = structlog.get_logger(__name__)


class Leadership(Protocol):
    """Whether this process may write."""

    @property
    def leads(self) -> bool:
        """Whether it may at this moment."""
        ...


class Writer:
    """Writes to the API server, one action at a time; failures are logged, counted, and told to whoever asked."""

    def __init__(self, session: Session, leadership: Leadership, metrics: Metrics) -> None:
        self._session = session
        self._leadership = leadership
        self._metrics = metrics

    async def carry_out(self, action: Action) -> bool:
        """Do it; whether it was done."""
        if not self._leadership.leads:
            return False
        kind = type(action).__name__
        try:
            await self._do(action)
        except NotFound:
            return False  # it was deleted meanwhile, and the watch will tell
        except KubeError as error:
            reason = error.reason if isinstance(error, ApiStatusError) else type(error).__name__
            self._metrics.companion_writes.labels(action=kind, result=reason).inc()
            _log.warning("not done", action=kind, key=str(action.key), error=str(error))
            return False
        self._metrics.companion_writes.labels(action=kind, result="done").inc()
        return True

    async def _do(self, action: Action) -> None:
        match action:
            case WriteStatus():
                await self._write_status(action)

    async def _write_status(self, action: WriteStatus) -> None:
        # The whole status at once, of this very policy: one of the same name that came since keeps its own.
        patch = [
            {"op": "test", "path": "/metadata/uid", "value": action.uid},
            {"op": "add", "path": "/status", "value": action.status},
        ]
        await self.patch(f"{path_of(action.key)}/status", patch, _JSON_PATCH)

    async def patch(self, path: str, body: object, content_type: str, params: dict[str, str] | None = None) -> bytes:
        """Send a patch. Raises KubeError."""
        answer = await self._session.request(
            "PATCH",
            path,
            body=msgspec.json.encode(body),
            content_type=content_type,
            params=params,
            timeout=WRITE_SECONDS,
        )
        return answer.body


def path_of(key: Key) -> str:
    """Where a policy is."""
    return POLICIES.format(namespace=key.namespace, name=key.name)
