"""The answers of one registry: every source keeps one book, which judges, remembers, counts and tells of changes."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import NamedTuple

import structlog

from adapter.load.memory_updates import RECOVERY_SECONDS
from adapter.load.roster import Instance, Roster
from adapter.registries.origin import Origin
from adapter.registries.roster import Answer, AnswerHistory, OnChange, ServiceKey, reason_of, valid_roster
from adapter.runtime.source_errors import SourceError
from adapter.telemetry.metrics import Metrics

_log = structlog.get_logger(__name__)


class _Page(NamedTuple):
    """The last valid answer about a service, and the roster made of it."""

    answer: Answer
    roster: Roster


class Trouble(NamedTuple):
    """Why the latest question about a service has no valid answer: the word it is counted by, and the sentence.

    `sentence` is for operators; `public` for everybody else: without addresses, and without the registry's words.
    """

    reason: str
    sentence: str
    public: str


class RosterCache:
    """Rosters by service. `clock` gives epoch seconds; `on_change` hears of services whose roster or error changed.

    `origin`: what errors say of where they come from.
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
        self.followed_for: Mapping[ServiceKey, str] = {}
        """The Kubernetes namespace that each service is followed for: between these, sources are fair."""
        self._on_change = on_change
        self._metrics = metrics
        self._ledger = AnswerHistory()
        self._pages: dict[ServiceKey, _Page] = {}
        self._troubles: dict[ServiceKey, Trouble] = {}

    @property
    def keys(self) -> frozenset[ServiceKey]:
        """The services that are followed."""
        return self._ledger.watched

    @property
    def hold_until(self) -> float:
        """When the doubt ends that the last reconnect left (seconds); 0 where there was none."""
        at = self._ledger.reconnected_at
        return 0.0 if at is None else at + RECOVERY_SECONDS

    def watch(self, keys: Iterable[ServiceKey]) -> None:
        """Follow exactly these services; what is known of others is dropped."""
        self._ledger = self._ledger.watch(keys)
        for known in (self._pages, self._troubles):
            for key in known.keys() - self.keys:
                del known[key]

    def roster(self, key: ServiceKey) -> Roster | None:
        """The last valid answer, with the error that came since; an invalid roster where there was no valid one yet.

        None where nothing was heard at all.
        """
        page, trouble = self._pages.get(key), self._troubles.get(key)
        error = trouble.public if trouble else None
        if page is None:
            return Roster(at=self.clock(), valid=False, error=error) if error else None
        # An empty list is worth what other services say just now.
        if page.roster.at != self._ledger.heard[key].at or not page.answer.instances:
            page = self._pages[key] = _Page(page.answer, valid_roster(self._ledger, key, page.answer))
        return page.roster if error is None else replace(page.roster, error=error)

    def trouble(self, key: ServiceKey) -> Trouble | None:
        """Why the latest question about a service has no valid answer; None where it has one, or none was put."""
        return self._troubles.get(key)

    def heard(self, key: ServiceKey, instances: Iterable[Instance], **more: bool | int | None) -> None:
        """A list came just now. `more` are further fields of `Answer`: filtered, partial, index, protected, alive."""
        self.note(key, Answer(at=self.clock(), instances=tuple(instances), **more))  # type: ignore[arg-type]  # by name

    def note(self, key: ServiceKey, answer: Answer) -> None:
        """Judge an answer, and keep it where it is valid. One about a service that is not followed is dropped."""
        if key not in self.keys:
            return
        reconnected_at = self._ledger.reconnected_at
        self._ledger, roster = self._ledger.admit(key, answer)
        if self._ledger.reconnected_at != reconnected_at:
            self._metrics.registry_reconnects.labels(registry=self.registry).inc()
        if roster.error:
            reason = reason_of(answer)
            sentence = self._origin.about(reason, self._origin.of_answer(roster.error))
            self._metrics.registry_errors.labels(registry=self.registry, reason=reason).inc()
            if key not in self._troubles:
                _log.warning("registry answer is not valid", registry=self.registry, service=str(key), error=sentence)
            self._fail(key, Trouble(reason, sentence, roster.error))
            return
        self._metrics.registry_up.labels(registry=self.registry).set(1)
        before = self._pages.get(key)
        self._pages[key] = _Page(answer, roster)
        mended = self._troubles.pop(key, None) is not None
        changed = before is None or _differ(before.answer, answer)
        if changed and before is not None:
            self._metrics.registry_changes.labels(registry=self.registry).inc()
        if changed or mended:
            self._on_change(key)

    def confirm(self, keys: Iterable[ServiceKey] | None = None) -> None:
        """What was last heard of these services (default: all) still holds now."""
        keys = self.keys if keys is None else keys
        self._metrics.registry_up.labels(registry=self.registry).set(1)
        self._ledger = self._ledger.confirm(keys, self.clock())
        for key in [key for key in keys if key in self._troubles and key in self._pages]:
            del self._troubles[key]
            self._on_change(key)

    def failed(self, error: SourceError, keys: Iterable[ServiceKey] | None = None) -> None:
        """Asking about these services (default: all) failed; what was heard before stays."""
        if keys is None:
            self._metrics.registry_up.labels(registry=self.registry).set(0)
        self._metrics.registry_errors.labels(registry=self.registry, reason=error.reason).inc()
        sentence = self._origin.about(error.reason, str(error))
        failing = [key for key in (self.keys if keys is None else keys) if key in self.keys]
        if any(key not in self._troubles for key in failing):
            _log.warning("registry failed", registry=self.registry, services=len(failing), error=sentence)
        for key in failing:
            self._fail(key, Trouble(error.reason, sentence, error.public))

    def reconnected(self) -> None:
        """A connection was lost and made anew, or a restart was seen: absence is doubted for a while."""
        self._ledger = self._ledger.reconnected(self.clock())
        self._metrics.registry_reconnects.labels(registry=self.registry).inc()

    def pages(self) -> Iterator[tuple[ServiceKey, float | None, tuple[Instance, ...]]]:
        """Every followed service with the time of its last valid answer and what that listed."""
        for key in sorted(self.keys):
            page, heard = self._pages.get(key), self._ledger.heard.get(key)
            yield key, heard.at if heard else None, page.answer.instances if page else ()

    def _fail(self, key: ServiceKey, trouble: Trouble) -> None:
        if self._troubles.get(key) != trouble:
            self._troubles[key] = trouble
            self._on_change(key)


def _differ(one: Answer, other: Answer) -> bool:
    return one.instances != other.instances or one.protected != other.protected
