"""Raw connections and requests that no client library would make."""

import asyncio
import contextlib
import re
import ssl
from collections.abc import Awaitable, Iterable

import trustme

from tests.apiserver.conftest import Service
from tests.apiserver.metric_requests import POLICY

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]
PATIENCE = 30


async def opened(service: Service, leaf: trustme.LeafCert | None = None, *, source: str = "127.0.0.1") -> Streams:
    """A TLS connection to the API port."""
    return await connected(service.server.door.port, service.context(leaf), source=source)


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


METRIC = f"{POLICY}/effective_cpu"
_STATUS = re.compile(rb"HTTP/\d\.\d (\d{3}) [A-Za-z -]+\r\n")  # it follows the body before it without a break


def head(target: str, *fields: str, method: str = "GET", version: str = "HTTP/1.1") -> bytes:
    """A request head with exactly these fields."""
    return "\r\n".join([f"{method} {target} {version}", "Host: x", *fields, "", ""]).encode("latin-1")


def as_proxy(*fields: str, user: str = "bob") -> tuple[str, ...]:
    """The fields of a request that the front proxy sends for a user."""
    return (f"X-Remote-User: {user}", *fields)


async def exchanged(service: Service, leaf: trustme.LeafCert | None, sent: bytes) -> bytes:
    """All bytes received on a new connection until the server closes it or is silent for a while."""
    found = b""
    with contextlib.suppress(OSError, TimeoutError):  # the first is a handshake that failed, too
        reader, writer = await opened(service, leaf)
        try:
            writer.write(sent)
            async with asyncio.timeout(5):
                while piece := await reader.read(65536):
                    found += piece
        finally:
            writer.close()
    return found


async def statuses(service: Service, leaf: trustme.LeafCert | None, sent: bytes) -> list[int]:
    """The status codes of all answers on one connection, which the last request has to end."""
    return [int(code) for code in _STATUS.findall(await exchanged(service, leaf, sent))]


def reviewed(service: Service, kind: str = "resourceAttributes") -> Iterable[dict[str, str]]:
    """The attributes of all SubjectAccessReviews."""
    return [body["spec"][kind] for path, body in service.cluster.bodies if kind in body.get("spec", {})]
