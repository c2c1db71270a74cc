"""The port of the metrics API: TLS for the front proxy alone.

A handshake without a certificate of the requestheader CA fails, so a stranger reaches neither HTTP nor a parser. A
pending handshake takes 80 KiB; the limits per address and in all bound what strangers can take.

Every change of certificate or CA makes a new context, because a CA cannot be removed from a live one. A connection of
a removed CA ends at its next request. Sessions cannot be resumed, so its client has to present its certificate again.
"""

import asyncio
import collections
import contextlib
import re
import socket
import ssl
import weakref
from collections.abc import Callable, Mapping
from typing import Any

from aiohttp import web

from adapter.apiserver.certificates import KeyPair, load_pair
from adapter.apiserver.status import CertificateError
from adapter.runtime.process import listening

HANDSHAKES_PER_ADDRESS, HANDSHAKES = 64, 512
"""Pending handshakes; further connections are closed. An API server has about 10 with the HPA's default workers."""
_SHUTDOWN_SECONDS, _REST_SECONDS = 5.0, 0.25
Handler = asyncio.BaseProtocol
Certificate = Mapping[str, Any]  # of a client, as `ssl.SSLObject.getpeercert` has it
_BLOCK = re.compile(r"-----BEGIN [^-]+-----[^-]+-----END [^-]+-----")
"""A certificate in PEM, whatever its label: OpenSSL reads several."""
_GROUP = "prime256v1"
"""The only group for key exchange. All clients support it, also in FIPS mode; OpenSSL's default list lets a client
choose ffdhe8192, which costs 120 ms of the event loop."""


class ServerContext(ssl.SSLContext):
    """A TLS context, with the CAs whose clients it admits (PEM)."""

    authorities: frozenset[str] = frozenset()


def server_context(pair: KeyPair, authority: str) -> ServerContext:
    """A context that serves this pair, and requires a client certificate of this PEM bundle (the requestheader CA).

    Raises CertificateError. Call it off the event loop: it writes files, even if only in memory.
    """
    context = ServerContext(ssl.PROTOCOL_TLS_SERVER)
    context.authorities = frozenset(_BLOCK.findall(authority) or [authority])
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_TICKET | ssl.OP_NO_RENEGOTIATION
    context.num_tickets = 0
    context.set_alpn_protocols(["http/1.1"])
    context.set_ecdh_curve(_GROUP)
    context.verify_mode = ssl.CERT_REQUIRED
    # As Go verifies: any certificate of the bundle is an anchor, and CAs of managed clouds lack key identifiers.
    context.verify_flags = (context.verify_flags | ssl.VERIFY_X509_PARTIAL_CHAIN) & ~ssl.VERIFY_X509_STRICT
    load_pair(context, pair)
    try:
        context.load_verify_locations(cadata=authority)
    except (ssl.SSLError, ValueError) as error:
        raise CertificateError(f"the front proxy's CA cannot be loaded: {error}") from None
    return context


class Door:
    """Accepts connections for an HTTP server. Until `use` is called, no handshake begins."""

    def __init__(self, address: str, port: int, is_front_proxy: Callable[[Certificate], bool]) -> None:
        self._where, self.handshake_seconds = (address, port), 5.0
        self._is_front_proxy = is_front_proxy
        self._listener: socket.socket | None = None
        self.in_use: tuple[KeyPair, str] | None = None
        """The certificate that new connections get, and the CA that their clients need."""
        self._context: ServerContext | None = None
        self._pending: collections.Counter[str] = collections.Counter()
        self._handshakes: dict[asyncio.Task[None], socket.socket] = {}
        self._exhausted = asyncio.Event()
        self._open: weakref.WeakSet[asyncio.Transport] = weakref.WeakSet()

    @property
    def port(self) -> int:
        """The port it listens on, 0 while it does not."""
        return int(self._listener.getsockname()[1]) if self._listener else 0

    @property
    def pending(self) -> int:
        """The number of handshakes that have not ended."""
        return self._pending.total()

    async def use(self, pair: KeyPair, authority: str) -> None:
        """Serve this pair from now on, to clients of this CA (PEM; empty: to nobody). Raises CertificateError."""
        self._context = await asyncio.to_thread(server_context, pair, authority) if authority else None
        self.in_use = (pair, authority)

    def certificate_of(self, request: web.BaseRequest) -> Certificate | None:
        """The certificate of the request's client; None if its connection has ended, or a CA of that was removed."""
        tls, context = request.get_extra_info("ssl_object"), self._context
        is_admitted = tls and context and tls.context.authorities <= context.authorities
        return request.get_extra_info("peercert") if is_admitted else None  # as read at the handshake: it takes 40 µs

    async def run(self, new_handler: Callable[[], Handler]) -> None:
        """Accept connections until cancelled, then close the port. Raises OSError if it is taken."""
        self._listener = listener = listening(*self._where)
        loop = asyncio.get_running_loop()
        try:
            while True:
                # Not sock_accept: one that is cancelled loses a connection that it has accepted in the same pass.
                loop.add_reader(listener, self._accept, listener, new_handler)
                await self._exhausted.wait()
                self._exhausted.clear()
                loop.remove_reader(listener)
                await asyncio.sleep(_REST_SECONDS)
        finally:
            loop.remove_reader(listener)
            listener.close()
            self._listener = None
            # A handshake that is cancelled would say TLS's farewell for seconds; one without a connection fails now.
            for connection in self._handshakes.values():
                with contextlib.suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)
            await asyncio.gather(*self._handshakes)

    async def end_connections(self) -> None:
        """Cut what is still open, such as a connection whose client does not answer TLS's farewell."""
        for connection in list(self._open):
            connection.abort()
        await asyncio.sleep(0)  # until the loop has closed them

    def _accept(self, listener: socket.socket, new_handler: Callable[[], Handler]) -> None:
        """Accept one connection; the loop calls this again in its next pass, so handshakes go on in between."""
        try:
            connection, (peer, *_) = listener.accept()
        except OSError as error:
            if not isinstance(error, BlockingIOError | ConnectionError):  # the client has not gone: no file is left
                self._exhausted.set()
            return
        if not self._context or self._pending[peer] >= HANDSHAKES_PER_ADDRESS or self.pending >= HANDSHAKES:
            connection.close()
            return
        connection.setblocking(False)
        greeting = self._greet(connection, peer, self._context, new_handler())
        self._pending[peer] += 1
        handshake = asyncio.create_task(greeting)
        self._handshakes[handshake] = connection
        handshake.add_done_callback(self._handshakes.pop)

    async def _greet(self, connection: socket.socket, peer: str, context: ServerContext, handler: Handler) -> None:
        """Shake hands; then the handler has the connection, if its client is the front proxy."""
        try:
            transport, _ = await asyncio.get_running_loop().connect_accepted_socket(
                lambda: handler,
                connection,
                ssl=context,
                ssl_handshake_timeout=self.handshake_seconds,
                ssl_shutdown_timeout=_SHUTDOWN_SECONDS,
            )
        except OSError as error:  # TLS errors and time-outs among them
            error.__traceback__ = None  # or this and the handler keep themselves: 80 KiB until a full collection
            handler.connection_lost(error)
            return
        finally:
            self._pending[peer] -= 1
            if not self._pending[peer]:
                del self._pending[peer]
        self._open.add(transport)
        if not self._is_front_proxy(transport.get_extra_info("peercert")):
            transport.abort()
