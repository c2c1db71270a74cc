"""A copy of a Eureka server's registry, kept up to date by its deltas and checked by its hash.

The hash counts the instances of all applications by status. So the status of every instance is kept, and for the
applications that somebody asked for the instances as well.
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
"""How often a server looks for leases that ended, by default."""
LONGEST_CACHE_SECONDS = 210.0
"""How old the renewals in a list may be: a list nothing of which changed is kept for 180 s, and its copy for 30 s."""


class CopiedInstance(NamedTuple):
    """An instance: its status as the server counts it, and for kept applications the rest."""

    status: str
    instance: Instance | None = None


class RegistryCopy:
    """The applications by name in capitals; of those in `kept` also the instances.

    Work on it breathes in between, so it is for one task only.
    """

    def __init__(self, kept: Iterable[str], pod_name_key: str) -> None:
        self.kept = frozenset(kept)
        self.protected: frozenset[str] = frozenset()
        """Those with an instance that would have been evicted long ago if the server did not protect itself."""
        self._pod_name_key = pod_name_key
        self._rows: dict[str, dict[str, CopiedInstance]] = {}
        self._counts: Counter[str] = Counter()
        self._ends: dict[str, float] = {}
        """When the first lease of an application ends or ended, by the list that was read last."""
        self._heard = 0.0
        """The last sign of life in that list."""

    @property
    def count(self) -> int:
        """Instances of all applications."""
        return self._counts.total()

    @property
    def hashcode(self) -> str:
        """What the server's hash must be where nothing was missed."""
        return "".join(f"{status}_{count}_" for status, count in sorted(self._counts.items()) if count)

    def __contains__(self, name: str) -> bool:
        """Whether the application has instances."""
        return name in self._rows

    def row(self, name: str, entry: InstanceSummary) -> CopiedInstance | None:
        """What is known of this instance."""
        return self._rows.get(name, {}).get(entry.id)

    def instances(self, name: str) -> tuple[Instance, ...]:
        """The instances of a kept application that count, in the order of their ids."""
        rows = self._rows.get(name, {})
        return _newest([row.instance for _, row in sorted(rows.items()) if row.instance is not None])

    async def fill(self, applications: Iterable[Application], now: float, before: "RegistryCopy | None" = None) -> None:
        """Take over the whole list. `now` is in epoch seconds; what is as in `before` is shared with it.

        Raises msgspec.MsgspecError.
        """

        def put(name: str, entry: InstanceSummary) -> None:
            self._put(name, entry, before.row(name, entry) if before is not None else None)

        await self._each(applications, put)
        # The list may be older than it seems, but surely not older than the youngest sign of life in it.
        then = max(now - LONGEST_CACHE_SECONDS, self._heard) - EVICTION_SECONDS
        self.protected = frozenset(name for name, ends in self._ends.items() if ends < then)

    async def apply(self, applications: Iterable[Application]) -> frozenset[str]:
        """Take over what changed; the answer are the kept applications that are not what they were.

        Deltas tell of the same change for minutes, so that mostly nothing comes of them. Raises msgspec.MsgspecError.
        """
        changed: set[str] = set()

        def change(name: str, entry: InstanceSummary) -> None:
            before = self._drop(name, entry)
            leaves = (entry.action_type or "").upper() == "DELETED"
            after = None if leaves else self._put(name, entry, before)
            if name in self.kept and before != after:
                changed.add(name)

        await self._each(applications, change)
        return frozenset(changed)

    async def _each(self, applications: Iterable[Application], take: Callable[[str, InstanceSummary], object]) -> None:
        slices = Slices()
        for application in applications:
            name = application.name.upper()
            for entry in instance_infos(application) if name in self.kept else instance_summaries(application):
                take(name, entry)
                await slices.breathe()

    def _put(self, name: str, entry: InstanceSummary, known: CopiedInstance | None) -> CopiedInstance:
        """List an instance. What is known of it already is used again where it is the same."""
        row = CopiedInstance(entry.state)
        if isinstance(entry, InstanceInfo):
            row = CopiedInstance(entry.state, entry.instance(self._pod_name_key))
            self._note(name, entry.lease)
        row = known if known is not None and known == row else row
        self._drop(name, entry)
        self._rows.setdefault(name, {})[entry.id] = row
        self._counts[row.status] += 1
        return row

    def _note(self, name: str, lease: LeaseTimes | None) -> None:
        if lease is not None:
            self._ends[name] = min(lease.ends, self._ends.get(name, lease.ends))
            self._heard = max(lease.heard, self._heard)

    def _drop(self, name: str, entry: InstanceSummary) -> CopiedInstance | None:
        rows = self._rows.get(name, {})
        row = rows.pop(entry.id, None)
        if row is not None:
            self._counts[row.status] -= 1
            if not rows:
                del self._rows[name]
        return row


def _newest(instances: Sequence[Instance]) -> tuple[Instance, ...]:
    """Of the registrations of one place the newest: a process that was killed leaves one behind, with an id of its own.

    The server dates a registration anew whenever the instance registers again, so that a leftover is always older.
    """
    dated = [(_place(one), one.registered_at or 0.0, one) for one in instances]
    newest: dict[object, float] = {}
    for place, at, _ in dated:
        newest[place] = max(at, newest.get(place, at))
    return tuple(one for place, at, one in dated if at >= newest[place])


def _place(one: Instance) -> object:
    return (canonical_ip(one.ip), one.port, one.pod_name) if one.ip else id(one)
