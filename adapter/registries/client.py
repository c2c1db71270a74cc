"""HTTP with the servers of one registry: the client, failover between servers, and statuses as source errors."""

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any, TypeVar

from adapter.runtime.answer_budget import MIB, Limit
from adapter.runtime.outbound import AT_ONCE, Client, Reply, SegmentedReply, secret
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
_TIME = re.compile(
    r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d([.,]\d+)?)?( ?(Z|UTC|[+-]\d\d:?\d\d))?"  # ISO 8601
    r"|(\b[A-Z][a-z]{2},? )?(\d\d? [A-Z][a-z]{2} \d{4}|[A-Z][a-z]{2} +\d\d?)"  # e-mail and C, begun
    r" \d\d:\d\d:\d\d( [A-Z]{3,4})?( \d{4})?"
    r"|\b1\d{9}(\d{3})?\b"  # seconds or milliseconds since the epoch
)


class Failover:
    """The base addresses of a registry's servers, of which one is current until another answers what it fails to.

    Sticky, because servers differ for a moment: a switch looks like a change.
    """

    def __init__(self, servers: Sequence[str]) -> None:
        self._servers = servers
        self.current = self._servers[0]

    async def ask(self, question: Callable[[str], Awaitable[T]]) -> T:
        """Ask the current server, then each other one once while they fail or cannot be reached.

        Raises the SourceError of the last one; after a refusal (password, rights) no other server is asked.
        """
        first = self.current
        place = self._servers.index(first)
        *others, last = [*self._servers[place:], *self._servers[:place]]
        for server in others:
            with contextlib.suppress(SourceUnreachable, SourceFailing):
                return self._answered(first, server, await question(server))
        return self._answered(first, last, await question(last))

    def _answered(self, first: str, server: str, answer: T) -> T:
        if server != first == self.current:  # questions run concurrently: only the first switches
            self.current = server
        return answer


def base_urls(servers: Sequence[str]) -> list[str]:
    """The addresses of the settings without a slash at the end."""
    return [server.rstrip("/") for server in servers]


def registry_client(settings: HttpAsked, *, at_once: int = AT_ONCE) -> Client:
    """The HTTP client of a registry, with at most `at_once` connections (0: any number)."""
    return Client(
        settings.access,
        timeout=settings.timeout_seconds,
        at_once=at_once,
        source=source_name(settings),
        limit=limit_of(settings),
    )


def source_name(settings: HttpAsked) -> str:
    """The registry's name in the budget of answers."""
    return f"registry/{settings.name}"


def limit_of(settings: HttpAsked) -> Limit:
    """The limit of a registry's answers."""
    return Limit(settings.max_answer_mib * MIB, f"maxAnswerMiB of registry {settings.name}")


@contextlib.asynccontextmanager
async def answering(client: Client, method: str, url: str, **request: Any) -> AsyncIterator[SegmentedReply]:
    """An answer of any status, held in memory until the context ends. Raises SourceError with the URL."""
    async with contextlib.AsyncExitStack() as reading:
        try:
            answer = await reading.enter_async_context(client.answer(method, url, **request))
        except SourceError as error:
            raise error.with_context(url) from error
        yield answer


async def send(client: Client, method: str, url: str, **request: Any) -> Reply:
    """As `answering`, for answers that are small, or of which only the headers matter."""
    async with answering(client, method, url, **request) as answer:
        return answer.plain


async def read_secret(file: str) -> str:
    """The password or key in a file; empty without one. Raises SourceUnreachable."""
    try:
        return await asyncio.to_thread(secret, file) if file else ""
    except (OSError, ValueError) as error:
        raise SourceUnreachable(f"credentials: cannot read {file}: {error}") from error


def refusal(reply: Reply) -> SourceError:
    """The error for a status that carries no answer, with the beginning of the registry's own text."""
    quoted = server_text(reply.body)
    text = f"HTTP {reply.status}: {quoted}" if quoted else f"HTTP {reply.status}"
    if 300 <= reply.status < 400 and "Location" in reply.headers:
        text += f"; redirects are not followed, write the address that answers itself: {reply.headers['Location']}"
    elif reply.status < 300:
        text += "; an answer with a document is expected"
    if reply.status == 429 or reply.status >= 500:
        kind: type[SourceError] = SourceFailing
    else:
        kind = {401: NotAuthenticated, 403: NotAllowed}.get(reply.status, WrongRegistryAnswer)
    return kind(text, public=f"HTTP {reply.status}: {kind.summary}")


def server_text(body: bytes) -> str:
    """The beginning of a server's own text. Times are cut out, so that a repeated error is the same sentence."""
    text = body[:_READ].decode("utf-8", errors="replace")
    return " ".join(_TIME.sub("…", text).split())[:_SHOWN]
