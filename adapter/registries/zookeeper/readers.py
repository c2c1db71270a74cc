"""What is read of one service in ZooKeeper, for each layout, and the rules that Dubbo keeps beside.

A reader knows the directories it depends on. `touch` tells it that a node below them changed, `forget` that anything
may have changed; `read` reads what it must, and leaves watches. What was read stays where reading fails.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import Generic, Protocol, TypeVar

from adapter.registries.roster import ServiceKey
from adapter.registries.zookeeper.layouts import Registration, curator, newest, provider
from adapter.registries.zookeeper.rules import SUFFIX, Rules, documents, overrides, subject
from adapter.registries.zookeeper.session import Node, Session
from adapter.runtime.source_errors import WrongRegistryAnswer
from adapter.settings.registries import ZooKeeperRegistry

T = TypeVar("T")

DUBBO_RULES = "/dubbo/config/dubbo"


class Reader(Protocol):
    """A service in one layout. `found` and `overrides` are of the last reading that went well."""

    paths: tuple[str, ...]
    found: tuple[Registration, ...]
    overrides: Rules

    def touch(self, path: str) -> None:
        """A node changed."""

    def forget(self) -> None:
        """Nothing is sure any more."""

    async def read(self, session: Session) -> None:
        """Read what changed. Raises SourceError."""

    def remarks(self) -> Iterable[str]:
        """Sentences about what could not be read."""


class Documents(Generic[T]):
    """A directory whose nodes hold a document each. `decode` raises ValueError for what is none.

    `in_thread`: decoding one takes long, so that it is done beside the event loop.
    """

    def __init__(self, path: str, decode: Callable[[str, Node], T], *, in_thread: bool = False) -> None:
        self.path = path
        self._decode = decode
        self._in_thread = in_thread
        self._known: dict[str, T | None] = {}
        self._stale: set[str] = set()
        self.remarks: dict[str, str] = {}

    def touch(self, path: str) -> None:
        """The document at this path changed."""
        directory, _, name = path.rpartition("/")
        if directory == self.path:
            self._stale.add(name)

    def forget(self) -> None:
        """Read all documents again."""
        self._stale.update(self._known)

    async def read(self, session: Session, wanted: Callable[[str], bool] = bool) -> Mapping[str, T] | None:
        """The documents by name; None where there is no such directory. Raises SourceError."""
        listed = await session.children(self.path)
        names = sorted(name for name in listed or () if wanted(name))
        for known in (self._known, self.remarks):
            for name in known.keys() - set(names):
                del known[name]
        self._stale.intersection_update(names)
        lacking = [name for name in names if name not in self._known or name in self._stale]
        outcomes = await asyncio.gather(*(self._read(session, name) for name in lacking), return_exceptions=True)
        for outcome in outcomes:
            if outcome is not None:
                raise outcome
        if listed is None:
            return None
        return {name: document for name in names if (document := self._known.get(name)) is not None}

    async def _read(self, session: Session, name: str) -> None:
        # Before the answer, for it may change again right after.
        self._stale.discard(name)
        try:
            node = await session.node(f"{self.path}/{name}")
        except BaseException:
            self._stale.add(name)
            raise
        if node is None:
            self._known.pop(name, None)
            return
        try:
            decoded = await asyncio.to_thread(self._decode, name, node) if self._in_thread else self._decode(name, node)
            self._known[name] = decoded
            self.remarks.pop(name, None)
        except ValueError as error:
            # What it said before holds on: a document that is spoilt is no sign of being out.
            self._known.setdefault(name, None)
            self.remarks[name] = f"{self.path}/{name} cannot be read: {error}"


class InstanceReader:
    """A service of Curator's service discovery, of Dubbo 3 applications too."""

    def __init__(self, settings: ZooKeeperRegistry, key: ServiceKey) -> None:
        self._root = root_of(settings)
        key_name = settings.pod_name_key
        self._documents = Documents(
            f"{self._root}/{key.service}", lambda _, node: curator(node.body, node.created_at, key_name)
        )
        self.paths: tuple[str, ...] = (self._documents.path, self._root or "/")
        self.found: tuple[Registration, ...] = ()
        self.overrides = Rules()
        self.touch = self._documents.touch
        self.forget = self._documents.forget

    async def read(self, session: Session) -> None:
        """Read the instances that are new or changed. Raises SourceError."""
        found = await self._documents.read(session)
        if found is None:
            await _insist_on(session, self._root)
        self.found = tuple(newest((found or {}).values()))

    def remarks(self) -> Iterable[str]:
        """Sentences about documents that could not be read."""
        return self._documents.remarks.values()


class ProviderReader:
    """An interface of Dubbo's; the key's service is `interface` or `interface:version`, its group Dubbo's group."""

    def __init__(self, settings: ZooKeeperRegistry, key: ServiceKey) -> None:
        self._root = root_of(settings)
        self._pod_name_key = settings.pod_name_key
        interface, _, self._version = key.service.partition(":")
        self._group = key.group
        self._providers = f"{self._root}/{interface}/providers"
        self._configurators = f"{self._root}/{interface}/configurators"
        self.paths: tuple[str, ...] = (self._providers, self._configurators, self._root or "/")
        self._known: dict[str, Registration | None] = {}
        self._remarks: dict[str, str] = {}
        self.found: tuple[Registration, ...] = ()
        self.overrides = Rules()

    def touch(self, path: str) -> None:
        """Everything is in the names of nodes: they do not change."""

    def forget(self) -> None:
        """The names are read each time anyhow."""

    async def read(self, session: Session) -> None:
        """Read the names of providers and rules. Raises SourceError."""
        names = await session.children(self._providers)
        if names is None:
            await _insist_on(session, self._root)
        rules = overrides(await session.children(self._configurators) or ())
        self._known = {name: self._known.get(name) or self._decode(name) for name in sorted(names or ())}
        self._remarks = {name: remark for name, remark in self._remarks.items() if name in self._known}
        self.found = tuple(newest(one for one in self._known.values() if one is not None and self._is_asked_for(one)))
        self.overrides = rules

    def remarks(self) -> Iterable[str]:
        """Sentences about providers and rules that could not be read."""
        return (*self._remarks.values(), *self.overrides.remarks)

    def _decode(self, name: str) -> Registration | None:
        try:
            return provider(name, self._pod_name_key)
        except ValueError as error:
            self._remarks[name] = f"provider {name} cannot be read: {error}"
            return None

    def _is_asked_for(self, one: Registration) -> bool:
        return self._group in {"", one.group} and self._version in {"", one.version}


class RuleReader:
    """The rules of Dubbo's dynamic configuration, of all applications and interfaces, by what they are named after."""

    def __init__(self, settings: ZooKeeperRegistry) -> None:
        self._documents = Documents(
            "/" + (settings.rules_root or DUBBO_RULES).strip("/"),
            lambda name, node: documents(name, node.body),
            in_thread=True,
        )
        self.path = self._documents.path
        self.touch = self._documents.touch
        self.forget = self._documents.forget

    async def read(self, session: Session) -> Mapping[str, tuple[Rules, ...]]:
        """The rules by application or interface. Raises SourceError."""
        found = await self._documents.read(session, lambda name: name.endswith(SUFFIX)) or {}
        by_subject: dict[str, tuple[Rules, ...]] = {}
        for name in sorted(found):
            by_subject[subject(name)] = (*by_subject.get(subject(name), ()), found[name])
        return by_subject


def root_of(settings: ZooKeeperRegistry) -> str:
    """The path that all services are below, without a slash at its end: empty for the topmost node."""
    usual = "/dubbo" if settings.layout == "DubboInterface" else "/services"
    bare = (settings.root or usual).strip("/")
    return f"/{bare}" if bare else ""


def fault_of(key: ServiceKey, settings: ZooKeeperRegistry) -> str:
    """Why such a service cannot be followed; empty where it can."""
    node = key.service.partition(":")[0] if settings.layout == "DubboInterface" else key.service
    if node in {"", ".", ".."} or "/" in key.service or not key.service.isprintable():
        return f"{key.service!r} cannot be the name of a node; write the service as it is called in ZooKeeper"
    if key.namespace:
        return "ZooKeeper has no namespaces; leave `namespace` away, and write another root as a registry of its own"
    if key.group and settings.layout != "DubboInterface":
        return f"the layout {settings.layout} has no groups; leave `group` away"
    return ""


async def _insist_on(session: Session, root: str) -> None:
    # A wrong path, and a server that lost everything, look like a service without instances; both are told from one.
    path = root or "/"
    if not await session.exists(path, watch=True):
        raise WrongRegistryAnswer(
            f"ZooKeeper has no node {path}; check chroot and root, or see whether the server lost its data"
        )
