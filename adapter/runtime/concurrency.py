"""Coroutines on one event loop: waiting for an event, single flight, long work in slices."""

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, Callable, Coroutine, MutableMapping
from typing import Any, Generic, TypeVar

SLICE_SECONDS = 0.002
"""How long work may keep the event loop before it yields."""
PASSES = 3
"""Passes of the loop between two slices: a request is read in one, handled in the next and written in the third."""

T = TypeVar("T")
K = TypeVar("K")


async def wait_for_event(event: asyncio.Event, seconds: float | None) -> bool:
    """Waits until the event is set, for so many seconds at most (None: no limit); whether it was set in time."""
    # Not wait_for: before Python 3.12 it swallows a cancellation that coincides with the event.
    try:
        async with asyncio.timeout(seconds):
            return await event.wait()
    except TimeoutError:
        return False


async def one_ahead(fetch: Callable[[T | None], Coroutine[Any, Any, T | None]]) -> AsyncGenerator[T, None]:
    """What `fetch` returns for None, then for each item before, until it returns None; the next while one is used.

    Close it where it may not be used up: the fetch under way is cancelled then.
    """
    task = asyncio.create_task(fetch(None))
    try:
        while (item := await task) is not None:
            task = asyncio.create_task(fetch(item))
            yield item
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        del task  # an error's frames would hold it: only a full collection frees such a cycle


class SingleFlight(Generic[K, T]):
    """Runs at most one flight per key; later callers wait for it. A cancelled waiter does not cancel the flight.

    `cache` keeps results, and no errors; while it has a key's, nothing flies.
    """

    def __init__(self, cache: MutableMapping[K, T]) -> None:
        self._cache = cache
        self._flights: dict[K, asyncio.Task[T]] = {}

    async def join(self, key: K, start: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """The result of the flight under way for this key, or of a new one; every waiter gets its error."""
        with contextlib.suppress(KeyError):
            return self._cache[key]
        task = self._flights.get(key)
        if task is None:

            def land(done: asyncio.Task[T]) -> None:
                self._flights.pop(key, None)
                # Its exception is marked as retrieved: its waiters may all have been cancelled.
                if not done.cancelled() and done.exception() is None:
                    self._cache[key] = done.result()

            task = self._flights[key] = asyncio.create_task(start())
            task.add_done_callback(land)
        try:
            return await asyncio.shield(task)
        finally:
            del task  # an error's frames would hold it: only a full collection frees such a cycle


class Slices:
    """Yields the event loop once a slice is used up; call `breathe` between steps that are short themselves."""

    def __init__(self, seconds: float = SLICE_SECONDS) -> None:
        self._seconds = seconds
        self._until = time.perf_counter() + seconds

    async def breathe(self) -> None:
        """Yields the loop and begins the next slice where this one is over; the first begins with the object."""
        if time.perf_counter() >= self._until:
            await turn()
            self._until = time.perf_counter() + self._seconds


async def turn() -> None:
    """Lets the loop pass as often as it takes to answer a request."""
    for _ in range(PASSES):
        await asyncio.sleep(0)
