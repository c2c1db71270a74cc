"""De-duplicating work queue of policies; those that changed take precedence over those that are only resynced."""

import asyncio
from collections.abc import Iterable
from itertools import chain

from adapter.snapshot import Key


class WorkQueue:
    """Policies that wait, each once, in the order in which they were added. Any number of workers `get` from it.

    As in client-go, a policy that a worker has got is given to no other one until it is `done`.
    """

    def __init__(self) -> None:
        self._changed: dict[Key, None] = {}
        self._resynced: dict[Key, None] = {}
        self._in_work: set[Key] = set()
        self._added = asyncio.Event()

    def add(self, keys: Iterable[Key], *, resync: bool = False) -> None:
        """Queues these policies, behind all others if for a `resync` only; one that waits already keeps its place."""
        (self._resynced if resync else self._changed).update(dict.fromkeys(keys))
        self._added.set()

    def discard(self, key: Key) -> None:
        """Takes the policy out of the queue."""
        self._changed.pop(key, None)
        self._resynced.pop(key, None)

    async def get(self) -> Key:
        """The next policy, as soon as there is one. The worker has to call `done` with it."""
        while True:
            key = next((key for key in chain(self._changed, self._resynced) if key not in self._in_work), None)
            if key is not None:
                self.discard(key)
                self._in_work.add(key)
                return key
            self._added.clear()
            await self._added.wait()

    def done(self, key: Key) -> None:
        """The worker has finished with the policy."""
        self._in_work.discard(key)
        if key in self._changed or key in self._resynced:
            self._added.set()
