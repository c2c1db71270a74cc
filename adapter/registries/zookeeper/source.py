"""Rosters from ZooKeeper as Dubbo and Curator register services in it: one session for all services, and watches.

Every few seconds the source pings the server with a read of one node. An answer proves that the server is alive and
has delivered all watch events so far, so it confirms every roster. A frozen server keeps its connections open, but does
not answer.
"""

import asyncio
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field

import structlog

from adapter.registries.roster import ServiceKey
from adapter.registries.roster_cache import RosterCache
from adapter.registries.zookeeper.layouts import OverrideRules, apply_rules
from adapter.registries.zookeeper.readers import (
    CuratorReader,
    DubboInterfaceReader,
    OverrideRuleReader,
    ServiceReader,
    invalid_key_reason,
    services_root,
)
from adapter.registries.zookeeper.session import ZooKeeperSession
from adapter.runtime.backoff import Backoff
from adapter.runtime.source_errors import NotAllowed, SourceError, WrongRegistryAnswer
from adapter.settings.registries import ZooKeeperRegistry

_log = structlog.get_logger(__name__)

PING_SECONDS = 4.0
"""Period of pings."""
SLOW_SECONDS = 1.0
"""A server that takes longer to answer a ping may have been frozen."""
MOST_PROBES = 8
"""Maximum number of other services to probe for instances when a followed service is empty."""


@dataclass(eq=False)
class _FollowedService:
    """A followed service. `current`: no change has arrived since it was read. `others_alive`: others have instances."""

    key: ServiceKey
    reader: ServiceReader
    dirty: asyncio.Event = field(default_factory=asyncio.Event)
    current: bool = False
    was_read: bool = False
    others_alive: bool = False
    warnings: tuple[str, ...] = ()
    task: asyncio.Task[None] | None = None


class ZooKeeperSource:
    """Follows services of one ZooKeeper in the layout of `settings`, and writes their instances to the roster cache."""

    def __init__(self, settings: ZooKeeperRegistry, cache: RosterCache) -> None:
        self._settings = settings
        self._cache = cache
        self._services: dict[ServiceKey, _FollowedService] = {}
        self._by_path: dict[str, set[_FollowedService]] = {}
        self._root = services_root(settings)
        self._rules = _DubboRules(settings) if settings.layout != "Curator" else None
        self._session: ZooKeeperSession | None = None
        self._tasks: asyncio.TaskGroup | None = None
        self._was_connected = self._was_slow = False
        self._populated_path = ""

    def refresh(self) -> None:
        """Follows the services of the cache from now on."""
        for key in self._services.keys() - self._cache.keys:
            service = self._services.pop(key)
            for path in service.reader.paths:
                self._by_path[path].discard(service)
                if not self._by_path[path]:
                    del self._by_path[path]
            if service.task is not None:
                service.task.cancel()
        for key in sorted(self._cache.keys - self._services.keys()):
            reason = invalid_key_reason(key, self._settings)
            if reason:
                self._cache.failed(WrongRegistryAnswer(reason), [key])
            else:
                self._start(key)

    def warnings(self, key: ServiceKey) -> tuple[str, ...]:
        """One sentence for each registration or rule of this service that is ignored because it is not understood."""
        service = self._services.get(key)
        return service.warnings if service is not None else ()

    async def run(self) -> None:
        """Keeps a session until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            self._tasks = tasks
            tasks.create_task(self._keep_session())
            tasks.create_task(self._keep_pinging())
            if self._rules is not None:
                tasks.create_task(self._follow_rules(self._rules))
            for service in self._services.values():
                service.task = tasks.create_task(self._follow(service))
            try:
                await asyncio.Event().wait()
            finally:
                self._tasks = None

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
        for service in self._services.values():
            service.reader.invalidate_all()
            service.dirty.set()
        if self._rules is not None:
            self._rules.reader.invalidate_all()
            self._rules.dirty.set()

    def _on_lost(self) -> None:
        """Marks every service as possibly outdated, and drops the evidence that others have instances."""
        for service in self._services.values():
            service.current = service.others_alive = False
        if self._rules is not None:
            self._rules.current = False

    def _on_change(self, path: str) -> None:
        parent = path.rpartition("/")[0]
        affected = self._by_path.get(path, set())
        if parent != self._root:  # children of the root are the services themselves
            affected = affected | self._by_path.get(parent, set())
        for service in affected:
            service.reader.invalidate(path)
            service.current = False
            service.dirty.set()
        if self._rules is not None and self._rules.reader.path in {path, parent}:
            self._rules.reader.invalidate(path)
            self._rules.current = False
            self._rules.dirty.set()

    async def _keep_pinging(self) -> None:
        """Confirms all rosters with each ping that is answered, and records an error with each that is not."""
        while True:
            await asyncio.sleep(PING_SECONDS)
            session = self._session
            if session is None:
                continue
            session.unblock()
            try:
                slow = await session.ping() > SLOW_SECONDS
                if slow or self._was_slow:
                    # The sessions of registered instances may have expired meanwhile, although this one did not.
                    self._cache.reconnected()
                self._was_slow = False
                if self._rules is None or self._rules.current:
                    self._cache.confirm([service.key for service in self._services.values() if service.current])
                await self._check_others(session)
            except SourceError as error:
                self._was_slow = True
                self._cache.failed(error)

    # Services

    def _start(self, key: ServiceKey) -> None:
        by_interface = self._settings.layout == "DubboInterface"
        settings = self._settings
        reader: ServiceReader = DubboInterfaceReader(settings, key) if by_interface else CuratorReader(settings, key)
        service = self._services[key] = _FollowedService(key, reader)
        service.dirty.set()
        for path in reader.paths:
            self._by_path.setdefault(path, set()).add(service)
        if self._tasks is not None:
            service.task = self._tasks.create_task(self._follow(service))

    async def _follow(self, service: _FollowedService) -> None:
        """Reads a service again after each change."""
        backoff = Backoff()
        while True:
            await service.dirty.wait()
            service.dirty.clear()
            session = self._session
            if session is None or not session.connected:
                backoff.reset()
                continue  # a new connection marks every service as dirty
            try:
                await service.reader.read(session)
            except SourceError as error:
                await self._retry_later(service.dirty, error, backoff.next(), [service.key])
                continue
            backoff.reset()
            service.was_read = True
            service.current = session.connected and not service.dirty.is_set()
            self._report(service)

    async def _retry_later(
        self, dirty: asyncio.Event, error: SourceError, pause: float, keys: Iterable[ServiceKey]
    ) -> None:
        """Records the error, and marks for another attempt after a pause, or at the next change."""
        session = self._session
        if session is None or not session.connected:
            return  # the ping records that error for all services
        self._cache.failed(error, keys)
        with suppress(TimeoutError):
            async with asyncio.timeout(pause):
                await dirty.wait()
        if isinstance(error, NotAllowed):
            with suppress(SourceError):
                await session.renew_password()
        dirty.set()

    def _report(self, service: _FollowedService) -> None:
        """Writes a service to the roster cache, once the rules are known too."""
        registered = service.reader.instances
        if not service.was_read or (self._rules is not None and self._rules.by_rule_key is None):
            return
        dynamic = self._rules.matching(service) if self._rules is not None else ()
        rules = [rule for matching in (service.reader.overrides, *dynamic) for rule in matching.rules]
        logged = set(service.warnings)
        of_rules = (warning for matching in dynamic for warning in matching.warnings)
        service.warnings = (*service.reader.warnings(), *of_rules)
        for warning in service.warnings:
            if warning not in logged:
                _log.warning(warning, registry=self._settings.name, service=str(service.key))
        instances = [registration.instance for registration in apply_rules(registered, rules)]
        self._cache.update(service.key, instances, alive=service.others_alive and not instances)

    # Rules of Dubbo's dynamic configuration

    async def _follow_rules(self, rules: "_DubboRules") -> None:
        """Reads the rules again after each change, and applies them to all services."""
        backoff = Backoff()
        while True:
            await rules.dirty.wait()
            rules.dirty.clear()
            session = self._session
            if session is None or not session.connected:
                continue
            try:
                rules.by_rule_key = await rules.reader.read(session)
            except SourceError as error:
                await self._retry_later(rules.dirty, error, backoff.next(), list(self._services))
                continue
            backoff.reset()
            rules.current = session.connected and not rules.dirty.is_set()
            for service in self._services.values():
                if service.current:
                    self._report(service)

    # Evidence for empty services

    async def _check_others(self, session: ZooKeeperSession) -> None:
        """Updates `others_alive` of empty services, once the session is old enough for all instances to be back."""
        empty = [service for service in self._services.values() if service.current and not service.reader.instances]
        if not empty or session.started_at is None:
            return
        age = asyncio.get_running_loop().time() - session.started_at
        alive = age > 2 * self._settings.session_seconds and await self._others_have_instances(session)
        for service in empty:
            if service.others_alive != alive and service.current:
                service.others_alive = alive
                self._report(service)

    async def _others_have_instances(self, session: ZooKeeperSession) -> bool:
        if self._populated_path and await session.has_children(self._populated_path):
            return True
        below = "/providers" if self._settings.layout == "DubboInterface" else ""
        mine = {
            service.key.service.partition(":")[0] for service in self._services.values() if not service.reader.instances
        }
        others = [
            name for name in sorted(await session.children(self._root or "/", watch=False) or ()) if name not in mine
        ]
        for name in others[:MOST_PROBES]:
            if await session.has_children(f"{self._root}/{name}{below}"):
                self._populated_path = f"{self._root}/{name}{below}"
                return True
        self._populated_path = ""
        return False


class _DubboRules:
    """The override rules of Dubbo's dynamic configuration; `by_rule_key` is None until the first read."""

    def __init__(self, settings: ZooKeeperRegistry) -> None:
        self.reader = OverrideRuleReader(settings)
        self.dirty = asyncio.Event()
        self.current = False
        self.by_rule_key: Mapping[str, tuple[OverrideRules, ...]] | None = None

    def matching(self, service: _FollowedService) -> tuple[OverrideRules, ...]:
        """The rules for the service's applications, then those for its interface; later ones win."""
        instances = service.reader.instances
        keys = [
            *sorted({registration.application for registration in instances}),
            *sorted({registration.interface for registration in instances} - {""}),
        ]
        return tuple(rules for key in keys for rules in (self.by_rule_key or {}).get(key, ()))
