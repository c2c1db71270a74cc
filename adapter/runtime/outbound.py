"""HTTP to servers other than this cluster's API server: credentials from files, TLS, deadlines, limits."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Mapping
from typing import Any, NamedTuple
from weakref import WeakSet

import aiohttp
from yarl import URL

from adapter.runtime.answer_budget import ANSWERS, AnswerBudget, Body, Limit, discard_body, read_body
from adapter.runtime.http import (
    AT_ONCE,
    LARGEST_ANSWER,
    LARGEST_SECRET,
    UNREADABLE_CREDENTIALS,
    Access,
    Opened,
    Reply,
    credentials,
    error_text,
    open_access,
    secret,
    tls_context,
)
from adapter.runtime.source_errors import SourceUnreachable, connection_fault

__all__ = [
    "AT_ONCE",
    "LARGEST_ANSWER",
    "LARGEST_SECRET",
    "UNREADABLE_CREDENTIALS",
    "Access",
    "Client",
    "Connector",
    "Reply",
    "SegmentedReply",
    "credentials",
    "error_text",
    "secret",
    "tls_context",
]
"""Names from `http` among them, until the last caller of this module has moved there."""

_TURNS = 10
"""Passes of the event loop in which a transport notices its closed socket and releases it."""


class SegmentedReply(NamedTuple):
    """An answer with its body in segments."""

    status: int
    headers: Mapping[str, str]
    body: Body

    @property
    def plain(self) -> Reply:
        """The same in one piece, for small bodies and refusals."""
        return Reply(self.status, self.headers, self.body.whole())


class Client:
    """Sends requests with the credentials of one access. Must be made where an event loop runs.

    `timeout` is the default deadline of a request, in seconds; `at_once` limits the connections (0: any number),
    `limit` each answer. Large answers are read when `budget` has room for one of this `source`.
    """

    def __init__(
        self,
        access: Access,
        *,
        timeout: float,
        source: str = "",
        at_once: int = AT_ONCE,
        limit: Limit = Limit(LARGEST_ANSWER),  # noqa: B008  it cannot be changed
        budget: AnswerBudget = ANSWERS,
    ) -> None:
        self._access = access
        self._timeout = timeout
        self._source = source or f"client {id(self)}"
        self._limit = limit
        self._budget = budget
        self._opened: Opened | None = None
        self._http = aiohttp.ClientSession(
            connector=Connector(limit=at_once),
            cookie_jar=aiohttp.DummyCookieJar(),
            # What can always be unpacked: aiohttp would offer more where more packages are installed.
            headers={"Accept": "application/json", "Accept-Encoding": "gzip"},
        )

    @contextlib.asynccontextmanager
    async def answer(
        self,
        method: str,
        url: str | URL,
        *,
        deadline: float | None = None,
        headers: Mapping[str, str] | None = None,
        keep: bool = True,
        **content: Any,
    ) -> AsyncIterator[SegmentedReply]:
        """Send a request and read the whole answer, which the budget counts until this context ends.

        `content` goes to aiohttp as it is: `params`, `data`, `json`. `deadline` (seconds) covers all of it; redirects
        are not followed. Without `keep` the body is discarded, and empty. Raises SourceUnreachable and AnswerTooLarge.
        """
        seconds = deadline or self._timeout
        async with self._budget.reserve(self._source) as reservation:
            try:
                async with asyncio.timeout(seconds):
                    opened, secure = self._opened, str(url).startswith("https:")
                    if opened is None or opened.stamp or (secure and opened.tls is None):
                        self._opened = opened = await asyncio.to_thread(open_access, self._access, opened, secure)
                    content |= {"ssl": opened.tls or True, "headers": {**opened.headers, **(headers or {})}}
                    async with self._http.request(method, url, allow_redirects=False, **content) as response:
                        body = Body()
                        if keep:
                            body = await read_body(response, self._limit, reservation)
                        else:
                            await discard_body(response, self._limit)
            except TimeoutError as error:
                raise SourceUnreachable(reservation.late(seconds), public="timed out") from error
            except (aiohttp.ClientError, OSError, ValueError) as error:
                raise SourceUnreachable(error_text(error), public=connection_fault(error)) from error
            yield SegmentedReply(response.status, response.headers, body)

    async def send(self, method: str, url: str | URL, **request: Any) -> Reply:
        """As `answer`, for answers that are small."""
        async with self.answer(method, url, **request) as reply:
            return reply.plain

    async def close(self) -> None:
        """Close the connections."""
        await self._http.close()


class Connector(aiohttp.TCPConnector):
    """Connections to other servers, at most `limit` at a time (0: any number).

    `close` also ends connections of abandoned requests. aiohttp closes such a connection and forgets it, but TLS then
    waits half a minute for the close of the other side.
    """

    def __init__(self, *, limit: int) -> None:
        self._sockets: WeakSet[socket.socket] = WeakSet()
        super().__init__(limit=limit, socket_factory=self._socket)

    def _socket(self, address: tuple[Any, ...]) -> socket.socket:
        connection = socket.socket(*address[:3])
        self._sockets.add(connection)
        return connection

    async def close(self, *, abort_ssl: bool = False) -> None:
        """Closes all connections now."""
        await super().close(abort_ssl=abort_ssl)
        for open_socket in self._open():
            with contextlib.suppress(OSError):
                open_socket.shutdown(socket.SHUT_RDWR)
        for _ in range(_TURNS):
            if not self._open():
                return
            await asyncio.sleep(0)

    def _open(self) -> list[socket.socket]:
        return [each for each in self._sockets if each.fileno() >= 0]
