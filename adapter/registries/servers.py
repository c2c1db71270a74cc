"""HTTP with the servers of one registry: failover between them, and statuses as source errors."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar
from urllib.parse import quote

from adapter.runtime.http import MIB, Client, Reply, secret
from adapter.runtime.source_errors import (
    NotAllowed,
    NotAuthenticated,
    SourceError,
    SourceFailing,
    SourceUnreachable,
    WrongRegistryAnswer,
)
from adapter.settings.registries import HttpAsked

T = TypeVar("T")

CONNECTIONS = 32
"""Requests to a polled registry at a time: so many services may hang until their timeout before others wait."""

_READ, _SHOWN = 2000, 200


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

    def in_turn(self) -> list[str]:
        """All servers, the current one first."""
        place = self.addresses.index(self.current)
        return [*self.addresses[place:], *self.addresses[:place]]

    async def ask(self, question: Callable[[str], Awaitable[T]]) -> T:
        """Ask the current server, then each other one once, while they fail or cannot be reached.

        Raises the SourceError of the last one with its address; after a refusal (password, rights) no other is asked.
        """
        first, asked = self.current, self.in_turn()
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

    async def send(self, method: str, server: str, path: str, **request: Any) -> Reply:
        """The answer of a server, of any status. Raises SourceUnreachable and AnswerTooLarge."""
        async with self._turns:
            return await self.client.send(method, server + path, **request)

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
    status, quoted = reply.status, " ".join(reply.body[:_READ].decode("utf-8", errors="replace").split())[:_SHOWN]
    text = f"HTTP {status}: {quoted}" if quoted else f"HTTP {status}"
    if 300 <= status < 400 and "Location" in reply.headers:
        text += f"; redirects are not followed, write the address that answers itself: {reply.headers['Location']}"
    elif status < 300:
        text += "; an answer with a document is expected"
    if status == 429 or status >= 500:
        kind: type[SourceError] = SourceFailing
    else:
        kind = {401: NotAuthenticated, 403: NotAllowed}.get(status, WrongRegistryAnswer)
    return kind(text, public=f"HTTP {status}: {kind.summary}")


def path_segment(service: str) -> str:
    """The name of a service as one segment of a path. Raises SourceError if it would be another path."""
    if service in {"", ".", ".."}:
        raise SourceError(f"{service!r} cannot be the name of a service; write it as it is called in the registry")
    return quote(service, safe="")
