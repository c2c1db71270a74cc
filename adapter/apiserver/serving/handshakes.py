"""TLS connections with bounded handshakes: their number, duration, memory and use of the event loop.

asyncio allocates a buffer of 256 KiB for every new TLS connection and runs every handshake at once. A handshake is the
most expensive request of an unauthenticated client (half a millisecond of the event loop), so each of its steps waits
in the fair queue. OpenSSL reads up to 100 KB of client certificates before it rejects them, and derives new keys for
every 27-byte key update. So data of unknown clients is read in small pieces, a handshake up to a bound, and nothing
from a client that does not read its answers.
"""

import asyncio
import ssl
from asyncio.sslproto import SSLProtocol
from functools import partial

from adapter.inbound.connections import InboundConnections, address_of, release
from adapter.inbound.fairness import EvictingPool

_SHUTDOWN_SECONDS = 2.0
_BUFFER_BYTES = 16 * 1024  # a TLS record
_STEP_BYTES = 2 * 1024
_AGAIN = (ssl.SSLWantReadError, ssl.SSLSyscallError)
HANDSHAKE_BYTES = 8 * 1024
"""Largest input of a handshake; a certificate with 200 groups and an intermediate CA fit in."""


class TlsConnection(SSLProtocol):
    """asyncio's TLS protocol with bounds, below one HTTP connection; `settled` is set when the handshake ends."""

    max_size = _STEP_BYTES

    def __init__(
        self, connections: InboundConnections, handshakes: "EvictingPool[TlsConnection]", context: ssl.SSLContext
    ) -> None:
        self._http = connections()
        super().__init__(
            asyncio.get_running_loop(),
            self._http,
            context,
            None,  # type: ignore[arg-type]  # no future waits for the handshake
            server_side=True,
            ssl_handshake_timeout=connections.limits.handshake_seconds,  # type: ignore[arg-type]  # typeshed: int
            ssl_shutdown_timeout=_SHUTDOWN_SECONDS,
        )
        self.address = ""
        self._socket_transport: asyncio.Transport | None = None
        self._queue = connections.queue
        self._handshakes = handshakes
        self._received = 0
        self._postponed = 0
        self.settled = asyncio.Event()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Start the handshake; beyond the limit, abandon the oldest of the largest address."""
        assert isinstance(transport, asyncio.Transport)
        self._socket_transport = transport
        self.address = address_of(transport)
        transport.set_write_buffer_limits(high=_BUFFER_BYTES)
        victim = self._handshakes.add(self)
        if victim is not None:
            victim.abandon()
        super().connection_made(transport)

    def connection_lost(self, exc: BaseException | None) -> None:
        self._settle()
        if self._http.raw_transport is None:  # no handshake was finished, so that asyncio does not tell it
            self._http.connection_lost(exc)
        super().connection_lost(exc)
        release(self._socket_transport)
        self._socket_transport = None

    def eof_received(self) -> bool | None:  # type: ignore[override]  # typeshed: None; asyncio: whether it stays open
        """Pass EOF to the HTTP connection at once; asyncio would delay it while reading is paused."""
        stays = super().eof_received()
        if self._http.raw_transport is not None:
            self._http.eof_received()
        return stays

    def _settle(self) -> None:
        self._handshakes.discard(self)
        self.settled.set()

    def abandon(self) -> None:
        """Abort the connection to free its place."""
        self._settle()
        if self._socket_transport is not None:
            self._socket_transport.abort()

    def buffer_updated(self, nbytes: int) -> None:
        """Decrypt a known client's data at once; handshakes and data of unknown clients wait in the fair queue."""
        if self._http.known or self._socket_transport is None:
            super().buffer_updated(nbytes)
            return
        self._socket_transport.pause_reading()  # so that asyncio does not overwrite the buffer
        self._queue.put(self.address, partial(self._step, self._socket_transport, nbytes))

    def _step(self, transport: asyncio.Transport, received: int) -> None:
        if transport.is_closing():
            return
        if self._ssl_writing_paused:  # type: ignore[attr-defined]  # typeshed leaves it out
            self._postponed = received
            return
        if self._received >= HANDSHAKE_BYTES and not self.settled.is_set():
            self.abandon()
            return
        self._received += received
        transport.resume_reading()
        super().buffer_updated(received)
        if self._http.raw_transport is not None:
            self._settle()
        if self._http.known:
            self.max_size = _BUFFER_BYTES  # type: ignore[misc]  # asyncio reads this per connection

    def _do_read__copied(self) -> None:
        """Read a known client's request, usually one record; everything else as asyncio does.

        asyncio reads on until OpenSSL raises an error, which is a part of each request's cost.
        """
        if self._http.known:
            tls, received = self._sslobj, self._incoming  # type: ignore[attr-defined]  # typeshed leaves them out
            try:
                data = tls.read(self.max_size)
            except _AGAIN:
                return
            if data:
                self._http.data_received(data)
            transport = self._http.raw_transport
            if (data and not received.pending and not tls.pending()) or transport is None or transport.is_closing():
                return
        super()._do_read__copied()  # type: ignore[misc]  # typeshed leaves it out

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._postponed and self._socket_transport is not None:
            received, self._postponed = self._postponed, 0
            self._queue.put(self.address, partial(self._step, self._socket_transport, received))
