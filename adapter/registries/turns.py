"""Many services, each asked about once in an interval: whose turn it is, and how long to wait until the next one's."""

import asyncio
from collections import deque
from collections.abc import Collection, Iterable, Sequence

from adapter.registries.roster import ServiceKey

STEPS = 4
"""Into so many parts an interval is divided, that the questions are spread over. Few: together they are cheaper."""
TOGETHER = 50
"""How many new services are asked about at a time."""


class Turns:
    """The services of one registry in turn; new ones come first. `interval` in seconds."""

    def __init__(self, interval: float) -> None:
        self._interval = interval
        self._all: deque[ServiceKey] = deque()
        self._new: list[ServiceKey] = []
        self._news = asyncio.Event()

    def change(self, added: Iterable[ServiceKey], kept: Collection[ServiceKey]) -> None:
        """From now on these are added, and of the others only those in `kept` are left."""
        self._all = deque(key for key in self._all if key in kept)
        self._new = [*(key for key in self._new if key in kept), *sorted(added)]
        self._news.set()

    def take(self) -> Sequence[ServiceKey]:
        """Whose turn it is: new services, else a share of all, so that each comes once in an interval."""
        self._news.clear()
        if self._new:
            keys, self._new = self._new[:TOGETHER], self._new[TOGETHER:]
            self._all.extend(keys)
            return keys
        share = -(-len(self._all) // STEPS)
        keys = [self._all[place] for place in range(share)]
        self._all.rotate(-share)
        return keys

    async def rest(self, began: float) -> None:
        """Wait for the next turn, counted from when the last one began (the loop's time), or for new services."""
        if self._new:
            return
        until = began + self._interval / min(len(self._all), STEPS) if self._all else None
        try:
            async with asyncio.timeout_at(until):
                await self._news.wait()
        except TimeoutError:
            return
