"""All registries of the settings: one connection each, shared by every policy, made anew where its settings change."""

import asyncio
from collections.abc import Callable, Iterable, Iterator
from fnmatch import fnmatchcase
from http import HTTPStatus
from typing import NamedTuple

import structlog

from adapter.load.roster import Roster
from adapter.registries.book import Book
from adapter.registries.errors import RegistryError, RegistryFailing
from adapter.registries.http import HttpSource
from adapter.registries.origin import origin
from adapter.registries.roster import OnChange, RosterSource, ServiceKey
from adapter.registries.rows import row
from adapter.settings_registries import (
    AllowedServices,
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
    book: Book
    source: RosterSource
    task: asyncio.Task[None]


class Registries:
    """The registries by name. Must be made where an event loop runs.

    `clock` gives epoch seconds; `on_change` hears of services whose roster is not what it was.
    """

    def __init__(
        self, registries: Iterable[Registry], on_change: OnChange, clock: Callable[[], float], metrics: Metrics
    ) -> None:
        self._on_change = on_change
        self._clock = clock
        self._metrics = metrics
        self._wanted: dict[str, frozenset[ServiceKey]] = {}
        self._settings = {one.name: one for one in registries}
        self._connections: dict[str, _Connection] = {}
        self._changed = asyncio.Event()

    def reload(self, registries: Iterable[Registry]) -> None:
        """Take over new settings: registries that changed are connected to anew, others are left alone."""
        self._settings = {one.name: one for one in registries}
        self._changed.set()

    def watch(self, keys: Iterable[ServiceKey]) -> None:
        """Follow exactly these services. A registry of which none is wanted is not connected to."""
        wanted: dict[str, set[ServiceKey]] = {}
        for key in keys:
            wanted.setdefault(key.registry, set()).add(key)
        found = {name: frozenset(of_one) for name, of_one in wanted.items()}
        if found == self._wanted:
            return
        self._wanted = found
        self._changed.set()
        for name, connection in self._connections.items():
            connection.source.watch(found.get(name, frozenset()))

    def roster(self, key: ServiceKey) -> Roster | None:
        """The registry's latest word about a service; None where there was none yet."""
        connection = self._connections.get(key.registry)
        return connection.source.roster(key) if connection is not None else None

    def tell(
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
            connection.source.tell(key, document)
        except RegistryFailing as error:
            return HTTPStatus.CONFLICT, error.public
        except RegistryError as error:
            return HTTPStatus.BAD_REQUEST, str(error)
        return None

    def refusal(self, registry: str, service: str, namespace: str) -> str:
        """Why a policy of this namespace may not name this service there; empty where it may."""
        settings = self._settings.get(registry)
        if settings is None:
            known = ", ".join(sorted(self._settings)) or "none yet"
            return f"registry {registry!r} is not in the adapter's settings ({known}); name one of them"
        if settings.allow and not any(_covers(one, service, namespace) for one in settings.allow):
            return (
                f"policies in namespace {namespace} may not name service {service!r} of registry {registry}; "
                f"the adapter's settings (registries, allow) say which they may"
            )
        return ""

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
        await self._end(*(name for name, one in self._connections.items() if self._desired(name) != one.settings))
        for name in self._wanted:
            settings = self._desired(name)
            if settings is not None and name not in self._connections:
                self._connections[name] = self._begin(settings)

    def _desired(self, name: str) -> Registry | None:
        return self._settings.get(name) if name in self._wanted else None

    def _begin(self, settings: Registry) -> _Connection:
        book = Book(settings.name, self._on_change, self._clock, self._metrics, origin(settings))
        chosen = _source(settings, book)
        chosen.watch(self._wanted[settings.name])
        task = asyncio.create_task(self._follow(chosen, book), name=f"registry {settings.name}")
        _log.info("registry is followed", registry=settings.name, type=settings.type)
        return _Connection(settings, book, chosen, task)

    async def _follow(self, chosen: RosterSource, book: Book) -> None:
        """Run a source. One that breaks must stop neither the others nor itself for good."""
        while True:
            try:
                await chosen.run()
            except Exception as error:  # noqa: BLE001  whatever it is, the other registries go on
                _log.exception("registry source failed", registry=book.registry)
                book.failed(RegistryError(f"the adapter's own fault: {error!r}"))
            await asyncio.sleep(RESTART_SECONDS)

    async def _end(self, *names: str) -> None:
        tasks = [self._connections.pop(name).task for name in names]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class _Missing:
    """Stands for a source whose extra is not installed: it says so, and knows nothing."""

    def __init__(self, book: Book, error: RegistryError) -> None:
        self._book = book
        self._error = error

    def watch(self, keys: Iterable[ServiceKey]) -> None:
        self._book.watch(keys)
        self._book.failed(self._error)

    def roster(self, key: ServiceKey) -> Roster | None:
        return self._book.roster(key)

    async def run(self) -> None:
        await asyncio.Event().wait()


def _source(settings: Registry, book: Book) -> RosterSource:
    try:
        return source(settings, book)
    except ImportError as error:
        extra = settings.type.lower()
        _log.error("registry needs an extra", registry=settings.name, extra=extra, error=str(error))
        missing = f"needs a package that is missing: install effective-load[{extra}]"
        return _Missing(book, RegistryError(missing, public=missing))


def source(settings: Registry, book: Book) -> RosterSource:
    """The source that speaks the registry's protocol. Modules are loaded when first needed: some need extras."""
    match settings:
        case NacosRegistry():
            from adapter.registries.nacos import NacosSource

            return NacosSource(settings, book)
        case EurekaRegistry():
            from adapter.registries.eureka import EurekaSource

            return EurekaSource(settings, book)
        case ConsulRegistry():
            from adapter.registries.consul import ConsulSource

            return ConsulSource(settings, book)
        case ZooKeeperRegistry():
            from adapter.registries.zookeeper import ZooKeeperSource

            return ZooKeeperSource(settings, book)
        case PolarisRegistry():
            from adapter.registries.polaris import PolarisSource

            return PolarisSource(settings, book)
        case HttpRegistry():
            return HttpSource(settings, book)


def _covers(allowed: AllowedServices, service: str, namespace: str) -> bool:
    return any(fnmatchcase(namespace, one) for one in allowed.namespaces) and any(
        fnmatchcase(service, one) for one in allowed.services
    )
