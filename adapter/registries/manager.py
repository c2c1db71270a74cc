"""All registries of the settings: one connection each, shared by all policies, replaced when its settings change."""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple

import structlog

from adapter.load.roster import Roster
from adapter.registries.http import HttpSource
from adapter.registries.roster import OnChange, RosterSource, ServiceKey
from adapter.registries.roster_cache import RosterCache, origin
from adapter.registries.service_allowlist import ServiceAllowlist, ServiceChoice
from adapter.runtime.fairness import Claim
from adapter.runtime.source_errors import MissingExtra, SourceError
from adapter.settings.registries import (
    ConsulRegistry,
    EurekaRegistry,
    HttpRegistry,
    NacosRegistry,
    PolarisRegistry,
    Registry,
    ZooKeeperRegistry,
)
from adapter.telemetry.metrics import Metrics
from adapter.telemetry.series import RegistryRow

_log = structlog.get_logger(__name__)

RESTART_SECONDS = 10.0
"""The pause before a source that broke, which none should, runs again; its cache is kept."""


class _Connection(NamedTuple):
    """A registry that is followed, and the task that runs its source."""

    settings: Registry
    cache: RosterCache
    source: RosterSource
    task: asyncio.Task[None]

    def follow(self, services: Mapping[ServiceKey, str]) -> None:
        """Follow exactly these services, each for a namespace."""
        self.cache.follow(services)
        self.source.refresh()

    def fits(self, settings: Registry | None) -> bool:
        """Whether the connection can stay under these settings: rules about policies do not concern it."""
        rules = {"allow": (), "services_per_namespace": 0}
        return settings is not None and settings.model_copy(update=rules) == self.settings.model_copy(update=rules)


class RegistryManager:
    """The registries by name. Must be made where an event loop runs.

    `clock` gives epoch seconds; `on_change` is called with each service whose roster changed.
    """

    def __init__(
        self, registries: Iterable[Registry], on_change: OnChange, clock: Callable[[], float], metrics: Metrics
    ) -> None:
        self._on_change = on_change
        self._clock = clock
        self._metrics = metrics
        self._claims: tuple[Claim[ServiceKey], ...] = ()
        self._choice = ServiceChoice({}, frozenset())
        self._settings: dict[str, Registry] = {}
        self._connections: dict[str, _Connection] = {}
        self._changed = asyncio.Event()
        self.reload(registries)

    def reload(self, registries: Iterable[Registry]) -> None:
        """Apply new settings: changed registries are connected to anew, the others keep their connections."""
        self._settings = {registry.name: registry for registry in registries}
        self._allowlist = ServiceAllowlist(self._settings.values())
        self._choose()
        self._changed.set()

    def watch(self, claims: Iterable[Claim[ServiceKey]]) -> None:
        """Follow the claimed services that the settings allow, and no others.

        There is no connection to a registry without a followed service.
        """
        claims = tuple(claims)
        if claims != self._claims:
            self._claims = claims
            self._choose()

    def _choose(self) -> None:
        before, self._choice = self._choice, self._allowlist.choose(self._claims)
        if self._choice.followed != before.followed:
            self._changed.set()
            for name, connection in self._connections.items():
                connection.follow(self._choice.followed.get(name, {}))
        for key in before.left_out ^ self._choice.left_out:
            self._on_change(key)

    def roster(self, key: ServiceKey) -> Roster | None:
        """The registry's latest answer about a service; None before the first."""
        connection = self._connections.get(key.registry)
        return connection.cache.roster(key) if connection is not None else None

    def refusal(self, key: ServiceKey, namespace: str) -> str:
        """Why a policy of this namespace may not name this service; empty where it may."""
        return self._allowlist.refusal(key, namespace)

    def over_limit_message(self, key: ServiceKey, namespace: str) -> str:
        """Why a service that a policy may name is not followed; empty where it is."""
        return self._allowlist.over_limit_message(key, namespace) if key in self._choice.left_out else ""

    def rows(self) -> Iterator[RegistryRow]:
        """The metrics' rows of all followed services."""
        for _, connection in sorted(self._connections.items()):
            yield from connection.cache.rows()

    async def run(self) -> None:
        """Keep the desired connections until cancelled."""
        try:
            while True:
                self._changed.clear()
                desired = {name: self._settings.get(name) for name in self._choice.followed}
                unfit = [name for name, each in self._connections.items() if not each.fits(desired.get(name))]
                await self._end(*unfit)
                for name, services in self._choice.followed.items():  # it may have changed meanwhile
                    settings = self._settings.get(name)
                    if settings is None or name in self._connections:
                        continue
                    cache = RosterCache(name, self._on_change, self._clock, self._metrics, origin(settings))
                    new_source = source(settings, cache)
                    task = asyncio.create_task(self._follow(new_source, cache), name=f"registry {name}")
                    _log.info("registry_followed", registry=name, type=settings.type)
                    connection = self._connections[name] = _Connection(settings, cache, new_source, task)
                    connection.follow(services)
                await self._changed.wait()
        finally:
            await self._end(*self._connections)

    async def _follow(self, new_source: RosterSource, cache: RosterCache) -> None:
        """Run a source for ever. A fault in one must stop neither the others nor itself for good."""
        while True:
            try:
                await new_source.run()
            except Exception as error:  # noqa: BLE001  the other registries go on after any fault
                _log.exception("registry_source_failed", registry=cache.registry)
                cache.failed(SourceError(f"the adapter's own fault: {error!r}"))
            await asyncio.sleep(RESTART_SECONDS)

    async def _end(self, *names: str) -> None:
        tasks = [self._connections.pop(name).task for name in names]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class _Missing:
    """Stands in for a source whose extra is not installed, and reports that."""

    def __init__(self, cache: RosterCache, error: SourceError) -> None:
        self._cache = cache
        self._error = error

    def refresh(self) -> None:
        self._cache.failed(self._error)

    async def run(self) -> None:
        """Ends at once: the manager runs each source again after a pause."""


def source(settings: Registry, cache: RosterCache) -> RosterSource:  # noqa: PLR0911  a row for each type
    """The source that speaks the registry's protocol; without its extra one that reports just that.

    Modules are imported when first needed.
    """
    match settings:
        case NacosRegistry():
            from adapter.registries.nacos.source import NacosSource

            return NacosSource(settings, cache)
        case EurekaRegistry():
            from adapter.registries.eureka.source import EurekaSource

            return EurekaSource(settings, cache)
        case ConsulRegistry():
            from adapter.registries.consul.source import ConsulSource

            return ConsulSource(settings, cache)
        case ZooKeeperRegistry():
            try:
                from adapter.registries.zookeeper.source import ZooKeeperSource
            except ImportError as error:
                missing = MissingExtra("zookeeper", error)
                _log.error("registry_extra_missing", registry=settings.name, extra="zookeeper", error=str(missing))
                return _Missing(cache, missing)

            return ZooKeeperSource(settings, cache)
        case PolarisRegistry():
            from adapter.registries.polaris import PolarisSource

            return PolarisSource(settings, cache)
        case HttpRegistry():
            return HttpSource(settings, cache)
