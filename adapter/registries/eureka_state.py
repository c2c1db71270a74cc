"""A copy of a Eureka server's registry, kept up to date by its deltas and checked by its hash.

The hash counts the instances of all applications by status. So the status of every instance is kept, and for the
applications that somebody asked for the instances as well.
"""

from collections import Counter
from collections.abc import Callable, Iterable
from typing import NamedTuple

from adapter.kube.slices import Slices
from adapter.load.roster import Instance
from adapter.registries.eureka_wire import Application, Entry, Lease, Registration, entries, registrations

EVICTION_SECONDS = 60.0
"""How often a server looks for leases that ended, by default."""
CACHED_SECONDS = 210.0
"""How old the renewals in a list may be: a list nothing of which changed is kept for 180 s, and its copy for 30 s."""


class _Row(NamedTuple):
    status: str
    instance: Instance | None = None


class RegistryCopy:
    """The applications by name in capitals; of those in `kept` also the instances.

    Work on it breathes in between, so it is for one task only.
    """

    def __init__(self, kept: Iterable[str], pod_name_key: str) -> None:
        self.kept = frozenset(kept)
        self.protected: frozenset[str] = frozenset()
        """Kept applications with instances that are listed although their leases ended long ago."""
        self._pod_name_key = pod_name_key
        self._rows: dict[str, dict[str, _Row]] = {}
        self._counts: Counter[str] = Counter()
        self._leases: dict[str, list[Lease]] = {}

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

    def instances(self, name: str) -> tuple[Instance, ...]:
        """The instances of a kept application, in the order of their ids."""
        rows = self._rows.get(name, {})
        return tuple(row.instance for _, row in sorted(rows.items()) if row.instance is not None)

    async def fill(self, applications: Iterable[Application], now: float) -> None:
        """Take over the whole list. `now` is in epoch seconds. Raises msgspec.MsgspecError."""
        await self._each(applications, self._put)
        self.protected = self._lingering(now)
        self._leases.clear()

    async def apply(self, applications: Iterable[Application]) -> frozenset[str]:
        """Take over what changed; the answer are the kept applications that are not what they were.

        Deltas tell of the same change for minutes, so that mostly nothing comes of them. Raises msgspec.MsgspecError.
        """
        changed: set[str] = set()

        def change(name: str, entry: Entry) -> None:
            before = self._rows.get(name, {}).get(entry.id)
            (self._drop if (entry.action_type or "").upper() == "DELETED" else self._put)(name, entry)
            if name in self.kept and before != self._rows.get(name, {}).get(entry.id):
                changed.add(name)

        await self._each(applications, change)
        self._leases.clear()
        return frozenset(changed)

    async def _each(self, applications: Iterable[Application], take: Callable[[str, Entry], None]) -> None:
        slices = Slices()
        for application in applications:
            name = application.name.upper()
            for entry in registrations(application) if name in self.kept else entries(application):
                take(name, entry)
                await slices.breathe()

    def _put(self, name: str, entry: Entry) -> None:
        self._drop(name, entry)
        instance = None
        if isinstance(entry, Registration):
            instance = entry.instance(self._pod_name_key)
            if entry.lease is not None:
                self._leases.setdefault(name, []).append(entry.lease)
        self._rows.setdefault(name, {})[entry.id] = _Row(entry.state, instance)
        self._counts[entry.state] += 1

    def _drop(self, name: str, entry: Entry) -> None:
        rows = self._rows.get(name, {})
        row = rows.pop(entry.id, None)
        if row is not None:
            self._counts[row.status] -= 1
            if not rows:
                del self._rows[name]

    def _lingering(self, now: float) -> frozenset[str]:
        """Where instances are listed that a server which evicts would have evicted: it protects itself.

        The list may be older than it seems, but surely not older than the youngest sign of life in it.
        """
        leases = [lease for of_one in self._leases.values() for lease in of_one]
        if not leases:
            return frozenset()
        then = max(now - CACHED_SECONDS, *(lease.heard for lease in leases)) - EVICTION_SECONDS
        return frozenset(name for name, of_one in self._leases.items() if any(lease.ends < then for lease in of_one))
