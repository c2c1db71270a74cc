"""Follows the services that policies name: one task a service, which reads a source's iterator into the cache.

Services share nothing but their registry's connections. So one that fails, hangs or is forbidden costs the others
nothing: it is asked again with a back-off of its own, of at most 30 s.
"""

import asyncio
import contextlib
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import structlog

from adapter.load.roster import Roster
from adapter.registries.cache import InstanceCache, OnChange, Trouble, trouble
from adapter.registries.consul import ConsulSource
from adapter.registries.eureka import EurekaSource
from adapter.registries.http import HttpSource
from adapter.registries.nacos import NacosSource
from adapter.registries.polaris import PolarisSource
from adapter.registries.service_allowlist import ServiceAllowlist
from adapter.registries.source import Claim, ServiceKey, Source
from adapter.registries.zookeeper.source import ZooKeeperSource
from adapter.runtime.backoff import LONGEST_SECONDS, Backoff
from adapter.runtime.source_errors import SourceError, SourceUnreachable
from adapter.settings.registries import Registry
from adapter.telemetry.metrics import Metrics
from adapter.telemetry.series import RegistryRow

_log = structlog.get_logger(__name__)

MARGIN_SECONDS = 1.0
"""Seconds beyond the settings' timeout, so that the source itself reports what timed out."""


class Follower:
    """Follows services of one source with a task for each, and keeps their lists in the cache.

    `longest_pause`: seconds until a service that failed is asked again, at most.
    """

    def __init__(self, source: Source, cache: InstanceCache, longest_pause: float = LONGEST_SECONDS) -> None:
        self.source, self.cache, self._longest_pause = source, cache, longest_pause
        self._tasks: dict[ServiceKey, asyncio.Task[None]] = {}
        self._ended: set[asyncio.Task[None]] = set()
        """Tasks of services that are no longer followed, until their iterators are closed."""

    def follow(self, keys: Iterable[ServiceKey]) -> None:
        """Follow exactly these services from now on."""
        self.cache.follow(keys)
        for key in self._tasks.keys() - self.cache.keys:
            task = self._tasks.pop(key)
            task.cancel()
            self._ended.add(task)
            task.add_done_callback(self._ended.discard)
        for key in sorted(self.cache.keys - self._tasks.keys()):
            self._tasks[key] = asyncio.create_task(self._follow(key), name=f"registry {key.registry}: {key}")

    async def close(self) -> None:
        """End all tasks, then close the source."""
        self.follow(())
        await asyncio.gather(*self._ended, return_exceptions=True)
        await self.source.close()

    async def _follow(self, key: ServiceKey) -> None:
        backoff = Backoff()
        while True:
            try:
                async with contextlib.aclosing(self.source.instances(key)) as answers:
                    async for answer in answers:
                        self.cache.put(key, answer)
                        backoff.reset()
            except SourceError as error:
                self.cache.failed(key, error)
            except Exception as error:  # noqa: BLE001  after any fault this service is asked again
                _log.exception("registry_source_failed", registry=key.registry, service=str(key))
                self.cache.failed(key, own_fault(error))
            await asyncio.sleep(min(backoff.next(), self._longest_pause))


def own_fault(error: Exception) -> SourceError:
    """The error of a service about which this program fails."""
    return SourceError(f"the adapter's own fault: {error!r}", public="the adapter's own fault")


class RegistryManager:
    """All registries of the settings: one source each, shared by all policies, replaced when its settings change.

    `clock` gives epoch seconds; `on_change` is called with each service whose instances or error changed; `opener`
    makes the source of a registry.
    """

    def __init__(
        self,
        registries: Iterable[Registry],
        on_change: OnChange,
        clock: Callable[[], float],
        metrics: Metrics,
        opener: Callable[[Registry], Source] | None = None,
    ) -> None:
        self._open = opener or open_source
        self._on_change, self._clock, self._metrics = on_change, clock, metrics
        self._claims: tuple[Claim, ...] = ()
        self._chosen: dict[str, frozenset[ServiceKey]] = {}
        self._left_out: set[ServiceKey] = set()
        self._followers: dict[str, Follower] = {}
        self._changed = asyncio.Event()
        self.reload(registries)

    def reload(self, registries: Iterable[Registry]) -> None:
        """Apply new settings: registries whose settings changed get a new source, the others keep theirs."""
        self._settings = {registry.name: registry for registry in registries}
        self._allowlist = ServiceAllowlist(self._settings.values())
        self._choose()

    def watch(self, claims: Iterable[Claim]) -> None:
        """Follow the claimed services that the settings allow, and no others.

        A registry without a followed service is not connected to.
        """
        claims = tuple(claims)
        if claims != self._claims:
            self._claims = claims
            self._choose()

    def _choose(self) -> None:
        self._chosen = self._allowlist.choose(self._claims)
        left_out = {claim.key for claim in self._claims}.difference(*self._chosen.values())
        before, self._left_out = self._left_out, left_out
        self._changed.set()
        for key in before ^ left_out:
            self._on_change(key)

    def instances(self, key: ServiceKey) -> Roster | None:
        """The registry's latest instance list of a service; None before the first answer or error."""
        follower = self._followers.get(key.registry)
        return follower.cache.instances(key) if follower is not None else None

    def refusal(self, key: ServiceKey, namespace: str) -> str:
        """Why a policy of this namespace may not name this service; empty if it may."""
        return self._allowlist.refusal(key, namespace)

    def over_limit_message(self, key: ServiceKey, namespace: str) -> str:
        """Why a service that a policy may name is not followed; empty if it is, or if the policy is new."""
        if key not in self._left_out:
            return ""
        return (
            f"service {key.service!r} of registry {key.registry} is not followed: policies in namespace {namespace} "
            f"name more than {self._settings[key.registry].services_per_namespace} of its services, and older policies "
            "come first; name fewer, or raise servicesPerNamespace in the adapter's settings (registries)"
        )

    def rows(self) -> Iterator[RegistryRow]:
        """The metrics' rows of all followed services."""
        for _, follower in sorted(self._followers.items()):
            yield from follower.cache.rows()

    async def run(self) -> None:
        """Keep the desired followers until cancelled."""
        try:
            while True:
                self._changed.clear()
                for name, follower in list(self._followers.items()):
                    if name not in self._chosen or not _fits(follower.cache.settings, self._settings.get(name)):
                        del self._followers[name]
                        await follower.close()
                for name, keys in self._chosen.items():  # read after the awaits above
                    if name not in self._followers:
                        settings = self._settings[name]
                        _log.info("registry_followed", registry=name, type=settings.type)
                        cache = InstanceCache(settings, self._on_change, self._clock, self._metrics)
                        self._followers[name] = Follower(self._open(settings), cache)
                    self._followers[name].follow(keys)
                await self._changed.wait()
        finally:
            for follower in self._followers.values():
                await follower.close()
            self._followers.clear()


def _fits(used: Registry, wanted: Registry | None) -> bool:
    """Whether a connection with the settings in use can stay: rules about policies do not concern it."""
    rules = {"allow": (), "services_per_namespace": 0}
    return wanted is not None and used.model_copy(update=rules) == wanted.model_copy(update=rules)


_SOURCES: Mapping[str, Callable[[Any], Source]] = {
    "HTTP": HttpSource,
    "Polaris": PolarisSource,
    "Eureka": EurekaSource,
    "Consul": ConsulSource,
    "Nacos": NacosSource,
    "ZooKeeper": ZooKeeperSource,
}


def open_source(settings: Registry) -> Source:
    """The source of a registry."""
    return _SOURCES[settings.type](settings)


class ProbeResult(NamedTuple):
    """One server's instance lists of the services that it answered for, and the troubles of the others."""

    server: str
    instances: Mapping[ServiceKey, Roster]
    troubles: Mapping[ServiceKey, Trouble]


async def probe(settings: Registry, keys: Collection[ServiceKey]) -> list[ProbeResult]:
    """Ask all servers of a registry about these services at once, for the settings' timeout and a second at most."""
    asked = (_probe_server(settings.with_address(each), keys) for each in settings.addresses)
    return await asyncio.gather(*asked)


async def _probe_server(settings: Registry, keys: Collection[ServiceKey]) -> ProbeResult:
    source = open_source(settings)
    try:
        found = await asyncio.gather(*(_first_answer(source, settings, key) for key in keys))
    finally:
        await source.close()
    by_key = list(zip(keys, found, strict=True))
    return ProbeResult(
        server=settings.addresses[0],
        instances={key: each for key, each in by_key if isinstance(each, Roster)},
        troubles={key: each for key, each in by_key if isinstance(each, Trouble)},
    )


async def _first_answer(source: Source, settings: Registry, key: ServiceKey) -> Roster | Trouble:
    seconds = settings.timeout_seconds
    try:
        async with asyncio.timeout(seconds + MARGIN_SECONDS), contextlib.aclosing(source.instances(key)) as answers:
            answer = await anext(answers)
    except TimeoutError:
        late = f"{settings.addresses[0]}: no answer within {seconds:g} s"
        return trouble(SourceUnreachable(late, public="timed out"), settings)
    except SourceError as error:
        return trouble(error, settings)
    except Exception as error:  # noqa: BLE001  a fault of this program is a finding, too
        return trouble(own_fault(error), settings)
    return replace(answer, at=time.time())
