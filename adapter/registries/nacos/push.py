"""Subscriptions to services in one push connection, which is made anew whenever it is lost. Needs the extra `nacos`."""

import asyncio
from collections.abc import Iterable, Mapping
from typing import Protocol

import structlog

from adapter.registries.nacos.grpc import Connection, credentials, target
from adapter.registries.nacos.identity import Identity
from adapter.registries.nacos.tasks import spread, together
from adapter.registries.nacos.wire import PUBLIC, Notification, Place, ServiceInfo, Subscribed, reading
from adapter.registries.roster import ServiceKey
from adapter.runtime.backoff import Backoff
from adapter.runtime.decoding import Decoder
from adapter.runtime.source_errors import SourceError, SourceUnreachable
from adapter.settings.registries import NacosRegistry

BEAT_SECONDS = 5.0
"""How often the connection is shown to be alive; Nacos gives up on one that is silent for 20 s."""
RENEW_SECONDS = 300.0
"""How often every subscription is made again, in case that a push was lost."""

_SUBSCRIBED = Decoder(Subscribed).decode

_log = structlog.get_logger(__name__)


class SubscriptionListener(Protocol):
    """Who wants to hear of services."""

    watched: asyncio.Event
    """Set when `followed` is not what it was."""

    @property
    def followed(self) -> Mapping[ServiceKey, Place]:
        """The services to subscribe to."""

    @property
    def servers(self) -> list[str]:
        """The servers' HTTP addresses, the one to be tried first at the front."""

    def connected(self, server: str) -> None:
        """A connection to this server is up."""

    def disconnected(self) -> None:
        """It is not, any more."""

    def subscribed(self, keys: Iterable[ServiceKey], *, carried: bool) -> None:
        """Whether the connection tells of these services."""

    def told(self, keys: Iterable[ServiceKey], info: ServiceInfo | None) -> None:
        """What the services with these keys (one service in Nacos) are now; None: they changed, but who knows how."""

    def confirmed(self) -> None:
        """The connection is alive: whatever it did not tell of is as it was."""


class Subscription:
    """One connection to one server, with a subscription to each service."""

    def __init__(self, settings: NacosRegistry, identity: Identity, hearer: SubscriptionListener) -> None:
        self._settings = settings
        self._identity = identity
        self._hearer = hearer
        self._backoff = Backoff()
        self._error = ""
        self._reset()

    def _reset(self) -> None:
        self._wanted: dict[Place, tuple[ServiceKey, ...]] = {}
        self._named: dict[str, list[Place]] = {}
        self._carried: set[ServiceKey] = set()
        self._pushes: dict[Place, int] = {}

    async def run(self) -> None:
        """Stay connected until cancelled: to the server that is asked, or else to the next that lets it."""
        if self._settings.tls.insecure_skip_verify and self._settings.servers[0].startswith("https:"):
            _log.warning("nothing is pushed: gRPC verifies certificates; name a `caFile`", registry=self._settings.name)
            return
        while True:
            for server in self._hearer.servers:
                try:
                    await self._follow(server)
                except SourceError as error:
                    self._say(str(error))
            await asyncio.sleep(self._backoff.next())

    async def _follow(self, server: str) -> None:
        where = target(server, self._settings.grpc_port_offset)
        tls = await asyncio.to_thread(credentials, self._settings.tls) if where.secure else None
        connection = Connection(where, tls, self._settings.timeout_seconds)
        try:
            await connection.begin(self._settings.namespace or PUBLIC)
            await together(self._listen(connection), self._use(server, connection))
        finally:
            await connection.close()

    async def _use(self, server: str, connection: Connection) -> None:
        await connection.registered()
        self._reset()
        self._hearer.connected(server)
        try:
            await together(self._keep_subscribing(server, connection), self._beat(connection))
        finally:
            self._hearer.disconnected()

    def _say(self, error: str) -> None:
        if error != self._error:
            _log.warning("nothing is pushed just now: services are polled", registry=self._settings.name, error=error)
        self._error = error

    # --- while a connection is up ---

    async def _beat(self, connection: Connection) -> None:
        while True:
            await asyncio.sleep(BEAT_SECONDS)
            await connection.check()
            self._backoff.reset()
            self._error = ""
            self._hearer.confirmed()

    async def _listen(self, connection: Connection) -> None:
        async for told in connection.pushes():
            if told.service_info is None:
                continue
            places = self._places(told, told.service_info)
            for place in places:
                self._pushes[place] = self._pushes.get(place, 0) + 1
                self._hearer.told(self._wanted[place], told.service_info if len(places) == 1 else None)

    def _places(self, told: Notification, info: ServiceInfo) -> list[Place]:
        """The services that this may be about: Nacos leaves the namespace out of what it pushes."""
        places = self._named.get(info.grouped, [])
        return [place for place in places if place.namespace == told.namespace] or places

    async def _keep_subscribing(self, server: str, connection: Connection) -> None:
        every = True
        while True:
            self._hearer.watched.clear()
            await self._adjust(server, connection, every=every)
            every = False
            try:
                async with asyncio.timeout(RENEW_SECONDS):
                    await self._hearer.watched.wait()
            except TimeoutError:
                every = True

    async def _adjust(self, server: str, connection: Connection, *, every: bool) -> None:
        before = set(self._wanted)
        self._take_over(self._hearer.followed)
        new = [place for place, keys in self._wanted.items() if every or not self._carried.issuperset(keys)]
        await spread(before - self._wanted.keys(), lambda place: self._unsubscribe(server, connection, place))
        await spread(new, lambda place: self._subscribe(server, connection, place))

    def _take_over(self, followed: Mapping[ServiceKey, Place]) -> None:
        self._wanted, self._named = {}, {}
        for key, place in sorted(followed.items()):
            if place not in self._wanted:
                self._named.setdefault(place.grouped, []).append(place)
            self._wanted[place] = (*self._wanted.get(place, ()), key)
        self._carried &= followed.keys()

    async def _subscribe(self, server: str, connection: Connection, place: Place) -> None:
        pushes = self._pushes.get(place, 0)
        keys = self._wanted[place]
        try:
            body = await self._ask(server, connection, place, subscribe=True)
            info = reading(_SUBSCRIBED, body, connection.name).service_info
        except SourceUnreachable:
            raise
        except SourceError as error:
            # Its list is asked for instead, and says the same where that is refused, too.
            _log.info("a service cannot be subscribed to", service=place.grouped, error=str(error))
            self._carried.difference_update(keys)
            self._hearer.subscribed(keys, carried=False)
            return
        self._carried.update(keys)
        self._hearer.subscribed(keys, carried=True)
        if self._pushes.get(place, 0) == pushes:  # else what was pushed meanwhile is newer
            self._hearer.told(keys, info)

    async def _unsubscribe(self, server: str, connection: Connection, place: Place) -> None:
        try:
            await self._ask(server, connection, place, subscribe=False)
        except SourceUnreachable:
            raise
        except SourceError as error:
            _log.info("a service is still subscribed to", service=place.grouped, error=str(error))

    async def _ask(self, server: str, connection: Connection, place: Place, *, subscribe: bool) -> bytes:
        request = {
            "namespace": place.namespace,
            "groupName": place.group,
            "serviceName": place.service,
            "clusters": "",  # all: which count is decided here
            "subscribe": subscribe,
        }
        return await self._identity.proven(
            server, place, lambda proof: connection.call("SubscribeServiceRequest", request, proof.fields)
        )
