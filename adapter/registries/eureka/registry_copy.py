"""A copy of a Eureka server's registry, updated by deltas and checked with the server's hash code.

The hash code counts the instances of all applications by status. So the copy holds the status of every instance, and
the instances themselves for followed applications.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from adapter.load.matching import canonical_ip
from adapter.load.roster import Instance
from adapter.registries.eureka.wire import (
    Application,
    InstanceInfo,
    InstanceSummary,
    LeaseTimes,
    instance_infos,
    instance_summaries,
)
from adapter.runtime.slices import Slices

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
    def count(self) -> int:
        """Number of instances of all applications."""
        return self._counts.total()

    @property
    def hashcode(self) -> str:
        """The hash code of this copy; equals the server's if no change was missed."""
        return "".join(f"{status}_{count}_" for status, count in sorted(self._counts.items()) if count)

    def __contains__(self, name: str) -> bool:
        """Whether the application has instances."""
        return name in self._applications

    def get(self, name: str, summary: InstanceSummary) -> CopiedInstance | None:
        """The copy of this instance, None if there is none."""
        return self._applications.get(name, {}).get(summary.id)

    def instances(self, name: str) -> tuple[Instance, ...]:
        """The instances of a kept application by id, without leftover registrations of the same address."""
        instances = self._applications.get(name, {})
        return _newest_registrations(
            [copied.instance for _, copied in sorted(instances.items()) if copied.instance is not None]
        )

    async def load(self, applications: Iterable[Application], now: float, before: "RegistryCopy | None" = None) -> None:
        """Loads the full registry. `now` is in epoch seconds; unchanged instances are shared with `before`.

        Raises msgspec.MsgspecError.
        """

        def store(name: str, summary: InstanceSummary) -> None:
            self._store(name, summary, before.get(name, summary) if before is not None else None)

        await self._each(applications, store)
        # The answer may come from a cache, but it is not older than the latest renewal in it.
        evicted_before = max(now - LONGEST_CACHE_SECONDS, self._last_alive_at) - EVICTION_SECONDS
        self.protected = frozenset(name for name, at in self._first_evictions.items() if at < evicted_before)

    async def apply_delta(self, applications: Iterable[Application]) -> frozenset[str]:
        """Applies a delta; returns the kept applications that changed.

        Deltas repeat a change for minutes, so most of them change nothing. Raises msgspec.MsgspecError.
        """
        changed: set[str] = set()

        def change(name: str, summary: InstanceSummary) -> None:
            before = self._remove(name, summary)
            leaves = (summary.action_type or "").upper() == "DELETED"
            after = None if leaves else self._store(name, summary, before)
            if name in self.kept and before != after:
                changed.add(name)

        await self._each(applications, change)
        return frozenset(changed)

    async def _each(self, applications: Iterable[Application], store: Callable[[str, InstanceSummary], object]) -> None:
        slices = Slices()
        for application in applications:
            name = application.name.upper()
            for summary in instance_infos(application) if name in self.kept else instance_summaries(application):
                store(name, summary)
                await slices.breathe()

    def _store(self, name: str, summary: InstanceSummary, known: CopiedInstance | None) -> CopiedInstance:
        """Stores an instance; an equal one that is known already is used again."""
        copied = CopiedInstance(summary.counted_status)
        if isinstance(summary, InstanceInfo):
            copied = CopiedInstance(summary.counted_status, summary.instance(self._pod_name_key))
            self._note_lease(name, summary.lease)
        copied = known if known is not None and known == copied else copied
        self._remove(name, summary)
        self._applications.setdefault(name, {})[summary.id] = copied
        self._counts[copied.status] += 1
        return copied

    def _note_lease(self, name: str, lease: LeaseTimes | None) -> None:
        if lease is not None:
            self._first_evictions[name] = min(lease.evictable_at, self._first_evictions.get(name, lease.evictable_at))
            self._last_alive_at = max(lease.alive_at, self._last_alive_at)

    def _remove(self, name: str, summary: InstanceSummary) -> CopiedInstance | None:
        instances = self._applications.get(name, {})
        copied = instances.pop(summary.id, None)
        if copied is not None:
            self._counts[copied.status] -= 1
            if not instances:
                del self._applications[name]
        return copied


def _newest_registrations(instances: Sequence[Instance]) -> tuple[Instance, ...]:
    """The newest registration of each address: a killed process leaves one behind under another id.

    The server updates the registration time whenever an instance registers again, so a leftover is always older.
    """
    dated = [(_address(one), one.registered_at or 0.0, one) for one in instances]
    newest: dict[object, float] = {}
    for address, at, _ in dated:
        newest[address] = max(at, newest.get(address, at))
    return tuple(one for address, at, one in dated if at >= newest[address])


def _address(one: Instance) -> object:
    return (canonical_ip(one.ip), one.port, one.pod_name) if one.ip else id(one)
