"""Concurrent coroutines whose first error cancels the others and is raised itself, not in an ExceptionGroup."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from typing import Any, Generic, TypeVar

AT_ONCE = 8
"""Items that `for_each` works on at a time."""

T = TypeVar("T")

K = TypeVar("K")


async def run_all(*coroutines: Coroutine[Any, Any, None]) -> None:
    """Waits for all coroutines; the first error cancels the others and is raised."""
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


class SingleFlight(Generic[K, T]):
    """Runs at most one flight per key; later callers wait for it. A cancelled waiter does not cancel the flight."""

    def __init__(self) -> None:
        self._flights: dict[K, asyncio.Task[T]] = {}

    async def join(self, key: K, start: Callable[[], Awaitable[T]]) -> T:
        """The result of the flight under way for this key, or of a new one; every waiter gets its error."""
        return await asyncio.shield(self.begin(key, start))

    def begin(self, key: K, start: Callable[[], Awaitable[T]]) -> asyncio.Task[T]:
        """The flight for this key, started if none is under way."""
        task = self._flights.get(key)
        if task is None:

            def land(done: asyncio.Task[T]) -> None:
                self._flights.pop(key, None)
                if not done.cancelled():
                    done.exception()  # marked as retrieved: its waiters may all have been cancelled

            task = self._flights[key] = asyncio.ensure_future(start())
            task.add_done_callback(land)
        return task

    async def close(self) -> None:
        """Cancels the flights and waits until they have ended."""
        flights = list(self._flights.values())
        for task in flights:
            task.cancel()
        await asyncio.gather(*flights, return_exceptions=True)
