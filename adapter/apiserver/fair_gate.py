"""Bounds concurrent work for others, so that one client's requests cannot delay another's."""

import asyncio
import contextlib
from collections import Counter, OrderedDict, deque
from collections.abc import AsyncIterator, Iterator

from adapter.apiserver.status import too_many, unavailable


class FairGate:
    """Admits `total` holders at once and `per_flow` of one flow; flows that wait take turns.

    A flow (as in API Priority and Fairness) is a user, a namespace or an address. At most `waiting` of a flow wait.
    `work` names in errors what it bounds.
    """

    def __init__(self, total: int, per_flow: int, waiting: int, *, work: str = "reviews") -> None:
        self._work = work
        self._total = total
        self._per_flow = per_flow
        self._max_waiting = waiting
        self._admitted: Counter[str] = Counter()
        self._queues: OrderedDict[str, deque[asyncio.Future[None]]] = OrderedDict()
        """Waiters by flow: first in, first out within a flow; the flow served last is at the end."""

    @contextlib.asynccontextmanager
    async def slot(self, flow: str, seconds: float) -> AsyncIterator[None]:
        """Hold a slot, after waiting `seconds` at most.

        Raises StatusError: 429 at once if too many of this flow wait, 503 if no slot was freed in time.
        """
        await self._enter(flow, seconds)
        try:
            yield
        finally:
            self._leave(flow)

    async def _enter(self, flow: str, seconds: float) -> None:
        if self._admitted[flow] < self._per_flow and self._admitted.total() < self._total:
            self._admitted[flow] += 1
            return
        queue = self._queues.setdefault(flow, deque())
        if len(queue) >= self._max_waiting:
            raise too_many(f"{len(queue)} requests of {flow} wait for {self._work} already; ask again later")
        slot: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        queue.append(slot)
        try:
            async with asyncio.timeout(seconds):
                await slot
        except BaseException as error:
            self._abandon(flow, slot)
            if isinstance(error, TimeoutError):
                raise unavailable(f"other {self._work} took all of {seconds:g} s") from None
            raise

    def _abandon(self, flow: str, slot: asyncio.Future[None]) -> None:
        """Leave the queue, or free the slot that was granted in the same moment."""
        if slot.done() and not slot.cancelled():
            self._leave(flow)
            return
        queue = self._queues.get(flow)
        if queue is not None and slot in queue:
            queue.remove(slot)
            if not queue:
                del self._queues[flow]

    def _leave(self, flow: str) -> None:
        self._admitted[flow] -= 1
        if not self._admitted[flow]:
            del self._admitted[flow]
        self._admit()

    def _admit(self) -> None:
        """Grant free slots to the waiting flows in turn."""
        while self._admitted.total() < self._total:
            flow = next((one for one in self._queues if self._admitted[one] < self._per_flow), None)
            if flow is None:
                return
            queue = self._queues[flow]
            slot = queue.popleft()
            if queue:
                self._queues.move_to_end(flow)
            else:
                del self._queues[flow]
            if not slot.done():
                self._admitted[flow] += 1
                slot.set_result(None)


class ByteBudget:
    """Bounds what requests and answers hold in memory: `total` bytes, and `per_flow` of one flow.

    What has at most `small` bytes is counted and never refused. Who is below the bound may pass it once, so that an
    answer of any size is written.
    """

    def __init__(self, total: int, per_flow: int, small: int) -> None:
        self._total = total
        self._per_flow = per_flow
        self._small = small
        self._held: Counter[str] = Counter()

    @contextlib.contextmanager
    def hold(self, flow: str, size: int) -> Iterator[None]:
        """Count these bytes during the context. Raises StatusError 503 if the flow, or all, hold too many already."""
        if size > self._small:
            for held, most in ((self._held[flow], self._per_flow), (self._held.total(), self._total)):
                if held >= most:
                    raise unavailable(f"requests and answers in progress take {held >> 20} MiB; ask again later")
        self._held[flow] += size
        try:
            yield
        finally:
            self._held[flow] -= size
            if not self._held[flow]:
                del self._held[flow]
