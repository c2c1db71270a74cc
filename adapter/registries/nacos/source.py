"""Nacos: each service is listed over HTTP, at once after gRPC pushed a change of it, else from time to time.

A push only wakes the list. While services are pushed, each health check of the connection confirms their lists.
"""

import asyncio
import math
import time
from collections.abc import AsyncGenerator, Callable, Iterable
from typing import TYPE_CHECKING

import structlog

from adapter.registries.nacos.lists import InstanceLists, NacosService
from adapter.registries.nacos.login import Login
from adapter.registries.servers import Servers
from adapter.registries.source import Answer, ServiceKey
from adapter.runtime.backoff import Backoff, LogOnce
from adapter.runtime.concurrency import run_all, wait_for_event
from adapter.runtime.source_errors import MissingExtra, SourceError
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

    The event wakes the iterator: to list, or to confirm the last list.
    """

    def __init__(self, service: NacosService) -> None:
        self.service = service
        self.event = asyncio.Event()
        self.due = 0.0
        self.again = math.inf


class NacosSource:
    """The instance lists of one Nacos of version 2 or 3. `clock`: seconds that only grow, for the age of tokens."""

    def __init__(self, settings: NacosRegistry, clock: Callable[[], float] = time.monotonic) -> None:
        self._settings = settings
        self._servers = Servers(settings)
        self._login = Login(settings, self._servers, clock)
        self._lists = InstanceLists(settings, self._servers, self._login)
        self.pushed: set[NacosService] = set()
        """The services whose changes are pushed; the others are polled."""
        self._watches: list[_Watch] = []
        self._followed = asyncio.Event()
        """Set when a service was added."""
        self._pushing: asyncio.Task[None] | None = None
        self._log_once = LogOnce()

    async def instances(self, key: ServiceKey) -> AsyncGenerator[Answer, None]:
        """The lists of a service, as `Source` describes."""
        service = NacosService(*self._settings.place(key.namespace, key.group), key.service)
        loop, watch = asyncio.get_running_loop(), _Watch(service)
        self._watches.append(watch)
        self._followed.set()
        if self._pushing is None and self._settings.push:
            self._pushing = asyncio.create_task(self._keep_connected(), name=f"registry {key.registry} pushes")
        answer, tag = Answer(()), ""
        try:
            while True:
                now = loop.time()
                watch.again = watch.again if now < watch.again else math.inf
                period = PUSHED_POLL_SECONDS if service in self.pushed else self._settings.interval_seconds
                watch.due = min(now + period, watch.again)  # a push during the list makes it due at once
                read = await self._servers.ask(lambda server: self._lists.read(server, service, tag))  # noqa: B023
                answer, tag = read or (answer, tag)
                yield answer
                while (pause := watch.due - loop.time()) > 0:
                    watch.event.clear()
                    if await wait_for_event(watch.event, pause) and watch.due > loop.time():
                        yield answer
        finally:
            self._watches.remove(watch)

    async def close(self) -> None:
        """Close the connections."""
        if self._pushing is not None:
            self._pushing.cancel()
            await asyncio.gather(self._pushing, return_exceptions=True)
        await self._servers.close()

    # --- pushes ---

    async def _keep_connected(self) -> None:
        """Stays connected for pushes: to the server that answers lists, else to the next that accepts."""
        why = ""
        if self._settings.tls.insecure_skip_verify and self._servers.current.startswith("https:"):
            why = "gRPC always verifies certificates; set `caFile`"
        try:
            from adapter.registries.nacos.push import PushConnection
        except ImportError as error:
            why = str(MissingExtra("nacos", error))
        if why:
            _log.warning("nacos_push_failed", registry=self._settings.name, why=why)
            return
        backoff = Backoff()
        while True:
            for server in self._servers.in_turn():
                connection = PushConnection(self._settings, server)
                try:
                    await connection.open()
                    backoff.reset()
                    self._log_once.clear()
                    await run_all(
                        self._receive(connection), self._subscribe(connection, server), self._check(connection)
                    )
                except SourceError as error:
                    if self._log_once.is_new(str(error)):
                        _log.warning("nacos_push_connection_failed", registry=self._settings.name, error=str(error))
                except Exception:  # noqa: BLE001  after any fault services are polled, and pushes are tried again
                    _log.exception("nacos_push_connection_failed", registry=self._settings.name)
                finally:
                    self.pushed.clear()
                    self._list_now(self._watches)
                    await connection.close()
            await asyncio.sleep(backoff.next())

    def _list_now(self, watches: Iterable[_Watch]) -> None:
        for watch in watches:
            watch.due = asyncio.get_running_loop().time()
            watch.event.set()

    async def _receive(self, connection: "PushConnection") -> None:
        async for grouped_name in connection.changes():
            changed = [watch for watch in self._watches if watch.service.grouped_name == grouped_name]
            self._list_now(changed)
            for watch in changed:
                watch.again = watch.due + REPLICATED_SECONDS

    async def _check(self, connection: "PushConnection") -> None:
        while True:
            await asyncio.sleep(HEALTH_CHECK_SECONDS)
            await connection.request("HealthCheckRequest", {})
            for watch in self._watches:
                if watch.service in self.pushed:
                    watch.event.set()

    async def _subscribe(self, connection: "PushConnection", server: str) -> None:
        """Subscribes to each followed service while the connection lives. What fails is tried again from time to time."""
        while True:
            self._followed.clear()
            for service in sorted({watch.service for watch in self._watches} - self.pushed):
                request = {"namespace": service.namespace, "groupName": service.group, "serviceName": service.name}
                try:
                    await self._login.authenticated(
                        server,
                        service.grouped_name,
                        lambda credentials, request=request: connection.request(
                            "SubscribeServiceRequest", {**request, "clusters": "", "subscribe": True}, credentials
                        ),
                    )
                except SourceError as error:
                    if self._log_once.is_new(str(error), "subscriptions"):
                        text = "subscription failed, the service is polled"
                        _log.info(text, registry=self._settings.name, service=service.name, error=str(error))
                    continue
                self.pushed.add(service)
                # It may have changed since it was listed.
                self._list_now(watch for watch in self._watches if watch.service == service)
            await wait_for_event(self._followed, RESUBSCRIBE_SECONDS)
