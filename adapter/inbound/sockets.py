"""Listening sockets that are not taken by surprise: a few new connections a turn of the event loop, the rest waits."""

import asyncio
import socket
from collections.abc import Callable

_BACKLOG = 512
_ACCEPTED = 8
"""Connections taken in one turn of the event loop."""


def listening_socket(address: str, port: int) -> socket.socket:
    """A socket that listens; an empty address means all. Raises OSError where it is taken."""
    if address in {"", "::"} and socket.has_dualstack_ipv6():
        return socket.create_server(("", port), family=socket.AF_INET6, backlog=_BACKLOG, dualstack_ipv6=True)
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    return socket.create_server((address, port), family=family, backlog=_BACKLOG)


async def start_server(listening: socket.socket, protocol: Callable[[], asyncio.BaseProtocol]) -> asyncio.Server:
    """Take connections from this socket, which the server closes with itself; cancelled meanwhile, this closes it."""
    loop = asyncio.get_running_loop()
    server = await loop.create_server(protocol, sock=listening, backlog=_ACCEPTED, start_serving=False)
    try:
        await server.start_serving()
    except BaseException:
        server.close()
        raise
    listening.listen(_BACKLOG)  # asyncio has one number for both, and would take 512 connections in one turn
    return server
