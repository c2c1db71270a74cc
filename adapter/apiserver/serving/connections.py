"""HTTP connections that know their TLS peer, and answer unreadable requests with a Status too."""

import asyncio
import ssl
from collections.abc import Callable
from http import HTTPStatus
from typing import Any

from aiohttp import web

from adapter.apiserver import status
from adapter.apiserver.authentication.requestheader import NO_CERTIFICATE, Peer, peer_of
from adapter.inbound import connections as inbound
from adapter.inbound.connections import DEFAULT_LIMITS, ConnectionLimits, Handle

AuthorityOf = Callable[[ssl.SSLContext], str]


class PeerConnection(inbound.InboundConnection):
    """A connection with its `peer` from the handshake; the front proxy is a known client."""

    __slots__ = ("_server", "peer")

    def __init__(self, owner: "PeerConnections", **options: Any) -> None:
        super().__init__(owner, **options)
        self.peer: Peer = NO_CERTIFICATE
        self._server = owner

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Read the peer once."""
        self.peer = peer_of(transport, self._server.authority_of)
        super().connection_made(transport)

    def is_known(self) -> bool:
        return self._server.is_front_proxy(self.peer)

    def refusal(self, code: int, message: str) -> web.StreamResponse:
        """A Status for a request that cannot be parsed."""
        if code == HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE:
            error = status.head_too_large(message)
        else:
            error = status.bad_request(message) if code < 500 else status.internal(message)
        return web.Response(body=status.encode_status(error), status=int(error.code), content_type="application/json")


class PeerConnections(inbound.InboundConnections):
    """Makes connections and tracks them."""

    connection_type = PeerConnection

    def __init__(
        self,
        handle: Handle,
        authority_of: AuthorityOf,
        is_front_proxy: Callable[[Peer], bool] = lambda _: False,
        limits: ConnectionLimits = DEFAULT_LIMITS,
    ) -> None:
        super().__init__(handle, limits)
        self.authority_of = authority_of
        self.is_front_proxy = is_front_proxy

    def dismiss(self, is_welcome: Callable[[Peer], bool]) -> None:
        """Close the connections whose peer is no longer welcome: idle ones now, others after their answer."""
        for connection in self.connections:
            if isinstance(connection, PeerConnection) and not is_welcome(connection.peer):
                connection.close_when_idle()
