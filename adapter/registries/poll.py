"""Polls each service once in an interval: the source of registries without push, HTTP platforms, Polaris and Eureka."""

import asyncio
import hashlib
import math
import random
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Generic, NamedTuple, TypeVar

from adapter.registries.servers import Servers
from adapter.registries.source import Answer, ServiceKey
from adapter.settings.registries import PolledRegistry

TAG_SECONDS = 120.0
"""How long a tag is sent at most: a server or proxy may answer "not modified" about another service."""

Settings = TypeVar("Settings", bound=PolledRegistry)


class Polled(NamedTuple):
    """A whole answer and its tag (ETag, revision, digest), by which the next question may be answered "not modified".

    An empty tag: the next answer must be whole, too.
    """

    answer: Answer
    tag: str = ""


class PolledSource(ABC, Generic[Settings]):
    """A source that asks `read` about each service once in the settings' interval."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.servers = Servers(settings)

    def instances(self, key: ServiceKey) -> AsyncGenerator[Answer, None]:
        """The instance lists of a service. Raises SourceError."""
        ask = self.servers.ask
        return poll(self.settings.interval_seconds, lambda tag: ask(lambda server: self.read(server, key, tag)))

    async def close(self) -> None:
        """Close the connections."""
        await self.servers.close()

    @abstractmethod
    async def read(self, server: str, key: ServiceKey, tag: str) -> Polled | None:
        """One server's answer; None if the one with this tag still holds. An empty tag: a whole answer.

        Raises SourceError.
        """


async def poll(
    interval: float, ask: Callable[[str], Awaitable[Polled | None]], *, tag_seconds: float = TAG_SECONDS
) -> AsyncGenerator[Answer, None]:
    """Ask once in `interval` seconds, and yield the answer each time.

    `ask` gets the tag of the last whole answer, empty if the answer must be whole. It returns None if that one still
    holds, and raises SourceError.
    """
    loop = asyncio.get_running_loop()
    last, trusted_until = Polled(Answer(())), -math.inf
    # The second question comes at a random time, so that services that were followed together are not asked together.
    due = loop.time() - random.uniform(0, interval)  # noqa: S311
    while True:
        polled = await ask(last.tag if loop.time() < trusted_until else "")
        if polled is not None:
            last, trusted_until = polled, loop.time() + tag_seconds * random.uniform(0.75, 1)  # noqa: S311
        yield last.answer
        due = max(due + interval, loop.time())
        await asyncio.sleep(due - loop.time())


def digest(body: bytes) -> str:
    """A digest of an answer: unchanged lists, which most are, are not decoded again."""
    return hashlib.blake2b(body, digest_size=16).hexdigest()
