"""Readers of one service in ZooKeeper, one for each layout, and of Dubbo's dynamic configuration.

A reader caches the nodes below its paths. `invalidate` marks nodes as changed; `read` reads marked nodes again and sets
watches. The cache stays as it was when a read fails.
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Generic, TypeVar

from adapter.registries.roster import ServiceKey
from adapter.registries.zookeeper.layouts import (
    CONFIGURATORS_SUFFIX,
    OverrideRules,
    ServiceInstance,
    newest_registrations,
    parse_configurator,
    parse_override_urls,
    parse_provider,
    parse_service_instance,
    rule_key,
)
from adapter.registries.zookeeper.session import Znode, ZooKeeperSession
from adapter.runtime.source_errors import WrongRegistryAnswer
from adapter.settings.registries import ZooKeeperRegistry

T = TypeVar("T")

DUBBO_RULES = "/dubbo/config/dubbo"


class ChildrenCache(Generic[T]):
    """Caches the decoded children of a path. `decode` raises ValueError for invalid data.

    `in_thread`: decodes in a thread, because it takes long.
    """

    def __init__(self, path: str, decode: Callable[[str, Znode], T], *, in_thread: bool = False) -> None:
        self.path = path
        self._decode = decode
        self._in_thread = in_thread
        self._decoded: dict[str, T | None] = {}
        self._stale: set[str] = set()
        self.warnings: dict[str, str] = {}

    def invalidate(self, path: str = "") -> None:
        """Marks the child at this path as changed; without a path all children."""
        directory, _, name = path.rpartition("/")
        if not path:
            self._stale.update(self._decoded)
        elif directory == self.path:
            self._stale.add(name)

    async def read(self, session: ZooKeeperSession, wanted: Callable[[str], bool] = bool) -> Mapping[str, T] | None:
        """Updates the cache; returns the children by name, None if the path does not exist. Raises SourceError."""
        listed = await session.children(self.path)
        names = sorted(name for name in listed or () if wanted(name))
        for by_name in (self._decoded, self.warnings):
            for name in by_name.keys() - set(names):
                del by_name[name]
        self._stale.intersection_update(names)
        lacking = [name for name in names if name not in self._decoded or name in self._stale]
        outcomes = await asyncio.gather(*(self._read(session, name) for name in lacking), return_exceptions=True)
        for outcome in outcomes:
            if outcome is not None:
                raise outcome
        if listed is None:
            return None
        return {name: document for name in names if (document := self._decoded.get(name)) is not None}

    async def _read(self, session: ZooKeeperSession, name: str) -> None:
        # Before the read, because the node may change again during it.
        self._stale.discard(name)
        try:
            node = await session.get(f"{self.path}/{name}")
        except BaseException:
            self._stale.add(name)
            raise
        if node is None:
            self._decoded.pop(name, None)
            return
        try:
            decoded = await asyncio.to_thread(self._decode, name, node) if self._in_thread else self._decode(name, node)
            self._decoded[name] = decoded
            self.warnings.pop(name, None)
        except ValueError as error:
            # The last valid document stays in the cache: an invalid one is no evidence that the pod is out.
            self._decoded.setdefault(name, None)
            self.warnings[name] = f"{self.path}/{name} cannot be read: {error}"


class NodeReader(ABC):
    """Reads nodes at and below `paths`. `dirty` is set while there is something to read.

    `current`: no change has arrived since it was read.
    """

    def __init__(self, paths: tuple[str, ...], cache: ChildrenCache[Any] | None = None) -> None:
        self.paths = paths
        self.dirty = asyncio.Event()
        self.dirty.set()
        self.current = self.was_read = False
        self._children = cache

    def invalidate(self, path: str = "") -> None:
        """Marks a node as changed; without a path all nodes."""
        if self._children is not None:
            self._children.invalidate(path)
        self.current = False
        self.dirty.set()

    @abstractmethod
    async def read(self, session: ZooKeeperSession) -> None:
        """Reads what changed. Raises SourceError."""


class ServiceReader(NodeReader):
    """Reads a service in one layout. `instances` and `overrides` come from the last successful read."""

    def __init__(self, key: ServiceKey, paths: tuple[str, ...], cache: ChildrenCache[Any] | None = None) -> None:
        super().__init__(paths, cache)
        self.key = key
        self.instances: tuple[ServiceInstance, ...] = ()
        self.overrides = OverrideRules()
        self.logged: tuple[str, ...] = ()
        """The warnings at the last report."""
        self.task: asyncio.Task[None] | None = None

    @abstractmethod
    def warnings(self) -> Iterable[str]:
        """One sentence for each registration or rule that is ignored."""


class CuratorReader(ServiceReader):
    """Reads a service of Curator's service discovery, which Dubbo 3 applications use too."""

    def __init__(self, settings: ZooKeeperRegistry, key: ServiceKey) -> None:
        self._root = services_root(settings)
        key_name = settings.pod_name_key
        self._cache = ChildrenCache(
            f"{self._root}/{key.service}", lambda _, node: parse_service_instance(node.body, node.created_at, key_name)
        )
        super().__init__(key, (self._cache.path, self._root or "/"), self._cache)

    async def read(self, session: ZooKeeperSession) -> None:
        """Reads the instances that are new or changed. Raises SourceError."""
        instances = await self._cache.read(session)
        if instances is None:
            await _require_root(session, self._root)
        self.instances = tuple(newest_registrations((instances or {}).values()))

    def warnings(self) -> Iterable[str]:
        """One sentence for each invalid document."""
        return self._cache.warnings.values()


class DubboInterfaceReader(ServiceReader):
    """Reads a Dubbo interface; the key's service is `interface` or `interface:version`, its group Dubbo's group."""

    def __init__(self, settings: ZooKeeperRegistry, key: ServiceKey) -> None:
        self._root = services_root(settings)
        self._pod_name_key = settings.pod_name_key
        interface, _, self._version = key.service.partition(":")
        self._group = key.group
        self._providers = f"{self._root}/{interface}/providers"
        self._configurators = f"{self._root}/{interface}/configurators"
        super().__init__(key, (self._providers, self._configurators, self._root or "/"))
        self._parsed: dict[str, ServiceInstance] = {}
        self._warnings: dict[str, str] = {}

    async def read(self, session: ZooKeeperSession) -> None:
        """Reads the names of providers and override rules. Raises SourceError."""
        names = await session.children(self._providers)
        if names is None:
            await _require_root(session, self._root)
        rules = parse_override_urls(await session.children(self._configurators) or ())
        parsed: dict[str, ServiceInstance] = {}
        self._warnings.clear()
        for name in sorted(names or ()):
            try:
                parsed[name] = self._parsed.get(name) or parse_provider(name, self._pod_name_key)
            except ValueError as error:
                self._warnings[name] = f"provider {name} cannot be read: {error}"
        self._parsed = parsed
        self.instances = tuple(
            newest_registrations(
                registration
                for registration in parsed.values()
                if self._group in {"", registration.group} and self._version in {"", registration.version}
            )
        )
        self.overrides = rules

    def warnings(self) -> Iterable[str]:
        """One sentence for each invalid provider or rule."""
        return (*self._warnings.values(), *self.overrides.warnings)


class OverrideRuleReader(NodeReader):
    """Reads the override rules of Dubbo's dynamic configuration, of all applications and interfaces."""

    def __init__(self, settings: ZooKeeperRegistry) -> None:
        self._cache = ChildrenCache(
            "/" + (settings.rules_root or DUBBO_RULES).strip("/"),
            lambda name, node: parse_configurator(name, node.body),
            in_thread=True,
        )
        super().__init__((self._cache.path,), self._cache)
        self._by_rule_key: dict[str, tuple[OverrideRules, ...]] = {}

    async def read(self, session: ZooKeeperSession) -> None:
        """Reads the rules that are new or changed. Raises SourceError."""
        rules = await self._cache.read(session, lambda name: name.endswith(CONFIGURATORS_SUFFIX)) or {}
        self._by_rule_key = {}
        for name in sorted(rules):
            key = rule_key(name)
            self._by_rule_key[key] = (*self._by_rule_key.get(key, ()), rules[name])

    def matching(self, instances: Sequence[ServiceInstance]) -> list[OverrideRules]:
        """The rules for the applications of a service's instances, then those for its interface; later ones win."""
        keys = [
            *sorted({registration.application for registration in instances}),
            *sorted({registration.interface for registration in instances} - {""}),
        ]
        return [rules for key in keys for rules in self._by_rule_key.get(key, ())]


def services_root(settings: ZooKeeperRegistry) -> str:
    """The path of the layout's root, without a trailing slash; empty for `/`."""
    usual = "/dubbo" if settings.layout == "DubboInterface" else "/services"
    bare = (settings.root or usual).strip("/")
    return f"/{bare}" if bare else ""


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


async def _require_root(session: ZooKeeperSession, root: str) -> None:
    # A wrong path, and a server that lost its data, look like a service without instances; the root tells them apart.
    path = root or "/"
    if not await session.exists(path, watch=True):
        raise WrongRegistryAnswer(
            f"ZooKeeper has no node {path}; check chroot and root, or whether the server lost its data"
        )
