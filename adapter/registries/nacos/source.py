"""Rosters from Nacos: by gRPC push where a subscription exists, otherwise by polling lists.

Nacos omits disabled instances from what it shows to clients, and when too few are healthy it shows all as healthy. The
administrators' list has neither flaw, so with `admin` a push only triggers a new list request.
"""

import asyncio
from collections.abc import Iterable, Mapping

import structlog

from adapter.registries.client import Failover, base_urls, registry_client
from adapter.registries.nacos.http import CredentialProvider, InstanceListClient
from adapter.registries.nacos.wire import PUBLIC_NAMESPACE, InstanceDecoder, NacosService, ServiceInfo
from adapter.registries.roster import ServiceKey
from adapter.registries.roster_cache import RosterCache
from adapter.runtime.backoff import Backoff
from adapter.runtime.concurrency import for_each, run_all
from adapter.runtime.source_errors import MissingExtra, NotAuthenticated, SourceError, SourceUnreachable
from adapter.settings.registries import NacosRegistry

_log = structlog.get_logger(__name__)


class NacosSource:
    """Follows services of one Nacos: subscribes to all, and polls lists of those that are not pushed."""

    def __init__(self, settings: NacosRegistry, cache: RosterCache) -> None:
        self._settings = settings
        self._cache = cache
        self._reader = InstanceDecoder(settings.clusters, settings.pod_name_key)
        self._peers = Failover(base_urls(settings.servers), cache.reconnected)
        self._wake = asyncio.Event()
        self.services_changed = asyncio.Event()
        """Set when the followed services change; the subscription clears it."""
        self._backoff = Backoff()
        self._pushed: set[ServiceKey] = set()
        """Services whose changes are pushed."""
        self._due: set[ServiceKey] = set()
        """Services to list although they are pushed."""
        self._asking: set[ServiceKey] = set()
        self._connected_before = False
        self._lost = False
        self._poll_at = 0.0

    def refresh(self) -> None:
        """Follows the services of the cache from now on."""
        self._due &= self._cache.keys
        self._pushed &= self._cache.keys
        self.services_changed.set()
        self._wake_lister(anew=True)

    async def run(self) -> None:
        """Follow the services until cancelled."""
        client = registry_client(self._settings)
        credentials = CredentialProvider(self._settings, client, self._cache.clock)
        lists = InstanceListClient(client, credentials, self._reader, admin=self._settings.admin)
        try:
            await run_all(self._poll_lists(lists), self._subscribe(credentials))
        finally:
            await client.close()

    @property
    def pushed(self) -> frozenset[ServiceKey]:
        """The services whose changes are pushed just now; the others are polled."""
        return frozenset(self._pushed)

    def _nacos_service(self, key: ServiceKey) -> NacosService:
        """The service's full name in Nacos."""
        namespace = key.namespace or self._settings.namespace or PUBLIC_NAMESPACE
        return NacosService(namespace, key.group or self._settings.group, key.service)

    # --- the subscription ---

    async def _subscribe(self, credentials: CredentialProvider) -> None:
        if not self._settings.push:
            return
        try:
            from adapter.registries.nacos.push import Subscription
        except ImportError as error:
            missing = str(MissingExtra("nacos", error))
            _log.warning("push is off, services are polled", registry=self._cache.registry, why=missing)
            return
        await Subscription(self._settings, credentials, self).run()

    @property
    def services(self) -> Mapping[ServiceKey, NacosService]:
        """The services to subscribe to."""
        return {key: self._nacos_service(key) for key in self._cache.keys}

    @property
    def servers(self) -> list[str]:
        """All servers, starting with the one that lists services."""
        servers = base_urls(self._settings.servers)
        first = servers.index(self._peers.current)
        return servers[first:] + servers[:first]

    def on_connected(self, server: str) -> None:
        """Polls lists from the server that pushes, too."""
        self._peers.current = server
        self._backoff.reset()
        if self._connected_before:
            self._cache.reconnected()
        self._connected_before, self._lost = True, False

    def on_disconnected(self) -> None:
        """Polls the services that were pushed, starting at once."""
        self._lost = True
        self._pushed.clear()
        self._wake_lister(anew=True)

    def on_subscribed(self, keys: Iterable[ServiceKey], *, pushed: bool) -> None:
        """Stops or resumes polling these services."""
        if pushed:
            self._pushed.update(keys)
        else:
            self._pushed.difference_update(keys)

    def on_service_info(self, keys: Iterable[ServiceKey], info: ServiceInfo | None) -> None:
        """Records the pushed state of a service; requests its list if the state is unknown or `admin` is set."""
        for key in keys:
            if info is None or self._settings.admin:
                self._due.add(key)
                self._wake_lister()
            else:
                listed = self._reader.decode_service_info(info)
                self._cache.update(key, listed.instances, protected=listed.protected)

    def on_healthy(self) -> None:
        """Confirms the pushed services whose lists are not outstanding."""
        self._cache.confirm(self._pushed - self._due - self._asking)

    # --- lists ---

    def _wake_lister(self, *, anew: bool = False) -> None:
        """Wakes the lister for the due services; `anew`: for all services that are not pushed."""
        if anew:
            self._poll_at = 0.0
        self._wake.set()

    async def _poll_lists(self, lists: InstanceListClient) -> None:
        while True:
            self._wake.clear()
            keys, now = self._due, asyncio.get_running_loop().time()
            if now >= self._poll_at:
                self._poll_at = now + self._settings.interval_seconds
                keys = self._due | (self._cache.keys - self._pushed)
            pause = await self._list_all(lists, sorted(keys))
            try:
                async with asyncio.timeout(pause):
                    await self._wake.wait()
            except TimeoutError:
                pass

    async def _list_all(self, lists: InstanceListClient, keys: list[ServiceKey]) -> float | None:
        """Lists these services; returns the seconds until the next poll, None if nothing needs polling."""
        try:
            await for_each(keys, lambda key: self._list(lists, key))
        except SourceError as error:
            self._lost = True
            if self._pushed:
                self._cache.failed(error, [key for key in keys if key not in self._pushed or key in self._due])
            else:
                self._cache.failed(error)
            self._poll_at = 0.0
            return self._backoff.next()
        self._backoff.reset()
        if self._due or self._cache.keys - self._pushed:
            return max(0.0, self._poll_at - asyncio.get_running_loop().time())
        return None

    async def _list(self, lists: InstanceListClient, key: ServiceKey) -> None:
        wanted = self._settings.admin or key in self._due
        self._due.discard(key)
        self._asking.add(key)
        try:
            listed = await self._peers.ask(lambda server: lists.list_instances(server, self._nacos_service(key)))
        except SourceError as error:
            if key in self._pushed:
                self._due.add(key)
            if isinstance(error, SourceUnreachable | NotAuthenticated):
                raise  # the other services would fail as well
            self._cache.failed(error, [key])
            return
        finally:
            self._asking.discard(key)
        if self._lost:
            self._lost = False
            self._cache.reconnected()
        if wanted or key not in self._pushed:  # otherwise a push overtook this list
            self._cache.update(key, listed.instances, protected=listed.protected, partial=listed.partial)
