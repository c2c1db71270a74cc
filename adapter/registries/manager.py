"""All registries of the settings: one connection each, shared by every policy, made anew where its settings change."""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping
from http import HTTPStatus
from typing import NamedTuple

import structlog

from adapter.load.roster import Roster
from adapter.registries.http.source import HttpSource
from adapter.registries.origin import origin
from adapter.registries.registry_metrics import row
from adapter.registries.roster import OnChange, RosterSource, ServiceKey
from adapter.registries.roster_cache import RosterCache
from adapter.registries.service_allowlist import Choice, ServiceAllowlist
from adapter.runtime.fair_slots import Claim
from adapter.runtime.source_errors import MissingExtra, SourceError, SourceFailing
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
from adapter.telemetry.registries import RegistryRow

_log = structlog.get_logger(__name__)

RESTART_SECONDS = 10.0
"""A source that broke, which none should, is made anew after so long; what it had heard is kept."""


class _Connection(NamedTuple):
    """A registry that is followed: its settings, its book, its source, and the task that runs the source."""

    settings: Registry
    book: RosterCache
    source: RosterSource
    task: asyncio.Task[None]

    def watch(self, services: Mapping[ServiceKey, str]) -> None:
        """Follow exactly these services, each for a namespace."""
        self.book.followed_for = services
        self.source.watch(services)

    def serves(self, settings: Registry | None) -> bool:
        """Whether it need not be made anew for these settings: who may name what is no matter of the connection."""
        return settings is not None and _to_connect(settings) == _to_connect(self.settings)


class RegistryManager:
    """The registries by name. Must be made where an event loop runs.

    `clock` gives epoch seconds; `on_change` hears of services whose roster is not what it was.
    """

    def __init__(
        self, registries: Iterable[Registry], on_change: OnChange, clock: Callable[[], float], metrics: Metrics
    ) -> None:
        self._on_change = on_change
        self._clock = clock
        self._metrics = metrics
        self._claims: tuple[Claim[ServiceKey], ...] = ()
        self._choice = Choice({}, frozenset())
        self._settings: dict[str, Registry] = {}
        self._connections: dict[str, _Connection] = {}
        self._changed = asyncio.Event()
        self.reload(registries)

    def reload(self, registries: Iterable[Registry]) -> None:
        """Take over new settings: registries that changed are connected to anew, others are left alone."""
        self._settings = {one.name: one for one in registries}
        self._admission = ServiceAllowlist(self._settings.values())
        self._choose()
        self._changed.set()

    def watch(self, claims: Iterable[Claim[ServiceKey]]) -> None:
        """Follow these services as far as the settings let policies name them, and no others.

        A registry of which none is followed is not connected to.
        """
        claims = tuple(claims)
        if claims != self._claims:
            self._claims = claims
            self._choose()

    def _choose(self) -> None:
        before, self._choice = self._choice, self._admission.choose(self._claims)
        if self._choice.followed != before.followed:
            self._changed.set()
            for name, connection in self._connections.items():
                connection.watch(self._choice.followed.get(name, {}))
        for key in before.left_out ^ self._choice.left_out:
            self._on_change(key)

    def roster(self, key: ServiceKey) -> Roster | None:
        """The registry's latest word about a service; None where there was none yet."""
        connection = self._connections.get(key.registry)
        return connection.source.roster(key) if connection is not None else None

    async def tell(
        self, registry: str, service: str, namespace: str, group: str, document: bytes
    ) -> tuple[HTTPStatus, str] | None:
        """Take a platform's own word about a service; where it is not taken, the status and the sentence to answer."""
        settings = self._settings.get(registry)
        if not isinstance(settings, HttpRegistry) or not settings.push:
            needed = "the adapter's settings need a registry of that name with type: HTTP and push: true"
            return HTTPStatus.NOT_FOUND, f"nobody is told of registry {registry!r}; {needed}"
        key = ServiceKey(registry, service, namespace, group)
        connection = self._connections.get(registry)
        if connection is None or key not in connection.book.keys or not isinstance(connection.source, HttpSource):
            return (
                HTTPStatus.NOT_FOUND,
                f"no policy follows service {str(key)!r} of registry {registry}; it is not kept",
            )
        try:
            await connection.source.tell(key, document)
        except SourceFailing as error:
            return HTTPStatus.CONFLICT, error.public
        except SourceError as error:
            return HTTPStatus.BAD_REQUEST, str(error)
        return None

    def refusal(self, key: ServiceKey, namespace: str) -> str:
        """Why a service is not followed for a policy of this namespace; empty where it is."""
        if refusal := self._admission.refusal(key, namespace):
            return refusal
        return self._admission.crowded(key, namespace) if key in self._choice.left_out else ""

    def rows(self) -> Iterator[RegistryRow]:
        """What the metrics say of every service that is followed."""
        now = self._clock()
        for _, connection in sorted(self._connections.items()):
            for key, at, instances in connection.book.pages():
                yield row(key, now - at if at is not None else None, instances)

    async def run(self) -> None:
        """Keep the connections that are wanted, until cancelled."""
        try:
            while True:
                self._changed.clear()
                await self._settle()
                await self._changed.wait()
        finally:
            await self._end(*self._connections)

    async def _settle(self) -> None:
        """End what is not wanted any more or has other settings, and begin what is lacking."""
        await self._end(*(name for name, one in self._connections.items() if not one.serves(self._desired(name))))
        for name in self._choice.followed:
            settings = self._desired(name)
            if settings is not None and name not in self._connections:
                self._connections[name] = self._begin(settings)

    def _desired(self, name: str) -> Registry | None:
        return self._settings.get(name) if name in self._choice.followed else None

    def _begin(self, settings: Registry) -> _Connection:
        book = RosterCache(settings.name, self._on_change, self._clock, self._metrics, origin(settings))
        chosen = _source(settings, book)
        task = asyncio.create_task(self._follow(chosen, book), name=f"registry {settings.name}")
        _log.info("registry is followed", registry=settings.name, type=settings.type)
        connection = _Connection(settings, book, chosen, task)
        connection.watch(self._choice.followed[settings.name])
        return connection

    async def _follow(self, chosen: RosterSource, book: RosterCache) -> None:
        """Run a source. One that breaks must stop neither the others nor itself for good."""
        while True:
            try:
                await chosen.run()
            except Exception as error:  # noqa: BLE001  whatever it is, the other registries go on
                _log.exception("registry source failed", registry=book.registry)
                book.failed(SourceError(f"the adapter's own fault: {error!r}"))
            await asyncio.sleep(RESTART_SECONDS)

    async def _end(self, *names: str) -> None:
        tasks = [self._connections.pop(name).task for name in names]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class _Missing:
    """Stands for a source whose extra is not installed: it says so, and knows nothing."""

    def __init__(self, book: RosterCache, error: SourceError) -> None:
        self._book = book
        self._error = error

    def watch(self, keys: Iterable[ServiceKey]) -> None:
        self._book.watch(keys)
        self._book.failed(self._error)

    def roster(self, key: ServiceKey) -> Roster | None:
        return self._book.roster(key)

    async def run(self) -> None:
        await asyncio.Event().wait()


def _source(settings: Registry, book: RosterCache) -> RosterSource:
    try:
        return source(settings, book)
    except ImportError as error:
        extra = settings.type.lower()
        missing = MissingExtra(extra, error)
        _log.error("registry needs an extra", registry=settings.name, extra=extra, error=str(missing))
        return _Missing(book, missing)


def source(settings: Registry, book: RosterCache) -> RosterSource:
    """The source that speaks the registry's protocol. Modules are loaded when first needed: some need extras."""
    match settings:
        case NacosRegistry():
            from adapter.registries.nacos.source import NacosSource

            return NacosSource(settings, book)
        case EurekaRegistry():
            from adapter.registries.eureka.source import EurekaSource

            return EurekaSource(settings, book)
        case ConsulRegistry():
            from adapter.registries.consul.source import ConsulSource

            return ConsulSource(settings, book)
        case ZooKeeperRegistry():
            from adapter.registries.zookeeper.source import ZooKeeperSource

            return ZooKeeperSource(settings, book)
        case PolarisRegistry():
            from adapter.registries.polaris.source import PolarisSource

            return PolarisSource(settings, book)
        case HttpRegistry():
            return HttpSource(settings, book)


def _to_connect(settings: Registry) -> Registry:
    return settings.model_copy(update={"allow": (), "services_per_namespace": 0})
