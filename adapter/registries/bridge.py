"""Lets a source of the first edition be followed by the protocol of `source.py`, until the last one is rewritten."""

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Iterable
from typing import Any

from adapter.load.roster import Instance
from adapter.registries.source import Answer, PartialAnswer, ServiceKey
from adapter.runtime.source_errors import SourceError


class Book:
    """What an old source writes into, in place of the old cache."""

    def __init__(self, registry: str) -> None:
        self.registry = registry
        self.clock = time.time
        self.queues: dict[ServiceKey, asyncio.Queue[Answer | SourceError]] = {}
        self._last: dict[ServiceKey, Answer] = {}

    @property
    def keys(self) -> frozenset[ServiceKey]:
        return frozenset(self.queues)

    def update(
        self, key: ServiceKey, instances: Iterable[Instance], *, protected: bool = False, partial: bool = False
    ) -> None:
        if partial:
            self.failed(PartialAnswer(PartialAnswer.summary), [key])
        elif key in self.queues:
            self._last[key] = Answer(tuple(instances), protected)
            self.queues[key].put_nowait(self._last[key])

    def confirm(self, keys: Iterable[ServiceKey] | None = None) -> None:
        for key in self.queues if keys is None else self.keys.intersection(keys):
            if key in self._last:
                self.queues[key].put_nowait(self._last[key])

    def failed(self, error: SourceError, keys: Iterable[ServiceKey] | None = None) -> None:
        for key in list(self.queues) if keys is None else self.keys.intersection(keys):
            self.queues[key].put_nowait(error)

    def forget(self, key: ServiceKey) -> None:
        del self.queues[key]
        self._last.pop(key, None)


class OldSource:
    """An old source, behind the new protocol."""

    def __init__(self, registry: str, make: Callable[[Any], Any]) -> None:
        self.book = Book(registry)
        self.source = make(self.book)
        self._task: asyncio.Task[None] | None = None

    @property
    def pushed(self) -> Any:
        return self.source.pushed

    async def instances(self, key: ServiceKey) -> AsyncGenerator[Answer, None]:
        queue = self.book.queues[key] = asyncio.Queue()
        self.source.refresh()
        self._task = self._task or asyncio.create_task(self.source.run())
        try:
            while True:
                answer = await queue.get()
                if isinstance(answer, SourceError):
                    raise answer
                yield answer
        finally:
            self.book.forget(key)
            self.source.refresh()

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
