"""HTTP connections with limits on request heads, time, number, and the memory of all unknown clients together.

A client is unknown unless `is_known` is true when the connection starts. Data of unknown clients is parsed in small
steps, one per pass of the event loop; a known client's data is parsed at once.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

import structlog
from aiohttp import web

from adapter.inbound.fairness import EvictingPool, FairQueue
from adapter.inbound.parser import HEAD_BYTES, LINE_BYTES, MOST_HEADERS, BoundedParser, is_too_large

HANDSHAKE_SECONDS = 10
HEAD_SECONDS = 30.0
"""For the first request head since the connection started, for later ones since their first byte."""
IDLE_SECONDS = 90.0
BODY_SECONDS = 60.0
STALL_SECONDS = 30.0
"""How long a client may stop reading an answer."""
CLOSE_SECONDS = 5.0
_SWEEP_SECONDS = 1.0
_LINGER_SECONDS = 1.0

MAX_HANDSHAKES = 96
"""Concurrent TLS handshakes."""
MAX_UNKNOWN_CLIENTS = 192
"""Connections of unknown clients."""
HELD_BYTES = 4 * 1024 * 1024
"""Memory of the unfinished and unanswered requests of all unknown clients."""
STEP_BYTES = 4 * 1024
_BUFFER_BYTES = 16 * 1024
_LINE_COST = 512  # bytes of memory that a header takes in addition to its text

_log = structlog.get_logger(__name__)
Handle = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """Limits in seconds, counts and bytes; the defaults are those of the metrics API."""

    handshake_seconds: float = HANDSHAKE_SECONDS
    handshakes: int = MAX_HANDSHAKES
    head_bytes: int = HEAD_BYTES
    head_seconds: float = HEAD_SECONDS
    idle_seconds: float = IDLE_SECONDS
    body_seconds: float = BODY_SECONDS
    stall_seconds: float = STALL_SECONDS
    close_seconds: float = CLOSE_SECONDS
    sweep_seconds: float = _SWEEP_SECONDS
    unknown_clients: int = MAX_UNKNOWN_CLIENTS
    held_bytes: int = HELD_BYTES


DEFAULT_LIMITS = ConnectionLimits()


class InboundConnection(web.RequestHandler):
    """One connection; `busy`: a request is being answered, `known`: the limits for unknown clients do not apply."""

    __slots__ = (
        "_body_since",
        "_closes_after_answer",
        "_closing_since",
        "_head_since",
        "_held",
        "_is_scheduled",
        "_last_cost",
        "_owner",
        "_requests",
        "_stalled_since",
        "address",
        "busy",
        "cost",
        "known",
        "raw_transport",
    )

    def __init__(self, owner: "InboundConnections", **options: Any) -> None:
        super().__init__(owner, **options)
        self._owner = owner
        self._requests = BoundedParser(self._parser, owner.limits.head_bytes, self._schedule)
        self._parser = self._requests  # type: ignore[assignment]  # aiohttp has no other way in
        self.address = ""
        self.busy = False
        self.known = False
        self.raw_transport: asyncio.Transport | None = None
        self.cost = self._last_cost = 0
        self._held = b""
        self._is_scheduled = False
        self._closes_after_answer = False
        self._head_since: float | None = None
        self._body_since: float | None = None
        self._stalled_since: float | None = None
        self._closing_since: float | None = None

    def is_known(self) -> bool:
        """Whether the client has proved an identity that exempts it from the limits."""
        return False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Determine once whether the client is known, and bound the buffers of an unknown one."""
        assert isinstance(transport, asyncio.Transport)
        self.raw_transport = transport
        self.address = address_of(transport)
        self.known = self.is_known()
        self._head_since = time.monotonic()
        if not self.known:
            transport.set_write_buffer_limits(high=_BUFFER_BYTES)
            _bound_reading(transport)
        super().connection_made(transport)

    def connection_lost(self, exc: BaseException | None) -> None:
        self._held = b""
        super().connection_lost(exc)
        self._requests.close()
        release(self.raw_transport)
        self.raw_transport = None

    def eof_received(self) -> None:
        """Close without further answers: asyncio would log every write to the closed connection."""
        transport = self.raw_transport
        if transport is not None and not transport.is_closing():  # closing TLS twice would prevent an abort
            transport.resume_reading()  # paused TLS would not close
            self.force_close()

    def abort(self) -> None:
        """Abort the connection at once."""
        self._held = b""
        if self.raw_transport is not None:
            self.raw_transport.abort()

    def close_when_idle(self) -> None:
        """Close the connection: now if it is idle, else after the answer to the request received."""
        if self._held:
            self._closes_after_answer = True
        elif self.busy or self._requests.untaken:
            self.close()
        else:
            self.force_close()

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
        too_large = HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE
        response = self.refusal(too_large if is_too_large(exc) else status, message or str(exc or ""))
        response.force_close()
        if exc is not None:
            exc.__traceback__ = None  # its frames would keep all received data in memory
        return response

    def refusal(self, code: int, message: str) -> web.StreamResponse:
        """The answer to a request that cannot be parsed."""
        return web.Response(text=message, status=code)

    # -- reading

    def data_received(self, data: bytes) -> None:
        """Parse a known client's data; queue an unknown client's data."""
        if self.known or not data or self.raw_transport is None:
            self._parse(data)
            return
        self._held += data
        self.raw_transport.pause_reading()
        self._schedule()

    def _schedule(self) -> None:
        if self._held and not self._is_scheduled and not self._requests.untaken:
            self._is_scheduled = True
            self._owner.queue.put(self.address, self._parse_step)

    def _parse_step(self) -> None:
        self._is_scheduled = False
        transport = self.raw_transport
        if not self._held or transport is None or transport.is_closing():
            return
        data, self._held = self._held[:STEP_BYTES], self._held[STEP_BYTES:]
        if not self._held:
            transport.resume_reading()  # before aiohttp may pause it again
        self._parse(data)
        self._schedule()

    def _parse(self, data: bytes) -> None:
        requests = self._requests
        parsed, was_in_body = requests.parsed, requests.in_body
        super().data_received(data)
        if requests.parsed != parsed:
            self._head_since = None
            self._body_since = time.monotonic() if requests.in_body else None
        elif was_in_body:
            if not requests.in_body:
                self._body_since = None
        elif requests.head_bytes and self._head_since is None:
            self._head_since = time.monotonic()
        if not self.known and (requests.head_bytes or not was_in_body):
            self._last_cost = 2 * len(data) + _LINE_COST * data.count(b"\n")
            self._owner.charge(self, self.cost + self._last_cost)

    def request_answered(self) -> None:
        """A request was answered: only the memory of the last data received is still charged."""
        self.busy = False
        if self._closes_after_answer:
            self.close()
        if not self.known and not self._requests.untaken:
            self._owner.charge(self, self._last_cost)

    # -- writing

    def pause_writing(self) -> None:
        super().pause_writing()
        self._stalled_since = time.monotonic()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._stalled_since = None

    # -- time

    def is_overdue(self, now: float) -> bool:
        """Whether the client has exceeded a time limit."""
        limits = self._owner.limits
        if self.raw_transport is None:
            return False
        if self.raw_transport.is_closing() and self._closing_since is None:
            self._closing_since = now
        return (
            _exceeds(self._head_since, limits.head_seconds, now)
            or _exceeds(self._body_since, limits.body_seconds, now)
            or _exceeds(self._stalled_since, limits.stall_seconds, now)
            or _exceeds(self._closing_since, limits.close_seconds, now)
        )


def _exceeds(since: float | None, seconds: float, now: float) -> bool:
    return since is not None and now - since > seconds


def _bound_reading(transport: asyncio.Transport) -> None:
    """Bound the read buffer of TLS while reading is paused; other transports have none."""
    bound = getattr(transport, "set_read_buffer_limits", None)
    if bound is not None:
        bound(high=_BUFFER_BYTES)


def release(transport: asyncio.BaseTransport | None) -> None:
    """Break the reference of a closed socket's transport to itself: asyncio keeps a method of it in an attribute.

    Otherwise every closed connection would stay in memory until the next full collection.
    """
    getattr(transport, "__dict__", {}).pop("_read_ready_cb", None)


def address_of(transport: asyncio.BaseTransport) -> str:
    """The peer's IP address; empty if it has none."""
    name = transport.get_extra_info("peername")
    return str(name[0]) if isinstance(name, tuple) and name else ""


class InboundConnections(web.Server):
    """Makes connections, tracks them, and ends those that exceed their limits."""

    connection_type: type[InboundConnection] = InboundConnection

    def __init__(self, handle: Handle, limits: ConnectionLimits, **options: Any) -> None:
        super().__init__(self._tracking(handle), handler_cancellation=True)
        self.limits = limits
        self.queue = FairQueue()
        self._unknown_clients: EvictingPool[InboundConnection] = EvictingPool(
            limits.unknown_clients, lambda one: one.address
        )
        self._held = 0
        self._sweep_timer: asyncio.TimerHandle | None = None
        self._options: dict[str, Any] = {
            "access_log": None,
            "logger": _silent_logger(),
            "max_line_size": LINE_BYTES,
            "max_field_size": LINE_BYTES,
            "max_headers": MOST_HEADERS,
            "lingering_time": _LINGER_SECONDS,
            "keepalive_timeout": limits.idle_seconds,
            "read_bufsize": _BUFFER_BYTES,
            **options,
        }

    def __call__(self) -> InboundConnection:
        """A connection for asyncio to start."""
        return self.connection_type(self, loop=asyncio.get_running_loop(), **self._options)

    def connection_made(self, handler: web.RequestHandler, transport: asyncio.Transport) -> None:
        """Track the connection; beyond the limit, end the oldest idle unknown client of the largest address."""
        super().connection_made(handler, transport)
        if self._sweep_timer is None:
            self._sweep_timer = asyncio.get_running_loop().call_later(self.limits.sweep_seconds, self._end_overdue)
        if isinstance(handler, InboundConnection) and not handler.known:
            victim = self._unknown_clients.add(handler, lambda one: one.busy)
            if victim is not None:
                self._end(victim)

    def connection_lost(self, handler: web.RequestHandler, exc: BaseException | None = None) -> None:
        """Stop tracking the connection."""
        super().connection_lost(handler, exc)
        if isinstance(handler, InboundConnection):
            self._forget(handler)

    def charge(self, connection: InboundConnection, cost: int) -> None:
        """Set the memory cost of a connection; over the total limit, end those with the largest cost."""
        if connection not in self._unknown_clients:
            return
        self._held += cost - connection.cost
        connection.cost = cost
        while self._held > self.limits.held_bytes:
            self._end(max(self._unknown_clients, key=lambda one: one.cost))

    def _end(self, connection: InboundConnection) -> None:
        connection.abort()
        self._forget(connection)

    def _forget(self, connection: InboundConnection) -> None:
        self.charge(connection, 0)
        self._unknown_clients.discard(connection)

    def _end_overdue(self) -> None:
        now = time.monotonic()
        connections = [one for one in self.connections if isinstance(one, InboundConnection)]
        for connection in connections:
            if connection.is_overdue(now):
                self._end(connection)
        loop = asyncio.get_running_loop()
        self._sweep_timer = loop.call_later(self.limits.sweep_seconds, self._end_overdue) if connections else None

    async def finish(self, seconds: float) -> None:
        """Wait `seconds` at most for requests in flight, then abort every connection."""
        connections = [one for one in self.connections if isinstance(one, InboundConnection)]
        self.pre_shutdown()
        await self.shutdown(seconds)
        for connection in connections:
            connection.abort()  # closing in TLS would wait for the client to agree
        if self._sweep_timer is not None:
            self._sweep_timer.cancel()
        await asyncio.sleep(0)

    def _tracking(self, handle: Handle) -> Handle:
        async def tracked(request: web.BaseRequest) -> web.StreamResponse:
            connection = request.protocol
            if not isinstance(connection, InboundConnection):
                return await handle(request)
            connection.busy = True
            try:
                if not connection.known:
                    self._unknown_clients.refresh(connection)
                    await self.queue.wait(connection.address)
                return await handle(request)
            finally:
                connection.request_answered()

        return tracked


def _silent_logger() -> logging.Logger:
    """A logger that drops aiohttp's messages: client errors are not logged, and ours are logged by the handler."""
    logger = logging.getLogger(f"{__name__}.http")
    logger.setLevel(logging.CRITICAL + 1)
    return logger
