"""Rosters from ZooKeeper, with what Dubbo or Curator keep in it: one session for all services, and watches.

At rest nothing is asked but, every few seconds, whether one node exists: an answer shows that the server lives and has
sent all changes so far, so that every list holds on. A frozen server keeps its connections, and answers no more.
"""

import asyncio
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field

import structlog

from adapter.load.roster import Roster
from adapter.registries.roster import ServiceKey
from adapter.registries.roster_cache import RosterCache
from adapter.registries.zookeeper.readers import (
    InstanceReader,
    ProviderReader,
    Reader,
    RuleReader,
    fault_of,
    root_of,
)
from adapter.registries.zookeeper.rules import Rules, applied
from adapter.registries.zookeeper.session import Session
from adapter.runtime.backoff import Backoff
from adapter.runtime.source_errors import NotAllowed, SourceError, WrongRegistryAnswer
from adapter.settings.registries import ZooKeeperRegistry

_log = structlog.get_logger(__name__)

PULSE_SECONDS = 4.0
"""How often the server has to show that it lives."""
SLOW_SECONDS = 1.0
"""A server that takes so long may have been frozen."""
WITNESSES = 8
"""Services that are looked at, at most, for a sign that others than an empty one have instances."""


@dataclass(eq=False)
class _Followed:
    """A service that is followed. `current`: what was read is what the server has, as far as it told."""

    key: ServiceKey
    reader: Reader
    dirty: asyncio.Event = field(default_factory=asyncio.Event)
    current: bool = False
    was_read: bool = False
    vouched: bool = False
    remarks: tuple[str, ...] = ()
    task: asyncio.Task[None] | None = None


class ZooKeeperSource:
    """A ZooKeeper as a roster source. `settings` say which layout; the book judges what is heard."""

    def __init__(self, settings: ZooKeeperRegistry, book: RosterCache) -> None:
        self._settings = settings
        self._book = book
        self._followed: dict[ServiceKey, _Followed] = {}
        self._by_path: dict[str, set[_Followed]] = {}
        self._root = root_of(settings)
        self._rules = _RuleBook(settings) if settings.layout != "Curator" else None
        self._session: Session | None = None
        self._tasks: asyncio.TaskGroup | None = None
        self._was_connected = self._hesitated = False
        self._witness = ""

    def watch(self, keys: Iterable[ServiceKey]) -> None:
        """Follow exactly these services."""
        wanted = set(keys)
        self._book.watch(wanted)
        for key in self._followed.keys() - wanted:
            self._leave(self._followed.pop(key))
        for key in sorted(wanted - self._followed.keys()):
            fault = fault_of(key, self._settings)
            if fault:
                self._book.failed(WrongRegistryAnswer(fault), [key])
            else:
                self._take_up(key)

    def roster(self, key: ServiceKey) -> Roster | None:
        """The latest roster of a service; None where nothing was heard yet."""
        return self._book.roster(key)

    def remarks(self, key: ServiceKey) -> tuple[str, ...]:
        """Sentences about registrations and rules of this service that could not be understood, and do not count."""
        followed = self._followed.get(key)
        return followed.remarks if followed is not None else ()

    async def run(self) -> None:
        """Keep a session until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            self._tasks = tasks
            tasks.create_task(self._keep_session())
            tasks.create_task(self._pulse())
            if self._rules is not None:
                tasks.create_task(self._follow_rules(self._rules))
            for followed in self._followed.values():
                followed.task = tasks.create_task(self._follow(followed))
            try:
                await asyncio.Event().wait()
            finally:
                self._tasks = None

    # The session

    async def _keep_session(self) -> None:
        """One session after the other: kazoo mends what it can, and begins anew only after a refusal."""
        backoff = Backoff()
        while True:
            session = Session(self._settings, self._connected, self._lost, self._changed)
            try:
                self._session = session
                await session.open()
                self._book.failed(await session.end())
            except SourceError as error:
                self._book.failed(error)
            finally:
                self._session = None
                await session.close()
            if session.ever_connected:
                backoff.reset()
            await asyncio.sleep(backoff.next())

    def _connected(self) -> None:
        if self._was_connected:
            self._book.reconnected()
        self._was_connected = True
        for followed in self._followed.values():
            followed.reader.forget()
            followed.dirty.set()
        if self._rules is not None:
            self._rules.reader.forget()
            self._rules.dirty.set()

    def _lost(self) -> None:
        """Nothing is known to hold any more, and an empty list has to be vouched for anew."""
        for followed in self._followed.values():
            followed.current = followed.vouched = False
        if self._rules is not None:
            self._rules.current = False

    def _changed(self, path: str) -> None:
        parent = path.rpartition("/")[0]
        concerned = self._by_path.get(path, set())
        if parent != self._root:  # below the root are the services themselves
            concerned = concerned | self._by_path.get(parent, set())
        for followed in concerned:
            followed.reader.touch(path)
            followed.current = False
            followed.dirty.set()
        if self._rules is not None and self._rules.reader.path in {path, parent}:
            self._rules.reader.touch(path)
            self._rules.current = False
            self._rules.dirty.set()

    async def _pulse(self) -> None:
        """Confirm what is known as often as the server shows that it lives, and say so where it does not."""
        while True:
            await asyncio.sleep(PULSE_SECONDS)
            session = self._session
            if session is None:
                continue
            session.review()
            try:
                await self._beat(session)
                await self._vouch(session)
            except SourceError as error:
                self._hesitated = True
                self._book.failed(error)

    async def _beat(self, session: Session) -> None:
        slow = await session.pulse() > SLOW_SECONDS
        if slow or self._hesitated:
            # The sessions of those who registered may have ended meanwhile, though this one did not.
            self._book.reconnected()
        self._hesitated = False
        if self._rules is None or self._rules.current:
            self._book.confirm([one.key for one in self._followed.values() if one.current])

    # Services

    def _take_up(self, key: ServiceKey) -> None:
        by_interface = self._settings.layout == "DubboInterface"
        settings = self._settings
        reader: Reader = ProviderReader(settings, key) if by_interface else InstanceReader(settings, key)
        followed = self._followed[key] = _Followed(key, reader)
        followed.dirty.set()
        for path in reader.paths:
            self._by_path.setdefault(path, set()).add(followed)
        if self._tasks is not None:
            followed.task = self._tasks.create_task(self._follow(followed))

    def _leave(self, followed: _Followed) -> None:
        for path in followed.reader.paths:
            self._by_path[path].discard(followed)
            if not self._by_path[path]:
                del self._by_path[path]
        if followed.task is not None:
            followed.task.cancel()

    async def _follow(self, followed: _Followed) -> None:
        """Read a service again each time something of it changed."""
        backoff = Backoff()
        while True:
            await followed.dirty.wait()
            followed.dirty.clear()
            try:
                await self._read(followed)
                backoff.reset()
            except SourceError as error:
                await self._retry_later(followed.dirty, error, backoff.next(), [followed.key])

    async def _read(self, followed: _Followed) -> None:
        session = self._session
        if session is None or not session.connected:
            return  # a connection makes everything dirty
        await followed.reader.read(session)
        followed.was_read = True
        followed.current = session.connected and not followed.dirty.is_set()
        self._tell(followed)

    async def _retry_later(
        self, dirty: asyncio.Event, error: SourceError, pause: float, keys: Iterable[ServiceKey]
    ) -> None:
        """Say what failed, and try again after a while, or as soon as something changes."""
        session = self._session
        if session is None or not session.connected:
            return  # the pulse says so, once for all
        self._book.failed(error, keys)
        with suppress(TimeoutError):
            async with asyncio.timeout(pause):
                await dirty.wait()
        if isinstance(error, NotAllowed):
            with suppress(SourceError):
                await session.renew_password()
        dirty.set()

    def _tell(self, followed: _Followed) -> None:
        """Hand the book what is known of a service, once the rules are known too."""
        found = followed.reader.found
        if not followed.was_read or (self._rules is not None and self._rules.by_subject is None):
            return
        dynamic = self._rules.about(followed) if self._rules is not None else ()
        rules = [rule for one in (followed.reader.overrides, *dynamic) for rule in one.rules]
        self._remark(followed, [remark for one in dynamic for remark in one.remarks])
        instances = [one.instance for one in applied(found, rules)]
        self._book.heard(followed.key, instances, alive=followed.vouched and not instances)

    def _remark(self, followed: _Followed, of_rules: Iterable[str]) -> None:
        known = set(followed.remarks)
        followed.remarks = (*followed.reader.remarks(), *of_rules)
        for remark in followed.remarks:
            if remark not in known:
                _log.warning(remark, registry=self._settings.name, service=str(followed.key))

    # Rules that Dubbo keeps beside

    async def _follow_rules(self, rules: "_RuleBook") -> None:
        """Read the rules again each time one changed, and hold all services against them."""
        backoff = Backoff()
        while True:
            await rules.dirty.wait()
            rules.dirty.clear()
            session = self._session
            if session is None or not session.connected:
                continue
            try:
                rules.by_subject = await rules.reader.read(session)
            except SourceError as error:
                await self._retry_later(rules.dirty, error, backoff.next(), list(self._followed))
                continue
            backoff.reset()
            rules.current = session.connected and not rules.dirty.is_set()
            for followed in self._followed.values():
                if followed.current:
                    self._tell(followed)

    # Signs of life for lists that are empty

    async def _vouch(self, session: Session) -> None:
        """Let empty lists say whether other services have instances, in a session old enough for all to have come."""
        empty = [one for one in self._followed.values() if one.current and not one.reader.found]
        if not empty or session.since is None:
            return
        age = asyncio.get_running_loop().time() - session.since
        alive = age > 2 * self._settings.session_seconds and await self._others_have_instances(session)
        for followed in empty:
            if followed.vouched != alive and followed.current:
                followed.vouched = alive
                self._tell(followed)

    async def _others_have_instances(self, session: Session) -> bool:
        if self._witness and await session.has_children(self._witness):
            return True
        below = "/providers" if self._settings.layout == "DubboInterface" else ""
        mine = {one.key.service.partition(":")[0] for one in self._followed.values() if not one.reader.found}
        others = [
            name for name in sorted(await session.children(self._root or "/", watch=False) or ()) if name not in mine
        ]
        for name in others[:WITNESSES]:
            if await session.has_children(f"{self._root}/{name}{below}"):
                self._witness = f"{self._root}/{name}{below}"
                return True
        self._witness = ""
        return False


class _RuleBook:
    """The rules of Dubbo's dynamic configuration; `by_subject` is None until they were read once."""

    def __init__(self, settings: ZooKeeperRegistry) -> None:
        self.reader = RuleReader(settings)
        self.dirty = asyncio.Event()
        self.current = False
        self.by_subject: Mapping[str, tuple[Rules, ...]] | None = None

    def about(self, followed: _Followed) -> tuple[Rules, ...]:
        """Those named after the service's applications, then those after its interface: the later win."""
        found = followed.reader.found
        subjects = [*sorted({one.application for one in found}), *sorted({one.interface for one in found} - {""})]
        return tuple(rules for name in subjects for rules in (self.by_subject or {}).get(name, ()))
