"""A gRPC connection to a Nacos server, over which it pushes changes. Needs the extra `nacos`."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import grpc  # type: ignore[import-untyped]
import grpc.aio  # type: ignore[import-untyped]
import msgspec

from adapter.registries.nacos.http import CredentialProvider
from adapter.registries.nacos.wire import (
    NacosService,
    Payload,
    ResponseHead,
    ServerRequest,
    ServiceInfo,
    SubscribeServiceResponse,
    UnreadableRequest,
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
_UN_REGISTER = 301
_REGISTRATION_POLL_SECONDS = 0.05

RESPONSE = Decoder(ResponseHead)
SUBSCRIBED = Decoder(SubscribeServiceResponse)
SERVER_REQUEST = Decoder(ServerRequest)
UNREADABLE_REQUEST = Decoder(UnreadableRequest)


class NotRegistered(SourceUnreachable):
    """The connection is not registered at the server: not yet, or no longer."""


def grpc_address(server: str, port_offset: int) -> tuple[str, bool]:
    """The gRPC address that belongs to a server's HTTP address: `host:port`, and whether it speaks TLS."""
    parts = urlsplit(server)
    secure = parts.scheme == "https"
    host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
    return f"{host}:{(parts.port or (443 if secure else 80)) + port_offset}", secure


class GrpcConnection:
    """A connection to a server (HTTP address) from `open` to `close`; every method raises SourceError."""

    def __init__(self, settings: NacosRegistry, server: str, credentials: CredentialProvider) -> None:
        self.server = server
        self._settings = settings
        self._credentials = credentials
        self._address, self._secure = grpc_address(server, settings.grpc_port_offset)
        self._name = f"gRPC {self._address}"
        self._channel: Any = None
        self._stream: Any = None
        self._request_count = 0

    async def open(self) -> None:
        """Connects, checks the server and opens the stream."""
        if self._secure:
            tls = self._settings.tls
            files = (tls.ca_file, tls.key_file or tls.cert_file, tls.cert_file)
            try:
                pems = await asyncio.to_thread(lambda: [Path(file).read_bytes() if file else None for file in files])
            except OSError as error:
                raise SourceUnreachable(f"credentials: cannot read {error.filename}: {error.strerror}") from error
            self._channel = grpc.aio.secure_channel(
                self._address, grpc.ssl_channel_credentials(*pems), options=_OPTIONS
            )
        else:
            self._channel = grpc.aio.insecure_channel(self._address, options=_OPTIONS)
        await self._request("ServerCheckRequest", {})
        self._stream = self._channel.stream_stream(_STREAM)()
        tenant = self._settings.place("", "")[0]
        labels = {"source": "sdk", "module": "naming", "AppName": "effective-load"}
        await self._write(
            "ConnectionSetupRequest", {"clientVersion": "effective-load", "tenant": tenant, "labels": labels}
        )

    async def wait_until_registered(self) -> None:
        """Waits until the server has registered the connection, which it does shortly after the stream opens."""
        deadline = asyncio.get_running_loop().time() + self._settings.timeout_seconds
        while True:
            try:
                return await self.health_check()
            except NotRegistered:
                if asyncio.get_running_loop().time() > deadline:
                    raise
            await asyncio.sleep(_REGISTRATION_POLL_SECONDS)

    async def health_check(self) -> None:
        """Checks that the server answers and the connection is still registered."""
        await self._request("HealthCheckRequest", {})

    async def subscribe(self, service: NacosService, *, subscribe: bool = True) -> ServiceInfo:
        """Begins or ends a subscription; returns the current state of the service."""
        request = {
            "namespace": service.namespace,
            "groupName": service.group,
            "serviceName": service.name,
            "clusters": "",  # all: the decoder selects clusters
            "subscribe": subscribe,
        }
        body = await self._credentials.authenticated(
            self.server,
            service,
            lambda credentials: self._request("SubscribeServiceRequest", request, credentials.grpc_headers),
        )
        return decode_body(SUBSCRIBED, body, self._name).service_info

    async def pushes(self) -> AsyncIterator[ServerRequest | UnreadableRequest]:
        """Yields NotifySubscriberRequests, and acknowledges every request. Raises when the stream ends."""
        try:
            # The stream's own iterator would keep a reference cycle with it when the loop is left early.
            while (message := await self._stream.read()) is not grpc.aio.EOF:
                payload = decode_payload(message)
                request: ServerRequest | UnreadableRequest
                try:
                    request = decode_body(SERVER_REQUEST, payload.body, self._name)
                except WrongRegistryAnswer:
                    request = decode_body(UNREADABLE_REQUEST, payload.body, self._name)
                # XRequest is acknowledged by an XResponse with the same id.
                done = {"resultCode": 200, "errorCode": 0, "success": True, "requestId": request.request_id}
                await self._write(payload.type.removesuffix("Request") + "Response", done)
                if payload.type == "ConnectResetRequest":
                    raise SourceUnreachable(f"{self._name}: the server asked for a new connection")
                if payload.type == "NotifySubscriberRequest":
                    yield request
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

    async def _request(self, kind: str, body: Mapping[str, object], headers: Mapping[str, str] | None = None) -> bytes:
        """Sends a request and returns the JSON of its response. `headers` go into the envelope."""
        self._request_count += 1
        content = {**body, "requestId": str(self._request_count), "module": "naming"}
        message = encode_payload(Payload(kind, msgspec.json.encode(content)), headers or {})
        try:
            call = self._channel.unary_unary(_CALL)
            answer = decode_payload(await call(message, timeout=self._settings.timeout_seconds))
        except grpc.aio.AioRpcError as error:
            raise self._transport_error(error) from error
        head = decode_body(RESPONSE, answer.body, self._name)
        if answer.type == "ErrorResponse" or head.result_code != 200:
            code = head.error_code or head.result_code
            failure = _ERRORS.get(code, SourceFailing)
            raise failure(f"{self._name}: {head.message or 'no reason given'} (code {code})")
        return answer.body

    async def _write(self, kind: str, body: Mapping[str, object]) -> None:
        try:
            async with asyncio.timeout(self._settings.timeout_seconds):
                await self._stream.write(encode_payload(Payload(kind, msgspec.json.encode(body)), {}))
        except grpc.aio.AioRpcError as error:
            raise self._transport_error(error) from error
        except (TimeoutError, asyncio.InvalidStateError) as error:
            raise SourceUnreachable(f"{self._name}: the stream does not accept messages") from error

    def _transport_error(self, error: grpc.aio.AioRpcError) -> SourceError:
        if error.code() is grpc.StatusCode.UNIMPLEMENTED:
            return WrongRegistryAnswer(f"{self._name}: the server is not Nacos; check `grpcPortOffset`")
        details = " ".join((error.details() or "").split())
        return SourceUnreachable(f"{self._name}: {error.code().name}: {details}")


_ERRORS: Mapping[int, type[SourceError]] = {401: NotAuthenticated, 403: NotAllowed, _UN_REGISTER: NotRegistered}
