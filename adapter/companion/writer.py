"""Carries out planned actions, and reads former statuses, who set a count, and the API server's version.

A process that does not lead writes nothing.
"""

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any

import msgspec
import structlog

from adapter.companion.state import BY_SCALE, ActionResult, Write, WrittenStatus
from adapter.kube.api import APPLY_PATCH, WATERMARK_POLICIES
from adapter.kube.errors import ApiStatusError, Conflict, Forbidden, KubeError, NotFound, decode_answer
from adapter.kube.objects import AnyObjectList
from adapter.kube.session import Session
from adapter.load.spec import Target
from adapter.policy.documents import mapping_at
from adapter.policy.hpa import FIELD_MANAGER
from adapter.runtime.backoff import KeyedBackoff
from adapter.runtime.decoding import Decoder
from adapter.runtime.times import parse_time
from adapter.snapshot import Key
from adapter.telemetry.metrics import Metrics

WRITE_SECONDS = READ_SECONDS = 2.0
"""The time limit of one request: others wait for longer before they take the lease."""
_STATUSES = Decoder(AnyObjectList)
TEST_FAILED = "the server rejected our request due to an error in our request"
"""A test of a JSON patch failed. What the CRD or an admission policy refuses is a 422, too, in other words."""
_AS_US = {"fieldManager": FIELD_MANAGER}
_TOLERANCE = b'"tolerance":'
"""The field of an HPA, and of no other write: an API server whose gate is off drops it, and answers 200."""
_OBJECT = Decoder(dict[str, Any])

_log = structlog.get_logger(__name__)


@dataclass(eq=False)
class Writer:
    """Writes to the API server, one action at a time. Failures are logged, counted and returned.

    `leads` says whether this process may write at this moment. `drops_tolerance`: whether an HPA was applied with a
    tolerance and kept none, since the gate of that field is off.
    """

    session: Session
    leads: Callable[[], bool]
    metrics: Metrics
    backoff: KeyedBackoff[Key] = field(default_factory=KeyedBackoff)
    drops_tolerance: bool = False

    async def carry_out(self, write: Write) -> ActionResult | None:
        """Carries out a write, and returns how that ended; None: this process does not lead, and tried nothing."""
        if not self.leads():
            return None
        try:
            await _uncancelled(self._send(write))
        except KubeError as error:
            # One word: reasons of admission webhooks may be sentences that differ each time.
            reason = type(error).__name__
            self.metrics.companion_writes.labels(action=write.kind, result=reason).inc()
            is_fenced_off = isinstance(error, ApiStatusError) and error.message == TEST_FAILED
            if isinstance(error, (Conflict, NotFound)) or is_fenced_off:
                _log.info("write_overtaken", action=write.kind, key=str(write.key), error=str(error))
                return ActionResult.OVERTAKEN
            if self.backoff.failed(write.key, write.kind, reason, self.session.now()):
                _log.warning("write_failed", action=write.kind, key=str(write.key), error=str(error))
            return ActionResult.REFUSED if isinstance(error, Forbidden) else ActionResult.FAILED
        self.backoff.reset(write.key, write.kind)
        self.metrics.companion_writes.labels(action=write.kind, result="done").inc()
        return ActionResult.DONE

    async def _send(self, write: Write) -> None:
        body, is_apply = msgspec.json.encode(write.body), write.content_type == APPLY_PATCH
        params = _AS_US | {"force": "false"} if is_apply else _AS_US
        reply = await self.session.request(
            write.method, write.path, body=body, content_type=write.content_type, params=params, timeout=WRITE_SECONDS
        )
        self.drops_tolerance |= _TOLERANCE in body and _TOLERANCE not in reply.body


async def _uncancelled(write: Coroutine[Any, Any, None]) -> None:
    """Shields the write from cancellation, so that the next leader cannot start before it completes."""
    task = asyncio.create_task(write)
    try:
        await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.gather(asyncio.shield(task), return_exceptions=True)  # nobody waits for its result any more
        raise


async def read_status(session: Session, key: Key) -> WrittenStatus:
    """The status of one policy; an empty one if there is no such policy. Raises KubeError."""
    # As a list, since the companion has the right to list anyway.
    path, only = WATERMARK_POLICIES.collection(key.namespace), {"fieldSelector": f"metadata.name={key.name}"}
    page = decode_answer(_STATUSES.decode, await session.get(path, params=only, timeout=READ_SECONDS), path)
    statuses = [item.status for item in page.items or () if item.metadata.name == key.name]
    return as_written((statuses and statuses[0]) or {}, session.now())


def as_written(status: dict[str, Any], now: float) -> WrittenStatus:
    """A status as it was read. Its time of writing is taken to be that of its assessment, and never after `now`."""
    at = parse_time(status.get("assessedAt"))
    return WrittenStatus(status=status, at=min(now, at) if at is not None else None, is_read=True)


async def read_manager(session: Session, scale_path: str, target: Target, replicas: int) -> str:
    """The field manager that set this count, with BY_SCALE if it may be the controller of an HPA; empty if unknown."""
    path, only = scale_path.removesuffix(f"/{target.name}/scale"), {"fieldSelector": f"metadata.name={target.name}"}
    try:
        body = await session.get(path, params=only, timeout=READ_SECONDS)
        found = decode_answer(_OBJECT.decode, body, path).get("items") or [{}]
    except KubeError:
        return ""
    entries = mapping_at(found[0], "metadata").get("managedFields") or ()
    owners = [entry for entry in entries if "f:replicas" in mapping_at(entry, "fieldsV1", "f:spec")]
    newest: dict[str, Any] = max(owners, key=lambda entry: str(entry.get("time", "")), default={})
    name = str(newest.get("manager", "unknown"))  # as the API server calls a client without a user agent
    is_known = name != "unknown" and mapping_at(found[0], "spec").get("replicas") == replicas  # else it changed again
    may_be_hpa = newest.get("subresource") == "scale" and not name.startswith(("kubectl", FIELD_MANAGER))
    return f"{name}{BY_SCALE if may_be_hpa else ''}" if is_known else ""


async def has_tolerance(session: Session) -> bool:
    """Whether HPAs have the field `tolerance` by the API server's version; an unknown one has it."""
    try:
        version = decode_answer(_OBJECT.decode, await session.get("/version", timeout=READ_SECONDS), "/version")
        return (int(version["major"]), int(version["minor"].rstrip("+"))) >= (1, 35)  # by default since then
    except (KubeError, LookupError, ValueError, AttributeError):
        return True
