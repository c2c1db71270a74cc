"""HTTP with the servers of one registry: the client, failover between servers, and statuses as source errors."""

import contextlib
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any, TypeVar

from adapter.runtime.answer_budget import MIB, Limit
from adapter.runtime.outbound import AT_ONCE, Answer, Client, Reply
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
    """The servers' base addresses. Sticky, because servers differ for a moment: switching looks like a change.

    `on_switch` is called after another server was chosen.
    """

    def __init__(self, servers: Sequence[str], on_switch: Callable[[], None]) -> None:
        self._servers = [server.rstrip("/") for server in servers]
        self._on_switch = on_switch
        self.current = self._servers[0]

    async def ask(self, question: Callable[[str], Awaitable[T]]) -> T:
        """Put the question to the current server; to each other one once, while they fail or cannot be reached.

        Raises the SourceError of the last one asked; a refusal (password, rights) is not put to another server.
        """
        for _ in self._servers[1:]:
            asked = self.current
            try:
                return await question(asked)
            except (SourceUnreachable, SourceFailing):
                self._leave(asked)
        return await question(self.current)

    def _leave(self, server: str) -> None:
        # Questions run side by side: only the first that fails moves on.
        if server == self.current:
            self.current = self._servers[(self._servers.index(server) + 1) % len(self._servers)]
            self._on_switch()


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
async def answering(client: Client, method: str, url: str, **more: Any) -> AsyncIterator[Answer]:
    """An answer of whatever status, for as long as it is decoded, with transport errors of this room.

    Raises SourceError.
    """
    async with contextlib.AsyncExitStack() as reading:
        try:
            answer = await reading.enter_async_context(client.answer(method, url, **more))
        except SourceError as error:
            raise error.at(url) from error
        yield answer


async def send(client: Client, method: str, url: str, **more: Any) -> Reply:
    """As `answering`, for answers that are small, or of which only the headers count."""
    async with answering(client, method, url, **more) as answer:
        return answer.plain


def refusal(reply: Reply) -> SourceError:
    """The error for a status that is no answer, with the registry's own words."""
    said = words(reply.body)
    text = f"HTTP {reply.status}: {said}" if said else f"HTTP {reply.status}"
    if 300 <= reply.status < 400 and "Location" in reply.headers:
        text += f"; redirects are not followed, write the address that answers itself: {reply.headers['Location']}"
    elif reply.status < 300:
        text += "; an answer with a document is expected"
    kind = _kind(reply.status)
    return kind(text, public=f"HTTP {reply.status}: {kind.summary}")


def _kind(status: int) -> type[SourceError]:
    if status == 401:
        return NotAuthenticated
    if status == 403:
        return NotAllowed
    return SourceFailing if status == 429 or status >= 500 else WrongRegistryAnswer


def words(body: bytes) -> str:
    """The beginning of a server's own words, without the times in them: the same error is the same sentence again."""
    text = body[:_READ].decode("utf-8", errors="replace")
    return " ".join(_TIME.sub("…", text).split())[:_SHOWN]
