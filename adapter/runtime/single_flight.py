"""One question at a time: callers who ask the same share one answer."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

K = TypeVar("K")
T = TypeVar("T")


class SingleFlight(Generic[K, T]):
    """Runs at most one flight per key; who asks meanwhile waits for it. A cancelled waiter never cancels the flight."""

    def __init__(self) -> None:
        self._flights: dict[K, asyncio.Task[T]] = {}

    async def join(self, key: K, start: Callable[[], Awaitable[T]]) -> T:
        """The answer of the flight under way for this key, or of a new one; its error is every waiter's error."""
        return await asyncio.shield(self.begin(key, start))

    def begin(self, key: K, start: Callable[[], Awaitable[T]]) -> asyncio.Task[T]:
        """The flight for this key, started if none is under way."""
        task = self._flights.get(key)
        if task is None:
            task = asyncio.ensure_future(_fly(start))
            self._flights[key] = task
            task.add_done_callback(lambda done: self._land(key, done))
        return task

    def _land(self, key: K, task: asyncio.Task[T]) -> None:
        self._flights.pop(key, None)
        if not task.cancelled():
            task.exception()  # marked as seen: its waiters may all have gone

    async def close(self) -> None:
        """Cancel what is under way and wait until it is over."""
        flights = list(self._flights.values())
        for task in flights:
            task.cancel()
        await asyncio.gather(*flights, return_exceptions=True)


async def _fly(start: Callable[[], Awaitable[T]]) -> T:
    return await start()
