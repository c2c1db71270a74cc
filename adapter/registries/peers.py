"""Several servers of one registry: one is asked until it fails, then the next."""

import re
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from adapter.outbound import Client, OutboundError, Reply, TooLarge
from adapter.registries.errors import (
    NotAllowed,
    NotAuthenticated,
    RegistryError,
    RegistryFailing,
    RegistryUnreachable,
    WrongRegistryAnswer,
)

T = TypeVar("T")

_READ, _SHOWN = 2000, 200
_TIME = re.compile(
    r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d([.,]\d+)?)?( ?(Z|UTC|[+-]\d\d:?\d\d))?"  # ISO 8601
    r"|(\b[A-Z][a-z]{2},? )?(\d\d? [A-Z][a-z]{2} \d{4}|[A-Z][a-z]{2} +\d\d?)"  # e-mail and C, begun
    r" \d\d:\d\d:\d\d( [A-Z]{3,4})?( \d{4})?"
    r"|\b1\d{9}(\d{3})?\b"  # seconds or milliseconds since the epoch
)


class Peers:
    """The servers' base addresses. Sticky, because servers differ for a moment: switching looks like a change.

    `on_switch` is called after another server was chosen.
    """

    def __init__(self, servers: Sequence[str], on_switch: Callable[[], None]) -> None:
        self._servers = [server.rstrip("/") for server in servers]
        self._on_switch = on_switch
        self.current = self._servers[0]

    async def ask(self, question: Callable[[str], Awaitable[T]]) -> T:
        """Put the question to the current server; to each other one once, while they fail or cannot be reached.

        Raises the RegistryError of the last one asked; a refusal (password, rights) is not put to another server.
        """
        for _ in self._servers[1:]:
            asked = self.current
            try:
                return await question(asked)
            except (RegistryUnreachable, RegistryFailing):
                self._leave(asked)
        return await question(self.current)

    def _leave(self, server: str) -> None:
        # Questions run side by side: only the first that fails moves on.
        if server == self.current:
            self.current = self._servers[(self._servers.index(server) + 1) % len(self._servers)]
            self._on_switch()


async def send(client: Client, method: str, url: str, **more: object) -> Reply:
    """A reply of whatever status, with transport errors of this room. Raises RegistryError."""
    try:
        return await client.send(method, url, **more)  # type: ignore[arg-type]  # by name
    except TooLarge as error:
        raise WrongRegistryAnswer(f"{url}: {error}") from error
    except OutboundError as error:
        raise RegistryUnreachable(f"{url}: {error}") from error


def refusal(reply: Reply) -> RegistryError:
    """The error for a status that is no answer, with the registry's own words."""
    said = words(reply.body)
    text = f"HTTP {reply.status}: {said}" if said else f"HTTP {reply.status}"
    if 300 <= reply.status < 400 and "Location" in reply.headers:
        text += f"; redirects are not followed, write the address that answers itself: {reply.headers['Location']}"
    elif reply.status < 300:
        text += "; an answer with a document is expected"
    if reply.status == 401:
        return NotAuthenticated(text)
    if reply.status == 403:
        return NotAllowed(text)
    if reply.status == 429 or reply.status >= 500:
        return RegistryFailing(text)
    return WrongRegistryAnswer(text)


def words(body: bytes) -> str:
    """The beginning of a server's own words, without the times in them: the same error is the same sentence again."""
    text = body[:_READ].decode("utf-8", errors="replace")
    return " ".join(_TIME.sub("…", text).split())[:_SHOWN]
