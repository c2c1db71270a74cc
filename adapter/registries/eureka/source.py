"""Rosters from Eureka (Netflix or Spring Cloud): one poll fetches the changes of all services.

A poll fetches the delta, which lists the changes of the last minutes, and compares the hash code that comes with it.
The full registry is fetched at the start, when the hash code reveals a missed change, after a gap, on another peer, for
a new service, and periodically: the hash code counts statuses, so it does not reveal two that were swapped.

OUT_OF_SERVICE and DOWN pull an instance out, as its status or as an override behind STARTING. STARTING and UNKNOWN do
not: such an instance is registered, and nobody pulled it out. An instance that stays after its lease expired
(self-preservation) counts by its status, and its service is marked as protected.

By default a server answers from a read-only cache that is up to 30 s old. With
`eureka.server.use-read-only-response-cache: false` it shows changes at once, except those that arrive while it builds
an answer: these appear with the next change, or when its cache expires (180 s;
`eureka.server.response-cache-auto-expiration-in-seconds`).
"""

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Collection, Iterable
from typing import NamedTuple

import msgspec

from adapter.load.matching import canonical_ip
from adapter.load.roster import Instance
from adapter.registries.client import Failover, answering, base_urls, registry_client
from adapter.registries.eureka.wire import (
    Application,
    Applications,
    InstanceInfo,
    InstanceSummary,
    decode_instances,
)
from adapter.registries.roster import ServiceKey
from adapter.registries.roster_cache import RosterCache
from adapter.runtime.answer_budget import Body
from adapter.runtime.backoff import Backoff
from adapter.runtime.concurrency import Slices, wait_for_event
from adapter.runtime.decoding import Uncut
from adapter.runtime.outbound import Client, SegmentedReply
from adapter.runtime.source_errors import (
    NotAuthenticated,
    SourceError,
    SourceFailing,
    WrongRegistryAnswer,
)
from adapter.settings.registries import EurekaRegistry

LONGEST_GAP_SECONDS = 45.0
"""After a longer gap between answers a delta may lack changes: servers keep them for 180 s, Polaris for 60 s."""
RELIST_SECONDS = 120.0
"""Period of full fetches."""
LEAST_RELIST_SECONDS = 10.0
"""Minimum time between full fetches that a hash code mismatch causes."""

EVICTION_SECONDS = 60.0
"""Default period of a server's eviction task."""
LONGEST_CACHE_SECONDS = 210.0
"""Maximum age of the renewals in an answer: an unchanged answer is cached for 180 s, its read-only copy for 30 s."""


class CopiedInstance(NamedTuple):
    """The status of an instance as the server counts it, and for kept applications the instance."""

    status: str
    instance: Instance | None = None


class RegistryCopy:
    """Applications by name in capitals; those in `kept` with their instances.

    Its methods yield to the event loop, so only one task may use it.
    """

    def __init__(self, kept: Iterable[str], pod_name_key: str) -> None:
        self.kept = frozenset(kept)
        self.protected: frozenset[str] = frozenset()
        """Applications with an instance that only the server's self-preservation keeps from being evicted."""
        self._pod_name_key = pod_name_key
        self._applications: dict[str, dict[str, CopiedInstance]] = {}
        self._counts: Counter[str] = Counter()
        self._first_evictions: dict[str, float] = {}
        """When the first instance of an application becomes evictable, by the last full fetch (epoch seconds)."""
        self._last_alive_at = 0.0
        """The latest renewal in that fetch (epoch seconds)."""

    @property
    def hashcode(self) -> str:
        """The hash code of this copy; equals the server's if no change was missed."""
        return "".join(f"{status}_{count}_" for status, count in sorted(self._counts.items()) if count)

    def get(self, name: str, summary: InstanceSummary) -> CopiedInstance | None:
        """The copy of this instance, None if there is none."""
        return self._applications.get(name, {}).get(summary.id)

    def instances(self, name: str) -> tuple[Instance, ...]:
        """The instances of a kept application by id, of each address the newest registration.

        A killed process leaves one behind under another id. The server updates the registration time whenever an
        instance registers again, so a leftover is always older.
        """
        newest: dict[object, float] = {}
        dated: list[tuple[object, float, Instance]] = []
        for _, copied in sorted(self._applications.get(name, {}).items()):
            if (instance := copied.instance) is not None:
                address = (canonical_ip(instance.ip), instance.port, instance.pod_name) if instance.ip else id(instance)
                at = instance.registered_at or 0.0
                newest[address] = max(at, newest.get(address, at))
                dated.append((address, at, instance))
        return tuple(instance for address, at, instance in dated if at >= newest[address])

    async def load(self, applications: Iterable[Application], now: float, before: "RegistryCopy | None" = None) -> None:
        """Loads the full registry. `now` is in epoch seconds; unchanged instances are shared with `before`.

        Raises msgspec.MsgspecError.
        """
        async for name, summary in self._summaries(applications):
            self._store(name, summary, before.get(name, summary) if before is not None else None)
        # The answer may come from a cache, but it is not older than the latest renewal in it.
        evicted_before = max(now - LONGEST_CACHE_SECONDS, self._last_alive_at) - EVICTION_SECONDS
        self.protected = frozenset(name for name, at in self._first_evictions.items() if at < evicted_before)

    async def apply_delta(self, applications: Iterable[Application]) -> frozenset[str]:
        """Applies a delta; returns the kept applications that changed.

        Deltas repeat a change for minutes, so most of them change nothing. Raises msgspec.MsgspecError.
        """
        changed: set[str] = set()
        async for name, summary in self._summaries(applications):
            before = self._remove(name, summary)
            leaves = (summary.action_type or "").upper() == "DELETED"
            after = None if leaves else self._store(name, summary, before)
            if name in self.kept and before != after:
                changed.add(name)
        return frozenset(changed)

    async def _summaries(self, applications: Iterable[Application]) -> AsyncIterator[tuple[str, InstanceSummary]]:
        """The instances with the names of their applications; all fields of them for kept applications."""
        slices = Slices()
        for application in applications:
            name = application.name.upper()
            for summary in decode_instances(application, InstanceInfo if name in self.kept else InstanceSummary):
                yield name, summary
                await slices.breathe()

    def _store(self, name: str, summary: InstanceSummary, before: CopiedInstance | None) -> CopiedInstance:
        """Stores an instance; an equal one that is known already is used again."""
        copied = CopiedInstance(summary.counted_status)
        if isinstance(summary, InstanceInfo):
            copied = CopiedInstance(summary.counted_status, summary.instance(self._pod_name_key))
            if summary.lease is not None:
                evictable_at, alive_at = summary.lease
                self._first_evictions[name] = min(evictable_at, self._first_evictions.get(name, evictable_at))
                self._last_alive_at = max(alive_at, self._last_alive_at)
        copied = before if before is not None and before == copied else copied
        self._remove(name, summary)
        self._applications.setdefault(name, {})[summary.id] = copied
        self._counts[copied.status] += 1
        return copied

    def _remove(self, name: str, summary: InstanceSummary) -> CopiedInstance | None:
        instances = self._applications.get(name, {})
        copied = instances.pop(summary.id, None)
        if copied is not None:
            self._counts[copied.status] -= 1
            if not instances:
                del self._applications[name]
        return copied


class _Reported(NamedTuple):
    """The last report about a service."""

    instances: tuple[Instance, ...]
    protected: bool


class EurekaSource:
    """Follows services of one Eureka, and writes their instances to the roster cache."""

    def __init__(self, settings: EurekaRegistry, cache: RosterCache) -> None:
        self._settings = settings
        self._cache = cache
        self._peers = Failover(base_urls(settings.servers))
        self._wanted: dict[str, frozenset[ServiceKey]] = {}
        """Keys by application name in capitals: Eureka's names are case-insensitive."""
        self._reported: dict[ServiceKey, _Reported] = {}
        self._copy: RegistryCopy | None = None
        self._answered_at = self._full_fetch_at = float("-inf")
        self._services_changed = asyncio.Event()

    def refresh(self) -> None:
        """Follows the services of the cache from now on. Eureka ignores namespace and group."""
        wanted: dict[str, set[ServiceKey]] = {}
        for key in self._cache.keys:
            wanted.setdefault(key.service.upper(), set()).add(key)
        self._wanted = {name: frozenset(of_one) for name, of_one in wanted.items()}
        self._reported = {key: report for key, report in self._reported.items() if key in self._cache.keys}
        self._services_changed.set()

    async def run(self) -> None:
        """Follow the services until cancelled."""
        client = registry_client(self._settings)
        backoff = Backoff()
        self._copy = None  # an earlier run may have been cancelled while it changed the copy
        try:
            while True:
                self._services_changed.clear()
                if not self._wanted:
                    await self._services_changed.wait()
                    continue
                pause = self._settings.interval_seconds
                try:
                    await self._peers.ask(lambda server: self._fetch_registry(client, server))
                    backoff.reset()
                except SourceError as error:
                    self._cache.failed(error)
                    pause = max(backoff.next(), pause)
                await wait_for_event(self._services_changed, pause)
        finally:
            await client.close()

    # --- requests ---

    async def _fetch_registry(self, client: Client, server: str) -> None:
        copy, now = self._copy, self._cache.clock()
        if (
            copy is None
            # Peers replicate changes with a delay, so a peer's delta does not apply to another peer's copy.
            or server != self._peers.current
            or not self._wanted.keys() <= copy.kept
            or now - self._full_fetch_at > RELIST_SECONDS
            or not 0 <= now - self._answered_at <= LONGEST_GAP_SECONDS
        ):
            await self._fetch_full_registry(client, server)
            return
        async with answering(client, "GET", f"{server}/apps/delta") as reply:
            # 403: deltas are disabled on the server. 404: an implementation without deltas.
            if reply.status not in {403, 404}:
                body = self._checked_body(server, reply)
                with contextlib.suppress(msgspec.MsgspecError, Uncut):
                    applications = Applications(body)
                    changed = await copy.apply_delta(applications)
                    matches = applications.hashcode == copy.hashcode
                    if matches or self._cache.clock() - self._full_fetch_at <= LEAST_RELIST_SECONDS:
                        await self._report(copy, changed)
                        if matches:
                            self._cache.confirm()
                        return
        await self._fetch_full_registry(client, server)

    async def _fetch_full_registry(self, client: Client, server: str) -> None:
        # If it fails, it is next again: what a delta has changed in the copy was not reported yet.
        self._full_fetch_at = float("-inf")
        async with answering(client, "GET", f"{server}/apps/") as reply:
            body = self._checked_body(server, reply)
            before, copy = self._copy, RegistryCopy(self._wanted, self._settings.pod_name_key)
            self._copy = None
            try:
                await copy.load(Applications(body), self._cache.clock(), before)
            except (msgspec.MsgspecError, Uncut) as error:
                raise WrongRegistryAnswer(f"{server}: not the JSON of Eureka ({error}); check the address") from error
        self._copy, self._full_fetch_at = copy, self._cache.clock()
        await self._report(copy, copy.kept)
        self._cache.confirm()

    async def _report(self, copy: RegistryCopy, changed: Collection[str]) -> None:
        """Writes changed and newly followed applications to the roster cache."""
        slices = Slices()
        for name, keys in list(self._wanted.items()):
            await slices.breathe()
            if name not in copy.kept or not (name in changed or not keys <= self._reported.keys()):
                continue
            report = _Reported(copy.instances(name), name in copy.protected)
            for key in self._wanted.get(name, ()):
                if self._reported.get(key) != report:
                    self._reported[key] = report
                    self._cache.update(key, report.instances, protected=report.protected)
        await slices.breathe()

    def _checked_body(self, server: str, reply: SegmentedReply) -> Body:
        """The body of a 200 answer. Raises SourceError for others."""
        status = reply.status
        if status != 200:  # a cause instead of the server's long HTML page
            where = f" (it redirects to {reply.headers['Location']})" if "Location" in reply.headers else ""
            kind: type[SourceError] = WrongRegistryAnswer
            why = "this is no answer of Eureka; check the address"
            if status == 401:
                kind, why = NotAuthenticated, "wrong user or password; check username and passwordFile"
            elif status == 403:
                # Eureka has no authorization. It answers 403 while it waits for its peers after its start.
                kind, why = SourceFailing, "it has just started and waits for its peers, or this user may not read it"
            elif status == 404:
                why = "no Eureka here; check the prefix, mostly /eureka, or /eureka/v2 of Netflix"
            elif status == 429 or status >= 500:
                kind, why = SourceFailing, "the server is in trouble itself; see its log"
            raise kind(f"{server}: HTTP {status}: {why}{where}", public=f"HTTP {status}: {why}")
        self._answered_at = self._cache.clock()
        return reply.body
