"""Whom to plan for next: each policy once however often it was asked for, and by one worker at a time."""

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager

from adapter.snapshot import Key


class Lane:
    """Policies that wait, in the order of asking. Any number of workers `take` from it."""

    def __init__(self) -> None:
        self._due: dict[Key, None] = {}
        self._taken: set[Key] = set()
        self._news = asyncio.Event()

    def add(self, keys: Iterable[Key]) -> None:
        """These want to be planned for; whoever waits already keeps its place."""
        self._due.update(dict.fromkeys(keys))
        self._news.set()

    @asynccontextmanager
    async def take(self) -> AsyncIterator[Key]:
        """The next policy, as soon as there is one; no other worker gets it while the context lasts."""
        key = await self._next()
        self._taken.add(key)
        try:
            yield key
        finally:
            self._taken.discard(key)
            self._news.set()

    async def _next(self) -> Key:
        while True:
            key = next((key for key in self._due if key not in self._taken), None)
            if key is not None:
                del self._due[key]
                return key
            self._news.clear()
            await self._news.wait()
