"""A queue of keys, each key once: for workers side by side, and with a least time between two turns of one key."""

import asyncio
import itertools
import math
from collections.abc import Hashable, Iterable
from typing import Generic, TypeVar

SPACING_SECONDS = 0.5
"""The least time between two evaluations of one policy."""

K = TypeVar("K", bound=Hashable)


class WorkQueue(Generic[K]):
    """Keys that wait, each once, in the order in which they are due. Any number of workers `get` from it.

    As in client-go, a key that a worker has got is given to no other one until it is `done`. `spacing` is the least
    number of seconds between two turns of one key. Times are those of the event loop, which must be running.
    """

    def __init__(self, spacing: float = 0.0) -> None:
        self._loop, self._spacing = asyncio.get_running_loop(), spacing
        self._timers: dict[K, asyncio.TimerHandle] = {}
        self._due: dict[K, None] = {}
        self._resynced: dict[K, None] = {}
        self._in_work: set[K] = set()
        self._got_at: dict[K, float] = {}
        self._changed = asyncio.Event()

    def add(self, key: K, after: float = 0.0) -> None:
        """Queues the key for `after` seconds from now, but not before the end of its spacing since its last turn.

        An earlier time or place that it has already stays.
        """
        now, timer = self._loop.time(), self._timers.get(key)
        due_at = max(now + after, self._got_at.get(key, -math.inf) + self._spacing)
        if key in self._due or (timer is not None and timer.when() <= due_at):
            return
        if timer is not None:
            timer.cancel()
        if due_at > now:
            self._timers[key] = self._loop.call_at(due_at, self._ripen, key)
        else:
            self._ripen(key)

    def resync(self, keys: Iterable[K]) -> None:
        """Queues these keys behind all others."""
        self._resynced |= dict.fromkeys(keys)
        self._changed.set()

    def _ripen(self, key: K) -> None:
        self._timers.pop(key, None)
        self._due[key] = None
        self._changed.set()

    def discard(self, key: K) -> None:
        """Takes the key out of the queue."""
        if (timer := self._timers.pop(key, None)) is not None:
            timer.cancel()
        for waiting in (self._due, self._resynced, self._got_at):
            waiting.pop(key, None)

    @property
    def ready(self) -> bool:
        """Whether a key is due."""
        return self._next() is not None

    def _next(self) -> K | None:
        return next((key for key in itertools.chain(self._due, self._resynced) if key not in self._in_work), None)

    async def get(self) -> K:
        """The next key, as soon as one is due. The worker has to call `done` with it."""
        while (key := self._next()) is None:
            self._changed.clear()
            await self._changed.wait()
        self._due.pop(key, None)
        self._resynced.pop(key, None)
        self._in_work.add(key)
        if self._spacing:
            self._got_at[key] = self._loop.time()
        return key

    def done(self, key: K, *, spaced: bool = True) -> None:
        """The worker has finished with the key; its next turn may come at once where that is not to be `spaced`."""
        self._in_work.discard(key)
        if not spaced:
            self._got_at.pop(key, None)
        self._changed.set()
