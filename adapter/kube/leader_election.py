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

import msgspec
import structlog

from adapter.kube.api import LEASES
from adapter.kube.errors import Conflict, KubeError, MalformedAnswer, NotFound
from adapter.kube.objects import Lease, LeaseMeta, LeaseSpec
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

_log = structlog.get_logger(__name__)


_GONE = "gone"
"""The version of a lease that does not exist."""
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
        self._monotonic = session.clock.monotonic
        self._collection = LEASES.collection(namespace)
        self._path = LEASES.path(namespace, name)
        self._metadata = LeaseMeta(name=name, namespace=namespace)
        self._identity = identity
        self._duration = seconds
        self._held: Lease | None = None
        self._believed_until = 0.0
        self._version, self._since = "", 0.0
        """The last version of the lease, and when this process first saw it (monotonic seconds)."""
        self._log_once = LogOnce()

    @property
    def leads(self) -> bool:
        """Whether this process is the leader at this moment."""
        return self._held is not None and self._monotonic() < self._believed_until

    async def lead(self, work: Callable[[], Awaitable[None]]) -> None:
        """Runs `work` whenever this process leads, until cancelled; releases the lease at the end.

        `work` is cancelled when the lease is lost, and started again when it is won. It may end only after everything
        it began has ended: the next leader acts at once.
        """
        try:
            while True:
                while not await self._ask():  # noqa: ASYNC110  another process changes the lease
                    await asyncio.sleep(RETRY_SECONDS)
                _log.info("leader_elected", lease=self._metadata.name, identity=self._identity)
                working = asyncio.ensure_future(work())
                renewing = asyncio.create_task(self._renew_while_leading())
                try:
                    await asyncio.wait({working, renewing}, return_when=asyncio.FIRST_COMPLETED)
                    if working.done():
                        await working
                finally:
                    await _ended(working, renewing)
                _log.warning("leadership_lost", lease=self._metadata.name, identity=self._identity)
        finally:  # so that the next candidate leads at once
            self._held = None
            try:
                async with asyncio.timeout(ASK_SECONDS):
                    lease = await self._read()  # the last request may have been granted without an answer
                    if lease is not None and lease.spec.holder_identity == self._identity:
                        kept = lease.spec.lease_transitions
                        spec = LeaseSpec(
                            lease_duration_seconds=1,
                            renew_time=format_micro_time(self._session.now()),
                            lease_transitions=kept,
                        )
                        await self._send("PUT", self._path, msgspec.structs.replace(lease, spec=spec))
            except (KubeError, TimeoutError, msgspec.MsgspecError) as error:
                _log.warning("lease_release_failed", lease=self._metadata.name, error=str(error) or "no answer")

    async def _renew_while_leading(self) -> None:
        wait = RETRY_SECONDS
        while self.leads:
            await asyncio.sleep(wait)
            before = self._believed_until
            await self._ask()
            wait = RETRY_SECONDS if self._believed_until > before else AGAIN_SECONDS

    async def _ask(self) -> bool:
        """Takes or renews the lease where that is allowed; returns whether it is held. Errors are logged."""
        began = self._monotonic()
        try:
            async with asyncio.timeout(ASK_SECONDS):
                granted = await self._take(began)
        except (Conflict, NotFound):
            granted = self._held = None
        except (KubeError, TimeoutError, msgspec.MsgspecError) as error:
            if self._log_once.is_new(type(error).__name__):
                _log.warning("lease_request_failed", lease=self._metadata.name, error=str(error) or "no answer")
            return self.leads
        self._log_once.clear()
        if granted is not None:
            self._held, self._believed_until = granted, began + self._duration * BELIEVED_SECONDS / DURATION_SECONDS
        return granted is not None

    async def _take(self, began: float) -> Lease | None:
        """Renews the lease where it is held, else takes it where it is free. None where another process holds it."""
        if self._held is not None:
            spec = msgspec.structs.replace(self._held.spec, renew_time=format_micro_time(self._session.now()))
            try:
                return await self._send("PUT", self._path, msgspec.structs.replace(self._held, spec=spec))
            except Conflict:
                # The other writer need not have taken it: applying the manifests again changes it, too.
                self._held = None
        lease = await self._read()
        if lease is None:
            # It may have existed a moment ago, and its holder still acts.
            if not self._unchanged(_GONE, self._duration, began):
                return None
            method, path, lease, transitions = "POST", self._collection, Lease(metadata=self._metadata), 0
        else:
            ours = lease.spec.holder_identity == self._identity  # by a request without an answer
            over = max(lease.spec.lease_duration_seconds or 0, self._duration)
            stale = self._unchanged(lease.metadata.resource_version, over, began)
            if lease.spec.holder_identity and not ours and not stale:
                return None
            method, path, transitions = "PUT", self._path, (lease.spec.lease_transitions or 0) + (not ours)
        now = format_micro_time(self._session.now())
        claim = LeaseSpec(
            holder_identity=self._identity,
            lease_duration_seconds=self._duration,
            acquire_time=now,
            renew_time=now,
            lease_transitions=transitions,
        )
        return await self._send(method, path, msgspec.structs.replace(lease, spec=claim))

    async def _read(self) -> Lease | None:
        try:
            body = await self._session.get(self._path, timeout=ASK_SECONDS)
        except NotFound:
            return None
        return DECODER.decode(body)

    def _unchanged(self, version: str, seconds: float, now: float) -> bool:
        if version != self._version:
            self._version, self._since = version, now
        return now - self._since >= seconds

    async def _send(self, method: str, path: str, lease: Lease) -> Lease:
        # A PUT has the version that was read: a write in between wins.
        answer = await self._session.request(method, path, body=msgspec.json.encode(lease), timeout=ASK_SECONDS)
        granted = DECODER.decode(answer.body)
        if granted.spec.holder_identity != lease.spec.holder_identity:  # as a proxy's `{}`: every candidate would lead
            raise MalformedAnswer(f"{path}: the answer to a write is not the lease that was written")
        return granted


async def _ended(*tasks: asyncio.Future[None]) -> None:
    """Cancels these tasks and waits until they have ended, even if the wait itself is cancelled."""
    for task in tasks:
        task.cancel()
    cancelled: asyncio.CancelledError | None = None
    while any(not task.done() for task in tasks):
        try:
            await asyncio.wait(tasks)
        except asyncio.CancelledError as error:
            cancelled = error
    for task in tasks:
        if not task.cancelled() and (fault := task.exception()) is not None:
            _log.warning("leader_task_failed", error=repr(fault))
    if cancelled is not None:
        raise cancelled
