"""Who goes next, and who goes first when there are too many: nobody's address may take more than its share."""

import asyncio
from collections import deque
from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

Member = TypeVar("Member")
Step = Callable[[], None]


class FairQueue:
    """Runs one step per turn of the event loop, addresses in rotation.

    Whatever unknown clients send, a known one waits for one step of theirs per turn, and a client for one step of each
    other address. Steps do not raise.
    """

    def __init__(self) -> None:
        self._steps: dict[str, deque[Step]] = {}
        self._loop = asyncio.get_running_loop()

    def put(self, address: str, step: Step) -> None:
        """Run this step in a later turn."""
        if not self._steps:
            self._loop.call_soon(self._turn)
        self._steps.setdefault(address, deque()).append(step)

    async def wait(self, address: str) -> None:
        """Return once it is this address's turn."""
        turn: asyncio.Future[None] = self._loop.create_future()

        def begin() -> None:
            if not turn.done():
                turn.set_result(None)

        self.put(address, begin)
        await turn

    def _turn(self) -> None:
        address = next(iter(self._steps))
        steps = self._steps.pop(address)
        step = steps.popleft()
        if steps:
            self._steps[address] = steps
        if self._steps:
            self._loop.call_soon(self._turn)
        step()


class Crowd(Generic[Member]):
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
