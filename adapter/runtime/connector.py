"""An aiohttp connector that closes abandoned TLS connections at once."""

import asyncio
import contextlib
import re
import socket
from typing import Any
from weakref import WeakSet

import aiohttp

_TURNS = 10
"""Passes of the event loop in which a transport notices its closed socket and releases it."""
_TLS = re.compile(r" ssl:(<[^>]*>|\w+)")
"""The TLS part of aiohttp's errors: a flag, or the address of an object, which differs each time."""


def error_text(error: Exception) -> str:
    """The text of a connection's error, equal for equal errors; never empty."""
    return _TLS.sub("", str(error)) or type(error).__name__


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
        return [one for one in self._sockets if one.fileno() >= 0]
