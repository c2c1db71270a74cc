"""Rosters from Nacos: by gRPC push where a subscription exists, otherwise by polling lists.

Nacos omits disabled instances from what it shows to clients, and when too few are healthy it shows all as healthy. The
administrators' list has neither flaw, so with `admin` a push only triggers a new list request.
"""

import asyncio
import math
from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING

import structlog

from adapter.registries.client import Failover, base_urls, registry_client
from adapter.registries.nacos.http import CredentialProvider, InstanceListClient, LoginRefused
from adapter.registries.nacos.wire import InstanceDecoder, NacosService, ServiceInfo, ServiceInstances
from adapter.registries.roster import ServiceKey
from adapter.registries.roster_cache import RosterCache
from adapter.runtime.backoff import Backoff, LogOnce
from adapter.runtime.concurrency import AT_ONCE, for_each, run_all, wait_for_event
from adapter.runtime.source_errors import MissingExtra, NotAllowed, SourceError, SourceFailing, SourceUnreachable
from adapter.settings.registries import NacosRegistry

if TYPE_CHECKING:
    from adapter.registries.nacos.push import GrpcConnection

HEALTH_CHECK_SECONDS = 5.0
"""Period of the health check; Nacos closes a connection that is silent for 20 s."""
REPLICATED_SECONDS = 3.0
"""Time after a push until all servers have its change: they replicate after 1 s, and push after 0.5 s."""
RESUBSCRIBE_SECONDS = 300.0
"""Period after which every subscription is renewed, in case a push was lost."""

_log = structlog.get_logger(__name__)


class NacosSource:
    """Follows services of one Nacos: subscribes to all, and polls lists of those that are not pushed."""

    def __init__(self, settings: NacosRegistry, cache: RosterCache) -> None:
        self._settings = settings
        self._cache = cache
        self._decoder = InstanceDecoder(settings.clusters, settings.pod_name_key)
        self._peers = Failover(base_urls(settings.servers))
        self._wake_lister = asyncio.Event()
        self._services_changed = asyncio.Event()
        self._backoff = Backoff()
        self._push_backoff = Backoff()
        self._log_once = LogOnce()
        self._services: dict[NacosService, tuple[ServiceKey, ...]] = {}
        """The services of the connection's subscriptions."""
        self._pushed: set[ServiceKey] = set()
        """Services whose changes are pushed."""
        self._due: set[ServiceKey] = set()
        """Services to list although they are pushed."""
        self._asking: set[ServiceKey] = set()
        self._second_lists: dict[NacosService, asyncio.TimerHandle] = {}
        """What lists a service again, by the services of the connection's pushes."""
        self._failed: dict[NacosService, SourceError] = {}
        """The subscriptions of the last round that failed."""
        self._silent: dict[ServiceKey, None] = {}
        """Services whose last list had no answer, in the order of the questions."""
        self._poll_at = 0.0

    def refresh(self) -> None:
        """Follows the services of the cache from now on."""
        self._due &= self._cache.keys
        self._pushed &= self._cache.keys
        self._silent = {key: None for key in self._silent if key in self._cache.keys}
        self._services_changed.set()
        self._poll_at = 0.0
        self._wake_lister.set()

    async def run(self) -> None:
        """Follow the services until cancelled."""
        client = registry_client(self._settings)
        credentials = CredentialProvider(self._settings, client, self._cache.clock)
        lists = InstanceListClient(client, credentials, self._decoder, admin=self._settings.admin)
        try:
            await run_all(self._poll_lists(lists), self._keep_connected(credentials))
        finally:
            await client.close()

    @property
    def pushed(self) -> frozenset[ServiceKey]:
        """The services whose changes are pushed just now; the others are polled."""
        return frozenset(self._pushed)

    # --- subscriptions ---

    async def _keep_connected(self, credentials: CredentialProvider) -> None:
        """Stays connected for pushes: to the server that lists services, else to the next that accepts."""
        if not self._settings.push:
            return
        try:
            from adapter.registries.nacos.push import GrpcConnection
        except ImportError as error:
            missing = str(MissingExtra("nacos", error))
            _log.warning("nacos_push_failed", registry=self._cache.registry, why=missing)
            return
        servers = base_urls(self._settings.servers)
        if self._settings.tls.insecure_skip_verify and servers[0].startswith("https:"):
            why = "gRPC always verifies certificates; set `caFile`"
            _log.warning("nacos_push_failed", registry=self._cache.registry, why=why)
            return
        while True:
            first = servers.index(self._peers.current)
            for server in servers[first:] + servers[:first]:
                try:
                    await self._hold(GrpcConnection(self._settings, server, credentials))
                except SourceError as error:
                    if self._log_once.is_new(str(error)):
                        text = "nacos_push_connection_failed"
                        _log.warning(text, registry=self._cache.registry, error=str(error))
            await asyncio.sleep(self._push_backoff.next())

    async def _hold(self, connection: "GrpcConnection") -> None:
        """Holds a connection, with a subscription to each service, until it fails."""

        async def hold_subscriptions() -> None:
            await connection.wait_until_registered()
            self._services.clear()
            self._peers.current = connection.server  # lists are polled from the server that pushes, too
            self._backoff.reset()
            try:
                await run_all(self._keep_subscribed(connection), self._keep_checking(connection))
            finally:
                self._pushed.clear()
                for timer in self._second_lists.values():
                    timer.cancel()
                self._second_lists.clear()
                self._poll_at = 0.0  # all are listed at once
                self._wake_lister.set()

        try:
            await connection.open()
            await run_all(self._receive_pushes(connection), hold_subscriptions())
        finally:
            await connection.close()

    async def _keep_checking(self, connection: "GrpcConnection") -> None:
        """Confirms the pushed services whose lists are not outstanding with each health check."""
        while True:
            await asyncio.sleep(HEALTH_CHECK_SECONDS)
            await connection.health_check()
            self._push_backoff.reset()
            self._log_once.clear()
            self._cache.confirm(self._pushed - self._due - self._asking)

    async def _receive_pushes(self, connection: "GrpcConnection") -> None:
        async for request in connection.pushes():
            info = request.service_info
            if info is None:
                continue
            # Nacos omits the namespace, so a push may be about several services.
            named = [service for service in self._services if service.grouped_name == info.grouped_name]
            services = [service for service in named if service.namespace == request.namespace] or named
            for service in services:
                self._take(
                    self._services[service], info if isinstance(info, ServiceInfo) and len(services) == 1 else None
                )
                # A list that comes meanwhile may be of a server that has not heard of the change yet.
                self._forget_second_list(service)
                later = asyncio.get_running_loop().call_later(REPLICATED_SECONDS, self._list_again, service)
                self._second_lists[service] = later

    def _list_again(self, service: NacosService) -> None:
        del self._second_lists[service]
        self._list_soon(self._services.get(service, ()))

    def _forget_second_list(self, service: NacosService) -> None:
        if service in self._second_lists:
            self._second_lists.pop(service).cancel()

    async def _keep_subscribed(self, connection: "GrpcConnection") -> None:
        """Subscribes to new services at once, to all every RESUBSCRIBE_SECONDS, and ends other subscriptions.

        What failed for another reason than a lack of rights is tried again with back-off.
        """

        async def unsubscribe(service: NacosService) -> None:
            try:
                await connection.subscribe(service, subscribe=False)
            except SourceError as error:
                if isinstance(error, SourceUnreachable):
                    await connection.health_check()
                _log.info("nacos_unsubscription_failed", service=service.grouped_name, error=str(error))

        loop, renewed_at = asyncio.get_running_loop(), -math.inf
        backoff, have_changed = Backoff(), True
        while True:
            self._services_changed.clear()
            every = loop.time() - renewed_at >= RESUBSCRIBE_SECONDS
            if every:
                renewed_at = loop.time()
            before, self._services = self._services, {}
            for key in sorted(self._cache.keys):
                service = NacosService(*self._settings.place(key.namespace, key.group), key.service)
                self._services[service] = (*self._services.get(service, ()), key)
            self._pushed &= self._cache.keys
            for service in self._second_lists.keys() - self._services.keys():
                self._forget_second_list(service)
            unpushed = {service for service, keys in self._services.items() if not self._pushed.issuperset(keys)}
            asked = self._services if every else unpushed if have_changed else unpushed & self._worth_another_try()
            self._failed = {}
            await for_each(before.keys() - self._services.keys(), unsubscribe)
            await for_each(sorted(asked), lambda service: self._subscribe(connection, service))
            pause = renewed_at + RESUBSCRIBE_SECONDS - loop.time()
            if self._worth_another_try():
                pause = min(pause, backoff.next())
            else:
                backoff.reset()
            self._log_failed()
            have_changed = await wait_for_event(self._services_changed, pause)

    def _log_failed(self) -> None:
        causes = sorted({str(error) for error in self._failed.values()})
        if not causes:
            self._log_once.clear("subscriptions")
        elif self._log_once.is_new(str(causes), "subscriptions"):
            text = "nacos_subscriptions_failed"
            _log.info(text, registry=self._cache.registry, services=len(self._failed), error="; ".join(causes[:3]))

    def _worth_another_try(self) -> set[NacosService]:
        """The services whose subscriptions failed for another reason than a lack of rights."""
        return {service for service, error in self._failed.items() if not isinstance(error, NotAllowed)}

    async def _subscribe(self, connection: "GrpcConnection", service: NacosService) -> None:
        keys = self._services[service]
        try:
            info = await connection.subscribe(service)
        except SourceError as error:
            if isinstance(error, SourceUnreachable) and not self._failed:
                await connection.health_check()  # raises where the connection is lost; once a round is enough
            # Its list is polled instead, and reports the error if that request is refused as well.
            self._failed[service] = error
            if not self._pushed.isdisjoint(keys):
                self._pushed.difference_update(keys)
                self._list_soon(keys)
            return
        self._pushed.update(keys)
        self._take(keys, info)

    def _take(self, keys: Iterable[ServiceKey], info: ServiceInfo | None) -> None:
        """Writes the pushed state of a service; it is listed instead where it is unknown, or `admin` is set."""
        if info is None or self._settings.admin:
            self._list_soon(keys)
            return
        self._due.difference_update(keys)  # a list may come from a server that has not heard of this state yet
        for key in keys:
            instances = self._decoder.decode(info.hosts)
            self._cache.update(key, instances, protected=info.reach_protection_threshold)

    def _list_soon(self, keys: Iterable[ServiceKey]) -> None:
        self._due.update(self._cache.keys.intersection(keys))
        self._wake_lister.set()

    # --- lists ---

    async def _poll_lists(self, lists: InstanceListClient) -> None:
        loop, again_at = asyncio.get_running_loop(), -math.inf
        while True:
            self._wake_lister.clear()
            due = set(self._due)
            if loop.time() >= self._poll_at:
                self._poll_at = loop.time() + self._settings.interval_seconds
                due |= self._cache.keys - self._pushed
            unanswered = set(due)
            pause = None  # nothing needs polling
            try:
                await self._list_all(lists, unanswered)
            except LoginRefused as error:
                polled = [key for key in unanswered if key not in self._pushed or key in self._due]
                self._cache.failed(error, polled if self._pushed else None)
            if due and unanswered == due:
                self._poll_at = 0.0
                if loop.time() >= again_at:  # one that was woken sooner is no further failure
                    again_at = loop.time() + self._backoff.next()
                pause = again_at - loop.time()
            else:
                self._backoff.reset()
                if self._due or self._cache.keys - self._pushed:
                    pause = max(0.0, self._poll_at - loop.time())
            await wait_for_event(self._wake_lister, pause)

    async def _list_all(self, lists: InstanceListClient, due: set[ServiceKey]) -> None:
        """Asks for these services' lists; of silent ones, last, only so many that the others wait for one timeout."""
        silent = [key for key in self._silent if key in due]
        ask = partial(self._list, lists, due)
        await for_each(sorted(due - self._silent.keys()), ask)
        while silent:
            some, silent = silent[:AT_ONCE], silent[AT_ONCE:]
            await for_each(some, ask)
            if not self._silent.keys().isdisjoint(some):
                break

    async def _list(self, lists: InstanceListClient, due: set[ServiceKey], key: ServiceKey) -> None:
        """Asks for one service's list; `due` loses what a server answered. Raises LoginRefused."""
        wanted = self._settings.admin or key in self._due
        self._due.discard(key)
        self._asking.add(key)
        service = NacosService(*self._settings.place(key.namespace, key.group), key.service)
        listed: ServiceInstances | SourceError | None = None
        try:
            listed = await self._peers.ask(lambda server: lists.list_instances(server, service))
        except SourceError as error:
            listed = error
        finally:
            self._asking.discard(key)
            if not isinstance(listed, ServiceInstances) and wanted and key in self._pushed:
                self._due.add(key)  # also where the failure of another ended it
        self._silent.pop(key, None)
        is_used = wanted or key not in self._pushed  # else it is pushed since it was asked for
        if isinstance(listed, ServiceInstances):
            due.discard(key)
            if is_used:
                self._cache.update(key, listed.instances, protected=listed.protected, partial=listed.partial)
        elif isinstance(listed, LoginRefused):
            raise listed
        elif key in self._cache.keys and is_used:
            if isinstance(listed, SourceUnreachable):
                self._silent[key] = None  # as the last one
            elif not isinstance(listed, SourceFailing):
                due.discard(key)  # a refusal is an answer too
            self._cache.failed(listed, [key])
