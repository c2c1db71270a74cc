"""Nacos: each service is listed over HTTP, at once after gRPC pushed a change of it, else from time to time.

A push only wakes the list. While services are pushed, each health check of the connection confirms their lists.
"""

import asyncio
import contextlib
import itertools
import math
import time
from collections.abc import AsyncGenerator, Callable, Iterator
from typing import TYPE_CHECKING

import structlog

from adapter.registries.nacos.lists import InstanceLists, NacosService
from adapter.registries.nacos.login import Login
from adapter.registries.poll import CONNECTIONS
from adapter.registries.servers import Servers
from adapter.registries.source import Answer, ServiceKey
from adapter.runtime.backoff import Backoff, LogOnce
from adapter.runtime.concurrency import for_each, run_all, wait_for_event
from adapter.runtime.source_errors import MissingExtra, SourceError, SourceUnreachable
from adapter.settings.registries import NacosRegistry

if TYPE_CHECKING:
    from adapter.registries.nacos.push import PushConnection

PUSHED_POLL_SECONDS = 60.0
"""Time between lists of a pushed service, in case a push was lost."""
REPLICATED_SECONDS = 3.0
"""Time after a push until all servers have its change: they replicate after 1 s, and push after 0.5 s."""
HEALTH_CHECK_SECONDS = 5.0
"""Period of the health check; Nacos closes a connection that is silent for 20 s."""
RESUBSCRIBE_SECONDS = 30.0
"""Time until a subscription that failed is tried again."""

_log = structlog.get_logger(__name__)


class _Watch:
    """When the iterator of a service lists it next (`due`), and a second time after a push (`again`): the loop's time.

    `is_pushed`: whether changes are pushed. The event wakes the iterator: to list, or to confirm the last list.
    """

    def __init__(self) -> None:
        self.event = asyncio.Event()
        self.is_pushed = False
        self.due = 0.0
        self.again = math.inf

    def list_now(self) -> None:
        self.due = asyncio.get_running_loop().time()
        self.event.set()


class NacosSource:
    """The instance lists of one Nacos of version 2 or 3. `clock`: seconds that only grow, for the age of tokens."""

    def __init__(self, settings: NacosRegistry, clock: Callable[[], float] = time.monotonic) -> None:
        self._settings = settings
        self._servers = Servers(settings, at_once=CONNECTIONS)
        self._login = Login(settings, self._servers, clock)
        self._lists = InstanceLists(settings, self._servers, self._login)
        self._watches: dict[NacosService, list[_Watch]] = {}
        """One for each iterator: two keys may be names of one service."""
        self._services_changed = asyncio.Event()
        self._pushing: asyncio.Task[None] | None = None
        self._log_once = LogOnce()

    async def instances(self, key: ServiceKey) -> AsyncGenerator[Answer, None]:
        """The lists of a service, as `Source` describes."""
        service = NacosService(*self._settings.place(key.namespace, key.group), key.service)
        loop, watch = asyncio.get_running_loop(), _Watch()
        self._watches.setdefault(service, []).append(watch)
        self._services_changed.set()
        if self._pushing is None and self._settings.push:
            self._pushing = asyncio.create_task(self._keep_connected(), name=f"registry {key.registry} pushes")
        try:
            while True:
                now = loop.time()
                watch.again = watch.again if now < watch.again else math.inf
                period = PUSHED_POLL_SECONDS if watch.is_pushed else self._settings.interval_seconds
                watch.due = min(now + period, watch.again)  # a push during the list makes it due at once
                answer = await self._servers.ask(lambda server: self._lists.read(server, service))
                yield answer
                while (pause := watch.due - loop.time()) > 0:
                    watch.event.clear()
                    if await wait_for_event(watch.event, pause) and watch.due > loop.time():
                        yield answer
        finally:
            self._watches[service].remove(watch)
            if not self._watches[service]:
                del self._watches[service]
            self._services_changed.set()

    async def close(self) -> None:
        """Close the connections."""
        if self._pushing is not None:
            self._pushing.cancel()
            await asyncio.gather(self._pushing, return_exceptions=True)
        await self._servers.close()

    @property
    def pushed(self) -> frozenset[NacosService]:
        """The services whose changes are pushed; the others are polled."""
        return frozenset(service for service, watches in self._watches.items() if all(one.is_pushed for one in watches))

    # --- pushes ---

    async def _keep_connected(self) -> None:
        """Stays connected for pushes: to the server that answers lists, else to the next that accepts."""
        try:
            from adapter.registries.nacos.push import PushConnection
        except ImportError as error:
            _log.warning("nacos_push_failed", registry=self._settings.name, why=str(MissingExtra("nacos", error)))
            return
        if self._settings.tls.insecure_skip_verify and self._servers.current.startswith("https:"):
            why = "gRPC always verifies certificates; set `caFile`"
            _log.warning("nacos_push_failed", registry=self._settings.name, why=why)
            return
        backoff = Backoff()
        while True:
            addresses = self._servers.addresses
            first = addresses.index(self._servers.current)
            for server in addresses[first:] + addresses[:first]:
                connection = PushConnection(self._settings, server, self._login)
                try:
                    await connection.open()
                    backoff.reset()
                    self._log_once.clear()
                    await run_all(
                        self._receive(connection), self._keep_subscribed(connection), self._keep_checking(connection)
                    )
                except SourceError as error:
                    if self._log_once.is_new(str(error)):
                        _log.warning("nacos_push_connection_failed", registry=self._settings.name, error=str(error))
                except Exception:  # noqa: BLE001  after any fault services are polled, and pushes are tried again
                    _log.exception("nacos_push_connection_failed", registry=self._settings.name)
                finally:
                    for watch in self._all_watches():
                        watch.is_pushed = False
                        watch.list_now()
                    await connection.close()
            await asyncio.sleep(backoff.next())

    def _all_watches(self) -> Iterator[_Watch]:
        return itertools.chain.from_iterable(self._watches.values())

    async def _receive(self, connection: "PushConnection") -> None:
        async for grouped_name in connection.changes():
            for service, watches in self._watches.items():
                for watch in watches if service.grouped_name == grouped_name else ():
                    watch.again = asyncio.get_running_loop().time() + REPLICATED_SECONDS
                    watch.list_now()

    async def _keep_checking(self, connection: "PushConnection") -> None:
        while True:
            await asyncio.sleep(HEALTH_CHECK_SECONDS)
            await connection.health_check()
            for watch in self._all_watches():
                if watch.is_pushed:
                    watch.event.set()

    async def _keep_subscribed(self, connection: "PushConnection") -> None:
        """Holds a subscription to each followed service. Those that fail are tried again from time to time."""
        subscribed: set[NacosService] = set()

        async def subscribe(service: NacosService) -> None:
            try:
                if service not in subscribed:
                    await connection.subscribe(service)
            except SourceError as error:
                if isinstance(error, SourceUnreachable):
                    await connection.health_check()  # raises if the connection is lost
                if self._log_once.is_new(str(error), "subscriptions"):
                    text = "subscription failed, the service is polled"
                    _log.info(text, registry=self._settings.name, service=service.name, error=str(error))
                return
            subscribed.add(service)
            for watch in self._watches.get(service, ()):
                if not watch.is_pushed:
                    watch.is_pushed = True
                    watch.list_now()  # it may have changed since it was listed

        async def unsubscribe(service: NacosService) -> None:
            subscribed.discard(service)
            with contextlib.suppress(SourceError):  # its pushes concern nobody
                await connection.subscribe(service, subscribe=False)

        while True:
            self._services_changed.clear()
            await for_each(sorted(subscribed - self._watches.keys()), unsubscribe)
            await for_each(sorted(self._watches), subscribe)
            await wait_for_event(self._services_changed, RESUBSCRIBE_SECONDS)
