"""Bounds concurrent work for others, so that one client's requests cannot delay another's."""

import asyncio
import contextlib
import time
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import AsyncIterator, Callable, Container, Iterator
from dataclasses import dataclass
from http import HTTPStatus

from adapter.apiserver.status import StatusError, unavailable

WAIT_SECONDS = 1.0
MOVING = 3
"""Times the budget that bytes which are being read may take."""


class FairGate:
    """Admits `total` holders at once and `per_flow` of one flow; of those that wait, flows with the fewest take turns.

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
        self._resting: set[str] = set()

    @contextlib.asynccontextmanager
    async def slot(self, flow: str, seconds: float) -> AsyncIterator[None]:
        """Hold a slot, after waiting `seconds` at most.

        Raises StatusError: 429 at once if too many of this flow wait, 503 if no slot was freed in time.
        """
        if self._admitted.total() < self._total and self._is_admissible(flow):
            self._admitted[flow] += 1
        else:
            queue = self._queues.setdefault(flow, deque())
            if len(queue) >= self._max_waiting:
                message = f"{len(queue)} requests of {flow} wait for {self._work} already; ask again later"
                raise StatusError(HTTPStatus.TOO_MANY_REQUESTS, message)
            slot: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            queue.append(slot)
            try:
                async with asyncio.timeout(seconds):
                    await slot
            except BaseException as error:
                if slot.done() and not slot.cancelled():
                    self._leave(flow)  # it was granted in the same moment
                elif slot in (queue := self._queues.get(flow, deque())):
                    queue.remove(slot)
                    if not queue:
                        del self._queues[flow]
                if isinstance(error, TimeoutError):
                    cause = f"answers that {flow} did not read" if flow in self._resting else f"other {self._work}"
                    raise unavailable(f"{cause} took all of {seconds:g} s") from None
                raise
        try:
            yield
        finally:
            self._leave(flow)

    def rest(self, flow: str, seconds: float) -> None:
        """Admit nothing more of this flow for so long; what asks meanwhile waits."""
        if flow not in self._resting:
            self._resting.add(flow)

            def rested() -> None:
                self._resting.discard(flow)
                self._admit()

            asyncio.get_running_loop().call_later(seconds, rested)

    def _is_admissible(self, flow: str) -> bool:
        return self._admitted[flow] < self._per_flow and flow not in self._resting

    def _leave(self, flow: str) -> None:
        self._admitted[flow] -= 1
        if not self._admitted[flow]:
            del self._admitted[flow]
        self._admit()

    def _admit(self) -> None:
        while self._admitted.total() < self._total:
            flow = min(filter(self._is_admissible, self._queues), key=self._admitted.__getitem__, default=None)
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


@dataclass(slots=True, eq=False)
class Hold:
    """What a request or an answer keeps in memory: bytes of a flow, some of which left last at `since`."""

    flow: str
    size: int
    abort: Callable[[], None]
    since: float


class ByteBudget:
    """Bounds what requests, or answers, keep in memory, in bytes. `now` is monotonic.

    Beyond it the flow with the most bytes that wait is aborted, the oldest of its largest first, until all fit in.
    Bytes wait from the last that left, and count in full after WAIT_SECONDS. Those that wait less than `patience` move:
    they are aborted only beyond MOVING times the total. Bytes of any size displace neither themselves nor flows with
    less than half as many. Flows that are `spared` are neither counted nor aborted. `aborted` is told the flow of each
    that was.
    """

    def __init__(
        self,
        total: int,
        spared: Container[str] = frozenset(),
        *,
        patience: float = 0.0,
        aborted: Callable[[str], None] = lambda _: None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._total = total
        self._spared = spared
        self._patience = patience
        self._aborted = aborted
        self._now = now
        self._bytes = 0
        self._holds: dict[Hold, None] = {}
        """The oldest first."""

    @contextlib.contextmanager
    def hold(self, flow: str, size: int, abort: Callable[[], None]) -> Iterator[Hold]:
        """Count these bytes during the context."""
        hold = Hold(flow, size, abort, self._now())
        if flow not in self._spared:
            self._holds[hold] = None
            self._bytes += size
            self._fit(hold)
        try:
            yield hold
        finally:
            self._release(hold)

    def moved(self, hold: Hold) -> None:
        """Some of these bytes have left: their wait begins now."""
        hold.since = self._now()

    def _fit(self, hold: Hold) -> None:
        now = self._now()
        while self._bytes > self._total:
            sizes = Counter[str]()
            for each in self._holds:
                sizes[each.flow] += each.size
            waiting: dict[Hold, float] = {}
            kept: defaultdict[str, float] = defaultdict(float)
            patience = self._patience if self._bytes <= MOVING * self._total else 0.0
            for each in self._holds:
                if each is not hold and now - each.since >= patience and 2 * sizes[each.flow] >= hold.size:
                    waiting[each] = each.size * min(now - each.since, WAIT_SECONDS)
                    kept[each.flow] += waiting[each]
            if not waiting:
                return
            victim = max(waiting, key=lambda each: (kept[each.flow], waiting[each]))
            self._release(victim)
            victim.abort()
            self._aborted(victim.flow)

    def _release(self, hold: Hold) -> None:
        if hold in self._holds:
            del self._holds[hold]
            self._bytes -= hold.size
