"""Rosters from Nacos: pushed to a subscription, listed where nothing is pushed, or pushed and listed.

Views that Nacos gives to clients leave disabled instances out, and when few are healthy they call all healthy. The list
for administrators tells the truth. So with `admin` a push is no more than the word to list again.
"""

import asyncio
from collections.abc import Iterable, Mapping

import structlog

from adapter.load.roster import Roster
from adapter.registries.client import Failover, registry_client
from adapter.registries.nacos.http import Lists
from adapter.registries.nacos.identity import Identity
from adapter.registries.nacos.tasks import spread, together
from adapter.registries.nacos.wire import PUBLIC, Place, Reader, ServiceInfo
from adapter.registries.roster import ServiceKey
from adapter.registries.roster_cache import RosterCache
from adapter.runtime.backoff import Backoff
from adapter.runtime.source_errors import MissingExtra, NotAuthenticated, SourceError, SourceUnreachable
from adapter.settings.registries import NacosRegistry

_log = structlog.get_logger(__name__)


class NacosSource:
    """Follows services in one Nacos: a subscription for all, and lists for those that it does not carry."""

    def __init__(self, settings: NacosRegistry, book: RosterCache) -> None:
        self._settings = settings
        self._book = book
        self._reader = Reader(settings.clusters, settings.pod_name_key)
        self._peers = Failover(settings.servers, book.reconnected)
        self._wake = asyncio.Event()
        self.watched = asyncio.Event()
        """Set whenever other services are to be followed; the subscription takes it back."""
        self._backoff = Backoff()
        self._pushed: set[ServiceKey] = set()
        """Services whose changes the subscription tells of."""
        self._due: set[ServiceKey] = set()
        """Services to be listed although they are pushed."""
        self._asking: set[ServiceKey] = set()
        self._connected_before = False
        self._lost = False
        self._poll_at = 0.0

    def watch(self, keys: Iterable[ServiceKey]) -> None:
        """Follow exactly these services from now on."""
        self._book.watch(keys)
        self._due &= self._book.keys
        self._pushed &= self._book.keys
        self.watched.set()
        self._look(anew=True)

    def roster(self, key: ServiceKey) -> Roster | None:
        """The latest answer about a service, valid or not; None where there was none yet."""
        return self._book.roster(key)

    async def run(self) -> None:
        """Follow the services until cancelled."""
        client = registry_client(self._settings)
        identity = Identity(self._settings, client, self._book.clock)
        lists = Lists(client, identity, self._reader, admin=self._settings.admin)
        try:
            await together(self._keep_listing(lists), self._keep_subscribed(identity))
        finally:
            await client.close()

    @property
    def carried(self) -> frozenset[ServiceKey]:
        """The services whose changes are pushed just now; the others are polled."""
        return frozenset(self._pushed)

    def place(self, key: ServiceKey) -> Place:
        """The service by its full name in Nacos."""
        namespace = key.namespace or self._settings.namespace or PUBLIC
        return Place(namespace, key.group or self._settings.group, key.service)

    # --- the subscription ---

    async def _keep_subscribed(self, identity: Identity) -> None:
        if not self._settings.push:
            return
        try:
            from adapter.registries.nacos.push import Subscription
        except ImportError as error:
            missing = str(MissingExtra("nacos", error))
            _log.warning("nothing is pushed, services are listed", registry=self._book.registry, why=missing)
            return
        await Subscription(self._settings, identity, self).run()

    @property
    def followed(self) -> Mapping[ServiceKey, Place]:
        """What is to be subscribed to."""
        return {key: self.place(key) for key in self._book.keys}

    @property
    def servers(self) -> list[str]:
        """All servers, the one that is asked now first."""
        servers = [server.rstrip("/") for server in self._settings.servers]
        first = servers.index(self._peers.current)
        return servers[first:] + servers[:first]

    def connected(self, server: str) -> None:
        """A push connection is up; lists now come from the same server."""
        self._peers.current = server
        self._backoff.reset()
        if self._connected_before:
            self._book.reconnected()
        self._connected_before, self._lost = True, False

    def disconnected(self) -> None:
        """The push connection is down: what it carried is listed at once, and then again and again."""
        self._lost = True
        self._pushed.clear()
        self._look(anew=True)

    def subscribed(self, keys: Iterable[ServiceKey], *, carried: bool) -> None:
        """Whether the connection tells of changes to these services, from now on."""
        if carried:
            self._pushed.update(keys)
        else:
            self._pushed.difference_update(keys)

    def told(self, keys: Iterable[ServiceKey], info: ServiceInfo | None) -> None:
        """A service is like this now; None: it is not clear how, so its list is asked for."""
        for key in keys:
            if info is None or self._settings.admin:
                self._due.add(key)
                self._look()
            else:
                listed = self._reader.listed(info)
                self._book.heard(key, listed.instances, protected=listed.protected)

    def confirmed(self) -> None:
        """The push connection is alive: what it carries is still as it was last told, where that was listed too."""
        self._book.confirm(self._pushed - self._due - self._asking)

    # --- lists ---

    def _look(self, *, anew: bool = False) -> None:
        """Let what is due be listed at once; `anew`: all that is not pushed."""
        if anew:
            self._poll_at = 0.0
        self._wake.set()

    async def _keep_listing(self, lists: Lists) -> None:
        while True:
            self._wake.clear()
            pause = await self._list_all(lists, self._to_list())
            try:
                async with asyncio.timeout(pause):
                    await self._wake.wait()
            except TimeoutError:
                pass

    def _to_list(self) -> list[ServiceKey]:
        now = asyncio.get_running_loop().time()
        if now < self._poll_at:
            return sorted(self._due)
        self._poll_at = now + self._settings.interval_seconds
        return sorted(self._due | (self._book.keys - self._pushed))

    async def _list_all(self, lists: Lists, keys: list[ServiceKey]) -> float | None:
        """List these services; seconds until it is to be done again, None where nothing needs it."""
        try:
            await spread(keys, lambda key: self._list(lists, key))
        except SourceError as error:
            return self._down(error, keys)
        self._backoff.reset()
        if self._due or self._book.keys - self._pushed:
            return max(0.0, self._poll_at - asyncio.get_running_loop().time())
        return None

    async def _list(self, lists: Lists, key: ServiceKey) -> None:
        wanted = self._settings.admin or key in self._due
        self._due.discard(key)
        self._asking.add(key)
        try:
            listed = await self._peers.ask(lambda server: lists.ask(server, self.place(key)))
        except SourceError as error:
            if key in self._pushed:
                self._due.add(key)
            if isinstance(error, SourceUnreachable | NotAuthenticated):
                raise  # so would the others
            self._book.failed(error, [key])
            return
        finally:
            self._asking.discard(key)
        self._found_again()
        if wanted or key not in self._pushed:  # else it was pushed meanwhile, and this is older
            self._book.heard(key, listed.instances, protected=listed.protected, partial=listed.partial)

    def _down(self, error: SourceError, keys: Iterable[ServiceKey]) -> float:
        """Nobody answers: whoever was to be listed has an error now. Seconds until the next attempt."""
        self._lost = True
        if self._pushed:
            self._book.failed(error, [key for key in keys if key not in self._pushed or key in self._due])
        else:
            self._book.failed(error)
        self._poll_at = 0.0
        return self._backoff.next()

    def _found_again(self) -> None:
        if self._lost:
            self._lost = False
            self._book.reconnected()
