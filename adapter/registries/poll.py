"""Polls one service: the iterator of registries that have no push, HTTP platforms, Polaris and Eureka."""

import asyncio
import hashlib
import math
import random
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import NamedTuple

from adapter.registries.source import Answer

CONNECTIONS = 32
"""Requests to a polled registry at a time: so many services may hang until their timeout before others wait."""
TAG_SECONDS = 120.0
"""How long a tag is sent at most: a server or proxy may answer "not modified" about another service."""


class Polled(NamedTuple):
    """A whole answer and its tag (ETag, revision, digest), by which the next question may be answered "not modified".

    An empty tag: the next answer must be whole, too.
    """

    answer: Answer
    tag: str = ""


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


def digest(body: bytes) -> bytes:
    """A digest of an answer: unchanged lists, which most are, are not decoded again."""
    return hashlib.blake2b(body, digest_size=16).digest()
