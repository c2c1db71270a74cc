"""Connections that know who is at the other end, and speak JSON even where a request cannot be read."""

import asyncio
import logging
import ssl
from collections.abc import Awaitable, Callable
from typing import Any

from aiohttp import web

from adapter.apiserver import status
from adapter.apiserver.trust import NOBODY, Peer, peer_of

_LONGEST_LINE = 64 * 1024  # selectors of a few thousand values, and users with hundreds of groups
_MOST_HEADERS = 2048
_LINGER_SECONDS = 1.0

Handle = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]
AuthorityOf = Callable[[ssl.SSLContext], str]


class Connection(web.RequestHandler):
    """One connection; `peer` is who the handshake showed, `busy` whether a request is being answered."""

    __slots__ = ("_authority_of", "busy", "line", "peer")

    def __init__(self, manager: web.Server, authority_of: AuthorityOf, **options: Any) -> None:
        super().__init__(manager, **options)
        self.peer: Peer = NOBODY
        self.busy = False
        self.line: asyncio.BaseTransport | None = None
        self._authority_of = authority_of

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Look at the peer once."""
        self.line = transport
        self.peer = peer_of(transport, self._authority_of)
        super().connection_made(transport)

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """A Status for what is no HTTP; the connection ends. The client's fault, so it is not logged."""
        if request.writer is not None and request.writer.output_size > 0:
            raise ConnectionError("part of an answer has gone out already") from exc
        return _refusal(status, message or str(exc or ""))


def _refusal(code: int, message: str) -> web.StreamResponse:
    error = status.bad_request(message) if code < 500 else status.internal(message)
    response = web.Response(body=status.body(error), status=int(error.code), content_type="application/json")
    response.force_close()
    return response


class Connections(web.Server):
    """Makes connections, and keeps those there are."""

    def __init__(self, handle: Handle, authority_of: AuthorityOf) -> None:
        super().__init__(_tracked(handle))
        self._authority_of = authority_of
        self._options: dict[str, Any] = {
            "access_log": None,
            "logger": _silent(),
            "max_line_size": _LONGEST_LINE,
            "max_field_size": _LONGEST_LINE,
            "max_headers": _MOST_HEADERS,
            "lingering_time": _LINGER_SECONDS,
        }

    def __call__(self) -> Connection:
        """A connection that is about to be made."""
        return Connection(self, self._authority_of, loop=asyncio.get_running_loop(), **self._options)

    def dismiss(self, is_welcome: Callable[[Peer], bool]) -> None:
        """Close the connections whose peer is welcome no more: idle ones now, others after their answer."""
        for connection in self.connections:
            if isinstance(connection, Connection) and not is_welcome(connection.peer):
                leave = connection.close if connection.busy else connection.force_close
                leave()

    async def finish(self, seconds: float) -> None:
        """Let what is under way end within so many seconds; then close every connection, whatever its client does."""
        lines = [connection.line for connection in self.connections if isinstance(connection, Connection)]
        self.pre_shutdown()
        await self.shutdown(seconds)
        for line in lines:
            if isinstance(line, asyncio.Transport):
                line.abort()  # closing in TLS would wait for the client to agree
        await asyncio.sleep(0)


def _tracked(handle: Handle) -> Handle:
    async def tracked(request: web.BaseRequest) -> web.StreamResponse:
        connection = request.protocol
        if not isinstance(connection, Connection):
            return await handle(request)
        connection.busy = True
        try:
            return await handle(request)
        finally:
            connection.busy = False

    return tracked


def _silent() -> logging.Logger:
    """What a client does wrong is its own affair; what we do wrong is logged by the handler."""
    logger = logging.getLogger(f"{__name__}.http")
    logger.setLevel(logging.CRITICAL + 1)
    return logger
