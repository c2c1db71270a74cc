"""Carries out planned actions. A process that does not lead writes nothing."""

import asyncio
import socket
from collections.abc import Callable, Coroutine
from typing import Any

import msgspec
import structlog

from adapter.companion.actions import (
    Action,
    ActionResult,
    MarkPod,
    Notify,
    RaiseScale,
    WireHpa,
    WriteEvent,
    WriteStatus,
)
from adapter.kube.api import APPLY_PATCH, EVENTS, HPAS, JSON, JSON_PATCH, PODS, WATERMARK_POLICIES
from adapter.kube.errors import ApiStatusError, Conflict, Forbidden, KubeError, NotFound, decode_answer
from adapter.kube.objects import DELETION_COST_ANNOTATION, MARK_ANNOTATION
from adapter.kube.session import Session
from adapter.load.pods import LOWEST_COST
from adapter.policy.hpa import FIELD_MANAGER
from adapter.policy.watermark_policy import API_VERSION, GROUP, KIND
from adapter.runtime.backoff import KeyedBackoff
from adapter.runtime.decoding import Decoder
from adapter.runtime.times import format_micro_time
from adapter.snapshot import Key
from adapter.telemetry.metrics import Metrics

WRITE_SECONDS = 2.0
"""The time limit of one write, which is shorter than others wait before they take the lease."""
LONGEST_REASON = 40
_OBJECT = Decoder(dict[str, Any])

_log = structlog.get_logger(__name__)

CONTROLLER = f"{GROUP}/companion"
_LONGEST_INSTANCE = 128
_INSTANCE = socket.gethostname()[:_LONGEST_INSTANCE]


class Writer:
    """Writes to the API server, one action at a time. Failures are logged, counted and returned.

    `leads` says whether this process may write at this moment. `notify` hands a Notify to the notifier, and does not
    wait.
    """

    def __init__(
        self, session: Session, leads: Callable[[], bool], metrics: Metrics, notify: Callable[[Notify], None]
    ) -> None:
        self._session = session
        self._leads = leads
        self._metrics = metrics
        self._notify = notify
        self.backoff: KeyedBackoff[Key] = KeyedBackoff()

    def may(self, action: Action) -> bool:
        """Whether an action may be tried; one of a kind that failed has to wait."""
        return self.backoff.is_ready(action.key, type(action).__name__, self._session.now())

    async def carry_out(self, action: Action) -> ActionResult:
        """Carries out an action, and returns how that ended."""
        if not self._leads():
            return ActionResult.NOT_LEADING
        kind = type(action).__name__
        try:
            await _uncancelled(self._do(action))
        except NotFound:
            return ActionResult.OVERTAKEN  # the object was deleted meanwhile, which its watch will show
        except KubeError as error:
            result = ActionResult.REFUSED if isinstance(error, Forbidden) else ActionResult.FAILED
            if isinstance(error, Conflict):
                result = ActionResult.OVERTAKEN
            # In one word: reasons of admission webhooks may be sentences that differ each time.
            word = error.reason if isinstance(error, ApiStatusError) else ""
            reason = word if word.isalpha() and len(word) <= LONGEST_REASON else type(error).__name__
            self._metrics.companion_writes.labels(action=kind, result=reason).inc()
            if result is ActionResult.OVERTAKEN:
                _log.info("write_overtaken", action=kind, key=str(action.key), error=str(error))
            elif self.backoff.failed(action.key, kind, reason, self._session.now()):
                _log.warning("write_failed", action=kind, key=str(action.key), error=str(error))
            return result
        self.backoff.reset(action.key, kind)
        self._metrics.companion_writes.labels(action=kind, result="done").inc()
        return ActionResult.DONE

    async def _do(self, action: Action) -> None:
        namespace = action.key.namespace
        body: dict[str, Any]
        metadata: dict[str, Any]
        match action:
            case RaiseScale():
                # The update carries the version that was read, so that a scaling in between wins.
                answer = await self._session.get(action.path, timeout=WRITE_SECONDS / 2)
                scale = decode_answer(_OBJECT.decode, answer, "the answer is no scale")
                current = scale.get("metadata", {}).get("uid"), (scale.get("spec") or {}).get("replicas", 0)
                if current != (action.target, action.current) or not self._leads():
                    raise Conflict(409, "Overtaken", f"{action.path} is no longer at {action.current}")
                raised = msgspec.json.encode(scale | {"spec": {"replicas": action.to}})
                await self._session.request("PUT", action.path, body=raised, timeout=WRITE_SECONDS / 2)
            case MarkPod():
                # Our own annotations are removed if left out; a cost of another client is a conflict.
                costs = {DELETION_COST_ANNOTATION: str(LOWEST_COST), MARK_ANNOTATION: "true"} if action.first else {}
                metadata = {"name": action.pod, "namespace": action.namespace, "uid": action.uid, "annotations": costs}
                body = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata}
                await self._apply(PODS.path(action.namespace, action.pod), body)
            case WireHpa():
                metadata = {"name": action.hpa, "namespace": namespace, "uid": action.uid}
                metadata |= {"resourceVersion": action.version}
                body = {"apiVersion": HPAS.api_version, "kind": "HorizontalPodAutoscaler", "metadata": metadata}
                body["spec"] = {"behavior": action.behavior}
                await self._apply(HPAS.path(namespace, action.hpa), body)
            case WriteStatus():
                # The whole status at once, of the policy with this UID: a newer policy of the same name keeps its own.
                # And only over the known status: a former leader that was frozen must not undo its successor's.
                tests = {"/metadata/uid": action.uid, **({"/status/assessedAt": action.over} if action.over else {})}
                patch = [
                    *({"op": "test", "path": path, "value": value} for path, value in tests.items()),
                    {"op": "add", "path": "/status", "value": action.status},
                ]
                await self._send("PATCH", f"{WATERMARK_POLICIES.path(*action.key)}/status", patch, JSON_PATCH)
            case WriteEvent():
                await self._send("POST", EVENTS.collection(namespace), event_body(action), JSON)
            case Notify():
                self._notify(action)

    async def _apply(self, path: str, body: object) -> None:
        """Applies without force: a field of another manager is a conflict."""
        unforced = {"fieldManager": FIELD_MANAGER, "force": "false"}
        await self._send("PATCH", path, body, APPLY_PATCH, unforced)

    async def _send(
        self, method: str, path: str, body: object, kind: str, params: dict[str, str] | None = None
    ) -> None:
        content = msgspec.json.encode(body)
        await self._session.request(method, path, body=content, content_type=kind, params=params, timeout=WRITE_SECONDS)


async def _uncancelled(write: Coroutine[Any, Any, None]) -> None:
    """Shields the write from cancellation, so that the next leader cannot start before it completes."""
    task = asyncio.create_task(write)
    try:
        await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.gather(asyncio.shield(task), return_exceptions=True)  # nobody waits for its result any more
        raise


def event_body(action: WriteEvent) -> dict[str, Any]:
    """The Event as events.k8s.io/v1 has it."""
    event, key, target = action.event, action.key, action.target
    body: dict[str, Any] = {
        "apiVersion": EVENTS.api_version,
        "kind": "Event",
        "metadata": {"name": event.name, "namespace": key.namespace},
        "eventTime": format_micro_time(event.at),
        "type": "Warning" if event.warning else "Normal",
        "reason": event.reason,
        "action": event.action,
        "note": event.note,
        "regarding": {"apiVersion": API_VERSION, "kind": KIND, "uid": action.uid, **key._asdict()},
        "reportingController": CONTROLLER,
        "reportingInstance": _INSTANCE,
    }
    if target is not None:
        named = {"apiVersion": target.api_version, "kind": target.kind, "uid": target.uid, "name": target.name}
        body["related"] = named | {"namespace": key.namespace}
    return body
