"""Concurrent coroutines whose first error cancels the others and is raised itself, not in an ExceptionGroup."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from typing import Any, TypeVar

AT_ONCE = 8
"""Items that `for_each` works on at a time."""

T = TypeVar("T")


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
