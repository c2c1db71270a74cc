"""One gRPC connection to Nacos: a stream on which the server pushes, and calls beside it. Needs the extra `nacos`."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import grpc  # type: ignore[import-untyped]
import grpc.aio  # type: ignore[import-untyped]
import msgspec

from adapter.registries.nacos.wire import Notification, Payload, Response, decode, encode, reading
from adapter.runtime.decoding import Decoder
from adapter.runtime.outbound import LARGEST_ANSWER
from adapter.runtime.source_errors import (
    NotAllowed,
    NotAuthenticated,
    SourceError,
    SourceFailing,
    SourceUnreachable,
    WrongRegistryAnswer,
)
from adapter.settings.registries import RegistryTls

_CALL = "/Request/request"
_STREAM = "/BiRequestStream/requestBiStream"
_OPTIONS = (
    ("grpc.max_receive_message_length", LARGEST_ANSWER),
    ("grpc.enable_http_proxy", 0),
    ("grpc.enable_retries", 0),
    # Nacos knows a client by its TCP connection, so a new client may not find itself on an old one.
    ("grpc.use_local_subchannel_pool", 1),
)
_UNREGISTERED = 301
_SETTLING_SECONDS = 0.05

_RESPONSE = Decoder(Response).decode
_NOTIFICATION = Decoder(Notification).decode


class NotRegistered(SourceUnreachable):
    """The server does not know this connection, yet or any more."""


class Target(NamedTuple):
    """Where to connect: `host:port`, and whether by TLS."""

    address: str
    secure: bool


def target(server: str, port_offset: int) -> Target:
    """The gRPC side of a server's HTTP address."""
    parts = urlsplit(server)
    secure = parts.scheme == "https"
    host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
    return Target(f"{host}:{(parts.port or (443 if secure else 80)) + port_offset}", secure)


def credentials(tls: RegistryTls) -> grpc.ChannelCredentials:
    """TLS credentials from their files. Reads files: not for the event loop. Raises SourceUnreachable."""
    try:
        authorities, certificate, key = (_read(f) for f in (tls.ca_file, tls.cert_file, tls.key_file or tls.cert_file))
    except OSError as error:
        raise SourceUnreachable(f"credentials: cannot read {error.filename}: {error.strerror}") from error
    return grpc.ssl_channel_credentials(authorities, key, certificate)


def _read(file: str) -> bytes | None:
    if not file:
        return None
    with open(file, "rb") as opened:  # noqa: PTH123  as short as Path's
        return opened.read()


class Connection:
    """A connection that is set up by `begin` and lasts until `close`; every method raises SourceError."""

    def __init__(self, where: Target, tls: grpc.ChannelCredentials | None, timeout: float) -> None:
        self.name = f"gRPC {where.address}"
        self._timeout = timeout
        self._channel = _channel(where, tls)
        self._request = self._channel.unary_unary(_CALL)
        self._stream: Any = None
        self._calls = 0

    async def begin(self, namespace: str) -> None:
        """Greet the server and open the stream."""
        await self.call("ServerCheckRequest", {})
        self._stream = self._channel.stream_stream(_STREAM)()
        labels = {"source": "sdk", "module": "naming", "AppName": "effective-load"}
        await self._write(
            "ConnectionSetupRequest", {"clientVersion": "effective-load", "tenant": namespace, "labels": labels}
        )

    async def registered(self) -> None:
        """Wait until the server knows this connection: it takes it up beside the stream, a moment later."""
        until = asyncio.get_running_loop().time() + self._timeout
        while True:
            try:
                return await self.check()
            except NotRegistered:
                if asyncio.get_running_loop().time() > until:
                    raise
            await asyncio.sleep(_SETTLING_SECONDS)

    async def check(self) -> None:
        """Ask whether the server is there and still knows this connection."""
        await self.call("HealthCheckRequest", {})

    async def call(self, kind: str, body: Mapping[str, object], fields: Mapping[str, str] | None = None) -> bytes:
        """Send a request; the JSON of the answer. `fields` go into the envelope."""
        self._calls += 1
        content = {**body, "requestId": str(self._calls), "module": "naming"}
        message = encode(Payload(kind, msgspec.json.encode(content)), fields or {})
        try:
            answer = decode(await self._request(message, timeout=self._timeout))
        except grpc.aio.AioRpcError as error:
            raise self._lost(error) from error
        self._judge(answer)
        return answer.body

    async def pushes(self) -> AsyncIterator[Notification]:
        """What the server tells about services, each acknowledged. Ends with an error, when the stream does."""
        try:
            # Not as an iterator, which would refer to the stream, and the stream to it, when it is left early.
            while (message := await self._stream.read()) is not grpc.aio.EOF:
                payload = decode(message)
                told = reading(_NOTIFICATION, payload.body, self.name)
                await self._acknowledge(payload.type, told)
                if payload.type == "ConnectResetRequest":
                    raise SourceUnreachable(f"{self.name}: the server asked to connect anew")
                if payload.type == "NotifySubscriberRequest":
                    yield told
        except grpc.aio.AioRpcError as error:
            raise self._lost(error) from error
        raise SourceUnreachable(f"{self.name}: the server ended the stream")

    async def close(self) -> None:
        """End the stream and the connection."""
        channel = self._channel
        # gRPC ends its TCP connection when nothing refers to the channel any more, and to wait for a collection of
        # garbage could be long: an error that is kept somewhere refers to this object.
        self._channel = self._request = self._stream = None
        await channel.close()

    async def _acknowledge(self, kind: str, told: Notification) -> None:
        # Every request of the server has its response by this rule; what it waits for is the id.
        body = {"resultCode": 200, "errorCode": 0, "success": True, "requestId": told.request_id}
        await self._write(kind.removesuffix("Request") + "Response", body)

    async def _write(self, kind: str, body: Mapping[str, object]) -> None:
        try:
            async with asyncio.timeout(self._timeout):
                await self._stream.write(encode(Payload(kind, msgspec.json.encode(body)), {}))
        except grpc.aio.AioRpcError as error:
            raise self._lost(error) from error
        except (TimeoutError, asyncio.InvalidStateError) as error:
            raise SourceUnreachable(f"{self.name}: the stream takes nothing") from error

    def _judge(self, answer: Payload) -> None:
        head = reading(_RESPONSE, answer.body, self.name)
        if answer.type != "ErrorResponse" and head.result_code == 200:
            return
        code = head.error_code or head.result_code
        kind = _ERRORS.get(code, SourceFailing)
        raise kind(f"{self.name}: {head.message or 'no reason given'} (code {code})")

    def _lost(self, error: grpc.aio.AioRpcError) -> SourceError:
        if error.code() is grpc.StatusCode.UNIMPLEMENTED:
            return WrongRegistryAnswer(f"{self.name}: no Nacos answers there; look at `grpcPortOffset`")
        details = " ".join((error.details() or "").split())
        return SourceUnreachable(f"{self.name}: {error.code().name}: {details}")


_ERRORS: Mapping[int, type[SourceError]] = {401: NotAuthenticated, 403: NotAllowed, _UNREGISTERED: NotRegistered}


def _channel(where: Target, tls: grpc.ChannelCredentials | None) -> Any:
    if tls is None:
        return grpc.aio.insecure_channel(where.address, options=_OPTIONS)
    return grpc.aio.secure_channel(where.address, tls, options=_OPTIONS)
