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
from adapter.runtime.backoff import Backoff, LogOnce
from adapter.runtime.concurrency import wait_for_event
from adapter.runtime.source_errors import NotAllowed, SourceError, SourceUnreachable, WrongRegistryAnswer
from adapter.settings.registries import ZooKeeperRegistry

_log = structlog.get_logger(__name__)

PING_SECONDS = 4.0
"""Period of pings."""
SILENCE_SECONDS = 1.0
"""A server that answers nothing for longer although it is asked may have been frozen."""
MOST_PROBES = 8
"""Maximum number of other services to probe for instances when a followed service is empty."""


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
        self._was_connected = False
        self._log_once = LogOnce()
        self._populated_path = ""

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
        if self._was_connected:
            self._cache.reconnected()
        self._was_connected = True
        for reader in self._readers:
            reader.invalidate()

    def _on_lost(self) -> None:
        """Marks every service as possibly outdated, and drops the evidence that others have instances."""
        for reader in self._readers:
            reader.current = False
        for service in self._services.values():
            service.others_alive = False

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
                self._answered(session)
                if self._rules is None or self._rules.current:
                    self._cache.confirm([service.key for service in self._services.values() if service.current])
                await self._check_others(session)
            except SourceError as error:
                self._cache.failed(error)

    def _answered(self, session: ZooKeeperSession) -> None:
        """Notes a reconnect with the first answer after a silence.

        The sessions of registered instances may have expired meanwhile, although this one did not.
        """
        if session.take_longest_silence() > SILENCE_SECONDS:
            self._cache.reconnected()

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
            self._answered(session)
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
                _log.warning(warning, registry=self._settings.name, service=str(service.key))
        service.logged = warnings
        rules = [rule for matching in (service.overrides, *dynamic) for rule in matching.rules]
        instances = [registration.instance for registration in apply_rules(service.instances, rules)]
        self._cache.update(service.key, instances, alive=service.others_alive and not instances)

    # Evidence for empty services

    async def _check_others(self, session: ZooKeeperSession) -> None:
        """Updates `others_alive` of empty services, once the session is old enough for all instances to be back."""
        empty = [service for service in self._services.values() if service.current and not service.instances]
        if not empty or session.started_at is None:
            return
        is_settled = asyncio.get_running_loop().time() - session.started_at > 2 * self._settings.session_seconds
        alive = is_settled and await self._others_are_alive(session)
        for service in empty:
            # It may have been left, and followed anew, since.
            is_followed = self._services.get(service.key) is service
            if service.others_alive != alive and service.current and is_followed:
                service.others_alive = alive
                self._report(service)

    async def _others_are_alive(self, session: ZooKeeperSession) -> bool:
        """Whether a service with instances is found. Raises SourceUnreachable; what may not be read is no evidence."""
        below = "/providers" if self._settings.layout == "DubboInterface" else ""
        try:
            if self._populated_path and await session.has_children(self._populated_path):
                return True
            self._populated_path = ""
            mine = {each.key.service.partition(":")[0] for each in self._services.values() if not each.instances}
            others = set(await session.children(self._root or "/", watch=False) or ()) - mine
            for name in sorted(others)[:MOST_PROBES]:
                path = f"{self._root}/{name}{below}"
                if await session.has_children(path):
                    self._populated_path = path
                    return True
        except SourceUnreachable:
            raise
        except SourceError as error:
            if self._log_once.is_new(str(error)):
                _log.warning("no empty service is believed", registry=self._settings.name, error=str(error))
        return False
