"""A gRPC connection to a Nacos server, which says over it when a service changed. Needs the extra `nacos`.

Pushes carry the new state too. It is not read: lists show more, and reading them alone needs no order between the two.

The protobuf envelope of the messages is encoded and decoded here by hand:

    Payload  { Metadata metadata = 2; Any body = 3; }
    Metadata { string type = 3; map<string, string> headers = 7; string clientIp = 8; }
    Any      { bytes value = 2; }                            # JSON
"""

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import grpc  # type: ignore[import-untyped]
import grpc.aio  # type: ignore[import-untyped]
import msgspec

from adapter.registries.nacos.lists import NacosService
from adapter.registries.nacos.login import Login
from adapter.runtime.decoding import Decoder
from adapter.runtime.http import LARGEST_ANSWER
from adapter.runtime.source_errors import (
    NotAllowed,
    NotAuthenticated,
    SourceError,
    SourceFailing,
    SourceUnreachable,
    WrongRegistryAnswer,
)
from adapter.settings.registries import NacosRegistry

_CALL = "/Request/request"
_STREAM = "/BiRequestStream/requestBiStream"
_OPTIONS = (
    ("grpc.max_receive_message_length", LARGEST_ANSWER),
    ("grpc.enable_http_proxy", 0),
    ("grpc.enable_retries", 0),
    # Nacos identifies a client by its TCP connection, so a new channel must not reuse one.
    ("grpc.use_local_subchannel_pool", 1),
)
_REGISTRATION_POLL_SECONDS = 0.05
_BYTES = 2
_SIZES = {0: 0, 1: 8, _BYTES: 0, 5: 4}
"""Of the types of protobuf: bytes of a value, 0 if they vary."""


class Payload(NamedTuple):
    """A gRPC message: the name of its type, and its body in JSON."""

    type: str
    body: bytes


class NotRegistered(SourceUnreachable):
    """The connection is not registered at the server: not yet, or no longer."""


class _ResponseHead(msgspec.Struct, rename="camel"):
    result_code: int = 0
    error_code: int = 0
    message: str | None = None


class _ServiceName(msgspec.Struct, rename="camel"):
    name: str = ""
    group_name: str = ""


class _ServerRequest(msgspec.Struct, rename="camel"):
    """A request that the server sends; a NotifySubscriberRequest has `service_info`. Nacos omits the namespace."""

    request_id: str = ""
    service_info: _ServiceName | None = None


_RESPONSE, _SERVER_REQUEST = Decoder(_ResponseHead), Decoder(_ServerRequest)
_ERRORS: Mapping[int, type[SourceError]] = {401: NotAuthenticated, 403: NotAllowed, 301: NotRegistered}


def grpc_address(server: str, port_offset: int) -> tuple[str, bool]:
    """The gRPC address that belongs to a server's HTTP address: `host:port`, and whether it speaks TLS."""
    parts = urlsplit(server)
    secure = parts.scheme == "https"
    host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
    return f"{host}:{(parts.port or (443 if secure else 80)) + port_offset}", secure


class PushConnection:
    """A connection to a server (HTTP address) from `open` to `close`; every method raises SourceError."""

    def __init__(self, settings: NacosRegistry, server: str, login: Login) -> None:
        self._settings = settings
        self._server = server
        self._login = login
        self._address, self._secure = grpc_address(server, settings.grpc_port_offset)
        self._name = f"gRPC {self._address}"
        self._channel: Any = None
        self._stream: Any = None
        self._request_count = 0

    async def open(self) -> None:
        """Connects, opens the stream, and waits until the server has registered the connection."""
        if self._secure:
            tls = self._settings.tls
            files = (tls.ca_file, tls.key_file or tls.cert_file, tls.cert_file)
            try:
                pems = await asyncio.to_thread(lambda: [Path(file).read_bytes() if file else None for file in files])
            except OSError as error:
                raise SourceUnreachable(f"credentials: cannot read {error.filename}: {error.strerror}") from error
            secured = grpc.ssl_channel_credentials(*pems)
            self._channel = grpc.aio.secure_channel(self._address, secured, options=_OPTIONS)
        else:
            self._channel = grpc.aio.insecure_channel(self._address, options=_OPTIONS)
        await self._request("ServerCheckRequest", {})
        self._stream = self._channel.stream_stream(_STREAM)()
        tenant = self._settings.place("", "")[0]
        labels = {"source": "sdk", "module": "naming", "AppName": "effective-load"}
        await self._write(
            "ConnectionSetupRequest", {"clientVersion": "effective-load", "tenant": tenant, "labels": labels}
        )
        deadline = asyncio.get_running_loop().time() + self._settings.timeout_seconds
        while True:
            try:
                return await self.health_check()
            except NotRegistered:
                if asyncio.get_running_loop().time() > deadline:
                    raise
            await asyncio.sleep(_REGISTRATION_POLL_SECONDS)

    async def health_check(self) -> None:
        """Checks that the server answers and that the connection is still registered."""
        await self._request("HealthCheckRequest", {})

    async def subscribe(self, service: NacosService, *, subscribe: bool = True) -> None:
        """Begins or ends a subscription to all clusters of a service."""
        request = {
            "namespace": service.namespace,
            "groupName": service.group,
            "serviceName": service.name,
            "clusters": "",
            "subscribe": subscribe,
        }
        await self._login.authenticated(
            self._server,
            service.grouped_name,
            lambda credentials: self._request("SubscribeServiceRequest", request, credentials.grpc_headers),
        )

    async def changes(self) -> AsyncIterator[str]:
        """Yields `group@@service` of each pushed service, and acknowledges every request. Raises at the stream's end.

        Nacos omits the namespace, so a push may be about several services.
        """
        try:
            # The stream's own iterator would keep a reference cycle with it when the loop is left early.
            while (message := await self._stream.read()) is not grpc.aio.EOF:
                payload = decode_payload(message)
                request = self._decode(_SERVER_REQUEST, payload.body)
                # XRequest is acknowledged by an XResponse with the same id.
                done = {"resultCode": 200, "errorCode": 0, "success": True, "requestId": request.request_id}
                await self._write(payload.type.removesuffix("Request") + "Response", done)
                if payload.type == "ConnectResetRequest":
                    raise SourceUnreachable(f"{self._name}: the server asked for a new connection")
                if (service := request.service_info) is not None:
                    # Some servers write the group into the name.
                    yield service.name if "@@" in service.name else f"{service.group_name}@@{service.name}"
        except grpc.aio.AioRpcError as error:
            raise self._transport_error(error) from error
        raise SourceUnreachable(f"{self._name}: the server ended the stream")

    async def close(self) -> None:
        """Closes the stream and the connection."""
        # gRPC closes the TCP connection once the channel is unreferenced. An error that is kept may refer to this
        # object, so its references are dropped here instead of waiting for a garbage collection.
        channel, self._channel, self._stream = self._channel, None, None
        if channel is not None:
            await channel.close()

    async def _request(self, kind: str, body: Mapping[str, object], headers: Mapping[str, str] | None = None) -> None:
        """Sends a request and checks its response. `headers` go into the envelope."""
        self._request_count += 1
        content = {**body, "requestId": str(self._request_count), "module": "naming"}
        message = encode_payload(Payload(kind, msgspec.json.encode(content)), headers or {})
        try:
            call = self._channel.unary_unary(_CALL)
            answer = decode_payload(await call(message, timeout=self._settings.timeout_seconds))
        except grpc.aio.AioRpcError as error:
            raise self._transport_error(error) from error
        head = self._decode(_RESPONSE, answer.body)
        if answer.type == "ErrorResponse" or head.result_code != 200:
            code = head.error_code or head.result_code
            failure = _ERRORS.get(code, SourceFailing)
            raise failure(f"{self._name}: {head.message or 'no reason given'} (code {code})")

    async def _write(self, kind: str, body: Mapping[str, object]) -> None:
        try:
            async with asyncio.timeout(self._settings.timeout_seconds):
                await self._stream.write(encode_payload(Payload(kind, msgspec.json.encode(body)), {}))
        except grpc.aio.AioRpcError as error:
            raise self._transport_error(error) from error
        except (TimeoutError, asyncio.InvalidStateError) as error:
            raise SourceUnreachable(f"{self._name}: the stream does not accept messages") from error

    def _decode(self, decoder: Decoder[Any], body: bytes) -> Any:
        try:
            return decoder.decode(body)
        except msgspec.MsgspecError as error:
            raise WrongRegistryAnswer(f"{self._name}: not what Nacos answers there: {error}") from error

    def _transport_error(self, error: grpc.aio.AioRpcError) -> SourceError:
        if error.code() is grpc.StatusCode.UNIMPLEMENTED:
            return WrongRegistryAnswer(f"{self._name}: the server is not Nacos; check `grpcPortOffset`")
        details = " ".join((error.details() or "").split())
        return SourceUnreachable(f"{self._name}: {error.code().name}: {details}")


def encode_payload(payload: Payload, headers: Mapping[str, str]) -> bytes:
    """Encodes the envelope."""
    entries = b"".join(_field(7, _field(1, key.encode()) + _field(2, value.encode())) for key, value in headers.items())
    return _field(2, _field(3, payload.type.encode()) + entries) + _field(3, _field(2, payload.body))


def decode_payload(data: bytes) -> Payload:
    """Decodes the envelope. Raises WrongRegistryAnswer."""
    try:
        parts = dict(_fields(data))
        metadata, body = dict(_fields(parts.get(2, b""))), dict(_fields(parts.get(3, b"")))
        return Payload(metadata.get(3, b"").decode(), body.get(2, b""))
    except ValueError as error:
        raise WrongRegistryAnswer("a gRPC message that Nacos does not send; is this its gRPC port?") from error


def _field(number: int, value: bytes) -> bytes:
    """A length-delimited field: tag, length as a varint, value."""
    head, left = bytearray([number << 3 | _BYTES]), len(value)
    while left > 0x7F:
        head.append(left & 0x7F | 0x80)
        left >>= 7
    return bytes([*head, left]) + value


def _fields(data: bytes) -> Iterator[tuple[int, bytes]]:
    """The length-delimited fields with their numbers; those of other types are skipped. Raises ValueError."""
    at = 0
    while at < len(data):
        tag, at = _varint(data, at)
        kind = tag & 7
        if kind not in _SIZES:
            raise ValueError(f"wire type {kind}")
        size = _SIZES[kind]
        if not size:
            number, at = _varint(data, at)
            size = number if kind == _BYTES else 0
        if at + size > len(data):
            raise ValueError("cut off")
        if kind == _BYTES:
            yield tag >> 3, data[at : at + size]
        at += size


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """The number at this place, and the place after it. Raises ValueError."""
    for end in range(at, min(at + 10, len(data))):
        if data[end] < 0x80:
            return sum((byte & 0x7F) << 7 * place for place, byte in enumerate(data[at : end + 1])), end + 1
    raise ValueError("a number without end")
