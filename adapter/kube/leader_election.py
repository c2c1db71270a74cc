"""Leader election on a Lease (coordination.k8s.io/v1), judged by this process's monotonic clock alone.

No two act at once, whatever the clocks of the machines say. Let a renewal be asked for at 0 s. Its holder begins
nothing after 5 s (BELIEVED_SECONDS from before it asked), and what it began ends by 7 s (a write takes 2 s at most).
Another one asks at most 2 s (ASK_SECONDS) before it is shown that renewal, so it dates its first look at -2 s at the
earliest, and takes the lease 10 s (DURATION_SECONDS) after that look: not before 8 s. What is left, 1 s, is for clocks
that do not run alike. A process that is frozen between its last look at the clock and its write is the exception; so
writes are fenced by what they replace, too.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import NamedTuple

import msgspec
import structlog

from adapter.kube.api import LEASES
from adapter.kube.errors import Conflict, KubeError, NotFound
from adapter.kube.session import Session
from adapter.runtime.decoding import Decoder
from adapter.runtime.log_once import LogOnce
from adapter.runtime.times import format_micro_time

DURATION_SECONDS = 10
"""A lease that was not renewed for so long may be taken."""
BELIEVED_SECONDS = 5.0
"""So long after it began to ask for the last renewal that was granted, a holder acts."""
RETRY_SECONDS = 2.0
AGAIN_SECONDS = 0.5
"""So long after a renewal that failed the next one is asked for: a single one that hangs must not end the leading."""
ASK_SECONDS = 2.0

_log = structlog.get_logger(__name__)


class _Spec(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    acquire_time: str | None = None
    renew_time: str | None = None
    lease_transitions: int | None = None


class _Metadata(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""


class _Lease(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    api_version: str = LEASES.api_version
    kind: str = "Lease"
    metadata: _Metadata = _Metadata()
    spec: _Spec = _Spec()


class _Seen(NamedTuple):
    """A version of the lease, and when it was first seen here (monotonic seconds)."""

    version: str
    since: float


_GONE = "gone"
"""Stands for the version of a lease that is not there."""
_DECODER = Decoder(_Lease)


class LeaderElector:
    """One candidate for one lease. `identity` names this process, and differs from that of every other one."""

    def __init__(self, session: Session, namespace: str, name: str, identity: str) -> None:
        self._session = session
        self._monotonic = session.clock.monotonic
        self._collection = LEASES.collection(namespace)
        self._path = LEASES.path(namespace, name)
        self._metadata = _Metadata(name=name, namespace=namespace)
        self._identity = identity
        self._held: _Lease | None = None
        self._believed_until = 0.0
        self._seen = _Seen("", 0.0)
        self._log_once = LogOnce()

    @property
    def leads(self) -> bool:
        """Whether this process may act at this moment."""
        return self._held is not None and self._monotonic() < self._believed_until

    async def lead(self, work: Callable[[], Awaitable[None]]) -> None:
        """Run `work` whenever this process leads, until cancelled; the lease is given back at the end.

        `work` is cancelled when the lease is lost, and run anew when it is won again. It has to end only once what it
        began has ended: the next one may act at once.
        """
        try:
            while True:
                await self._win()
                _log.info("leading", lease=self._metadata.name, identity=self._identity)
                await self._work_while_leading(work)
                _log.warning("no longer leading", lease=self._metadata.name, identity=self._identity)
        finally:
            await self._give_back()

    async def _win(self) -> None:
        while not await self._ask():  # noqa: ASYNC110  what is waited for happens elsewhere
            await asyncio.sleep(RETRY_SECONDS)

    async def _work_while_leading(self, work: Callable[[], Awaitable[None]]) -> None:
        working = asyncio.ensure_future(work())
        renewing = asyncio.create_task(self._renew_while_leading())
        try:
            await asyncio.wait({working, renewing}, return_when=asyncio.FIRST_COMPLETED)
            if working.done():
                await working
        finally:
            await _ended(working, renewing)

    async def _renew_while_leading(self) -> None:
        wait = RETRY_SECONDS
        while self.leads:
            await asyncio.sleep(wait)
            before = self._believed_until
            await self._ask()
            wait = RETRY_SECONDS if self._believed_until > before else AGAIN_SECONDS

    async def _ask(self) -> bool:
        """Take or renew the lease where that may be done; whether it is held. Failures are logged, and no answer."""
        began = self._monotonic()
        try:
            async with asyncio.timeout(ASK_SECONDS):
                granted = await (self._renew(began) if self._held else self._take(began))
        except (Conflict, NotFound):
            granted = self._held = None
        except (KubeError, TimeoutError, msgspec.MsgspecError) as error:
            if self._log_once.is_new(type(error).__name__):
                _log.warning(
                    "the lease cannot be asked for", lease=self._metadata.name, error=str(error) or "no answer"
                )
            return self.leads
        self._log_once.clear()
        if granted is not None:
            self._held, self._believed_until = granted, began + BELIEVED_SECONDS
        return granted is not None

    async def _renew(self, began: float) -> _Lease | None:
        assert self._held is not None
        spec = msgspec.structs.replace(self._held.spec, renew_time=self._now())
        try:
            return await self._put(msgspec.structs.replace(self._held, spec=spec))
        except Conflict:
            # Whoever changed it need not have taken it: applying the manifests again touches it, too.
            self._held = None
            return await self._take(began)

    async def _take(self, began: float) -> _Lease | None:
        found = await self._found()
        if found is None:
            # There may have been one a moment ago, in which its holder believes.
            if not self._unchanged(_GONE, DURATION_SECONDS, began):
                return None
            return await self._send("POST", self._collection, _Lease(metadata=self._metadata, spec=self._claim(0)))
        if not self._is_free(found, began):
            return None
        ours = found.spec.holder_identity == self._identity
        claim = self._claim((found.spec.lease_transitions or 0) + (not ours))
        return await self._put(msgspec.structs.replace(found, spec=claim))

    async def _found(self) -> _Lease | None:
        try:
            body = await self._session.get(self._path, timeout=ASK_SECONDS)
        except NotFound:
            return None
        return _DECODER.decode(body)

    def _is_free(self, lease: _Lease, now: float) -> bool:
        """Whether nobody holds it, or this process by a request that got no answer, or its holder let it go stale."""
        over = max(lease.spec.lease_duration_seconds or 0, DURATION_SECONDS)
        stale = self._unchanged(lease.metadata.resource_version, over, now)
        return not lease.spec.holder_identity or lease.spec.holder_identity == self._identity or stale

    def _unchanged(self, version: str, seconds: float, now: float) -> bool:
        """Whether this very version has been seen here for so long."""
        if version != self._seen.version:
            self._seen = _Seen(version, now)
        return now - self._seen.since >= seconds

    def _claim(self, transitions: int) -> _Spec:
        now = self._now()
        return _Spec(
            holder_identity=self._identity,
            lease_duration_seconds=DURATION_SECONDS,
            acquire_time=now,
            renew_time=now,
            lease_transitions=transitions,
        )

    async def _give_back(self) -> None:
        """Let the next one lead at once. What was asked for last may have been granted without an answer, so look."""
        self._held = None
        try:
            async with asyncio.timeout(ASK_SECONDS):
                found = await self._found()
                if found is not None and found.spec.holder_identity == self._identity:
                    await self._put(msgspec.structs.replace(found, spec=self._given_back(found)))
        except (KubeError, TimeoutError, msgspec.MsgspecError) as error:
            _log.warning("the lease cannot be given back", lease=self._metadata.name, error=str(error) or "no answer")

    def _given_back(self, lease: _Lease) -> _Spec:
        return _Spec(lease_duration_seconds=1, renew_time=self._now(), lease_transitions=lease.spec.lease_transitions)

    async def _put(self, lease: _Lease) -> _Lease:
        # With the version that was read: whoever wrote in between wins.
        return await self._send("PUT", self._path, lease)

    async def _send(self, method: str, path: str, lease: _Lease) -> _Lease:
        answer = await self._session.request(method, path, body=msgspec.json.encode(lease), timeout=ASK_SECONDS)
        return _DECODER.decode(answer.body)

    def _now(self) -> str:
        return format_micro_time(self._session.now())


async def _ended(*tasks: asyncio.Future[None]) -> None:
    """Cancel these, and wait until they have ended, even where that is to be cancelled too."""
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
            _log.warning("what leading had begun broke", error=repr(fault))
    if cancelled is not None:
        raise cancelled
