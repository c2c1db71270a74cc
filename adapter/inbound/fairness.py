"""Who goes next, and who goes first when there are too many: nobody's address may take more than its share."""

import asyncio
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

Member = TypeVar("Member")
Step = Callable[[], None]


_BURST_SECONDS = 0.0005
_REST = 2.0
"""How many times as long as the steps took the event loop is left to others."""


class FairQueue:
    """Runs one step per turn of the event loop, addresses in rotation, and leaves most of the loop's time to others.

    Whatever unknown clients send, a known one waits for one short step of theirs, and a client for one step of each
    other address. A step that raises costs nobody else a turn.
    """

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._steps: dict[str, deque[Step]] = {}
        self._loop = asyncio.get_running_loop()
        self._clock = clock
        self._spent = 0.0
        self._scheduled = False

    def put(self, address: str, step: Step) -> None:
        """Run this step in a later turn."""
        self._steps.setdefault(address, deque()).append(step)
        if not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self._turn)

    async def wait(self, address: str) -> None:
        """Return once it is this address's turn."""
        turn: asyncio.Future[None] = self._loop.create_future()

        def begin() -> None:
            if not turn.done():
                turn.set_result(None)

        self.put(address, begin)
        await turn

    def _turn(self) -> None:
        if not self._steps:
            self._scheduled = False
            return
        began = self._clock()
        try:
            self._run_one()
        finally:  # an error is for the log; the queue goes on
            self._spent += self._clock() - began
            self._go_on()

    def _go_on(self) -> None:
        if self._spent < _BURST_SECONDS:
            self._loop.call_soon(self._turn)
        else:
            self._loop.call_later(_REST * self._spent, self._turn)
            self._spent = 0.0

    def _run_one(self) -> None:
        address = next(iter(self._steps))
        steps = self._steps.pop(address)
        step = steps.popleft()
        if steps:
            self._steps[address] = steps
        step()


class EvictingPool(Generic[Member]):
    """At most `limit` members; one too many costs the address with the most of them its oldest.

    A member's address does not change.
    """

    def __init__(self, limit: int, address_of: Callable[[Member], str]) -> None:
        self._limit = limit
        self._address_of = address_of
        self._count = 0
        self._members: dict[str, dict[Member, None]] = {}

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Member]:
        return (member for members in self._members.values() for member in members)

    def __contains__(self, member: Member) -> bool:
        return member in self._members.get(self._address_of(member), ())

    def add(self, member: Member, spare: Callable[[Member], bool] = lambda _: False) -> Member | None:
        """Add a member; the one that has to go for it, if any: one that is to be spared only where all of them are.

        Who has to go is a member until it is discarded.
        """
        self._members.setdefault(self._address_of(member), {})[member] = None
        self._count += 1
        if self._count <= self._limit:
            return None
        largest = max(self._members.values(), key=len)
        candidates = [one for one in largest if one is not member] or [member]
        return next((one for one in candidates if not spare(one)), candidates[0])

    def refresh(self, member: Member) -> None:
        """Make the member its address's youngest."""
        members = self._members.get(self._address_of(member), {})
        if member in members:
            del members[member]
            members[member] = None

    def discard(self, member: Member) -> None:
        """Remove the member, if it is one."""
        address = self._address_of(member)
        members = self._members.get(address, {})
        if member not in members:
            return
        del members[member]
        self._count -= 1
        if not members:
            del self._members[address]
