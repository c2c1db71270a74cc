"""HTTP with the servers of one registry: failover between them, and statuses as source errors."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar
from urllib.parse import quote

from adapter.runtime.http import AT_ONCE, MIB, Client, Reply, secret
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

_READ, _SHOWN = 2000, 200


class Servers:
    """The servers of one registry behind one client, which sends at most `at_once` requests at a time (0: any number).

    Requests wait for their turn without a deadline: a slow registry is polled less often, and does not fail. One server
    is current until it fails and another one answers. It stays current then, because servers differ for a moment: each
    switch may look like a change.
    """

    def __init__(self, settings: HttpAsked, *, at_once: int = AT_ONCE) -> None:
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

        Raises the SourceError of the last one; after a refusal (password, rights) no other server is asked.
        """
        first, place = self.current, self.addresses.index(self.current)
        *others, last = [*self.addresses[place:], *self.addresses[:place]]
        for server in others:
            with contextlib.suppress(SourceUnreachable, SourceFailing):
                return self._answered(first, server, await question(server))
        return self._answered(first, last, await question(last))

    def _answered(self, first: str, server: str, answer: T) -> T:
        if server != first == self.current:  # of concurrent questions the first one switches
            self.current = server
        return answer

    async def send(self, method: str, server: str, path: str, **request: Any) -> Reply:
        """The answer of a server, of any status. Raises SourceUnreachable and AnswerTooLarge with its address."""
        try:
            async with self._turns:
                return await self.client.send(method, server + path, **request)
        except SourceError as error:
            raise error.with_context(server) from error

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
    status, quoted = reply.status, server_text(reply.body)
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


def server_text(body: bytes) -> str:
    """The beginning of a server's own text, in one line."""
    return " ".join(body[:_READ].decode("utf-8", errors="replace").split())[:_SHOWN]


def path_segment(service: str) -> str:
    """The name of a service as one segment of a path. Raises SourceError if it would be another path."""
    if service in {"", ".", ".."}:
        raise SourceError(f"{service!r} cannot be the name of a service; write it as it is called in the registry")
    return quote(service, safe="")
