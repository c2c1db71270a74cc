"""De-duplicating delay queue of policies that wait for their evaluation, in the way of client-go's workqueue."""

import asyncio
import heapq
import math
from collections.abc import Callable

from adapter.snapshot import Key

SPACING_SECONDS = 0.5
"""The least time between two evaluations of one policy."""
EXPEDITED_SPACING_SECONDS = 0.05
"""The same for changes that must not wait; long enough to merge a burst into one evaluation."""


class DelayQueue:
    """Hands out each policy once, however often it was added since, and the one that is due first before all others.

    `clock` returns monotonic seconds; `spacing` is the least number of seconds between two pops of one policy.
    """

    def __init__(self, clock: Callable[[], float], spacing: float = SPACING_SECONDS) -> None:
        self._clock = clock
        self._spacing = spacing
        self._heap: list[tuple[float, int, Key]] = []
        self._due_at: dict[Key, float] = {}
        """When each queued policy is due. A heap item with another time was replaced by an earlier one."""
        self._popped_at: dict[Key, float] = {}
        self._added = 0
        self._changed = asyncio.Event()

    def add(self, key: Key, *, expedited: bool = False) -> None:
        """Queue the policy for now, or for the end of its spacing since the last pop."""
        self._add_at(key, self._clock(), EXPEDITED_SPACING_SECONDS if expedited else self._spacing)

    def add_after(self, key: Key, seconds: float) -> None:
        """Queue the policy for `seconds` from now; an earlier time that it is queued for already stays."""
        self._add_at(key, self._clock() + seconds, self._spacing)

    def add_if_idle(self, key: Key, seconds: float) -> None:
        """Queue the policy if its last pop is at least `seconds` ago."""
        if self._clock() - self._popped_at.get(key, -math.inf) >= seconds:
            self.add(key)

    def _add_at(self, key: Key, at: float, spacing: float) -> None:
        due_at = max(at, self._popped_at.get(key, 0.0) + spacing)
        if self._due_at.get(key, math.inf) <= due_at:
            return
        self._due_at[key] = due_at
        self._added += 1
        heapq.heappush(self._heap, (due_at, self._added, key))
        self._changed.set()

    @property
    def ready(self) -> bool:
        """Whether a policy is due."""
        while self._heap and self._due_at.get(self._heap[0][2]) != self._heap[0][0]:
            heapq.heappop(self._heap)
        return bool(self._heap) and self._heap[0][0] <= self._clock()

    def pop(self) -> Key | None:
        """Remove and return the policy that was due first; None if none is due yet."""
        if not self.ready:
            return None
        _, _, key = heapq.heappop(self._heap)
        del self._due_at[key]
        self._popped_at[key] = self._clock()
        return key

    def forget(self, key: Key) -> None:
        """Drop the spacing of a deleted policy."""
        self._popped_at.pop(key, None)

    async def wait(self) -> None:
        """Return once a policy is due."""
        while not self.ready:
            self._changed.clear()
            delay = self._heap[0][0] - self._clock() if self._heap else None
            try:
                # Not wait_for: before Python 3.12 it swallows a cancellation that coincides with the event.
                async with asyncio.timeout(delay):
                    await self._changed.wait()
            except TimeoutError:
                return
