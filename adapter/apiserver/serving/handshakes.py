"""TLS connections whose handshakes are bounded: how many are under way, how long they take, and what they hold.

asyncio gives every TLS connection a buffer of 256 KiB from the first moment, and does every handshake at once. A
handshake is the dearest thing that a stranger can ask for (half a millisecond of the event loop), so each of its steps
waits for its turn. OpenSSL reads all certificates that a client shows, 100 KB of them, before it refuses them, and
derives keys anew as often as a client says so in 27 bytes; so strangers are read in small pieces, their handshakes up
to a bound, and nothing from one that takes nothing.
"""

import asyncio
import ssl
from asyncio.sslproto import SSLProtocol
from functools import partial

from adapter.inbound.connections import InboundConnections, address_of
from adapter.inbound.fairness import EvictingPool

_SHUTDOWN_SECONDS = 2.0
_BUFFER_BYTES = 16 * 1024  # a TLS record
_STEP_BYTES = 2 * 1024
HANDSHAKE_BYTES = 8 * 1024
"""A handshake that takes more from its client is ended; a certificate with 200 groups and an authority fit in."""


class TlsConnection(SSLProtocol):
    """asyncio's TLS with bounds, between a socket and an HTTP connection; `settled` once the handshake is over."""

    max_size = _STEP_BYTES

    def __init__(
        self, connections: InboundConnections, newcomers: "EvictingPool[TlsConnection]", context: ssl.SSLContext
    ) -> None:
        self._http = connections()
        super().__init__(
            asyncio.get_running_loop(),
            self._http,
            context,
            None,  # type: ignore[arg-type]  # nobody waits for the handshake
            server_side=True,
            ssl_handshake_timeout=connections.limits.handshake_seconds,  # type: ignore[arg-type]  # typeshed: int
            ssl_shutdown_timeout=_SHUTDOWN_SECONDS,
        )
        self.address = ""
        self._line: asyncio.Transport | None = None
        self._queue = connections.queue
        self._newcomers = newcomers
        self._received = 0
        self._postponed = 0
        self.settled = asyncio.Event()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin the handshake, as one of not too many."""
        assert isinstance(transport, asyncio.Transport)
        self._line = transport
        self.address = address_of(transport)
        transport.set_write_buffer_limits(high=_BUFFER_BYTES)
        victim = self._newcomers.add(self)
        if victim is not None:
            victim.abandon()
        super().connection_made(transport)

    def connection_lost(self, exc: BaseException | None) -> None:
        self._leave()
        super().connection_lost(exc)

    def eof_received(self) -> bool | None:  # type: ignore[override]  # typeshed: None; asyncio: whether it stays open
        """Let the HTTP connection end also where asyncio would tell it later, because it does not read now."""
        stays = super().eof_received()
        if self._http.line is not None:
            self._http.eof_received()
        return stays

    def _leave(self) -> None:
        self._newcomers.discard(self)
        self.settled.set()

    def abandon(self) -> None:
        """End a handshake that others need the room of."""
        self._leave()
        if self._line is not None:
            self._line.abort()

    def buffer_updated(self, nbytes: int) -> None:
        """Read what a known client sends at once; a stranger's handshake and records in their turn."""
        if self._http.known or self._line is None:
            super().buffer_updated(nbytes)
            return
        self._line.pause_reading()  # so that the buffer is left alone
        self._queue.put(self.address, partial(self._step, self._line, nbytes))

    def _step(self, line: asyncio.Transport, received: int) -> None:
        if line.is_closing():
            return
        if self._ssl_writing_paused:  # type: ignore[attr-defined]  # typeshed leaves it out
            self._postponed = received
            return
        if self._received >= HANDSHAKE_BYTES and not self.settled.is_set():
            self.abandon()
            return
        self._received += received
        line.resume_reading()
        super().buffer_updated(received)
        if self._http.line is not None:
            self._leave()
        if self._http.known:
            self.max_size = _BUFFER_BYTES  # type: ignore[misc]  # what asyncio reads is up to each connection

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._postponed and self._line is not None:
            received, self._postponed = self._postponed, 0
            self._queue.put(self.address, partial(self._step, self._line, received))
