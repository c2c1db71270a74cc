"""One gRPC connection to Nacos: unary requests, and a stream for the server's requests. Needs the extra `nacos`."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import grpc  # type: ignore[import-untyped]
import grpc.aio  # type: ignore[import-untyped]
import msgspec

from adapter.registries.nacos.wire import (
    Payload,
    ResponseHead,
    ServerRequest,
    decode_body,
    decode_payload,
    encode_payload,
)
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
    # Nacos identifies a client by its TCP connection, so a new channel must not reuse one.
    ("grpc.use_local_subchannel_pool", 1),
)
_UN_REGISTER = 301
_REGISTRATION_POLL_SECONDS = 0.05

_RESPONSE = Decoder(ResponseHead).decode
_SERVER_REQUEST = Decoder(ServerRequest).decode


class NotRegistered(SourceUnreachable):
    """The connection is not registered at the server: not yet, or no longer."""


class GrpcAddress(NamedTuple):
    """The gRPC port of a server: `host:port`, and whether it speaks TLS."""

    host_port: str
    secure: bool


def grpc_address(server: str, port_offset: int) -> GrpcAddress:
    """The gRPC address that belongs to a server's HTTP address."""
    parts = urlsplit(server)
    secure = parts.scheme == "https"
    host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
    return GrpcAddress(f"{host}:{(parts.port or (443 if secure else 80)) + port_offset}", secure)


def channel_credentials(tls: RegistryTls) -> grpc.ChannelCredentials:
    """Reads TLS credentials from their files; blocking. Raises SourceUnreachable."""
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


class GrpcConnection:
    """A connection from `open` to `close`; every method raises SourceError."""

    def __init__(self, address: GrpcAddress, tls: grpc.ChannelCredentials | None, timeout: float) -> None:
        self.name = f"gRPC {address.host_port}"
        self._timeout = timeout
        self._channel = _channel(address, tls)
        self._unary = self._channel.unary_unary(_CALL)
        self._stream: Any = None
        self._request_count = 0

    async def open(self, namespace: str) -> None:
        """Checks the server and opens the stream."""
        await self.request("ServerCheckRequest", {})
        self._stream = self._channel.stream_stream(_STREAM)()
        labels = {"source": "sdk", "module": "naming", "AppName": "effective-load"}
        await self._write(
            "ConnectionSetupRequest", {"clientVersion": "effective-load", "tenant": namespace, "labels": labels}
        )

    async def wait_until_registered(self) -> None:
        """Waits until the server has registered the connection, which it does shortly after the stream opens."""
        deadline = asyncio.get_running_loop().time() + self._timeout
        while True:
            try:
                return await self.health_check()
            except NotRegistered:
                if asyncio.get_running_loop().time() > deadline:
                    raise
            await asyncio.sleep(_REGISTRATION_POLL_SECONDS)

    async def health_check(self) -> None:
        """Checks that the server answers and the connection is still registered."""
        await self.request("HealthCheckRequest", {})

    async def request(self, kind: str, body: Mapping[str, object], headers: Mapping[str, str] | None = None) -> bytes:
        """Sends a request and returns the JSON of its response. `headers` go into the envelope."""
        self._request_count += 1
        content = {**body, "requestId": str(self._request_count), "module": "naming"}
        message = encode_payload(Payload(kind, msgspec.json.encode(content)), headers or {})
        try:
            answer = decode_payload(await self._unary(message, timeout=self._timeout))
        except grpc.aio.AioRpcError as error:
            raise self._transport_error(error) from error
        self._raise_for_code(answer)
        return answer.body

    async def pushes(self) -> AsyncIterator[ServerRequest]:
        """Yields NotifySubscriberRequests, and acknowledges every request. Raises when the stream ends."""
        try:
            # The stream's own iterator would keep a reference cycle with it when the loop is left early.
            while (message := await self._stream.read()) is not grpc.aio.EOF:
                payload = decode_payload(message)
                request = decode_body(_SERVER_REQUEST, payload.body, self.name)
                await self._acknowledge(payload.type, request)
                if payload.type == "ConnectResetRequest":
                    raise SourceUnreachable(f"{self.name}: the server asked for a new connection")
                if payload.type == "NotifySubscriberRequest":
                    yield request
        except grpc.aio.AioRpcError as error:
            raise self._transport_error(error) from error
        raise SourceUnreachable(f"{self.name}: the server ended the stream")

    async def close(self) -> None:
        """Closes the stream and the connection."""
        channel = self._channel
        # gRPC closes the TCP connection once the channel is unreferenced. An error that is kept may refer to this
        # object, so its references are dropped here instead of waiting for a garbage collection.
        self._channel = self._unary = self._stream = None
        await channel.close()

    async def _acknowledge(self, kind: str, request: ServerRequest) -> None:
        # XRequest is acknowledged by an XResponse with the same id.
        body = {"resultCode": 200, "errorCode": 0, "success": True, "requestId": request.request_id}
        await self._write(kind.removesuffix("Request") + "Response", body)

    async def _write(self, kind: str, body: Mapping[str, object]) -> None:
        try:
            async with asyncio.timeout(self._timeout):
                await self._stream.write(encode_payload(Payload(kind, msgspec.json.encode(body)), {}))
        except grpc.aio.AioRpcError as error:
            raise self._transport_error(error) from error
        except (TimeoutError, asyncio.InvalidStateError) as error:
            raise SourceUnreachable(f"{self.name}: the stream does not accept messages") from error

    def _raise_for_code(self, answer: Payload) -> None:
        head = decode_body(_RESPONSE, answer.body, self.name)
        if answer.type != "ErrorResponse" and head.result_code == 200:
            return
        code = head.error_code or head.result_code
        kind = _ERRORS.get(code, SourceFailing)
        raise kind(f"{self.name}: {head.message or 'no reason given'} (code {code})")

    def _transport_error(self, error: grpc.aio.AioRpcError) -> SourceError:
        if error.code() is grpc.StatusCode.UNIMPLEMENTED:
            return WrongRegistryAnswer(f"{self.name}: the server is not Nacos; check `grpcPortOffset`")
        details = " ".join((error.details() or "").split())
        return SourceUnreachable(f"{self.name}: {error.code().name}: {details}")


_ERRORS: Mapping[int, type[SourceError]] = {401: NotAuthenticated, 403: NotAllowed, _UN_REGISTER: NotRegistered}


def _channel(address: GrpcAddress, tls: grpc.ChannelCredentials | None) -> Any:
    if tls is None:
        return grpc.aio.insecure_channel(address.host_port, options=_OPTIONS)
    return grpc.aio.secure_channel(address.host_port, tls, options=_OPTIONS)
