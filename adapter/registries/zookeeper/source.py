"""ZooKeeper, as Dubbo and Curator register services in it: one session for all services, and watches of their nodes.

The nodes of a service are read again after each event of their watches, and all of them after each connection. Every
few seconds the session pings the server. An answer proves that the server is alive and has sent all events so far, so
it confirms the lists. A frozen server keeps its connections open, but does not answer.
"""

import asyncio
import copy
from collections.abc import AsyncGenerator, Awaitable, Callable

import structlog

from adapter.registries.source import Answer, ServiceKey
from adapter.registries.zookeeper.registrations import (
    Registration,
    newest_registrations,
    parse_document,
    parse_provider,
)
from adapter.registries.zookeeper.rules import Rules, apply_rules, parse_override_urls, parse_rules, rule_nodes
from adapter.registries.zookeeper.session import Znode, ZooKeeperSession
from adapter.runtime.backoff import Backoff, LogOnce
from adapter.runtime.concurrency import wait_for_event
from adapter.runtime.source_errors import SourceError, SourceUnreachable, WrongRegistryAnswer
from adapter.settings.registries import ZooKeeperRegistry

DUBBO_RULES = "/dubbo/config/dubbo"
PING_SECONDS = 4.0
"""Period of pings; a third of the session's timeout if that is shorter."""

_log = structlog.get_logger(__name__)


class ZooKeeperSource:
    """The instance lists of one ZooKeeper, in the layout of its settings."""

    def __init__(self, settings: ZooKeeperRegistry) -> None:
        self._settings = settings
        self._session: ZooKeeperSession | None = None
        self._error: SourceError | None = None
        """Why the server does not answer; None once it does."""
        self._decided = asyncio.Event()
        """Set while there is a connection or an error."""
        self._readers: set[_Reader] = set()
        self._keeping: asyncio.Task[None] | None = None
        self._log_once = LogOnce()

    async def instances(self, key: ServiceKey) -> AsyncGenerator[Answer, None]:
        """The lists of a service, as `Source` describes."""
        if reason := invalid_key_reason(key, self._settings):
            raise WrongRegistryAnswer(reason)
        if self._keeping is None:
            self._keeping = asyncio.create_task(self._keep_session(), name=f"registry {key.registry}")
        reader = _Reader(self._settings, key)
        self._readers.add(reader)
        try:
            while True:
                await wait_for_event(self._decided, self._settings.timeout_seconds)
                if self._keeping.done():
                    self._keeping.result()  # raises its fault
                if self._session is None or not self._session.is_connected or self._error is not None:
                    raise self._current_error()
                reader.is_changed = False
                answer = await reader.read(self._session)
                self._log_faults(key, (*answer.unreadable, *reader.faults))
                yield answer
                while not reader.is_changed:
                    reader.event.clear()
                    await reader.event.wait()
                    if self._error is not None:
                        raise self._current_error()
                    if not reader.is_changed:
                        yield answer
        finally:
            self._readers.remove(reader)

    async def close(self) -> None:
        """End the session."""
        if self._keeping is not None:
            self._keeping.cancel()
            await asyncio.gather(self._keeping, return_exceptions=True)

    def _current_error(self) -> SourceError:
        if self._error is not None:
            return copy.copy(self._error)  # each with a traceback of its own
        return self._session.connection_error() if self._session is not None else SourceUnreachable("no session yet")

    def _log_faults(self, key: ServiceKey, faults: tuple[str, ...]) -> None:
        if not faults:
            self._log_once.clear(key)
        elif self._log_once.is_new("; ".join(faults), key):
            for fault in faults:
                _log.warning("registry_data_unreadable", registry=self._settings.name, service=str(key), why=fault)

    # --- the session ---

    async def _keep_session(self) -> None:
        """Keeps one session after another. kazoo reconnects by itself, and gives up only after a refusal."""
        backoff = Backoff()
        while True:
            session = ZooKeeperSession(self._settings, self._on_state, self._on_change)
            try:
                await session.open()
                self._session = session
                await self._keep_pinging(session, backoff)
            except SourceError as error:
                self._fail(error)
            finally:
                self._session = None
                if self._error is None:
                    self._decided.clear()
                await session.close()
            await asyncio.sleep(backoff.next())

    async def _keep_pinging(self, session: ZooKeeperSession, backoff: Backoff) -> None:
        """Returns once another session is needed.

        That is also so after a long silence: a server that lost its data rejects clients whose last transaction is
        ahead of its own, and never says that their session has expired.
        """
        loop, session_seconds = asyncio.get_running_loop(), self._settings.session_seconds
        answered_at = loop.time()
        while loop.time() - answered_at < 2 * session_seconds:
            await asyncio.sleep(min(PING_SECONDS, session_seconds / 3))
            try:
                await session.ping()
            except SourceError as error:
                session.end_silent_connection()
                self._fail(error)
            else:
                answered_at = loop.time()
                backoff.reset()
                self._error = None
                for reader in self._readers:
                    reader.event.set()
            if session.has_ended or await session.has_new_password():
                return

    def _on_state(self) -> None:
        """After each connection and each loss: watches do not outlive a connection."""
        if self._session is not None and self._session.is_connected:
            self._error = None
            self._decided.set()
        elif self._error is None:
            self._decided.clear()
        for reader in self._readers:
            reader.forget()

    def _on_change(self, path: str) -> None:
        for reader in self._readers:
            if path in reader.watched:
                reader.forget(path)

    def _fail(self, error: SourceError) -> None:
        self._error = error
        self._decided.set()
        for reader in self._readers:
            reader.event.set()


_Parsed = Registration | Rules | ValueError | None
"""What a node says; the error if it cannot be read, None if there is no node."""


class _Reader:
    """Reads the nodes of one service. What did not change since the last time is not read again.

    `event` is set after each change and after each answered ping; `is_changed` tells them apart. `faults`: a sentence
    for each rule that is not applied.
    """

    def __init__(self, settings: ZooKeeperRegistry, key: ServiceKey) -> None:
        self._settings = settings
        self._key = key
        name, _, self._version = key.service.partition(":")
        self._by_interface = settings.layout == "DubboInterface"
        bare = (settings.root or ("/dubbo" if self._by_interface else "/services")).strip("/")
        root = f"/{bare}" if bare else ""
        self._root = root or "/"
        self._folder = f"{root}/{name}/providers" if self._by_interface else f"{root}/{key.service}"
        self._configurators = f"{root}/{name}/configurators"
        self._rules_root = "/" + (settings.rules_root or DUBBO_RULES).strip("/")
        self._nodes: dict[str, _Parsed] = {}
        """By path."""
        self._changes = 0
        self.watched = {self._root, self._folder, self._configurators}
        """Paths whose changes concern the service."""
        self.event = asyncio.Event()
        self.is_changed = False
        self.faults: tuple[str, ...] = ()

    def forget(self, path: str = "") -> None:
        """Read a node again that has changed; without a path all nodes."""
        if path:
            self._nodes.pop(path, None)
        else:
            self._nodes.clear()
        self._changes += 1
        self.is_changed = True
        self.event.set()

    async def read(self, session: ZooKeeperSession) -> Answer:
        """The current list. Raises SourceError."""
        names = await session.children(self._folder)
        if names is None and not await session.exists(self._root):
            # A wrong path, and a server that lost its data, look like a service without instances.
            raise WrongRegistryAnswer(
                f"ZooKeeper has no node {self._root}; check chroot and root, or whether the server lost its data"
            )
        paths = [f"{self._folder}/{name}" for name in sorted(names or ())]
        if self._by_interface:
            found = {path: self._provider(path) for path in paths}
            overrides = parse_override_urls(await session.children(self._configurators) or ())
        else:
            parsed = await asyncio.gather(*(self._node(session, path, self._parse_document) for path in paths))
            found, overrides = dict(zip(paths, parsed, strict=True)), Rules()
        registrations = newest_registrations(
            one
            for one in found.values()
            if isinstance(one, Registration)
            and (not self._by_interface or (self._key.group in {"", one.group} and self._version in {"", one.version}))
        )
        dynamic: dict[str, _Parsed] = {}
        for name in rule_nodes(registrations) if self._settings.layout != "Curator" else ():
            path = f"{self._rules_root}/{name}"
            dynamic[path] = await self._node(session, path, _parse_rules)
        # Thousands of pods come and go: what is not there any more is forgotten.
        self._nodes = {path: self._nodes[path] for path in (*found, *dynamic) if path in self._nodes}
        self.watched = {self._root, self._folder, self._configurators, *found, *dynamic}
        rules = [overrides, *(one for one in dynamic.values() if isinstance(one, Rules))]
        self.faults = tuple(fault for each in rules for fault in each.faults)
        ruled = apply_rules(registrations, [rule for each in rules for rule in each.rules])
        return Answer(
            tuple(one.instance for one in ruled),
            unreadable=tuple(f"{path}: {one}" for path, one in found.items() if isinstance(one, ValueError)),
        )

    async def _node(
        self, session: ZooKeeperSession, path: str, parse: Callable[[str, Znode], Awaitable[_Parsed]]
    ) -> _Parsed:
        """What a node says, read again only after a change."""
        if path not in self._nodes:
            self.watched.add(path)
            changes = self._changes
            node = await session.get(path)
            parsed = await parse(path, node) if node is not None else None
            if self._changes != changes:
                return parsed  # it may be this node that has changed since
            self._nodes[path] = parsed
        return self._nodes[path]

    def _provider(self, path: str) -> _Parsed:
        """What the name of a provider's node says."""
        if path not in self._nodes:
            try:
                self._nodes[path] = parse_provider(path.rpartition("/")[2], self._settings.pod_name_key)
            except ValueError as error:
                self._nodes[path] = error
        return self._nodes[path]

    async def _parse_document(self, _: str, node: Znode) -> _Parsed:
        try:
            return parse_document(node.body, node.created_at, self._settings.pod_name_key)
        except ValueError as error:
            return error


async def _parse_rules(path: str, node: Znode) -> _Parsed:
    return await asyncio.to_thread(parse_rules, path, node.body)


def invalid_key_reason(key: ServiceKey, settings: ZooKeeperRegistry) -> str:
    """Why a service with this key cannot be followed; empty if it can."""
    node = key.service.partition(":")[0] if settings.layout == "DubboInterface" else key.service
    if node in {"", ".", ".."} or "/" in key.service or not key.service.isprintable():
        return f"{key.service!r} is not a valid node name; write the service's name as it is in ZooKeeper"
    if key.namespace:
        return "ZooKeeper has no namespaces; omit `namespace`, and configure another root as a registry of its own"
    if key.group and settings.layout != "DubboInterface":
        return f"the layout {settings.layout} has no groups; omit `group`"
    return ""
