"""Policies that a change has touched, each assessed at most once in half a second, or sooner where a pod went."""

import asyncio
import heapq
import math
from collections.abc import Callable

from adapter.snapshot import Key

SPACING_SECONDS = 0.5
EXPEDITED_SPACING_SECONDS = 0.05
"""Distance from the last assessment for what must not wait; it still makes one of many at once."""


class DelayQueue:
    """A queue of marked policies. A mark while one is pending is the same mark; due ones come oldest first.

    `clock` is monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float], spacing: float = SPACING_SECONDS) -> None:
        self._clock = clock
        self._spacing = spacing
        self._heap: list[tuple[float, int, Key]] = []
        self._pending: dict[Key, float] = {}
        """When each marked policy is due. What else the heap holds was overtaken by an earlier entry."""
        self._taken: dict[Key, float] = {}
        self._count = 0
        self._marked = asyncio.Event()

    def mark(self, key: Key, *, soon: bool = False, after: float = 0.0) -> None:
        """Have the policy assessed `after` so many seconds, but no sooner than half a second after its last assessment.

        `soon`: a twentieth after it.
        """
        due = max(
            self._clock() + after, self._taken.get(key, 0.0) + (EXPEDITED_SPACING_SECONDS if soon else self._spacing)
        )
        if self._pending.get(key, math.inf) <= due:
            return
        self._pending[key] = due
        self._count += 1
        heapq.heappush(self._heap, (due, self._count, key))
        self._marked.set()

    def mark_old(self, key: Key, seconds: float) -> None:
        """Have the policy assessed if its last assessment is older than that."""
        if self._clock() - self._taken.get(key, -math.inf) >= seconds:
            self.mark(key)

    @property
    def due(self) -> bool:
        """Whether some policy is due."""
        while self._heap and self._pending.get(self._heap[0][2]) != self._heap[0][0]:
            heapq.heappop(self._heap)
        return bool(self._heap) and self._heap[0][0] <= self._clock()

    def take(self) -> Key | None:
        """The next policy that is due, None where none is."""
        if not self.due:
            return None
        _, _, key = heapq.heappop(self._heap)
        del self._pending[key]
        self._taken[key] = self._clock()
        return key

    def forget(self, key: Key) -> None:
        """Drop what is known of a policy that no longer exists."""
        self._taken.pop(key, None)

    async def wait(self) -> None:
        """Return once some policy is due."""
        while not self.due:
            self._marked.clear()
            delay = self._heap[0][0] - self._clock() if self._heap else None
            try:
                # Not wait_for: before Python 3.12 it swallows a cancellation that comes together with the event.
                async with asyncio.timeout(delay):
                    await self._marked.wait()
            except TimeoutError:
                return
