"""The last valid instance list of each service of one registry, its age, and the last error since."""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import NamedTuple

import structlog

from adapter.load.roster import Instance, Roster
from adapter.load.states import out_reason
from adapter.registries.source import ServiceKey
from adapter.runtime.source_errors import NotAuthenticated, SourceError, SourceFailing, SourceUnreachable
from adapter.settings.registries import Registry
from adapter.telemetry.metrics import Metrics
from adapter.telemetry.series import RegistryRow

EMPTIED_SECONDS = 10.0
"""How often it is logged at most that a service lost its instances: one that is scaled to 0 does so, too."""
INSTANCE_STATES = ("in", "out", "unhealthy")

OnChange = Callable[[ServiceKey], None]
"""Called after the instance list of a service or its error changed."""

_log = structlog.get_logger(__name__)


class Trouble(NamedTuple):
    """Why the last question about a service has no valid answer; `reason` is the label value of the metrics.

    `sentence` is for operators. `public` is for everybody: it has no addresses and no text of the registry.
    """

    reason: str
    sentence: str
    public: str


def trouble(error: SourceError, settings: Registry) -> Trouble:
    """The trouble of an error; the sentence names the settings to check."""
    address = f"`{settings.address_field}`"
    to_check = {
        "unreachable": f"{address}, `timeoutSeconds`, `tls`",
        **dict.fromkeys(("unauthenticated", "forbidden"), settings.credentials),
        **dict.fromkeys(("failing", "malformed", "unknown"), address),
    }
    keys = to_check.get(error.reason)
    return Trouble(error.reason, f"{error} (settings: {keys})" if keys else str(error), error.public)


class InstanceCache:
    """The instance lists of one registry. `clock` gives epoch seconds.

    `on_change` is called with each service whose instances or public error changed.
    """

    def __init__(self, settings: Registry, on_change: OnChange, clock: Callable[[], float], metrics: Metrics) -> None:
        self.settings = settings
        self.keys: frozenset[ServiceKey] = frozenset()
        """The followed services."""
        self._on_change = on_change
        self._clock = clock
        self._metrics = metrics
        self._listed: dict[ServiceKey, Roster] = {}
        self.troubles: dict[ServiceKey, Trouble] = {}
        """Why the last question about a service has no valid answer."""
        self._emptied_at = -math.inf
        """When it was last logged that a service has no instances any more."""
        self._is_up: bool | None = None

    def follow(self, keys: Iterable[ServiceKey]) -> None:
        """Keep the lists of exactly these services."""
        self.keys = frozenset(keys)
        self._listed = {key: listed for key, listed in self._listed.items() if key in self.keys}
        self.troubles = {key: each for key, each in self.troubles.items() if key in self.keys}

    def instances(self, key: ServiceKey) -> Roster | None:
        """The last valid list with the error since; an invalid one before the first valid answer.

        None before the first answer or error.
        """
        listed, current = self._listed.get(key), self.troubles.get(key)
        error = current.public if current is not None else None
        if listed is None:
            return None if error is None else Roster(at=self._clock(), valid=False, error=error)
        return listed if error is None else replace(listed, error=error)

    def put(self, key: ServiceKey, answer: Roster) -> None:
        """Record an answer that came now, or a confirmation of the last one. Ignored if nobody follows the service."""
        if key not in self.keys:
            return
        before = self._listed.get(key)
        listed = self._listed[key] = replace(answer, at=self._clock())
        recovered = self.troubles.pop(key, None)
        self._set_up(True)
        if recovered is not None and all(each.public != recovered.public for each in self.troubles.values()):
            _log.info("registry_recovered", registry=self.settings.name, service=str(key), was=recovered.public)
        is_emptied = answer.absence_counts and not answer.instances and before is not None and before.instances
        if is_emptied and abs(listed.at - self._emptied_at) >= EMPTIED_SECONDS:
            self._emptied_at = listed.at
            _log.info("registry_list_emptied", registry=self.settings.name, service=str(key))
        changed = before is None or replace(before, at=listed.at) != listed
        if changed and before is not None:
            self._metrics.registry_changes.labels(registry=self.settings.name).inc()
        if changed or recovered is not None:
            self._on_change(key)

    def failed(self, key: ServiceKey, error: SourceError) -> None:
        """Record that the registry gave no valid answer about a service; the last valid one stays."""
        if key not in self.keys:
            return
        self._metrics.registry_errors.labels(registry=self.settings.name, reason=error.reason).inc()
        before, found = self.troubles.get(key), trouble(error, self.settings)
        # One line for each cause, however many services it concerns: each policy's condition names it, too.
        if all(each.public != found.public for each in self.troubles.values()):
            _log.warning("registry_failed", registry=self.settings.name, service=str(key), error=found.sentence)
        self.troubles[key] = found
        silent = {SourceUnreachable.reason, SourceFailing.reason, NotAuthenticated.reason}
        if len(self.troubles) == len(self.keys) and all(each.reason in silent for each in self.troubles.values()):
            self._set_up(False)
        if before is None or before.public != found.public:
            self._on_change(key)

    def rows(self) -> Iterator[RegistryRow]:
        """The metrics' row of every followed service."""
        now = self._clock()
        for key in sorted(self.keys):
            listed = self._listed.get(key)
            yield RegistryRow(
                registry=key.registry,
                registry_namespace=key.namespace,
                group=key.group,
                service=key.service,
                age=now - listed.at if listed else None,
                instances=count_states(listed.instances) if listed else {},
            )

    def _set_up(self, is_up: bool) -> None:
        if is_up and self._is_up is False:
            self._metrics.registry_reconnects.labels(registry=self.settings.name).inc()
        if is_up is not self._is_up:
            self._is_up = is_up
            self._metrics.registry_up.labels(registry=self.settings.name).set(is_up)


def count_states(instances: Iterable[Instance]) -> Mapping[str, float]:
    """The number of instances in each of INSTANCE_STATES, by their own registration."""
    counts = Counter(
        "out" if out_reason(instance) else "in" if instance.healthy else "unhealthy" for instance in instances
    )
    return {state: float(counts[state]) for state in INSTANCE_STATES}
