"""Rosters from ZooKeeper as Dubbo and Curator register services in it: one session for all services, and watches.

Every few seconds the source pings the server with a read of one node. An answer proves that the server is alive and
has delivered all watch events so far, so it confirms every roster. A frozen server keeps its connections open, but does
not answer.
"""

import asyncio
from contextlib import suppress

import structlog

from adapter.registries.roster import ServiceKey
from adapter.registries.roster_cache import RosterCache
from adapter.registries.zookeeper.layouts import apply_rules
from adapter.registries.zookeeper.readers import (
    CuratorReader,
    DubboInterfaceReader,
    NodeReader,
    OverrideRuleReader,
    ServiceReader,
    invalid_key_reason,
    services_root,
)
from adapter.registries.zookeeper.session import ZooKeeperSession
from adapter.runtime.backoff import Backoff
from adapter.runtime.concurrency import wait_for_event
from adapter.runtime.source_errors import NotAllowed, SourceError, WrongRegistryAnswer
from adapter.settings.registries import ZooKeeperRegistry

_log = structlog.get_logger(__name__)

PING_SECONDS = 4.0
"""Period of pings."""


class ZooKeeperSource:
    """Follows services of one ZooKeeper in the layout of `settings`, and writes their instances to the roster cache."""

    def __init__(self, settings: ZooKeeperRegistry, cache: RosterCache) -> None:
        self._settings = settings
        self._cache = cache
        self._services: dict[ServiceKey, ServiceReader] = {}
        self._root = services_root(settings)
        self._rules = OverrideRuleReader(settings) if settings.layout != "Curator" else None
        self._session: ZooKeeperSession | None = None
        self._tasks: asyncio.TaskGroup | None = None

    def refresh(self) -> None:
        """Follows the services of the cache from now on."""
        for key in self._services.keys() - self._cache.keys:
            task = self._services.pop(key).task
            if task is not None:
                task.cancel()
        by_interface = self._settings.layout == "DubboInterface"
        for key in sorted(self._cache.keys - self._services.keys()):
            reason = invalid_key_reason(key, self._settings)
            if reason:
                self._cache.failed(WrongRegistryAnswer(reason), [key])
                continue
            kind = DubboInterfaceReader if by_interface else CuratorReader
            service = self._services[key] = kind(self._settings, key)
            if self._tasks is not None:
                service.task = self._tasks.create_task(self._follow(service))

    def warnings(self, key: ServiceKey) -> tuple[str, ...]:
        """One sentence for each registration or rule of this service that is ignored because it is not understood."""
        service = self._services.get(key)
        return service.logged if service is not None else ()

    async def run(self) -> None:
        """Keeps a session until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            self._tasks = tasks
            tasks.create_task(self._keep_pinging())
            if self._rules is not None:
                tasks.create_task(self._follow(self._rules))
            for service in self._services.values():
                service.task = tasks.create_task(self._follow(service))
            try:
                await self._keep_session()
            finally:
                self._tasks = None

    @property
    def _readers(self) -> list[NodeReader]:
        return [*self._services.values(), *([self._rules] if self._rules is not None else [])]

    # The session

    async def _keep_session(self) -> None:
        """Opens one session after another: kazoo reconnects by itself, and gives up only after a refusal."""
        backoff = Backoff()
        while True:
            session = ZooKeeperSession(self._settings, self._on_connected, self._on_lost, self._on_change)
            try:
                self._session = session
                await session.open()
                self._cache.failed(await session.wait_closed())
            except SourceError as error:
                self._cache.failed(error)
            finally:
                self._session = None
                await session.close()
            if session.ever_connected:
                backoff.reset()
            await asyncio.sleep(backoff.next())

    def _on_connected(self) -> None:
        for reader in self._readers:
            reader.invalidate()

    def _on_lost(self) -> None:
        """Marks every service as possibly outdated."""
        for reader in self._readers:
            reader.current = False

    def _on_change(self, path: str) -> None:
        parent = path.rpartition("/")[0]
        for reader in self._readers:
            # Children of the root are the services themselves.
            is_below = parent in reader.paths and (parent != self._root or reader is self._rules)
            if path in reader.paths or is_below:
                reader.invalidate(path)

    async def _keep_pinging(self) -> None:
        """Confirms all rosters with each ping that is answered, and records an error with each that is not."""
        while True:
            await asyncio.sleep(PING_SECONDS)
            session = self._session
            if session is None:
                continue
            session.unblock()
            try:
                await session.ping()
                if self._rules is None or self._rules.current:
                    self._cache.confirm([service.key for service in self._services.values() if service.current])
            except SourceError as error:
                self._cache.failed(error)

    # Services

    async def _follow(self, reader: NodeReader) -> None:
        """Reads a service, or the rules of Dubbo's dynamic configuration, again after each change."""
        backoff = Backoff()
        while True:
            await reader.dirty.wait()
            reader.dirty.clear()
            session = self._session
            if session is None or not session.connected:
                backoff.reset()
                continue  # a new connection invalidates every reader
            try:
                await reader.read(session)
            except SourceError as error:
                session, pause = self._session, backoff.next()
                if session is None or not session.connected:
                    continue  # the ping records that error for all services
                self._cache.failed(error, [reader.key] if isinstance(reader, ServiceReader) else list(self._services))
                await wait_for_event(reader.dirty, pause)
                if isinstance(error, NotAllowed):
                    with suppress(SourceError):
                        await session.renew_password()
                reader.dirty.set()
                continue
            backoff.reset()
            reader.was_read = True
            reader.current = session.connected and not reader.dirty.is_set()
            if isinstance(reader, ServiceReader):
                self._report(reader)
                continue
            for service in self._services.values():
                if service.current:
                    self._report(service)

    def _report(self, service: ServiceReader) -> None:
        """Writes a service to the roster cache, with the newest rules only: they may pull out a pod that is there."""
        if not service.was_read or (self._rules is not None and not self._rules.current):
            return
        dynamic = self._rules.matching(service.instances) if self._rules is not None else []
        warnings = (*service.warnings(), *(warning for matching in dynamic for warning in matching.warnings))
        for warning in warnings:
            if warning not in service.logged:
                _log.warning(
                    "registry_data_unreadable", registry=self._settings.name, service=str(service.key), why=warning
                )
        service.logged = warnings
        rules = [rule for matching in (service.overrides, *dynamic) for rule in matching.rules]
        instances = [registration.instance for registration in apply_rules(service.instances, rules)]
        self._cache.update(service.key, instances)
