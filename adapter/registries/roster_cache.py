"""The cache of one registry's rosters: sources write answers and failures into it, everything else reads from it.

It owns the subscriptions: which services are followed, and for which Kubernetes namespace. It judges each answer,
remembers the last valid one, counts for the metrics, and reports changes.
"""

import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import NamedTuple

import structlog

from adapter.load.roster import Instance, Roster
from adapter.load.states import out_reason
from adapter.registries.roster import RECOVERY_SECONDS, AnswerHistory, OnChange, RegistryAnswer, ServiceKey
from adapter.runtime.source_errors import SourceError, SourceFailing, SourceUnreachable, WrongRegistryAnswer
from adapter.settings.registries import Registry
from adapter.telemetry.metrics import Metrics
from adapter.telemetry.rows import RegistryRow

INSTANCE_STATES = ("in", "out", "unhealthy")
SERVERS_REASONS = frozenset({SourceUnreachable.reason, SourceFailing.reason, WrongRegistryAnswer.reason})
"""Reasons of errors that may be the server's fault, not the service's."""

_log = structlog.get_logger(__name__)


class _ValidAnswer(NamedTuple):
    """The last valid answer about a service, and the roster made of it."""

    answer: RegistryAnswer
    roster: Roster


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
        self._on_change = on_change
        self._metrics = metrics
        self._history = AnswerHistory()
        self._valid: dict[ServiceKey, _ValidAnswer] = {}
        self._troubles: dict[ServiceKey, Trouble] = {}

    @property
    def keys(self) -> frozenset[ServiceKey]:
        """The followed services."""
        return self._history.followed

    @property
    def hold_until(self) -> float:
        """When the doubt after the last reconnect ends (epoch seconds); 0 where there was none."""
        at = self._history.reconnected_at
        return 0.0 if at is None else at + RECOVERY_SECONDS

    def follow(self, services: Mapping[ServiceKey, str]) -> None:
        """Follow exactly these services, each for a Kubernetes namespace; forget the others."""
        self.namespaces = services
        self._history = self._history.follow(services)
        for by_service in (self._valid, self._troubles):
            for key in by_service.keys() - self.keys:
                del by_service[key]

    def roster(self, key: ServiceKey) -> Roster | None:
        """The last valid answer, with the error since; an invalid roster before the first valid one.

        None before any answer or error.
        """
        valid, trouble = self._valid.get(key), self._troubles.get(key)
        error = trouble.public if trouble else None
        if valid is None:
            return Roster(at=self.clock(), valid=False, error=error) if error else None
        # The worth of an empty list depends on the other services' answers of this moment.
        at = self._history.last_valid[key].at
        if valid.roster.at != at or not valid.answer.instances:
            roster = self._history.roster(key, replace(valid.answer, at=at))
            valid = self._valid[key] = _ValidAnswer(valid.answer, roster)
        return valid.roster if error is None else replace(valid.roster, error=error)

    def trouble(self, key: ServiceKey) -> Trouble | None:
        """Why the last question about a service has no valid answer; None where it has one, or none was asked."""
        return self._troubles.get(key)

    @property
    def all_fail(self) -> bool:
        """Whether the last question about each followed service has no valid answer, for some by the server's fault."""
        every = len(self._troubles) == len(self.keys)
        return every and any(trouble.reason in SERVERS_REASONS for trouble in self._troubles.values())

    def begins_to_fail(self, keys: Iterable[ServiceKey], *, at_once: bool) -> bool:
        """Whether these failures make it most services that fail, or all. True where it begins, not while it lasts.

        Most: more than one of these are new, unless many began `at_once`, a moment ago.
        """
        before, every = len(self._troubles), len(self.keys)
        now = before + sum(key in self.keys and key not in self._troubles for key in keys)
        most = 2 * before <= every < 2 * now and (at_once or now - before > 1)
        return most or before < now == every

    def is_answered(self, key: ServiceKey) -> bool:
        """Whether the last question about a service has a valid answer."""
        return key in self._valid and key not in self._troubles

    def update(self, key: ServiceKey, instances: Iterable[Instance], **fields: bool | int | None) -> None:
        """Judge a list that came just now, and keep it where it is valid. It is dropped if nobody follows the service.

        `fields`: further ones of `RegistryAnswer` (partial, index, …).
        """
        answer = RegistryAnswer(at=self.clock(), instances=tuple(instances), **fields)  # type: ignore[arg-type]  # by name
        if key not in self.keys:
            return
        reconnected_at = self._history.reconnected_at
        self._history, roster = self._history.admit(key, answer)
        if self._history.reconnected_at != reconnected_at:
            self._metrics.registry_reconnects.labels(registry=self.registry).inc()
        if roster.error:
            reason = "partial" if answer.partial else "rewound"
            place = f"{self._origin.address}: " if self._origin.address else ""
            sentence = self._origin.about(reason, f"{place}{roster.error}")
            self._metrics.registry_errors.labels(registry=self.registry, reason=reason).inc()
            if key not in self._troubles:
                _log.warning("registry answer is not valid", registry=self.registry, service=str(key), error=sentence)
            self._set_trouble(key, Trouble(reason, sentence, roster.error))
            return
        self._metrics.registry_up.labels(registry=self.registry).set(1)
        before = self._valid.get(key)
        self._valid[key] = _ValidAnswer(answer, roster)
        recovered = self._troubles.pop(key, None) is not None
        changed = before is None or (
            before.answer.instances != answer.instances or before.answer.protected != answer.protected
        )
        if changed and before is not None:
            self._metrics.registry_changes.labels(registry=self.registry).inc()
        if changed or recovered:
            self._on_change(key)

    def confirm(self, keys: Iterable[ServiceKey] | None = None) -> None:
        """The last answers about these services (default: all) still hold."""
        keys = self.keys if keys is None else keys
        self._metrics.registry_up.labels(registry=self.registry).set(1)
        self._history = self._history.confirm(keys, self.clock())
        for key in [key for key in keys if key in self._troubles and key in self._valid]:
            del self._troubles[key]
            self._on_change(key)

    def failed(self, error: SourceError, keys: Iterable[ServiceKey] | None = None) -> None:
        """Questions about these services (default: all) failed; the last valid answers stay."""
        if keys is None:
            self._metrics.registry_up.labels(registry=self.registry).set(0)
        self._metrics.registry_errors.labels(registry=self.registry, reason=error.reason).inc()
        sentence = self._origin.about(error.reason, str(error))
        failing = [key for key in (self.keys if keys is None else keys) if key in self.keys]
        if any(key not in self._troubles for key in failing):
            _log.warning("registry failed", registry=self.registry, services=len(failing), error=sentence)
        for key in failing:
            self._set_trouble(key, Trouble(error.reason, sentence, error.public))

    def reconnected(self) -> None:
        """A connection was lost and made again, or a restart was observed: absence is in doubt for a while."""
        self._history = self._history.reconnected(self.clock())
        self._metrics.registry_reconnects.labels(registry=self.registry).inc()

    def rows(self) -> Iterator[RegistryRow]:
        """What the metrics show of every followed service."""
        now = self.clock()
        for key in sorted(self.keys):
            valid, last = self._valid.get(key), self._history.last_valid.get(key)
            counts = count_states(valid.answer.instances) if valid else {}
            yield RegistryRow(
                registry=key.registry,
                registry_namespace=key.namespace,
                group=key.group,
                service=key.service,
                age=now - last.at if last else None,
                instances=counts,
            )

    def _set_trouble(self, key: ServiceKey, trouble: Trouble) -> None:
        if self._troubles.get(key) != trouble:
            self._troubles[key] = trouble
            self._on_change(key)


class Onsets:
    """When services began to fail: many at once may be the fault of their server, which is starting again. A few are
    their services' own: some service of a large registry always fails.
    """

    LEAST, SHARE = 2, 0.1
    """So many are many, and at least this share of all."""

    def __init__(self, cache: RosterCache) -> None:
        self._cache = cache
        self._began: dict[ServiceKey, float] = {}
        """In the order of these times (the loop's)."""

    def are_many(self, failed: Iterable[ServiceKey], at: float, since: float) -> bool:
        """Whether, with those of these that had an answer, many began to fail `since` then (the loop's times).

        The cache has no errors of them yet.
        """
        begun = [key for key in failed if self._cache.is_answered(key)]
        for key in begun:
            self._began.pop(key, None)
            self._began[key] = at
        for key in [*itertools.takewhile(lambda key: self._began[key] <= since, self._began)]:
            del self._began[key]
        return bool(begun) and len(self._began) >= max(self.LEAST, self.SHARE * len(self._cache.keys))


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
            **dict.fromkeys(("failing", "malformed", "partial", "rewound", "unknown"), place),
        },
    )
