"""Connections as an attacker makes them: raw, from any address of this machine, with and without TLS."""

import asyncio
import ssl
from collections.abc import Awaitable

import trustme

from tests.apiserver.conftest import Service

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]
PATIENCE = 30


async def opened(service: Service, leaf: trustme.LeafCert | None = None, *, source: str = "127.0.0.1") -> Streams:
    """A TLS connection to the API port."""
    return await connected(service.server.port, service.context(leaf), source=source)


async def connected(port: int, context: ssl.SSLContext | None = None, *, source: str = "127.0.0.1") -> Streams:
    """A connection from this address; plain without a context."""
    return await asyncio.open_connection(
        "127.0.0.1",
        port,
        ssl=context,
        local_addr=(source, 0),
        limit=1 << 20,
        ssl_shutdown_timeout=0.1 if context else None,
    )


async def within(awaitable: Awaitable[bytes]) -> bytes:
    """The awaited bytes within a time limit; empty if the connection was reset."""
    async with asyncio.timeout(PATIENCE):
        try:
            return await awaitable
        except ConnectionError:
            return b""


async def asked(wire: Streams, request: bytes) -> bytes:
    """The head of the answer; empty if the connection was closed instead."""
    reader, writer = wire
    writer.write(request)
    try:
        head = await within(reader.readuntil(b"\r\n\r\n"))
    except asyncio.IncompleteReadError:
        return b""
    length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r")[0] or 0)
    await within(reader.readexactly(length))
    return head


async def is_ended(wire: Streams) -> bool:
    """Waits until the other end closes the connection."""
    return await within(wire[0].read()) == b""


async def is_open(wire: Streams) -> bool:
    """Whether the other end keeps the connection for a tenth of a second, and sends nothing."""
    try:
        async with asyncio.timeout(0.1):
            await wire[0].read()
    except TimeoutError:
        return True
    return False


def drop(*wires: Streams) -> None:
    for _, writer in wires:
        writer.transport.abort()
