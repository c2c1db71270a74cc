"""Connections that end when they are told to."""

import asyncio
import contextlib
import re
import socket
from typing import Any
from weakref import WeakSet

import aiohttp

_TURNS = 10
"""Turns of the event loop in which a transport sees that its socket has ended, and lets go of it."""
_TLS = re.compile(r" ssl:(<[^>]*>|\w+)")
"""What aiohttp says of TLS in its errors: a flag, or the address of an object, which differs each time."""


def error_text(error: Exception) -> str:
    """What went wrong on a connection, in words that stay the same while that does; never empty."""
    return _TLS.sub("", str(error)) or type(error).__name__


class Connector(aiohttp.TCPConnector):
    """Connections to other servers, at most `limit` at a time (0: any number).

    `close` ends also those on which a question was given up: aiohttp closes such a one and forgets it, and in TLS that
    waits for the other side's goodbye, for half a minute where none comes.
    """

    def __init__(self, *, limit: int) -> None:
        self._sockets: WeakSet[socket.socket] = WeakSet()
        super().__init__(limit=limit, socket_factory=self._socket)

    def _socket(self, address: tuple[Any, ...]) -> socket.socket:
        made = socket.socket(*address[:3])
        self._sockets.add(made)
        return made

    async def close(self, *, abort_ssl: bool = False) -> None:
        """End all connections now."""
        await super().close(abort_ssl=abort_ssl)
        for left in self._open():
            with contextlib.suppress(OSError):
                left.shutdown(socket.SHUT_RDWR)
        for _ in range(_TURNS):
            if not self._open():
                return
            await asyncio.sleep(0)

    def _open(self) -> list[socket.socket]:
        return [one for one in self._sockets if one.fileno() >= 0]
