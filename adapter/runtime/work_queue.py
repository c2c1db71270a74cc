"""Queues of keys, each key once: for workers side by side, and with a least time between two pops of one key."""

import asyncio
import heapq
import itertools
import math
from collections.abc import Callable, Hashable, Iterable
from typing import Generic, TypeVar

from adapter.runtime.concurrency import wait_for_event

SPACING_SECONDS = 0.5
"""The least time between two evaluations of one policy."""

K = TypeVar("K", bound=Hashable)


class WorkQueue(Generic[K]):
    """Keys that wait, each once, in the order in which they were added. Any number of workers `get` from it.

    As in client-go, a key that a worker has got is given to no other one until it is `done`.
    """

    def __init__(self) -> None:
        self._changed: dict[K, None] = {}
        self._resynced: dict[K, None] = {}
        self._in_work: set[K] = set()
        self._added = asyncio.Event()

    def add(self, keys: Iterable[K], *, resync: bool = False) -> None:
        """Queues these keys, behind all others if for a `resync` only; one that waits already keeps its place."""
        queue = self._resynced if resync else self._changed
        for key in keys:
            queue.setdefault(key)
        self._added.set()

    def discard(self, key: K) -> None:
        """Takes the key out of the queue."""
        self._changed.pop(key, None)
        self._resynced.pop(key, None)

    async def get(self) -> K:
        """The next key, as soon as there is one. The worker has to call `done` with it."""
        while True:
            waiting = itertools.chain(self._changed, self._resynced)
            key = next((key for key in waiting if key not in self._in_work), None)
            if key is not None:
                self.discard(key)
                self._in_work.add(key)
                return key
            self._added.clear()
            await self._added.wait()

    def done(self, key: K) -> None:
        """The worker has finished with the key."""
        self._in_work.discard(key)
        if key in self._changed or key in self._resynced:
            self._added.set()


class DelayQueue(Generic[K]):
    """Hands out each key once when it is due, however often it was added since.

    `clock` returns monotonic seconds; `spacing` is the least number of seconds between two pops of one key.
    """

    def __init__(self, clock: Callable[[], float], spacing: float = SPACING_SECONDS) -> None:
        self._clock = clock
        self._spacing = spacing
        self._heap: list[tuple[float, int, K]] = []
        self._queued: dict[K, float] = {}
        """When each queued key is due. Any heap item with another time was replaced."""
        self._popped_at: dict[K, float] = {}
        self._order = itertools.count()
        self._changed = asyncio.Event()

    def add(self, key: K, after: float = 0.0) -> None:
        """Queue the key for `after` seconds from now, but not before the end of its spacing since the last pop.

        An earlier time that it is queued for already stays.
        """
        due_at = max(self._clock() + after, self._popped_at.get(key, -math.inf) + self._spacing)
        if due_at < self._queued.get(key, math.inf):
            self._queued[key] = due_at
            heapq.heappush(self._heap, (due_at, next(self._order), key))
            self._changed.set()

    @property
    def ready(self) -> bool:
        """Whether a key is due."""
        while self._heap and self._queued.get(self._heap[0][2]) != self._heap[0][0]:
            heapq.heappop(self._heap)
        return bool(self._heap) and self._heap[0][0] <= self._clock()

    def pop(self) -> K | None:
        """Remove and return the key that is due for longest; None if none is due yet."""
        if not self.ready:
            return None
        key = heapq.heappop(self._heap)[2]
        del self._queued[key]
        self._popped_at[key] = self._clock()
        return key

    def forget(self, key: K) -> None:
        """Drop the spacing of a deleted key."""
        self._popped_at.pop(key, None)

    async def wait(self) -> None:
        """Return once a key is due."""
        while not self.ready:
            self._changed.clear()
            delay = self._heap[0][0] - self._clock() if self._heap else None
            if not await wait_for_event(self._changed, delay):
                return
