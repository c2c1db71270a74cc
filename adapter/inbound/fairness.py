"""Fairness between client addresses: a work queue, and a pool that evicts."""

import asyncio
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

Member = TypeVar("Member")

_BURST_SECONDS = 0.0005
_REST_FACTOR = 2.0
"""After a burst the queue rests for this multiple of the time that its steps took."""


class FairQueue:
    """Runs one step per pass of the event loop, addresses in rotation, and leaves most of the loop's time to others.

    So a known client waits for at most one short step of the unknown ones, and an unknown client for one step of each
    other address. A step that raises is logged by the loop, and the queue goes on.
    """

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._steps: dict[str, deque[Callable[[], None]]] = {}
        self._loop = asyncio.get_running_loop()
        self._clock = clock
        self._spent = 0.0
        self._scheduled = False

    def put(self, address: str, step: Callable[[], None]) -> None:
        """Queue a step."""
        self._steps.setdefault(address, deque()).append(step)
        if not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self._turn)

    async def wait(self, address: str) -> None:
        """Return when it is this address's turn."""
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
        finally:  # the loop logs an error; the queue goes on
            self._spent += self._clock() - began
            self._go_on()

    def _go_on(self) -> None:
        if self._spent < _BURST_SECONDS:
            self._loop.call_soon(self._turn)
        else:
            self._loop.call_later(_REST_FACTOR * self._spent, self._turn)
            self._spent = 0.0

    def _run_one(self) -> None:
        address = next(iter(self._steps))
        steps = self._steps.pop(address)
        step = steps.popleft()
        if steps:
            self._steps[address] = steps
        step()


class EvictingPool(Generic[Member]):
    """A set of at most `limit` members; beyond it, the address with the most members loses its oldest.

    A member's address must not change.
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

    def add(self, member: Member, is_protected: Callable[[Member], bool] = lambda _: False) -> Member | None:
        """Add a member; returns the one to evict, if any: a protected one only if its address has no other.

        The evicted one stays a member until the caller discards it.
        """
        self._members.setdefault(self._address_of(member), {})[member] = None
        self._count += 1
        if self._count <= self._limit:
            return None
        largest = max(self._members.values(), key=len)
        candidates = [one for one in largest if one is not member] or [member]
        return next((one for one in candidates if not is_protected(one)), candidates[0])

    def refresh(self, member: Member) -> None:
        """Make the member the youngest of its address."""
        members = self._members.get(self._address_of(member), {})
        if member in members:
            del members[member]
            members[member] = None

    def discard(self, member: Member) -> None:
        """Remove the member, if present."""
        address = self._address_of(member)
        members = self._members.get(address, {})
        if member not in members:
            return
        del members[member]
        self._count -= 1
        if not members:
            del self._members[address]
