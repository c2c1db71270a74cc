"""Whom to plan for next: each policy once however often it was asked for, and by one worker at a time.

Whom something happened to comes before those that are looked at only because nobody did for a while.
"""

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from itertools import chain

from adapter.snapshot import Key


class WorkQueue:
    """Policies that wait, in the order of asking. Any number of workers `take` from it."""

    def __init__(self) -> None:
        self._due: dict[Key, None] = {}
        self._later: dict[Key, None] = {}
        self._taken: set[Key] = set()
        self._news = asyncio.Event()

    def add(self, keys: Iterable[Key], *, later: bool = False) -> None:
        """These want to be planned for, `later` than all others; whoever waits already keeps its place."""
        (self._later if later else self._due).update(dict.fromkeys(keys))
        self._news.set()

    def drop(self, key: Key) -> None:
        """Nobody is to plan for it any more."""
        self._due.pop(key, None)
        self._later.pop(key, None)

    @asynccontextmanager
    async def take(self) -> AsyncIterator[Key]:
        """The next policy, as soon as there is one; no other worker gets it while the context lasts."""
        key = await self._next()
        self._taken.add(key)
        try:
            yield key
        finally:
            self._taken.discard(key)
            if key in self._due or key in self._later:
                self._news.set()

    async def _next(self) -> Key:
        while True:
            key = next((key for key in chain(self._due, self._later) if key not in self._taken), None)
            if key is not None:
                self.drop(key)
                return key
            self._news.clear()
            await self._news.wait()
