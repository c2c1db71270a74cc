"""Carries out planned actions. A process that does not lead writes nothing."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import msgspec
import structlog

from adapter.companion.state import Action, ActionResult, Notify, RaiseScale, Write
from adapter.kube.api import APPLY_PATCH
from adapter.kube.errors import ApiStatusError, Conflict, Forbidden, KubeError, NotFound, decode_answer
from adapter.kube.session import Session
from adapter.policy.hpa import FIELD_MANAGER
from adapter.runtime.backoff import KeyedBackoff
from adapter.runtime.decoding import Decoder
from adapter.snapshot import Key
from adapter.telemetry.metrics import Metrics

WRITE_SECONDS = 2.0
"""The time limit of one write, which is shorter than others wait before they take the lease."""
LONGEST_REASON = 40
_UNFORCED = {"fieldManager": FIELD_MANAGER, "force": "false"}
_TOLERANCE = b'"tolerance":'
"""The field of an HPA, and of no other write: an API server whose gate is off drops it, and answers 200."""
_OBJECT = Decoder(dict[str, Any])

_log = structlog.get_logger(__name__)


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
        return self.backoff.is_ready(action.key, action.kind, self._session.now())

    async def carry_out(self, action: Action) -> ActionResult:
        """Carries out an action, and returns how that ended."""
        if not self._leads():
            return ActionResult.NOT_LEADING
        try:
            result = await _uncancelled(self._do(action))
        except NotFound:
            return ActionResult.OVERTAKEN  # the object was deleted meanwhile, which its watch will show
        except KubeError as error:
            # In one word: reasons of admission webhooks may be sentences that differ each time.
            word = error.reason if isinstance(error, ApiStatusError) else ""
            reason = word if word.isalpha() and len(word) <= LONGEST_REASON else type(error).__name__
            self._metrics.companion_writes.labels(action=action.kind, result=reason).inc()
            if isinstance(error, Conflict):
                _log.info("write_overtaken", action=action.kind, key=str(action.key), error=str(error))
                return ActionResult.OVERTAKEN
            if self.backoff.failed(action.key, action.kind, reason, self._session.now()):
                _log.warning("write_failed", action=action.kind, key=str(action.key), error=str(error))
            return ActionResult.REFUSED if isinstance(error, Forbidden) else ActionResult.FAILED
        self.backoff.reset(action.key, action.kind)
        self._metrics.companion_writes.labels(action=action.kind, result="done").inc()
        return result

    async def _do(self, action: Action) -> ActionResult:
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
            case Write(method=method, path=path, content_type=kind):
                body, params = msgspec.json.encode(action.body), _UNFORCED if kind == APPLY_PATCH else None
                reply = await self._session.request(
                    method, path, body=body, content_type=kind, params=params, timeout=WRITE_SECONDS
                )
                if _TOLERANCE in body and _TOLERANCE not in reply.body:
                    return ActionResult.DROPPED
            case Notify():
                self._notify(action)
        return ActionResult.DONE


async def _uncancelled(write: Coroutine[Any, Any, ActionResult]) -> ActionResult:
    """Shields the write from cancellation, so that the next leader cannot start before it completes."""
    task = asyncio.create_task(write)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.gather(asyncio.shield(task), return_exceptions=True)  # nobody waits for its result any more
        raise
