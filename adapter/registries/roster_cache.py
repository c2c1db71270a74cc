"""The cache of one registry's rosters: sources write answers and failures into it, everything else reads from it.

It owns the subscriptions: which services are followed, and for which Kubernetes namespace. It keeps the last valid
answer about each service with its time, and the last error, counts for the metrics, and reports changes.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import NamedTuple

import structlog

from adapter.load.roster import Instance, Roster
from adapter.load.states import out_reason
from adapter.registries.roster import OnChange, ServiceKey
from adapter.runtime.source_errors import SourceError, SourceFailing, SourceUnreachable, WrongRegistryAnswer
from adapter.settings.registries import Registry
from adapter.telemetry.metrics import Metrics
from adapter.telemetry.series import RegistryRow

INSTANCE_STATES = ("in", "out", "unhealthy")

_log = structlog.get_logger(__name__)


class PartialAnswer(WrongRegistryAnswer):
    """Pages of the list are missing."""

    reason = "partial"
    summary = "the answer is incomplete"


class Trouble(NamedTuple):
    """Why the last question about a service has no valid answer; `reason` is the metrics' label for it.

    `sentence` is for operators; `public` for everybody: no addresses, and no text of the registry.
    """

    reason: str
    sentence: str
    public: str


class Origin(NamedTuple):
    """The place of a registry, for error sentences: its address, and the keys of the settings by an error's reason."""

    address: str = ""
    keys: Mapping[str, str] = {}

    def about(self, reason: str, sentence: str) -> str:
        """The sentence with the keys to check."""
        keys = self.keys.get(reason)
        return f"{sentence} (settings: {keys})" if keys else sentence


class RosterCache:
    """Rosters by service. `clock` gives epoch seconds; `on_change` is called with each service whose roster or error
    changed; `origin` adds the place to error sentences.
    """

    def __init__(
        self,
        registry: str,
        on_change: OnChange,
        clock: Callable[[], float],
        metrics: Metrics,
        origin: Origin = Origin(),  # noqa: B008  it cannot be changed
    ) -> None:
        self.registry = registry
        self._origin = origin
        self.clock = clock
        self.namespaces: Mapping[ServiceKey, str] = {}
        """The followed services, each with the Kubernetes namespace that it is followed for."""
        self.keys: frozenset[ServiceKey] = frozenset()
        self._on_change = on_change
        self._metrics = metrics
        self._is_down = False
        self._rosters: dict[ServiceKey, Roster] = {}
        """The last valid answers, each with the time when it was last confirmed."""
        self._troubles: dict[ServiceKey, Trouble] = {}

    def follow(self, services: Mapping[ServiceKey, str]) -> None:
        """Follow exactly these services, each for a Kubernetes namespace; forget the others."""
        self.namespaces, self.keys = services, frozenset(services)
        for by_service in (self._rosters, self._troubles):
            for key in by_service.keys() - self.keys:
                del by_service[key]

    def roster(self, key: ServiceKey) -> Roster | None:
        """The last valid answer, with the error since; an invalid roster before the first valid one.

        None before any answer or error.
        """
        roster, trouble = self._rosters.get(key), self._troubles.get(key)
        if trouble is None:
            return roster
        if roster is None:
            return Roster(at=self.clock(), valid=False, error=trouble.public)
        return replace(roster, error=trouble.public)

    def trouble(self, key: ServiceKey) -> Trouble | None:
        """Why the last question about a service has no valid answer; None where it has one, or none was asked."""
        return self._troubles.get(key)

    def update(
        self,
        key: ServiceKey,
        instances: Iterable[Instance],
        *,
        protected: bool = False,
        partial: bool = False,
        absence_counts: bool = True,
    ) -> None:
        """Keep a list that came just now. It is dropped if nobody follows the service, refused if it is `partial`."""
        if key not in self.keys:
            return
        if partial:
            place = f"{self._origin.address}: " if self._origin.address else ""
            self.failed(PartialAnswer(place + PartialAnswer.summary, public=PartialAnswer.summary), [key])
            return
        roster = Roster(at=self.clock(), protected=protected, absence_counts=absence_counts, instances=tuple(instances))
        before, self._rosters[key] = self._rosters.get(key), roster
        self._note_up()
        recovered = self._troubles.pop(key, None) is not None
        changed = before is None or replace(before, at=roster.at) != roster
        if changed and before is not None:
            self._metrics.registry_changes.labels(registry=self.registry).inc()
        if changed or recovered:
            self._on_change(key)

    def confirm(self, keys: Iterable[ServiceKey] | None = None) -> None:
        """The last answers about these services (default: all) still hold."""
        self._note_up()
        now = self.clock()
        for key in self._rosters.keys() if keys is None else self._rosters.keys() & set(keys):
            self._rosters[key] = replace(self._rosters[key], at=now)
            if self._troubles.pop(key, None) is not None:
                self._on_change(key)

    def failed(self, error: SourceError, keys: Iterable[ServiceKey] | None = None) -> None:
        """Questions about these services (default: all) failed; the last valid answers stay."""
        self._metrics.registry_errors.labels(registry=self.registry, reason=error.reason).inc()
        sentence = self._origin.about(error.reason, str(error))
        failing = [key for key in (self.keys if keys is None else keys) if key in self.keys]
        if any(key not in self._troubles for key in failing):
            _log.warning("registry_failed", registry=self.registry, services=len(failing), error=sentence)
        for key in failing:
            self._set_trouble(key, Trouble(error.reason, sentence, error.public))
        is_server = isinstance(error, SourceUnreachable | SourceFailing) and len(self._troubles) == len(self.keys)
        if keys is None or is_server:
            self._is_down = True
            self._metrics.registry_up.labels(registry=self.registry).set(0)

    def _note_up(self) -> None:
        self._metrics.registry_up.labels(registry=self.registry).set(1)
        if self._is_down:
            self._is_down = False
            self._metrics.registry_reconnects.labels(registry=self.registry).inc()

    def rows(self) -> Iterator[RegistryRow]:
        """What the metrics show of every followed service."""
        now = self.clock()
        for key in sorted(self.keys):
            roster = self._rosters.get(key)
            yield RegistryRow(
                registry=key.registry,
                registry_namespace=key.namespace,
                group=key.group,
                service=key.service,
                age=now - roster.at if roster else None,
                instances=count_states(roster.instances) if roster else {},
            )

    def _set_trouble(self, key: ServiceKey, trouble: Trouble) -> None:
        if self._troubles.get(key) != trouble:
            self._troubles[key] = trouble
            self._on_change(key)


def count_states(instances: Iterable[Instance]) -> Mapping[str, float]:
    """The number of instances in each of INSTANCE_STATES, by their own registration."""
    counts = Counter(
        "out" if out_reason(instance) else "in" if instance.healthy else "unhealthy" for instance in instances
    )
    return {state: float(counts[state]) for state in INSTANCE_STATES}


def origin(settings: Registry) -> Origin:
    """The origin of a registry's errors."""
    place = f"`{settings.address_field}`"
    return Origin(
        ", ".join(settings.addresses),
        {
            "unreachable": f"{place}, `timeoutSeconds`, `tls`",
            **dict.fromkeys(("unauthenticated", "forbidden"), settings.credentials),
            **dict.fromkeys(("failing", "malformed", "partial", "unknown"), place),
        },
    )
