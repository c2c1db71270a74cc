"""Subscriptions to services over one gRPC connection, with reconnection. Needs the extra `nacos`."""

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, Protocol
from urllib.parse import urlsplit

import grpc  # type: ignore[import-untyped]
import grpc.aio  # type: ignore[import-untyped]
import msgspec
import structlog

from adapter.registries.nacos.http import CredentialProvider
from adapter.registries.nacos.wire import (
    PUBLIC_NAMESPACE,
    NacosService,
    Payload,
    ResponseHead,
    ServerRequest,
    ServiceInfo,
    SubscribeServiceResponse,
    decode_body,
    decode_payload,
    encode_payload,
)
from adapter.registries.roster import ServiceKey
from adapter.runtime.backoff import Backoff, LogOnce
from adapter.runtime.concurrency import for_each, run_all
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
from adapter.settings.registries import NacosRegistry, RegistryTls

HEALTH_CHECK_SECONDS = 5.0
"""Period of the health check; Nacos closes a connection that is silent for 20 s."""
RESUBSCRIBE_SECONDS = 300.0
"""Period after which every subscription is renewed, in case a push was lost."""

_SUBSCRIBED = Decoder(SubscribeServiceResponse).decode

_log = structlog.get_logger(__name__)

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
        files = (tls.ca_file, tls.cert_file, tls.key_file or tls.cert_file)
        authorities, certificate, key = (Path(file).read_bytes() if file else None for file in files)
    except OSError as error:
        raise SourceUnreachable(f"credentials: cannot read {error.filename}: {error.strerror}") from error
    return grpc.ssl_channel_credentials(authorities, key, certificate)


class GrpcConnection:
    """A connection from `open` to `close`; every method raises SourceError."""

    def __init__(self, address: GrpcAddress, tls: grpc.ChannelCredentials | None, timeout: float) -> None:
        self.name = f"gRPC {address.host_port}"
        self._timeout = timeout
        self._channel: Any = (
            grpc.aio.insecure_channel(address.host_port, options=_OPTIONS)
            if tls is None
            else grpc.aio.secure_channel(address.host_port, tls, options=_OPTIONS)
        )
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
        head = decode_body(_RESPONSE, answer.body, self.name)
        if answer.type == "ErrorResponse" or head.result_code != 200:
            code = head.error_code or head.result_code
            failure = _ERRORS.get(code, SourceFailing)
            raise failure(f"{self.name}: {head.message or 'no reason given'} (code {code})")
        return answer.body

    async def pushes(self) -> AsyncIterator[ServerRequest]:
        """Yields NotifySubscriberRequests, and acknowledges every request. Raises when the stream ends."""
        try:
            # The stream's own iterator would keep a reference cycle with it when the loop is left early.
            while (message := await self._stream.read()) is not grpc.aio.EOF:
                payload = decode_payload(message)
                request = decode_body(_SERVER_REQUEST, payload.body, self.name)
                # XRequest is acknowledged by an XResponse with the same id.
                done = {"resultCode": 200, "errorCode": 0, "success": True, "requestId": request.request_id}
                await self._write(payload.type.removesuffix("Request") + "Response", done)
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

    async def _write(self, kind: str, body: Mapping[str, object]) -> None:
        try:
            async with asyncio.timeout(self._timeout):
                await self._stream.write(encode_payload(Payload(kind, msgspec.json.encode(body)), {}))
        except grpc.aio.AioRpcError as error:
            raise self._transport_error(error) from error
        except (TimeoutError, asyncio.InvalidStateError) as error:
            raise SourceUnreachable(f"{self.name}: the stream does not accept messages") from error

    def _transport_error(self, error: grpc.aio.AioRpcError) -> SourceError:
        if error.code() is grpc.StatusCode.UNIMPLEMENTED:
            return WrongRegistryAnswer(f"{self.name}: the server is not Nacos; check `grpcPortOffset`")
        details = " ".join((error.details() or "").split())
        return SourceUnreachable(f"{self.name}: {error.code().name}: {details}")


_ERRORS: Mapping[int, type[SourceError]] = {401: NotAuthenticated, 403: NotAllowed, _UN_REGISTER: NotRegistered}


class SubscriptionListener(Protocol):
    """Names the services to subscribe to, and receives the connection's events."""

    services_changed: asyncio.Event
    """Set when `services` changes."""

    @property
    def services(self) -> Mapping[ServiceKey, NacosService]:
        """The services to subscribe to."""

    @property
    def servers(self) -> list[str]:
        """HTTP addresses of the servers, in the order in which to try them."""

    def on_connected(self, server: str) -> None:
        """A connection to this server is registered."""

    def on_disconnected(self) -> None:
        """The connection is lost."""

    def on_subscribed(self, keys: Iterable[ServiceKey], *, pushed: bool) -> None:
        """From now on changes of these services are pushed, or not."""

    def on_service_info(self, keys: Iterable[ServiceKey], info: ServiceInfo | None) -> None:
        """The state of the Nacos service that these keys refer to; None: it may have changed, its state is unknown."""

    def on_healthy(self) -> None:
        """A health check succeeded: every subscribed service is still in its last pushed state."""


class Subscription:
    """Keeps one connection to one server, with a subscription to each service."""

    def __init__(
        self, settings: NacosRegistry, credentials: CredentialProvider, listener: SubscriptionListener
    ) -> None:
        self._settings = settings
        self._credentials = credentials
        self._listener = listener
        self._backoff = Backoff()
        self._log_once = LogOnce()
        self._reset()

    def _reset(self) -> None:
        self._services: dict[NacosService, tuple[ServiceKey, ...]] = {}
        self._by_grouped_name: dict[str, list[NacosService]] = {}
        self._subscribed: set[ServiceKey] = set()
        self._push_counts: dict[NacosService, int] = {}

    async def run(self) -> None:
        """Stays connected until cancelled: to the server that lists services, else to the next that accepts."""
        if self._settings.tls.insecure_skip_verify and self._settings.servers[0].startswith("https:"):
            _log.warning(
                "push is off, services are polled: gRPC always verifies certificates; set `caFile`",
                registry=self._settings.name,
            )
            return
        while True:
            for server in self._listener.servers:
                try:
                    await self._hold_connection(server)
                except SourceError as error:
                    if self._log_once.is_new(str(error)):
                        _log.warning(
                            "push connection failed, services are polled",
                            registry=self._settings.name,
                            error=str(error),
                        )
            await asyncio.sleep(self._backoff.next())

    async def _hold_connection(self, server: str) -> None:
        address = grpc_address(server, self._settings.grpc_port_offset)
        tls = await asyncio.to_thread(channel_credentials, self._settings.tls) if address.secure else None
        connection = GrpcConnection(address, tls, self._settings.timeout_seconds)
        try:
            await connection.open(self._settings.namespace or PUBLIC_NAMESPACE)
            await run_all(self._receive_pushes(connection), self._hold_subscriptions(server, connection))
        finally:
            await connection.close()

    async def _hold_subscriptions(self, server: str, connection: GrpcConnection) -> None:
        await connection.wait_until_registered()
        self._reset()
        self._listener.on_connected(server)
        try:
            await run_all(self._keep_subscribed(server, connection), self._keep_checking(connection))
        finally:
            self._listener.on_disconnected()

    # --- while a connection is up ---

    async def _keep_checking(self, connection: GrpcConnection) -> None:
        while True:
            await asyncio.sleep(HEALTH_CHECK_SECONDS)
            await connection.health_check()
            self._backoff.reset()
            self._log_once.clear()
            self._listener.on_healthy()

    async def _receive_pushes(self, connection: GrpcConnection) -> None:
        async for request in connection.pushes():
            if request.service_info is None:
                continue
            # Nacos omits the namespace, so a push may be about several services.
            named = self._by_grouped_name.get(request.service_info.grouped_name, [])
            services = [service for service in named if service.namespace == request.namespace] or named
            for service in services:
                self._push_counts[service] = self._push_counts.get(service, 0) + 1
                self._listener.on_service_info(
                    self._services[service], request.service_info if len(services) == 1 else None
                )

    async def _keep_subscribed(self, server: str, connection: GrpcConnection) -> None:
        every = True
        while True:
            self._listener.services_changed.clear()
            await self._synchronize(server, connection, every=every)
            every = False
            try:
                async with asyncio.timeout(RESUBSCRIBE_SECONDS):
                    await self._listener.services_changed.wait()
            except TimeoutError:
                every = True

    async def _synchronize(self, server: str, connection: GrpcConnection, *, every: bool) -> None:
        before, services = set(self._services), self._listener.services
        self._services, self._by_grouped_name = {}, {}
        for key, service in sorted(services.items()):
            if service not in self._services:
                self._by_grouped_name.setdefault(service.grouped_name, []).append(service)
            self._services[service] = (*self._services.get(service, ()), key)
        self._subscribed &= services.keys()
        new = [service for service, keys in self._services.items() if every or not self._subscribed.issuperset(keys)]
        await for_each(before - self._services.keys(), lambda service: self._unsubscribe(server, connection, service))
        await for_each(new, lambda service: self._subscribe(server, connection, service))

    async def _subscribe(self, server: str, connection: GrpcConnection, service: NacosService) -> None:
        pushes = self._push_counts.get(service, 0)
        keys = self._services[service]
        try:
            body = await self._request(server, connection, service, subscribe=True)
            info = decode_body(_SUBSCRIBED, body, connection.name).service_info
        except SourceUnreachable:
            raise
        except SourceError as error:
            # The source polls its list instead, and reports the error if that request is refused as well.
            _log.info("subscription failed: service is polled", service=service.grouped_name, error=str(error))
            self._subscribed.difference_update(keys)
            self._listener.on_subscribed(keys, pushed=False)
            return
        self._subscribed.update(keys)
        self._listener.on_subscribed(keys, pushed=True)
        if self._push_counts.get(service, 0) == pushes:  # otherwise a push overtook this response
            self._listener.on_service_info(keys, info)

    async def _unsubscribe(self, server: str, connection: GrpcConnection, service: NacosService) -> None:
        try:
            await self._request(server, connection, service, subscribe=False)
        except SourceUnreachable:
            raise
        except SourceError as error:
            _log.info("unsubscription failed", service=service.grouped_name, error=str(error))

    async def _request(
        self, server: str, connection: GrpcConnection, service: NacosService, *, subscribe: bool
    ) -> bytes:
        request = {
            "namespace": service.namespace,
            "groupName": service.group,
            "serviceName": service.name,
            "clusters": "",  # all: the decoder selects clusters
            "subscribe": subscribe,
        }
        return await self._credentials.authenticated(
            server,
            service,
            lambda credentials: connection.request("SubscribeServiceRequest", request, credentials.grpc_headers),
        )
