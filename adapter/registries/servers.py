"""HTTP with the servers of one registry: failover between them, polls of services, and statuses as source errors."""

import asyncio
import contextlib
import hashlib
import math
import random
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any, Generic, NamedTuple, TypeVar
from urllib.parse import quote

from yarl import URL

from adapter.load.roster import Roster
from adapter.registries.source import ServiceKey
from adapter.runtime.http import MIB, Client, Reply, secret
from adapter.runtime.source_errors import (
    NotAllowed,
    NotAuthenticated,
    SourceError,
    SourceFailing,
    SourceUnreachable,
    WrongAnswer,
)
from adapter.settings.registries import HttpAsked, PolledRegistry

T = TypeVar("T")
Settings = TypeVar("Settings", bound=PolledRegistry)

CONNECTIONS = 32
"""Requests to a polled registry at a time: so many services may hang until their timeout before others wait."""
TICK_SECONDS = 0.1
"""Requests begin together so often: a request alone costs three times as much as one of 25, as 500 services polled each
2 s are."""
TAG_SECONDS = 120.0
"""How long a tag is sent at most: a server or proxy may answer "not modified" about another service."""


class Servers:
    """The servers of one registry behind one client, which sends at most `at_once` requests at a time (0: any number).

    Requests wait for their turn without a deadline: a slow registry is polled less often, and does not fail. One server
    is current until it fails and another one answers. It stays current then, because servers differ for a moment: each
    switch may look like a change.
    """

    def __init__(self, settings: HttpAsked, *, at_once: int = CONNECTIONS) -> None:
        self.addresses = [address.rstrip("/") for address in settings.addresses]
        self.current = self.addresses[0]
        self._turns = asyncio.Semaphore(at_once) if at_once else contextlib.nullcontext()
        self.client = Client(
            settings.access,
            timeout=settings.timeout_seconds,
            max_bytes=settings.max_answer_mib * MIB,
            at_once=0,
            limit_name=f"maxAnswerMiB of registry {settings.name}",
        )

    async def ask(self, question: Callable[[str], Awaitable[T]]) -> T:
        """Ask the current server, then each other one once, while they fail or cannot be reached.

        Raises the SourceError of the last one with its address; after a refusal (password, rights) no other is asked.
        """
        first, place = self.current, self.addresses.index(self.current)
        asked = [*self.addresses[place:], *self.addresses[:place]]
        for server in asked:
            try:
                answer = await question(server)
            except SourceError as error:
                if server is asked[-1] or not isinstance(error, SourceUnreachable | SourceFailing):
                    raise error.with_context(server) from error
            else:
                if server != first == self.current:  # of concurrent questions the first one switches
                    self.current = server
                return answer
        raise AssertionError("a registry without servers")

    async def send(self, method: str, url: str | URL, **request: Any) -> Reply:
        """The answer of a server, of any status. Raises SourceUnreachable and AnswerTooLarge."""
        async with self._turns:
            return await self.client.send(method, url, **request)

    async def close(self) -> None:
        """Close the connections."""
        await self.client.close()


async def read_secret(file: str) -> str:
    """The password or key in a file; empty without one. Raises SourceUnreachable."""
    try:
        return await asyncio.to_thread(secret, file) if file else ""
    except (OSError, ValueError) as error:
        raise SourceUnreachable(f"credentials: cannot read {file}: {error}") from error


def refusal(reply: Reply) -> SourceError:
    """The error of a status that carries no list, with the beginning of the server's own text."""
    status, quoted = reply.status, " ".join(reply.body[:2000].decode("utf-8", errors="replace").split())[:200]
    text = f"HTTP {status}: {quoted}" if quoted else f"HTTP {status}"
    if 300 <= status < 400 and "Location" in reply.headers:
        text += f"; redirects are not followed, write the address that answers itself: {reply.headers['Location']}"
    elif status < 300:
        text += "; an answer with a document is expected"
    if status == 429 or status >= 500:
        kind: type[SourceError] = SourceFailing
    else:
        kind = {401: NotAuthenticated, 403: NotAllowed}.get(status, WrongAnswer)
    return kind(text, public=f"HTTP {status}: {kind.summary}")


def path_segment(service: str) -> str:
    """The name of a service as one segment of a path. Raises SourceError if it would be another path."""
    if service in {"", ".", ".."}:
        raise SourceError(f"{service!r} cannot be the name of a service; write it as it is called in the registry")
    return quote(service, safe="")


class Polled(NamedTuple):
    """A whole answer and its tag (ETag, revision, digest), by which the next question may be answered "not modified".

    An empty tag: the next answer must be whole, too.
    """

    answer: Roster
    tag: str = ""


class PolledSource(ABC, Generic[Settings]):
    """A source that asks `read` about each service once in the settings' interval."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.servers = Servers(settings)

    def instances(self, key: ServiceKey) -> AsyncGenerator[Roster, None]:
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
) -> AsyncGenerator[Roster, None]:
    """Ask once in `interval` seconds, and yield the answer each time.

    `ask` gets the tag of the last whole answer, empty if the answer must be whole. It returns None if that one still
    holds, and raises SourceError.
    """
    loop = asyncio.get_running_loop()
    last, trusted_until = Polled(Roster(())), -math.inf
    # The second question comes at a random time, so that services that were followed together are not asked together.
    due = loop.time() - random.uniform(0, interval)  # noqa: S311
    while True:
        polled = await ask(last.tag if loop.time() < trusted_until else "")
        if polled is not None:
            last, trusted_until = polled, loop.time() + tag_seconds * random.uniform(0.75, 1)  # noqa: S311
        yield last.answer
        due = max(due + interval, loop.time())
        await sleep_until(due)


async def sleep_until(due: float) -> None:
    """Sleep until the first tick that is not before this time (the loop's)."""
    await asyncio.sleep(math.ceil(due / TICK_SECONDS) * TICK_SECONDS - asyncio.get_running_loop().time())


def digest(body: bytes) -> str:
    """A digest of an answer: unchanged lists, which most are, are not decoded again."""
    return hashlib.blake2b(body, digest_size=16).hexdigest()
