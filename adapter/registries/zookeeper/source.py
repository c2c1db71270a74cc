"""ZooKeeper, as Dubbo and Curator register services in it: one session for all services, and watches of their nodes.

The nodes of a service are read again after each event of their watches, and all of them after each connection. Every
few seconds the session asks for a node. The answer proves that the server is alive and has sent all events so far, so
it confirms the lists. A frozen server keeps its connections open, but does not answer.
"""

import asyncio
import copy
from collections.abc import AsyncGenerator
from contextlib import suppress
from typing import TYPE_CHECKING

import structlog

from adapter.load.roster import Roster
from adapter.registries.source import ServiceKey
from adapter.registries.zookeeper.dubbo import (
    Registration,
    Rules,
    apply_rules,
    parse_document,
    parse_override_urls,
    parse_provider,
    parse_rules,
)
from adapter.runtime.backoff import Backoff, LogOnce
from adapter.runtime.concurrency import wait_for_event
from adapter.runtime.source_errors import SourceError, SourceUnreachable, WrongAnswer
from adapter.settings.registries import ZooKeeperRegistry

if TYPE_CHECKING:  # kazoo is an extra
    from kazoo.protocol.states import WatchedEvent  # type: ignore[import-untyped]

    from adapter.registries.zookeeper.session import ZooKeeperSession

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

    async def instances(self, key: ServiceKey) -> AsyncGenerator[Roster, None]:
        """The lists of a service, as `Source` describes."""
        if reason := invalid_key_reason(key, self._settings):
            raise WrongAnswer(reason)
        if self._keeping is None:
            self._keeping = asyncio.create_task(self._keep_session(_session_type()), name=f"registry {key.registry}")
        reader = _Reader(self._settings, key)
        self._readers.add(reader)
        try:
            while True:
                await wait_for_event(self._decided, self._settings.timeout_seconds)
                if self._session is None or not self._session.is_connected:
                    raise self._current_error()
                reader.is_changed = False
                answer = await reader.read(self._session)
                if self._log_once.is_new("; ".join(reader.faults), key):
                    for why in reader.faults:
                        _log.warning("registry_data_unreadable", registry=key.registry, service=str(key), why=why)
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

    async def _keep_session(self, new: "type[ZooKeeperSession]") -> None:
        """Keeps one session after another. kazoo reconnects by itself, and gives up only after a refusal."""
        backoff = Backoff()
        while True:
            session = new(self._settings, self._on_state)
            try:
                await session.open()
                self._session = session
                await self._keep_pinging(session, backoff)
            except SourceError as error:
                self._wake(error)
            finally:
                self._session = None
                await session.close()
            await asyncio.sleep(backoff.next())

    async def _keep_pinging(self, session: "ZooKeeperSession", backoff: Backoff) -> None:
        """Returns once another session is needed.

        That is also so after a long silence: a server that lost its data rejects clients whose last transaction is
        ahead of its own, and never says that their session has expired.
        """
        loop, session_seconds = asyncio.get_running_loop(), self._settings.session_seconds
        answered_at = loop.time()
        while loop.time() - answered_at < 2 * session_seconds:
            await asyncio.sleep(min(PING_SECONDS, session_seconds / 3))
            try:
                await session.exists("/")
            except SourceError as error:
                session.end_silent_connection()
                self._wake(error)
            else:
                answered_at = loop.time()
                backoff.reset()
                self._wake(None)
            if not await session.is_usable():
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

    def _wake(self, error: SourceError | None) -> None:
        """After each ping: its error fails the readers, and its answer confirms their lists."""
        self._error = error
        if error is not None:
            self._decided.set()
        for reader in self._readers:
            reader.event.set()


def _session_type() -> "type[ZooKeeperSession]":
    """Raises SourceError if kazoo is not installed."""
    try:
        from adapter.registries.zookeeper.session import ZooKeeperSession
    except ImportError as error:
        sentence = f"needs the extra zookeeper, which is not installed ({error}): name it in EXTRAS when the image is "
        sentence += "built, or install effective-load[zookeeper]"
        raise SourceError(sentence, public=sentence) from error
    return ZooKeeperSession


class _Slot:
    """What a node says, once it was read: None if there is no node, the error if it cannot be understood."""

    value: Registration | Rules | ValueError | None
    is_read = False


class _Reader:
    """Reads the nodes of one service. What did not change since the last time is not read again.

    `event` is set after each change and after each answered ping; `is_changed` tells them apart. `faults`: a sentence
    for each rule that is not applied, and for each registration that is not understood.
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
        self._slots: dict[str, _Slot] = {}
        """By path. An event removes a slot, also while its node is read."""
        self._loop = asyncio.get_running_loop()
        self.event = asyncio.Event()
        self.is_changed = False
        self.faults: tuple[str, ...] = ()

    def forget(self, path: str = "") -> None:
        """Read a node again that has changed; without a path all nodes."""
        if path:
            self._slots.pop(path, None)
        else:
            self._slots.clear()
        self.is_changed = True
        self.event.set()

    async def read(self, session: "ZooKeeperSession") -> Roster:
        """The current list. Raises SourceError."""
        names = await session.children(self._folder, self._on_event)
        if names is None and not await session.exists(self._root, self._on_event):
            # A wrong path, and a server that lost its data, look like a service without instances.
            raise WrongAnswer(
                f"ZooKeeper has no node {self._root}; check chroot and root, or whether the server lost its data"
            )
        paths = [f"{self._folder}/{name}" for name in sorted(names or ())]
        found = dict(zip(paths, await asyncio.gather(*(self._read(session, path) for path in paths)), strict=True))
        registrations = [one for one in found.values() if isinstance(one, Registration)]
        rules = Rules()
        if self._by_interface:
            registrations = [one for one in registrations if self._is_asked(*one.service.rsplit(":", 2))]
            rules = parse_override_urls(await session.children(self._configurators, self._on_event) or ())
        has_rules = self._settings.layout != "Curator"
        keys = dict.fromkeys(key for one in registrations if has_rules for key in one.rule_keys if key)
        of_keys = [f"{self._rules_root}/{key}.configurators" for key in keys]
        for path in of_keys:
            if isinstance(read := await self._read(session, path, is_rule=True), Rules):
                rules = Rules(rules.rules + read.rules, rules.faults + read.faults)
        unreadable = [f"{path}: {one}" for path, one in found.items() if isinstance(one, ValueError)]
        self.faults = (*unreadable, *rules.faults)
        # Thousands of pods come and go: what is not there any more is forgotten.
        self._slots = {path: self._slots[path] for path in (*paths, *of_keys) if path in self._slots}
        how_many = f"{len(unreadable)} registration{'s' * (len(unreadable) > 1)} cannot be read"
        return Roster(tuple(apply_rules(registrations, rules.rules)), error=how_many if unreadable else None)

    def _is_asked(self, _: str, version: str, group: str) -> bool:
        return self._key.group in {"", group} and self._version in {"", version}

    async def _read(
        self, session: "ZooKeeperSession", path: str, *, is_rule: bool = False
    ) -> Registration | Rules | ValueError | None:
        """What a node says, read again only after a change."""
        slot, name = self._slots.setdefault(path, _Slot()), path.rpartition("/")[2]
        if not slot.is_read:
            try:
                if self._by_interface and not is_rule:
                    slot.value = parse_provider(name, self._settings.pod_name_key)
                elif (node := await session.get(path, self._on_event)) is None:
                    slot.value = None
                elif is_rule:
                    key = name.removesuffix(".configurators")
                    slot.value = await asyncio.to_thread(parse_rules, key, node[0])
                else:
                    slot.value = parse_document(*node, self._settings.pod_name_key)
            except ValueError as error:
                slot.value = error
            slot.is_read = True
        return slot.value

    def _on_event(self, event: "WatchedEvent") -> None:
        """Called in kazoo's thread."""
        if event.path is not None:
            with suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(self.forget, event.path)


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
