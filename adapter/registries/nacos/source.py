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
from adapter.registries.servers import Servers
from adapter.registries.source import Answer, ServiceKey
from adapter.runtime.backoff import Backoff, LogOnce
from adapter.runtime.concurrency import for_each, run_all, wait_for_event
from adapter.runtime.source_errors import MissingExtra, SourceError, SourceUnreachable
from adapter.settings.registries import NacosRegistry

if TYPE_CHECKING:
    from adapter.registries.nacos.push import PushConnection

CONNECTIONS = 32
"""HTTP connections: so many lists may hang for their whole timeout before others wait for one."""
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
    """What the iterator of a service waits for; `event` is set after each change of it."""

    def __init__(self) -> None:
        self.event = asyncio.Event()
        self.is_pushed = False
        """Whether changes are pushed."""
        self.is_changed = False
        """Whether a push came, or one may have been missed."""
        self.is_confirmed = False
        """Whether the connection was alive since the list was confirmed."""
        self.list_again_at = math.inf
        """The loop's time."""


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
                began = loop.time()
                watch.is_changed = watch.is_confirmed = False  # a change during the list has it listed again
                if began >= watch.list_again_at:
                    watch.list_again_at = math.inf
                answer = await self._servers.ask(lambda server: self._lists.read(server, service))
                yield answer
                while not watch.is_changed:
                    watch.event.clear()
                    period = PUSHED_POLL_SECONDS if watch.is_pushed else self._settings.interval_seconds
                    pause = min(began + period, watch.list_again_at) - loop.time()
                    if pause <= 0 or not await wait_for_event(watch.event, pause):
                        break
                    if watch.is_confirmed and watch.is_pushed and not watch.is_changed:
                        watch.is_confirmed = False
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
        return frozenset(
            service for service, watches in self._watches.items() if all(watch.is_pushed for watch in watches)
        )

    # --- pushes ---

    async def _keep_connected(self) -> None:
        """Stays connected for pushes: to the server that answers lists, else to the next that accepts."""
        try:
            from adapter.registries.nacos.push import PushConnection
        except ImportError as error:
            self._log_off(str(MissingExtra("nacos", error)))
            return
        if self._settings.tls.insecure_skip_verify and self._servers.current.startswith("https:"):
            self._log_off("gRPC always verifies certificates; set `caFile`")
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
                        text = "nacos_push_connection_failed"
                        _log.warning(text, registry=self._settings.name, error=str(error))
                except Exception:  # noqa: BLE001  after any fault services are polled, and pushes are tried again
                    _log.exception("nacos_push_connection_failed", registry=self._settings.name)
                finally:
                    for watch in self._all_watches():
                        watch.is_pushed = False
                        watch.event.set()
                    await connection.close()
            await asyncio.sleep(backoff.next())

    def _log_off(self, why: str) -> None:
        _log.warning("nacos_push_failed", registry=self._settings.name, why=why)

    def _all_watches(self) -> Iterator[_Watch]:
        return itertools.chain.from_iterable(self._watches.values())

    async def _receive(self, connection: "PushConnection") -> None:
        async for grouped_name in connection.changes():
            for service, watches in self._watches.items():
                for watch in watches if service.grouped_name == grouped_name else ():
                    watch.is_changed = True
                    watch.list_again_at = asyncio.get_running_loop().time() + REPLICATED_SECONDS
                    watch.event.set()

    async def _keep_checking(self, connection: "PushConnection") -> None:
        while True:
            await asyncio.sleep(HEALTH_CHECK_SECONDS)
            await connection.health_check()
            for watch in self._all_watches():
                watch.is_confirmed = True
                watch.event.set()

    async def _keep_subscribed(self, connection: "PushConnection") -> None:
        """Holds a subscription to each followed service. Those that fail are tried again from time to time."""
        subscribed: set[NacosService] = set()

        async def subscribe(service: NacosService) -> None:
            if service not in subscribed:
                try:
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
                    watch.is_pushed = watch.is_changed = True  # it may have changed since it was listed
                    watch.event.set()

        async def unsubscribe(service: NacosService) -> None:
            subscribed.discard(service)
            with contextlib.suppress(SourceError):  # its pushes concern nobody
                await connection.subscribe(service, subscribe=False)

        while True:
            self._services_changed.clear()
            await for_each(sorted(subscribed - self._watches.keys()), unsubscribe)
            await for_each(sorted(self._watches), subscribe)
            await wait_for_event(self._services_changed, RESUBSCRIBE_SECONDS)
