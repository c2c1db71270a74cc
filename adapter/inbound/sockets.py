"""Listening sockets that accept few connections per pass of the event loop; the rest wait in the backlog."""

import asyncio
import socket
from collections.abc import Callable

_BACKLOG = 512
_ACCEPTED = 8
"""Connections accepted in one pass of the event loop."""


def listening_socket(address: str, port: int) -> socket.socket:
    """A listening socket; an empty address means all interfaces. Raises OSError if the port is taken."""
    if address in {"", "::"} and socket.has_dualstack_ipv6():
        return socket.create_server(("", port), family=socket.AF_INET6, backlog=_BACKLOG, dualstack_ipv6=True)
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    return socket.create_server((address, port), family=family, backlog=_BACKLOG)


async def start_server(listening: socket.socket, protocol: Callable[[], asyncio.BaseProtocol]) -> asyncio.Server:
    """Accept connections from this socket; the server owns it, and a cancelled call closes it."""
    loop = asyncio.get_running_loop()
    server = await loop.create_server(protocol, sock=listening, backlog=_ACCEPTED, start_serving=False)
    try:
        await server.start_serving()
    except BaseException:
        server.close()
        raise
    listening.listen(_BACKLOG)  # asyncio uses `backlog` for both, and would accept 512 connections in one pass
    return server
