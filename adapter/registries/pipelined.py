"""Many small questions to one server over one connection: written together, answered in order (HTTP/1.1 pipelining).

For polling hundreds of services every second or two. A request through a full HTTP client costs some ten times as much
as one of these, and most answers are "not modified".
"""

import asyncio
import re
from collections.abc import Callable, Sequence
from typing import NamedTuple
from urllib.parse import SplitResult, urlsplit

from adapter.outbound import Access, credentials, tls_context
from adapter.registries.errors import RegistryUnreachable, WrongRegistryAnswer

LARGEST_HEAD = 64 * 1024
LARGEST_BODY = 32 * 1024 * 1024
"""Bytes."""

_END = b"\r\n"
_END_OF_HEAD = b"\r\n\r\n"
_BODILESS = {204, 304}
_CHUNK_LENGTH = re.compile(rb"([0-9a-fA-F]{1,16})[ \t]*(?:;|$)")


class Request(NamedTuple):
    """A question: `target` is what follows the server's address, path and query."""

    method: str
    target: str
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes = b""


class RawReply(NamedTuple):
    """An answer of whatever status; `head` is its status line and headers."""

    status: int
    head: bytes
    body: bytes

    def header(self, name: bytes) -> bytes | None:
        """A header's value; None where it is not there. `name` in lower case."""
        at = self.head.lower().find(b"\r\n%b:" % name)
        if at < 0:
            return None
        begin = at + len(name) + 3
        end = self.head.find(_END, begin)
        return self.head[begin : end if end >= 0 else None].strip()


class Pipeline:
    """One connection to one server, made when it is needed and kept.

    `timeout` (seconds) is for all that is asked together. `on_loss` hears of a connection that was lost without the
    server's announcing it, as when it was killed, even where it can be made anew at once.
    """

    def __init__(self, server: str, access: Access, *, timeout: float, on_loss: Callable[[], None]) -> None:
        self._server = server
        self._url = urlsplit(server)
        self._access = access
        self._timeout = timeout
        self._on_loss = on_loss
        self._connection: _Connection | None = None

    async def ask(self, requests: Sequence[Request]) -> list[RawReply]:
        """The answers, in the order of the requests. These may only read: lost ones are put again.

        Raises RegistryUnreachable and WrongRegistryAnswer; what else ends it (cancellation) ends the connection too.
        """
        try:
            async with asyncio.timeout(self._timeout):
                head = await self._head()
                return await self._ask([_written(request, head, self._url.path) for request in requests])
        except TimeoutError as error:
            self.close()
            raise RegistryUnreachable(f"{self._server}: no answer within {self._timeout:g} s") from error
        except (OSError, UnicodeError) as error:  # Unicode: of a credential that fits in no header
            self.close()
            raise RegistryUnreachable(f"{self._server}: {error}") from error
        except BaseException:
            self.close()  # the next question would get the answers to this one
            raise

    async def _head(self) -> str:
        """The lines that all requests share. Files with credentials are read each time: they are replaced."""
        try:
            known = await asyncio.to_thread(credentials, self._access)
        except (OSError, UnicodeError) as error:
            where = getattr(error, "filename", None) or ""
            raise RegistryUnreachable(f"credentials: cannot use {where}: {error}") from error
        lines = {"Host": self._url.netloc.rpartition("@")[2], "Accept": "application/json", **known}
        return "".join(f"{name}: {value}\r\n" for name, value in lines.items())

    async def _ask(self, requests: Sequence[bytes]) -> list[RawReply]:
        replies: list[RawReply] = []
        while len(replies) < len(requests):
            connection, fresh = self._connection, False
            if connection is None or connection.closed:
                connection, fresh = await self._connect(), True
            part = await connection.exchange(requests[len(replies) :])
            if fresh and not part:
                raise ConnectionResetError("the connection was closed without an answer")
            if connection.lost:
                self._on_loss()
            replies += part
        return replies

    async def _connect(self) -> "_Connection":
        if self._connection is not None and self._connection.lost_at_rest:
            self._on_loss()
        self._connection = None
        tls = await asyncio.to_thread(tls_context, self._access) if self._url.scheme == "https" else None
        _, connection = await asyncio.get_running_loop().create_connection(
            _Connection, self._url.hostname or "", port_of(self._url), ssl=tls
        )
        self._connection = connection
        return connection

    def close(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None


class _Connection(asyncio.Protocol):
    """The bytes of one connection: requests out, answers in."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._buffer = bytearray()
        self._replies: list[RawReply] = []
        self._wanted = 0
        self._told: asyncio.Future[None] | None = None
        self._announced = False
        self.closed = False

    @property
    def lost(self) -> bool:
        """Whether it ended without the server's announcing it."""
        return self.closed and not self._announced

    @property
    def lost_at_rest(self) -> bool:
        """Whether it was lost while nothing was asked."""
        return self.lost and self._told is None

    async def exchange(self, requests: Sequence[bytes]) -> list[RawReply]:
        """The answers to these requests: fewer where the connection ends before. Raises WrongRegistryAnswer."""
        assert self._transport is not None
        self._replies, self._wanted = [], len(requests)
        self._told = asyncio.get_running_loop().create_future()
        self._transport.write(b"".join(requests))
        await self._told
        if not self.closed:
            self._told = None
        return self._replies

    def close(self) -> None:
        """End it, without waiting for anything."""
        self.closed = self._announced = True
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """It is open."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """Read as many answers as there are."""
        self._buffer += data
        at = 0
        try:
            while (found := _reply(self._buffer, at)) is not None:
                reply, at = found
                self._take(reply)
                if self.closed:
                    return
        except WrongRegistryAnswer as error:
            self.close()
            self._tell(error)
            return
        del self._buffer[:at]
        if len(self._replies) >= self._wanted:
            self._tell()

    def connection_lost(self, exc: Exception | None) -> None:
        """It is gone, by whatever cause: who asks sees how many answers there are."""
        del exc
        self.closed = True
        self._tell()

    def _take(self, reply: RawReply) -> None:
        self._replies.append(reply)
        if (reply.header(b"connection") or b"").lower() == b"close":
            self.close()
            self._tell()

    def _tell(self, error: Exception | None = None) -> None:
        if self._told is None or self._told.done():
            return
        if error is not None:
            self._told.set_exception(error)
        else:
            self._told.set_result(None)


def _written(request: Request, head: str, prefix: str) -> bytes:
    own = "".join(f"{name}: {value}\r\n" for name, value in request.headers)
    length = f"Content-Length: {len(request.body)}\r\n" if request.body else ""
    path = f"{prefix}{request.target}"
    first = f"{request.method} {path if path.startswith('/') else f'/{path}'} HTTP/1.1\r\n"
    return f"{first}{head}{own}{length}\r\n".encode("latin-1") + request.body


def port_of(url: SplitResult) -> int:
    """The port of an http or https address."""
    return url.port or (443 if url.scheme == "https" else 80)


def _reply(data: bytearray, at: int) -> tuple[RawReply, int] | None:
    """The answer that begins there, and where the next one begins; None where it is not all there yet."""
    end = data.find(_END_OF_HEAD, at)
    if end < 0:
        if len(data) - at > LARGEST_HEAD:
            raise WrongRegistryAnswer("the answer's headers are too long: this is no HTTP server")
        return None
    head = bytes(data[at:end])
    reply = RawReply(_status(head), head, b"")
    body = _body(data, end + len(_END_OF_HEAD), reply)
    return None if body is None else (reply._replace(body=body[0]), body[1])


def _status(head: bytes) -> int:
    parts = head.split(_END, 1)[0].split(b" ", 2)
    if len(parts) < 2 or not parts[0].startswith(b"HTTP/1.") or not parts[1].isdigit():
        raise WrongRegistryAnswer("the answer is not HTTP/1.1")
    return int(parts[1])


def _body(data: bytearray, begin: int, head: RawReply) -> tuple[bytes, int] | None:
    """The body that begins there, and where it ends; None where it is not all there yet."""
    if head.status in _BODILESS:
        return b"", begin
    if (head.header(b"transfer-encoding") or b"").lower() == b"chunked":
        return _chunks(data, begin)
    length = head.header(b"content-length")
    if length is None or not length.isdigit():
        raise WrongRegistryAnswer("the answer does not say how long it is")
    end = begin + _bounded(int(length))
    return (bytes(data[begin:end]), end) if len(data) >= end else None


def _chunks(data: bytearray, at: int) -> tuple[bytes, int] | None:
    """A chunked body (trailers are passed over)."""
    found: list[bytes] = []
    size = 0
    while (line := data.find(_END, at)) >= 0:
        length = _chunk_length(bytes(data[at:line]))
        if not length:
            # The last chunk: an empty line ends it, after trailers where there are any.
            end = data.find(_END_OF_HEAD, line)
            return (b"".join(found), end + len(_END_OF_HEAD)) if end >= 0 else None
        size = _bounded(size + length)
        at = line + len(_END) + length + len(_END)
        if len(data) < at:
            return None
        found.append(bytes(data[line + len(_END) : at - len(_END)]))
    return None


def _chunk_length(line: bytes) -> int:
    found = _CHUNK_LENGTH.match(line)
    if found is None:
        raise WrongRegistryAnswer("the answer's chunks cannot be read")
    return int(found[1], 16)


def _bounded(length: int) -> int:
    if length > LARGEST_BODY:
        raise WrongRegistryAnswer(f"the answer is larger than {LARGEST_BODY >> 20} MiB")
    return length
