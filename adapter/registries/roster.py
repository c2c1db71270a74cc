"""What every registry has in common: how a service is named, what a source offers, and when an answer can be trusted.

Pure: times come in as arguments. What follows from a trusted answer for a pod (absence counted, guards per policy,
doubt) is `adapter.load.membership`'s part; here an answer becomes a `Roster` with the fields that it judges by.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple, Protocol, TypeVar

from adapter.load.membership import service_registry
from adapter.load.roster import Instance, Roster
from adapter.load.spec import Policy

V = TypeVar("V")

FRESH_SECONDS = 30.0
"""So close to an empty answer a full one about another service shows that the registry is well."""


class ServiceKey(NamedTuple):
    """A service in a registry: the registry's name in the settings, and the rest in that registry's own sense."""

    registry: str
    service: str
    namespace: str = ""
    group: str = ""

    def __str__(self) -> str:
        return " ".join(filter(None, (self.service, self.namespace, self.group)))


def service_of(policy: Policy) -> ServiceKey | None:
    """The service that a policy's pods register under; None where Kubernetes' own facts are the registry."""
    registry = service_registry(policy)
    if registry is None:
        return None
    return ServiceKey(registry.name, registry.service, registry.namespace, registry.group)


OnChange = Callable[[ServiceKey], None]
"""Called after a service's roster is not what it was; every source takes one."""


class RosterSource(Protocol):
    """A registry as the rest of the adapter sees it. Answers come from memory; errors are in the rosters."""

    def watch(self, keys: Iterable[ServiceKey]) -> None:
        """Follow exactly these services from now on."""

    def roster(self, key: ServiceKey) -> Roster | None:
        """The latest answer about a service, valid or not; None where there was none yet."""

    async def run(self) -> None:
        """Follow the services until cancelled."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What a source heard about one service, before it is trusted.

    `error`: no answer, or none that can be read; `reason` is the word it is counted by. `filtered`: the registry says
    that it left something out (rights). `partial`: pages are lacking. `index`: the registry's own revision, which only
    grows while it lives. `protected`: it reports unhealthy instances as healthy just now. `alive`: the source has a
    sign of life of its own, beside the list. `absence_counts`: False where pods that serve may be missing.
    """

    at: float
    instances: tuple[Instance, ...] = ()
    error: str = ""
    reason: str = "error"
    filtered: bool = False
    partial: bool = False
    index: int | None = None
    protected: bool = False
    alive: bool = False
    absence_counts: bool = True


@dataclass(frozen=True, slots=True)
class Heard:
    """The last valid answer about a service: when, how many instances.

    `full_at`: when an answer listed instances last. `full_since`: since when all answers do; None where the last is
    empty.
    """

    at: float
    count: int
    full_at: float | None = None
    full_since: float | None = None

    def then(self, at: float, count: int) -> "Heard":
        """What is remembered after the next answer."""
        if not count:
            return Heard(at, 0, self.full_at)
        return Heard(at, count, at, at if self.full_since is None else self.full_since)


_NEVER_HEARD = Heard(0.0, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerHistory:
    """What is remembered of one registry across its services; every method returns the next ledger.

    `watched` are the services that are followed, `heard` their last valid answers, `indexes` the revisions of their
    last answers, `reconnected_at` the last reconnect or restart that was seen.
    """

    watched: frozenset[ServiceKey] = frozenset()
    heard: Mapping[ServiceKey, Heard] = field(default_factory=dict)
    indexes: Mapping[ServiceKey, int] = field(default_factory=dict)
    reconnected_at: float | None = None

    @property
    def total(self) -> int | None:
        """Instances of all watched services; None until each was heard of, or a start would look like a recovery."""
        if not self.watched <= self.heard.keys():
            return None
        return sum(heard.count for heard in self.heard.values())

    def watch(self, keys: Iterable[ServiceKey]) -> "AnswerHistory":
        """Follow exactly these services; the others are forgotten."""
        watched = frozenset(keys)
        return replace(self, watched=watched, heard=_only(watched, self.heard), indexes=_only(watched, self.indexes))

    def reconnected(self, at: float) -> "AnswerHistory":
        """A connection was made anew, or a restart was seen."""
        return replace(self, reconnected_at=max(at, self.reconnected_at or at))

    def admit(self, key: ServiceKey, answer: Answer) -> tuple["AnswerHistory", Roster]:
        """Turn an answer into a roster. One that cannot be trusted becomes an invalid roster that says why.

        An index that went back shows that the registry was restarted or restored: that answer is not valid, and the
        next one is measured against it.
        """
        last = self.indexes.get(key)
        ledger = self
        if answer.index is not None and not answer.error:
            ledger = replace(self, indexes={**self.indexes, key: answer.index})
            if last is not None and answer.index < last:
                ledger = ledger.reconnected(answer.at)
        fault = _fault(answer, last)
        if not fault:
            heard = ledger.heard.get(key, _NEVER_HEARD).then(answer.at, len(answer.instances))
            ledger = replace(ledger, heard={**ledger.heard, key: heard})
        return ledger, _roster(ledger, key, answer, fault)

    def confirm(self, keys: Iterable[ServiceKey], at: float) -> "AnswerHistory":
        """What was last heard of these services still holds: a connection that would tell of changes is alive."""
        heard = {key: self.heard[key].then(at, self.heard[key].count) for key in keys if key in self.heard}
        return replace(self, heard={**self.heard, **heard})

    def is_alive(self, key: ServiceKey, answer: Answer) -> bool:
        """Whether there is a witness that an empty answer about a service is no loss of data.

        A witness is the source's own sign of life, or another service that had instances a moment before or after.
        After a reconnect neither says that registrations survived: only a service does that never was without any.
        """
        lost = self.reconnected_at
        full_at = self.heard[key].full_at if key in self.heard else None
        if lost is None or (full_at is not None and full_at > lost):
            return answer.alive or next(self._full_beside(key, answer.at), None) is not None
        return any(since <= lost for since in self._full_beside(key, answer.at))

    def _full_beside(self, key: ServiceKey, at: float) -> Iterator[float]:
        """Since when each other service that had instances a moment before or after has had some."""
        for other, heard in self.heard.items():
            if other != key and heard.full_since is not None and abs(at - heard.at) <= FRESH_SECONDS:
                yield heard.full_since


def valid_roster(ledger: AnswerHistory, key: ServiceKey, answer: Answer) -> Roster:
    """A valid answer once more, as of the time for which it was confirmed last."""
    return _roster(ledger, key, replace(answer, at=ledger.heard[key].at), "")


def _roster(ledger: AnswerHistory, key: ServiceKey, answer: Answer, fault: str) -> Roster:
    return Roster(
        at=answer.at,
        valid=not fault,
        protected=answer.protected,
        alive=ledger.is_alive(key, answer),
        registry_total=ledger.total,
        reconnected_at=ledger.reconnected_at,
        error=fault or None,
        absence_counts=answer.absence_counts,
        instances=() if fault else answer.instances,
    )


def reason_of(answer: Answer) -> str:
    """The word by which an answer that is not valid is counted."""
    if answer.error:
        return answer.reason
    return "filtered" if answer.filtered else "partial" if answer.partial else "rewound"


def _fault(answer: Answer, last_index: int | None) -> str:
    """Why an answer is not valid; empty where it is."""
    if answer.error:
        return answer.error
    if answer.filtered:
        return "the registry filtered its answer; give the adapter's token the right to read this service"
    if answer.partial:
        return "the answer is incomplete"
    if answer.index is not None and last_index is not None and answer.index < last_index:
        return f"the registry's index went back from {last_index} to {answer.index}: it was restarted or restored"
    return ""


def _only(keys: frozenset[ServiceKey], known: Mapping[ServiceKey, V]) -> Mapping[ServiceKey, V]:
    return {key: value for key, value in known.items() if key in keys}
