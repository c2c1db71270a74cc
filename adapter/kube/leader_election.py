"""Leader election on a Lease (coordination.k8s.io/v1), judged by this process's monotonic clock alone.

No two replicas act at once, whatever the clocks of the machines say. Let a renewal be requested at 0 s. Its holder
begins no write after 5 s (BELIEVED_SECONDS from before the request), and its last write ends by 7 s (a write takes 2 s
at most). A rival's request takes at most 2 s (ASK_SECONDS), so it dates its first sight of that renewal at -2 s at the
earliest, and takes the lease 10 s (DURATION_SECONDS) after that: not before 8 s. The remaining second covers clocks
that run at different speeds. A process may still freeze between its last check and its write; so writes are also
fenced by the resource version that they replace.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import structlog

from adapter.kube.api import LEASES
from adapter.kube.errors import Conflict, KubeError, MalformedAnswer, NotFound
from adapter.kube.session import Session
from adapter.runtime.backoff import LogOnce
from adapter.runtime.decoding import Decoder
from adapter.runtime.times import format_micro_time

DURATION_SECONDS = 10
"""A lease that was not renewed for this long may be taken."""
BELIEVED_SECONDS = 5.0
"""A holder acts for this long after it requested the last granted renewal; of a longer duration, for the same share."""
RETRY_SECONDS = 2.0
AGAIN_SECONDS = 0.5
"""The wait after a failed renewal: one request that hangs must not end the leadership."""
ASK_SECONDS = 2.0

_GONE = "gone"
"""The version of a lease that does not exist."""

_log = structlog.get_logger(__name__)

Lease = dict[str, Any]
"""As plain data: a write replaces the whole object, and takes away what is not sent back."""
DECODER = Decoder(Lease)


class LeaderElector:
    """One candidate for one lease. `identity` names this process and is unique.

    `seconds` is the lease's duration, at least 10. A holder believes in itself for half of it, so that a longer one
    leaves more time between its last write and a rival's first.
    """

    def __init__(
        self, session: Session, namespace: str, name: str, identity: str, seconds: int = DURATION_SECONDS
    ) -> None:
        self._session = session
        self._collection = LEASES.collection(namespace)
        self._path = LEASES.path(namespace, name)
        self._new = {"metadata": {"name": name, "namespace": namespace}}
        self._name, self._identity, self._duration = name, identity, seconds
        self._held: Lease | None = None
        self._believed_until = 0.0
        self._version, self._since = "", 0.0  # the last one seen, and when it first was (monotonic seconds)
        self._log_once = LogOnce()

    @property
    def leads(self) -> bool:
        """Whether this process is the leader at this moment."""
        return self._held is not None and self._session.monotonic() < self._believed_until

    async def lead(self, work: Callable[[], Awaitable[None]]) -> None:
        """Runs `work` whenever this process leads, until cancelled; releases the lease at the end.

        `work` is cancelled when the lease is lost, and started again when it is won. It may end only after everything
        it began has ended: the next leader acts at once.
        """
        try:
            while True:
                while not await self._ask():  # noqa: ASYNC110  another process changes the lease
                    await asyncio.sleep(RETRY_SECONDS)
                _log.info("leader_elected", lease=self._name, identity=self._identity)
                working = asyncio.ensure_future(work())
                try:
                    await self._renew_while_leading(working)
                    if working.done():
                        await working
                finally:
                    await _ended(working)
                _log.warning("leadership_lost", lease=self._name, identity=self._identity)
        finally:  # so that the next candidate leads at once
            self._held = None
            try:
                async with asyncio.timeout(ASK_SECONDS):
                    lease = await self._read()  # the last request may have been granted without an answer
                    if lease is not None and _spec(lease).get("holderIdentity") == self._identity:
                        spec = {**_spec(lease), "leaseDurationSeconds": 1, "renewTime": self._now()}
                        await self._send("PUT", lease, **{**spec, "holderIdentity": None, "acquireTime": None})
            except _TROUBLE as error:
                _log.warning("lease_release_failed", lease=self._name, error=str(error) or "no answer")

    async def _renew_while_leading(self, working: asyncio.Future[None]) -> None:
        wait = RETRY_SECONDS
        while self.leads:
            await asyncio.wait({working}, timeout=wait)
            if working.done():
                return
            before = self._believed_until
            await self._ask()
            wait = RETRY_SECONDS if self._believed_until > before else AGAIN_SECONDS

    async def _ask(self) -> bool:
        """Takes or renews the lease where that is allowed; returns whether it is held. Errors are logged."""
        began = self._session.monotonic()
        try:
            async with asyncio.timeout(ASK_SECONDS):
                granted = await self._take(began)
        except (Conflict, NotFound):
            granted = self._held = None
        except _TROUBLE as error:
            if self._log_once.is_new(type(error).__name__):
                _log.warning("lease_request_failed", lease=self._name, error=str(error) or "no answer")
            return self.leads
        self._log_once.clear()
        if granted is not None:
            self._held, self._believed_until = granted, began + self._duration * BELIEVED_SECONDS / DURATION_SECONDS
        return granted is not None

    async def _take(self, began: float) -> Lease | None:
        """Renews the lease where it is held, else takes it where it is free. None where another process holds it."""
        if self._held is not None:
            try:
                return await self._send("PUT", self._held, **{**_spec(self._held), "renewTime": self._now()})
            except Conflict:
                # The other writer need not have taken it: applying the manifests again changes it, too.
                self._held = None
        lease = await self._read()
        if lease is None:
            # It may have existed a moment ago, and its holder still acts.
            if not self._unchanged(_GONE, self._duration, began):
                return None
            method, lease, transitions = "POST", self._new, 0
        else:
            spec = _spec(lease)
            holder = spec.get("holderIdentity")
            ours = holder == self._identity  # by a request without an answer
            over = max(spec.get("leaseDurationSeconds") or 0, self._duration)
            stale = self._unchanged(lease["metadata"]["resourceVersion"], over, began)
            if holder and not ours and not stale:
                return None
            method, transitions = "PUT", (spec.get("leaseTransitions") or 0) + (not ours)
        held = {"holderIdentity": self._identity, "leaseDurationSeconds": self._duration}
        times = dict.fromkeys(("acquireTime", "renewTime"), self._now())
        return await self._send(method, lease, **held, **times, leaseTransitions=transitions)

    async def _read(self) -> Lease | None:
        try:
            return DECODER.decode(await self._session.get(self._path, timeout=ASK_SECONDS))
        except NotFound:
            return None

    def _unchanged(self, version: str, seconds: float, now: float) -> bool:
        if version != self._version:
            self._version, self._since = version, now
        return now - self._since >= seconds

    def _now(self) -> str:
        return format_micro_time(self._session.now())

    async def _send(self, method: str, lease: Lease, **spec: object) -> Lease:
        """Writes the lease with this spec. A PUT has the version that was read: a write in between wins."""
        body = msgspec.json.encode({"apiVersion": LEASES.api_version, "kind": "Lease", **lease, "spec": spec})
        path = self._path if method == "PUT" else self._collection
        granted = DECODER.decode((await self._session.request(method, path, body=body, timeout=ASK_SECONDS)).body)
        # As a proxy's `{}`: every candidate would lead.
        if _spec(granted).get("holderIdentity") != spec.get("holderIdentity"):
            raise MalformedAnswer(f"{path}: the answer to a write is not the lease that was written")
        return granted


_TROUBLE = (KubeError, TimeoutError, msgspec.MsgspecError)


def _spec(lease: Lease) -> dict[str, Any]:
    return lease.get("spec") or {}


async def _ended(task: asyncio.Future[None]) -> None:
    """Cancels a task and waits until it has ended, even if the wait itself is cancelled."""
    task.cancel()
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError as error:
            cancelled = error
    if not task.cancelled() and (fault := task.exception()) is not None:
        _log.warning("leader_task_failed", error=repr(fault))
    if cancelled is not None:
        raise cancelled
