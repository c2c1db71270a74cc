"""Coroutines on one event loop: tasks whose first error ends all, single flight, long work in slices."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from typing import Any, Generic, TypeVar

AT_ONCE = 8
"""Items that `for_each` works on at a time."""
SLICE_SECONDS = 0.002
"""How long work may keep the event loop before it yields."""
PASSES = 3
"""Passes of the loop between two slices: a request is read in one, handled in the next and written in the third."""

T = TypeVar("T")
K = TypeVar("K")


async def run_all(*coroutines: Coroutine[Any, Any, None]) -> None:
    """Waits for all coroutines; the first error cancels the others and is raised itself, not in an ExceptionGroup."""
    try:
        async with asyncio.TaskGroup() as group:
            for coroutine in coroutines:
                group.create_task(coroutine)
    except ExceptionGroup as errors:
        raise errors.exceptions[0] from None


async def for_each(items: Iterable[T], action: Callable[[T], Awaitable[None]]) -> None:
    """Runs the action for every item, `AT_ONCE` at a time; an error is raised, and the remaining items are skipped."""
    remaining = iter(items)

    async def worker() -> None:
        for item in remaining:
            await action(item)

    await run_all(*(worker() for _ in range(AT_ONCE)))


async def wait_for_event(event: asyncio.Event, seconds: float | None) -> bool:
    """Waits until the event is set, for so many seconds at most (None: no limit); whether it was set in time."""
    # Not wait_for: before Python 3.12 it swallows a cancellation that coincides with the event.
    try:
        async with asyncio.timeout(seconds):
            return await event.wait()
    except TimeoutError:
        return False


class SingleFlight(Generic[K, T]):
    """Runs at most one flight per key; later callers wait for it. A cancelled waiter does not cancel the flight."""

    def __init__(self) -> None:
        self._flights: dict[K, asyncio.Task[T]] = {}

    async def join(self, key: K, start: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """The result of the flight under way for this key, or of a new one; every waiter gets its error."""
        task = self._flights.get(key)
        if task is None:

            def land(done: asyncio.Task[T]) -> None:
                self._flights.pop(key, None)
                if not done.cancelled():
                    done.exception()  # marked as retrieved: its waiters may all have been cancelled

            task = self._flights[key] = asyncio.create_task(start())
            task.add_done_callback(land)
        return await asyncio.shield(task)

    async def close(self) -> None:
        """Cancels the flights and waits until they have ended."""
        flights = list(self._flights.values())
        for task in flights:
            task.cancel()
        await asyncio.gather(*flights, return_exceptions=True)


class Slices:
    """Yields the event loop once a slice is used up; call `breathe` between steps that are short themselves."""

    def __init__(self, seconds: float = SLICE_SECONDS) -> None:
        self._seconds = seconds
        self._until = 0.0

    @property
    def is_over(self) -> bool:
        """Whether the current slice is used up; true before the first one."""
        return time.perf_counter() >= self._until

    async def breathe(self) -> None:
        """Yields the loop and begins the next slice where this one is over."""
        if self.is_over:
            await turn()
            self._until = time.perf_counter() + self._seconds


async def turn() -> None:
    """Lets the loop pass as often as it takes to answer a request."""
    for _ in range(PASSES):
        await asyncio.sleep(0)
