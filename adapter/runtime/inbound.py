"""HTTP connections with limits on request heads, time and number. Requests have no body."""

import asyncio
import contextlib
import errno
import logging
import resource
import socket
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from http import HTTPMethod, HTTPStatus
from typing import Any

import structlog
from aiohttp import HttpVersion11, web
from aiohttp.http_exceptions import LineTooLong

from adapter.runtime.concurrency import turn
from adapter.runtime.fairness import EvictingPool

REQUEST_BYTES = 256 * 1024
"""Limit for all of a request; an identity with hundreds of groups takes about 30 KiB."""
LINE_BYTES = 64 * 1024
"""Limit for one header, and for the request line: a selector of a few thousand values."""
MOST_HEADERS = 2048
_HEADER_BYTES = 512
"""What a header takes in memory beside its text."""
_BODY_BYTES = 2048
"""Of a body, which nobody reads: once twice as much is in memory, the rest waits until its request is answered."""
IDLE_SECONDS = 90.0
"""From the start of a connection, or from an answer, to the end of the next request's head."""

_log = structlog.get_logger(__name__)
Handle = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]
Refusal = Callable[[int, str], web.StreamResponse]
"""Makes the answer to a request that cannot be read, from its code and message."""

_BACKLOG = 4096
"""Connections that wait to be accepted, as many as Linux allows by default: beyond it, further ones lose a second."""
_ACCEPTED = 8
"""Connections accepted in one pass of the event loop; the others wait in the backlog."""
_REST_SECONDS = 1.0
_EXHAUSTED = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
READ_BYTES = 16 * 1024
_KERNEL_BYTES = 128 * 1024
"""Of an unread answer that the kernel keeps, which counts as the container's memory; Linux alone would keep 4 MiB."""
STEP_BYTES = 640 * 1024
"""Largest part of an answer that is written at once."""
STEP_SECONDS = 10.0
"""What is written has to leave in this time, or the connection is aborted: a reader has to take 64 KiB/s."""


def raise_file_limit() -> None:
    """Allow this process as many open files as the system permits, as Go does: each connection is one."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(OSError, ValueError):  # some systems refuse the value that they name
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


class Listener:
    """Accepts connections and passes each socket, not blocking, with its peer's address to `accepted`."""

    def __init__(self, address: str, port: int, accepted: Callable[[socket.socket, str], None]) -> None:
        self._where = (address, port)
        self._accepted = accepted
        self._socket: socket.socket | None = None
        self._loop = asyncio.get_running_loop()

    @property
    def port(self) -> int:
        """The port it listens on, 0 before `listen`."""
        return int(self._socket.getsockname()[1]) if self._socket else 0

    def listen(self) -> None:
        """Accept from now on; an empty address means all interfaces. Raises OSError if the port is taken."""
        address, port = self._where
        if address in {"", "::"} and socket.has_dualstack_ipv6():
            self._socket = socket.create_server(
                ("", port), family=socket.AF_INET6, backlog=_BACKLOG, dualstack_ipv6=True
            )
        else:
            family = socket.AF_INET6 if ":" in address else socket.AF_INET
            self._socket = socket.create_server((address, port), family=family, backlog=_BACKLOG)
        self._socket.setblocking(False)
        self._resume()

    def close(self) -> None:
        """Stop accepting."""
        if self._socket is not None:
            self._loop.remove_reader(self._socket)
            self._socket.close()
            self._socket = None

    def _resume(self) -> None:
        if self._socket is not None:
            self._loop.add_reader(self._socket, self._accept)

    def _accept(self) -> None:
        for _ in range(_ACCEPTED):
            if self._socket is None:
                return
            try:
                connection, peer = self._socket.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                if error.errno not in _EXHAUSTED:
                    raise
                self._loop.remove_reader(self._socket)
                self._loop.call_later(_REST_SECONDS, self._resume)
                return
            connection.setblocking(False)
            self._accepted(connection, str(peer[0]))


class SocketTransport(asyncio.Transport):
    """One connection. `start` attaches the protocol, `lost` is called once at the end.

    Every write has to have left after STEP_SECONDS.
    """

    def __init__(self, connection: socket.socket, address: str, lost: "Callable[[Any], None]") -> None:
        super().__init__()
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _KERNEL_BYTES)
        self.address = address
        self.details: dict[str, Any] = {"socket": connection, "peername": connection.getpeername()}
        self._loop = asyncio.get_running_loop()
        self._connection: socket.socket | None = connection
        self._lost = lost
        self._protocol: asyncio.Protocol | None = None
        self._buffer = bytearray()
        self._is_reading = False
        self._is_closing = False
        self._overdue: asyncio.TimerHandle | None = None

    def start(self, protocol: asyncio.Protocol) -> None:
        """Attach the protocol and read."""
        self._protocol = protocol
        protocol.connection_made(self)
        self.resume_reading()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self.details.get(name, default)

    # -- reading

    def is_reading(self) -> bool:
        return self._is_reading

    def pause_reading(self) -> None:
        if self._is_reading and self._connection is not None:
            self._is_reading = False
            self._loop.remove_reader(self._connection)

    def resume_reading(self) -> None:
        if not self._is_reading and not self._is_closing and self._connection is not None:
            self._is_reading = True
            self._loop.add_reader(self._connection, self.readable)

    def receive(self, most: int) -> bytes | None:
        """What the socket has, None if it has nothing; ends the connection where the peer has."""
        assert self._connection is not None
        try:
            data = self._connection.recv(most)
        except (BlockingIOError, InterruptedError):
            return None
        except OSError as error:
            self.lose(error)
            return None
        if not data:
            self.close()
            return None
        return data

    def readable(self) -> None:
        """The socket has data."""
        data = self.receive(READ_BYTES)
        if data and self._protocol is not None:
            self._protocol.data_received(data)

    # -- writing

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.send(data)

    def send(self, data: bytes | bytearray | memoryview) -> None:
        """Send these bytes as they are; what the socket does not take now is kept, and the protocol pauses."""
        if self._connection is None or not data:
            return
        sent = 0
        if not self._buffer:
            try:
                sent = self._connection.send(data)
            except (BlockingIOError, InterruptedError):
                pass
            except OSError as error:
                self._loop.call_soon(self.lose, error)
                return
            if sent == len(data):
                return
            self._loop.add_writer(self._connection, self._writable)
            self._overdue = self._loop.call_later(STEP_SECONDS, self.abort)
            if self._protocol is not None:
                self._protocol.pause_writing()
        self._buffer += memoryview(data)[sent:]

    def _writable(self) -> None:
        assert self._connection is not None
        try:
            del self._buffer[: self._connection.send(self._buffer)]
        except (BlockingIOError, InterruptedError):
            return
        except OSError as error:
            self.lose(error)
            return
        if self._buffer:
            return
        self._stop_writing()
        if self._protocol is not None:
            self._protocol.resume_writing()
        if self._is_closing:
            self.lose(None)

    def _stop_writing(self) -> None:
        if self._connection is not None:
            self._loop.remove_writer(self._connection)
        if self._overdue is not None:
            self._overdue.cancel()
            self._overdue = None

    def get_write_buffer_size(self) -> int:
        return len(self._buffer)

    def can_write_eof(self) -> bool:
        return False

    # -- ending

    def is_closing(self) -> bool:
        return self._is_closing

    def close(self) -> None:
        """Close once everything written has left."""
        if self._is_closing:
            return
        self.pause_reading()
        self._is_closing = True
        if not self._buffer:
            self._loop.call_soon(self.lose, None)

    def abort(self) -> None:
        """Close at once."""
        self.pause_reading()
        self._is_closing = True
        self._buffer.clear()
        self._stop_writing()
        self._loop.call_soon(self.lose, None)

    def lose(self, error: Exception | None) -> None:
        """The connection has ended."""
        connection, protocol = self._connection, self._protocol
        if connection is None:
            return
        self._is_closing = True
        self.pause_reading()
        self._buffer.clear()
        self._stop_writing()
        self._connection = self._protocol = None
        del self.details["socket"]
        connection.close()
        self._lost(self)
        if protocol is not None:
            protocol.connection_lost(error)


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpLimits:
    """Limits in counts, bytes and seconds."""

    connections: int
    request_bytes: int = REQUEST_BYTES
    line_bytes: int = LINE_BYTES
    headers: int = MOST_HEADERS
    idle_seconds: float = IDLE_SECONDS


class HttpConnection(web.RequestHandler):
    """One connection; `is_busy`: a request is being answered; `received`: bytes since the answer before."""

    __slots__ = ("_closes_after_answer", "_owner", "is_busy", "received", "socket_transport")

    def __init__(self, owner: "HttpConnections", **options: Any) -> None:
        super().__init__(owner, **options)
        self._owner = owner
        self.received = 0
        self._closes_after_answer = False
        self.is_busy = False
        self.socket_transport: SocketTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, SocketTransport)
        self.socket_transport = transport
        super().connection_made(transport)

    def connection_lost(self, exc: BaseException | None) -> None:
        super().connection_lost(exc)
        self.socket_transport = None

    def data_received(self, data: bytes) -> None:
        """Parse; a request beyond the limit ends the connection."""
        self.received += len(data)
        if self.received > self._owner.limits.request_bytes:
            self.abort()
        else:
            super().data_received(data)

    def abort(self) -> None:
        """Abort the connection at once."""
        if self.socket_transport is not None:
            self.socket_transport.abort()

    def close_when_idle(self) -> None:
        """Close the connection: now if it is idle, else after the answer."""
        if self.is_busy:
            self._closes_after_answer = True
            self.close()
        else:
            self.force_close()

    def answered(self) -> None:
        """A request was answered."""
        self.is_busy = False
        self.received = 0
        if self._closes_after_answer:
            self.close()

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """Answer a request that cannot be parsed or is too large, and close; client errors are not logged."""
        if request.writer is not None and request.writer.output_size > 0:
            raise ConnectionError("part of an answer has gone out already") from exc
        if status >= HTTPStatus.INTERNAL_SERVER_ERROR:
            _log.error("request_failed", error=repr(exc), exc_info=exc)
            message = type(exc).__name__  # the error's text goes to the log only
        elif isinstance(exc, LineTooLong) or "Too many headers" in str(exc or ""):
            status = HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE
        response = self._owner.refusal(status, message or str(exc or ""))
        response.force_close()
        if exc is not None:
            exc.__traceback__ = None  # its frames would keep all received data in memory
        return response


class HttpConnections(web.Server):
    """Makes HTTP connections and tracks them; beyond the limit, the address with the most loses its oldest idle one."""

    def __init__(self, handle: Handle, limits: HttpLimits, refusal: Refusal) -> None:
        super().__init__(self._tracked, handler_cancellation=True)
        self._handle = handle
        self.limits = limits
        self.refusal = refusal
        self._pool: EvictingPool[SocketTransport] = EvictingPool(limits.connections, lambda each: each.address)
        self._by_transport: dict[SocketTransport, HttpConnection] = {}
        # Drops aiohttp's messages: client errors are not logged, and ours are logged by the handler.
        logger = logging.getLogger(f"{__name__}.http")
        logger.setLevel(logging.CRITICAL + 1)
        self._options: dict[str, Any] = {
            "access_log": None,
            "logger": logger,
            "max_line_size": limits.line_bytes,
            "max_field_size": limits.line_bytes,
            "max_headers": limits.headers,
            "lingering_time": 0.0,
            "keepalive_timeout": limits.idle_seconds,
            "read_bufsize": _BODY_BYTES,
        }

    def start(self, transport: SocketTransport) -> None:
        """Speak HTTP on this transport."""
        connection = HttpConnection(self, loop=asyncio.get_running_loop(), **self._options)
        self._by_transport[transport] = connection
        transport.start(connection)
        victim = self._pool.add(transport, lambda each: self._by_transport[each].is_busy)
        if victim is not None:
            self.forget(victim)
            victim.abort()

    def forget(self, transport: SocketTransport) -> None:
        """Stop tracking the transport."""
        self._pool.discard(transport)
        self._by_transport.pop(transport, None)

    def dismiss(self) -> None:
        """Close every connection: idle ones now, others after their answer."""
        for connection in list(self._by_transport.values()):
            connection.close_when_idle()

    async def finish(self, seconds: float) -> None:
        """Wait `seconds` at most for requests in flight, then abort every connection."""
        connections = list(self._by_transport.values())
        self.pre_shutdown()
        await self.shutdown(seconds)
        for connection in connections:
            connection.abort()
        await asyncio.sleep(0)

    async def _tracked(self, request: web.BaseRequest) -> web.StreamResponse:
        connection = connection_of(request)
        connection.is_busy = True
        if kept_bytes(request) > REQUEST_BYTES:
            connection.close_when_idle()
        if connection.socket_transport is not None:
            self._pool.refresh(connection.socket_transport)
        try:
            if request.transport is None:  # closed before the request's turn: who asked is not known any more
                response = self.refusal(HTTPStatus.BAD_REQUEST, "the connection has ended")
            elif request.version == HttpVersion11:
                response = await self._handle(request)
            else:
                response = self.refusal(HTTPStatus.HTTP_VERSION_NOT_SUPPORTED, "only HTTP/1.1 is spoken here")
            if request.version != HttpVersion11 or request.method == HTTPMethod.CONNECT:
                response.force_close()  # the parser takes the body of a CONNECT for the next request
            return response
        finally:
            connection.answered()


def connection_of(request: web.BaseRequest) -> HttpConnection:
    """The connection of a request."""
    assert isinstance(request.protocol, HttpConnection)
    return request.protocol


def kept_bytes(request: web.BaseRequest) -> int:
    """The memory that the request takes until its answer, and on a connection that stays open until the next one."""
    return connection_of(request).received + _HEADER_BYTES * len(request.raw_headers)


async def write_whole(
    request: web.BaseRequest,
    response: web.StreamResponse,
    body: bytes | bytearray,
    left: Callable[[], None] = lambda: None,
) -> None:
    """Write the answer's body, and return when it has left: a large one is never encrypted or copied in one step.

    A client that takes less than a step in its time loses the connection, and one that has gone is no error. `left` is
    called after each step.
    """
    response.content_length = len(body)
    with contextlib.suppress(ConnectionError):
        await response.prepare(request)
        for begin in range(0, len(body), STEP_BYTES):
            await response.write(memoryview(body)[begin : begin + STEP_BYTES])
            await request.writer.drain()
            left()
            await turn()
        await response.write_eof()
