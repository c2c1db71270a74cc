"""Subscriptions to services over one gRPC connection, with reconnection. Needs the extra `nacos`."""

import asyncio
from collections.abc import Iterable, Mapping
from typing import Protocol

import structlog

from adapter.registries.nacos.credentials import CredentialProvider
from adapter.registries.nacos.grpc import GrpcConnection, channel_credentials, grpc_address
from adapter.registries.nacos.wire import (
    PUBLIC_NAMESPACE,
    NacosService,
    ServerRequest,
    ServiceInfo,
    SubscribeServiceResponse,
    decode_body,
)
from adapter.registries.roster import ServiceKey
from adapter.runtime.backoff import Backoff
from adapter.runtime.concurrency import for_each, run_all
from adapter.runtime.decoding import Decoder
from adapter.runtime.source_errors import SourceError, SourceUnreachable
from adapter.settings.registries import NacosRegistry

HEALTH_CHECK_SECONDS = 5.0
"""Period of the health check; Nacos closes a connection that is silent for 20 s."""
RESUBSCRIBE_SECONDS = 300.0
"""Period after which every subscription is renewed, in case a push was lost."""

_SUBSCRIBED = Decoder(SubscribeServiceResponse).decode

_log = structlog.get_logger(__name__)


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
        self._error = ""
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
                    self._log_failure(str(error))
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

    def _log_failure(self, error: str) -> None:
        if error != self._error:
            _log.warning("push connection failed, services are polled", registry=self._settings.name, error=error)
        self._error = error

    # --- while a connection is up ---

    async def _keep_checking(self, connection: GrpcConnection) -> None:
        while True:
            await asyncio.sleep(HEALTH_CHECK_SECONDS)
            await connection.health_check()
            self._backoff.reset()
            self._error = ""
            self._listener.on_healthy()

    async def _receive_pushes(self, connection: GrpcConnection) -> None:
        async for request in connection.pushes():
            if request.service_info is None:
                continue
            services = self._candidates(request, request.service_info)
            for service in services:
                self._push_counts[service] = self._push_counts.get(service, 0) + 1
                self._listener.on_service_info(
                    self._services[service], request.service_info if len(services) == 1 else None
                )

    def _candidates(self, request: ServerRequest, info: ServiceInfo) -> list[NacosService]:
        """The services that a push may be about: Nacos omits the namespace."""
        services = self._by_grouped_name.get(info.grouped_name, [])
        return [service for service in services if service.namespace == request.namespace] or services

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
        before = set(self._services)
        self._replace_services(self._listener.services)
        new = [service for service, keys in self._services.items() if every or not self._subscribed.issuperset(keys)]
        await for_each(before - self._services.keys(), lambda service: self._unsubscribe(server, connection, service))
        await for_each(new, lambda service: self._subscribe(server, connection, service))

    def _replace_services(self, services: Mapping[ServiceKey, NacosService]) -> None:
        self._services, self._by_grouped_name = {}, {}
        for key, service in sorted(services.items()):
            if service not in self._services:
                self._by_grouped_name.setdefault(service.grouped_name, []).append(service)
            self._services[service] = (*self._services.get(service, ()), key)
        self._subscribed &= services.keys()

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
