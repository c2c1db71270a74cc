"""The port of the metrics API: TLS for the front proxy alone.

A handshake without a certificate of the requestheader CA fails, so a stranger reaches neither HTTP nor a parser. The
standard library's TLS works on memory; asyncio's own would allocate 256 KiB for every connection and run each handshake
at once. A handshake is all that a stranger can ask for (half a millisecond of the event loop): strangers' handshakes
are few at a time, bounded in time and bytes, and take turns by address. An address that proved to be a front proxy has
its own places and waits for nobody.

Every change of certificate or CA makes a new context, because a CA cannot be removed from a live one. Sessions cannot
be resumed, so a client of a removed CA has to present its certificate again.
"""

import ipaddress
import os
import socket
import ssl
import sys
import tempfile
from collections.abc import Callable
from contextlib import suppress

from cachetools import TTLCache

from adapter.apiserver.authentication import Peer, peer_of
from adapter.apiserver.certificates import KeyPair
from adapter.apiserver.status import CertificateError
from adapter.runtime.fairness import EvictingPool, FairQueue
from adapter.runtime.inbound import READ_BYTES, Listener, SocketTransport

HANDSHAKE_SECONDS = 10.0
HANDSHAKE_BYTES = 8 * 1024
"""Largest input of a handshake; a certificate with 200 groups and an intermediate CA fit in. OpenSSL alone would read
100 KB of certificates before it rejects them."""
STRANGERS_HANDSHAKES, PROVEN_HANDSHAKES = 256, 640
"""Concurrent handshakes. An API server dials for each request that it forwards: by default it answers 600 at once, and
245 of one tenant, also while no address is proven yet. One takes 41 KiB."""
PROVEN_ADDRESSES, PROVEN_SECONDS = 64, 86400.0
"""How many addresses that presented the front proxy's certificate are remembered, and for how long."""
_STEP_BYTES = 2 * 1024
_SENT_BYTES = 64 * 1024
"""Encrypted bytes that are sent together: OpenSSL keeps the memory of the most that ever waited on a connection."""
_GROUP = "prime256v1"
"""The only group for key exchange. All clients support it, also in FIPS mode; OpenSSL's default list lets a client
choose ffdhe8192, which costs 120 ms of the event loop."""


def server_context(pair: KeyPair, authority: str) -> ssl.SSLContext:
    """A context that serves this pair, and requires a client certificate of this PEM bundle (the requestheader CA).

    Raises CertificateError. Call it off the event loop: it writes files, even if only in memory.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_TICKET | ssl.OP_NO_RENEGOTIATION
    context.num_tickets = 0
    context.set_alpn_protocols(["http/1.1"])
    context.set_ecdh_curve(_GROUP)
    context.verify_mode = ssl.CERT_REQUIRED
    # As Go verifies: any certificate of the bundle is an anchor, and CAs of managed clouds lack key identifiers.
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    try:
        _load_pair(context, pair)
        context.load_verify_locations(cadata=authority)
    except (ssl.SSLError, ValueError, OSError) as error:
        raise CertificateError(f"certificates cannot be loaded: {error}") from None
    return context


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


class TlsTransport(SocketTransport):
    """A connection with TLS. After the handshake its `peer` is known and `established` is called."""

    def __init__(self, connection: socket.socket, address: str, door: "Door", context: ssl.SSLContext) -> None:
        super().__init__(connection, address, door.lost)
        self.group = group_of(address)
        self.is_proven = self.group in door.proven
        self.is_answered = False
        """Whether a whole hello has come: one that says nothing, or half of it, loses its place first."""
        self.is_established = False
        self._door = door
        self._context = context
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls: ssl.SSLObject | None = None
        self._received = 0
        self._deadline = self._loop.call_later(HANDSHAKE_SECONDS, self.abort)

    def readable(self) -> None:
        if self.is_established:
            data = self.receive(READ_BYTES)
            if data is not None:
                self._incoming.write(data)
                self._decrypt()
        elif self.is_proven:
            self._handshake()
        else:
            self.pause_reading()
            self._door.queue.put(self.group, self._stranger_step)

    def _stranger_step(self) -> None:
        self.resume_reading()
        if self.is_reading():
            self._handshake()

    def _handshake(self) -> None:
        data = self.receive(_STEP_BYTES)
        if data is None:
            return
        self._received += len(data)
        if self._received > HANDSHAKE_BYTES:
            self.abort()
            return
        if self._tls is None:
            self._tls = self._context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self._incoming.write(data)
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            self.is_answered = self.is_answered or self._outgoing.pending > 0
            self.send(self._outgoing.read())
            return
        except ssl.SSLError:
            self.send(self._outgoing.read())  # the alert
            self.close()
            return
        self.send(self._outgoing.read())
        self._deadline.cancel()
        peer = peer_of(self._tls)
        if peer is None or not self._door.is_front_proxy(peer):
            self.close()
            return
        self.details["peer"] = peer
        self.is_established = True
        self.pause_reading()  # until HTTP is attached
        self._door.established(self)
        self._decrypt()  # what came together with the end of the handshake

    def _decrypt(self) -> None:
        try:
            while (tls := self._tls) is not None and (self._incoming.pending or tls.pending()):
                data = tls.read(READ_BYTES)
                if not data:
                    self.close()
                if self._protocol is None or self._is_closing:
                    return
                self._protocol.data_received(data)
        except ssl.SSLWantReadError:
            if self._outgoing.pending:  # the answer to a key update
                self.send(self._outgoing.read())
        except ssl.SSLError:
            self.abort()

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if self._tls is None or self._is_closing:
            return
        rest = memoryview(data)
        while rest:
            rest = rest[self._tls.write(rest) :]
            if not rest or self._outgoing.pending >= _SENT_BYTES:
                self.send(self._outgoing.read())

    def close(self) -> None:
        if not self._is_closing and self._tls is not None and self.is_established:
            with suppress(ssl.SSLError):  # it puts the notice of closing into the outgoing bytes, and awaits the peer's
                self._tls.unwrap()
            self.send(self._outgoing.read())
        super().close()

    def lose(self, error: Exception | None) -> None:
        self._deadline.cancel()
        super().lose(error)
        self._tls = None


def group_of(address: str) -> str:
    """The addresses that share turns and places with this one: itself, or its /64 for IPv6."""
    try:
        parsed = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(parsed, ipaddress.IPv4Address):
        return address
    if parsed.ipv4_mapped is not None:
        return str(parsed.ipv4_mapped)
    return str(ipaddress.IPv6Address(int(parsed) >> 64 << 64))


class Door(Listener):
    """Accepts connections, and passes those of the front proxy to `established`, each with its `peer`.

    Until `use` is called, no handshake succeeds. `is_front_proxy` checks the name of a verified certificate;
    `ended` is called for a connection that was established.
    """

    def __init__(
        self,
        address: str,
        port: int,
        *,
        is_front_proxy: Callable[[Peer], bool],
        established: Callable[[TlsTransport], None],
        ended: Callable[[TlsTransport], None],
    ) -> None:
        super().__init__(address, port, self._admit)
        self.is_front_proxy = is_front_proxy
        self.queue = FairQueue()
        self.proven: TTLCache[str, None] = TTLCache(PROVEN_ADDRESSES, PROVEN_SECONDS)
        self._established = established
        self._ended = ended
        self._context: ssl.SSLContext | None = None
        self._handshakes = {
            is_proven: EvictingPool[TlsTransport](most, lambda each: each.group)
            for is_proven, most in ((True, PROVEN_HANDSHAKES), (False, STRANGERS_HANDSHAKES))
        }

    def use(self, context: ssl.SSLContext | None) -> None:
        """Use this context for new handshakes (None: nobody can connect)."""
        self._context = context

    def close(self) -> None:
        """Stop accepting connections and abort handshakes."""
        super().close()
        self.abort_handshakes()

    def abort_handshakes(self) -> None:
        """Abort the handshakes with the contexts before."""
        for pool in self._handshakes.values():
            for handshake in list(pool):
                handshake.abort()

    def _admit(self, connection: socket.socket, address: str) -> None:
        if self._context is None:
            connection.close()
            return
        try:
            transport = TlsTransport(connection, address, self, self._context)
        except OSError:  # it has gone already
            connection.close()
            return
        victim = self._handshakes[transport.is_proven].add(transport, lambda each: each.is_answered)
        transport.resume_reading()
        if victim is not None:
            self._handshakes[victim.is_proven].discard(victim)
            victim.abort()

    def established(self, transport: TlsTransport) -> None:
        """The handshake proved the front proxy's certificate."""
        self._handshakes[transport.is_proven].discard(transport)
        self.proven[transport.group] = None
        self._established(transport)

    def lost(self, transport: TlsTransport) -> None:
        """The connection has ended."""
        self._handshakes[transport.is_proven].discard(transport)
        if transport.is_established:
            self._ended(transport)
