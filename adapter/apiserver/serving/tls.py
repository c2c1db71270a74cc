"""TLS contexts, and a listening socket whose context can be replaced.

Every change of certificate or client CAs makes a new context, because a CA cannot be removed from a live one. Open
connections keep their context; `requestheader.Peer` is checked at each request. Sessions cannot be resumed, neither by
ticket nor (across a change) from the context's cache, so a client of a removed CA has to present its certificate again.
"""

import asyncio
import os
import socket
import ssl
import sys
import tempfile
from contextlib import suppress
from weakref import WeakKeyDictionary

from adapter.apiserver.serving.certificates import KeyPair
from adapter.apiserver.serving.handshakes import TlsConnection
from adapter.apiserver.status import CertificateError
from adapter.inbound import sockets
from adapter.inbound.connections import DEFAULT_LIMITS, ConnectionLimits, InboundConnections
from adapter.inbound.fairness import EvictingPool

_SETTLE_SECONDS = 1.0
_GROUP = "prime256v1"
"""The only group for key exchange. All clients support it, also in FIPS mode; OpenSSL's default list lets a client
choose ffdhe8192, which costs 120 ms of the event loop."""
_TURNS = 3  # passes of the event loop from accepting a connection to its handshake, and one to spare


def server_context(pair: KeyPair, authority: str) -> ssl.SSLContext:
    """A context that serves this pair and verifies clients against this PEM bundle (`AuthenticationConfig.ca_bundle`).

    With an empty bundle it requests no client certificate. Raises CertificateError. Call it off the event loop: it
    writes files, even if only in memory.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_TICKET | ssl.OP_NO_RENEGOTIATION
    context.num_tickets = 0
    context.set_alpn_protocols(["http/1.1"])
    context.set_ecdh_curve(_GROUP)
    try:
        _load_pair(context, pair)
        if authority:
            _verify_clients(context, authority)
    except (ssl.SSLError, ValueError, OSError) as error:
        raise CertificateError(f"certificates cannot be loaded: {error}") from None
    return context


def _verify_clients(context: ssl.SSLContext, authority: str) -> None:
    context.verify_mode = ssl.CERT_OPTIONAL
    # As Go verifies: any certificate of the bundle is an anchor, and CAs of managed clouds lack key identifiers.
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    context.load_verify_locations(cadata=authority)


def _load_pair(context: ssl.SSLContext, pair: KeyPair) -> None:
    """Load the PEM texts. OpenSSL reads them from files only; on Linux that file is in memory."""
    content = f"{pair.certificate}\n{pair.key}".encode()
    if sys.platform == "linux":
        descriptor = os.memfd_create("serving")
        with open(descriptor, "wb") as file:  # noqa: PTH123 - there is no path
            file.write(content)
            file.flush()
            context.load_cert_chain(f"/proc/self/fd/{descriptor}")
    else:
        with tempfile.NamedTemporaryFile() as file:
            file.write(content)
            file.flush()
            context.load_cert_chain(file.name)


class Listener:
    """A listening socket that outlives the contexts it is served with."""

    def __init__(self, address: str, port: int, limits: ConnectionLimits = DEFAULT_LIMITS) -> None:
        self._address = (address, port)
        self._socket: socket.socket | None = None
        self._server: asyncio.Server | None = None
        self._handshakes: EvictingPool[TlsConnection] = EvictingPool(limits.handshakes, lambda one: one.address)
        self._authorities: WeakKeyDictionary[ssl.SSLContext, str] = WeakKeyDictionary()

    @property
    def port(self) -> int:
        """The port it listens on, 0 before `serve`."""
        return int(self._socket.getsockname()[1]) if self._socket else 0

    def authority_of(self, context: ssl.SSLContext) -> str:
        """The CA bundle that a context verifies clients against."""
        return self._authorities.get(context, "")

    async def serve(self, connections: InboundConnections, context: ssl.SSLContext, authority: str) -> None:
        """Use this context for new connections; open ones keep theirs.

        Waits a moment for handshakes of the previous context, so that the caller can then close any of its connections.
        """
        if self._socket is None:
            self._socket = sockets.listening_socket(*self._address)
        self._authorities[context] = authority
        before = self._server
        self._server = await sockets.start_server(
            self._socket.dup(), lambda: TlsConnection(connections, self._handshakes, context)
        )
        if before is not None:
            await _retire(before)
            await _settled(list(self._handshakes))

    def close(self) -> None:
        """Stop accepting connections and abort handshakes."""
        if self._server is not None:
            self._server.close()
        if self._socket is not None:
            self._socket.close()
        for handshake in list(self._handshakes):
            handshake.abandon()


async def _retire(server: asyncio.Server) -> None:
    """Stop accepting, and close after the connections just accepted have started: a closed server would drop them."""
    loop = asyncio.get_running_loop()
    for listening in server.sockets:
        loop.remove_reader(listening.fileno())
    try:
        for _ in range(_TURNS):
            await asyncio.sleep(0)
    finally:
        server.close()


async def _settled(handshakes: list[TlsConnection]) -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(_SETTLE_SECONDS):
            for handshake in handshakes:
                await handshake.settled.wait()
