"""Doing several things at a time, where the first error ends all of them and comes out as it is."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from typing import Any, TypeVar

AT_ONCE = 8
"""Questions to a registry under way at a time."""

T = TypeVar("T")


async def together(*work: Coroutine[Any, Any, None]) -> None:
    """Wait for all; the first error cancels the others, and is raised."""
    try:
        async with asyncio.TaskGroup() as group:
            for one in work:
                group.create_task(one)
    except ExceptionGroup as errors:
        raise errors.exceptions[0] from None


async def spread(items: Iterable[T], do: Callable[[T], Awaitable[None]]) -> None:
    """Do this for every item, `AT_ONCE` at a time; an error leaves the rest undone, and is raised."""
    left = iter(items)

    async def take_turns() -> None:
        for item in left:
            await do(item)

    await together(*(take_turns() for _ in range(AT_ONCE)))
