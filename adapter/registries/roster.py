"""What every registry has in common: the key of a service, the interface of a source, and the trust in an answer.

Pure: times come in as arguments. `adapter.load.states` decides what a trusted answer means for a pod; here an
answer becomes a `Roster` with the fields that it decides by.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple, Protocol

from adapter.load.roster import Instance, Roster
from adapter.load.spec import Policy
from adapter.load.states import service_registry

EVIDENCE_SECONDS = 30.0
"""How close to an empty answer a full one about another service shows that the registry has its data."""


class ServiceKey(NamedTuple):
    """A service in a registry: the registry's name in the settings, and the rest in that registry's own sense."""

    registry: str
    service: str
    namespace: str = ""
    group: str = ""

    def __str__(self) -> str:
        return " ".join(filter(None, (self.service, self.namespace, self.group)))


def service_of(policy: Policy) -> ServiceKey | None:
    """The service that a policy's pods register under; None where Kubernetes itself is the registry."""
    registry = service_registry(policy)
    if registry is None:
        return None
    return ServiceKey(registry.name, registry.service, registry.namespace, registry.group)


RECOVERY_SECONDS = 90.0
"""For this long after a reconnect or a restart a registry may still lose what it restores."""

OnChange = Callable[[ServiceKey], None]
"""Called after a service's roster changed."""


class RosterSource(Protocol):
    """The connection to one registry. It reads from its cache which services to follow, and writes answers into it."""

    def refresh(self) -> None:
        """Follow the services of the cache from now on: begin with new ones, end what is no longer followed."""

    async def run(self) -> None:
        """Follow the services until cancelled."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistryAnswer:
    """A registry's answer about one service, before it is trusted.

    `partial`: pages are missing. `index`: the registry's own revision, which only grows while it lives. `protected`: it
    reports unhealthy instances as healthy just now. `alive`: the source has a sign of life beside the list.
    `absence_counts`: False where pods that serve may be missing.
    """

    at: float
    instances: tuple[Instance, ...] = ()
    partial: bool = False
    index: int | None = None
    protected: bool = False
    alive: bool = False
    absence_counts: bool = True


@dataclass(frozen=True, slots=True)
class LastAnswer:
    """Time and number of instances of the last valid answer about a service.

    `full_at`: the time of the last answer with instances. `full_since`: since when every answer has some; None where
    the last one is empty.
    """

    at: float
    count: int
    full_at: float | None = None
    full_since: float | None = None

    def then(self, at: float, count: int) -> "LastAnswer":
        """The same after the next valid answer."""
        if not count:
            return LastAnswer(at, 0, self.full_at)
        return LastAnswer(at, count, at, at if self.full_since is None else self.full_since)


_NEVER_ANSWERED = LastAnswer(0.0, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerHistory:
    """The answers of one registry about its services, immutable: every method returns the next history.

    `followed` services, their `last_valid` answers, the `indexes` (revisions) of their last answers, and
    `reconnected_at`: the last observed reconnect or restart. `unfollowed`: the instances of all services that are no
    longer followed, as they were last.
    """

    followed: frozenset[ServiceKey] = frozenset()
    last_valid: Mapping[ServiceKey, LastAnswer] = field(default_factory=dict)
    indexes: Mapping[ServiceKey, int] = field(default_factory=dict)
    reconnected_at: float | None = None
    unfollowed: int = 0

    @property
    def total(self) -> int | None:
        """Instances of all followed services that have answered, for one may never answer; None before the first."""
        if not self.last_valid:
            return None
        return sum(last.count for last in self.last_valid.values())

    def follow(self, keys: Iterable[ServiceKey]) -> "AnswerHistory":
        """Follow exactly these services; forget the others."""
        followed = frozenset(keys)
        return replace(
            self,
            followed=followed,
            last_valid={key: last for key, last in self.last_valid.items() if key in followed},
            indexes={key: index for key, index in self.indexes.items() if key in followed},
            unfollowed=self.unfollowed
            + sum(last.count for key, last in self.last_valid.items() if key not in followed),
        )

    def reconnected(self, at: float) -> "AnswerHistory":
        """Note a new connection, or an observed restart."""
        return replace(self, reconnected_at=at)  # not the latest: a clock may be put back

    def admit(self, key: ServiceKey, answer: RegistryAnswer) -> tuple["AnswerHistory", Roster]:
        """Turn an answer into a roster; an untrusted one becomes an invalid roster with the reason.

        An index that decreased shows that the registry was restarted or restored: that answer is not valid, and the
        next one is compared with it.
        """
        before, history, fault = self.indexes.get(key), self, ""
        if answer.index is not None:
            history = replace(self, indexes={**self.indexes, key: answer.index})
            if before is not None and answer.index < before:
                history = history.reconnected(answer.at)
                fault = f"the registry's index went back from {before} to {answer.index}: it was restarted or restored"
        if answer.partial:
            fault = "the answer is incomplete"
        if not fault:
            last = history.last_valid.get(key, _NEVER_ANSWERED).then(answer.at, len(answer.instances))
            history = replace(history, last_valid={**history.last_valid, key: last})
        return history, history.roster(key, answer, fault)

    def confirm(self, keys: Iterable[ServiceKey], at: float) -> "AnswerHistory":
        """Note that the last answers about these services still hold: the connection that reports changes is alive."""
        confirmed = {
            key: self.last_valid[key].then(at, self.last_valid[key].count) for key in keys if key in self.last_valid
        }
        return replace(self, last_valid={**self.last_valid, **confirmed})

    def is_alive(self, key: ServiceKey, answer: RegistryAnswer) -> bool:
        """Whether there is evidence that an empty answer about a service is no loss of data.

        Evidence is the source's own sign of life, or another service that had instances a moment before or after.
        After a reconnect neither proves that registrations survived: only a service that never was empty does.
        """
        lost = self.reconnected_at
        full_at = self.last_valid[key].full_at if key in self.last_valid else None
        if lost is None or (full_at is not None and full_at > lost):
            return answer.alive or next(self._full_beside(key, answer.at), None) is not None
        return any(since <= lost for since in self._full_beside(key, answer.at))

    def _full_beside(self, key: ServiceKey, at: float) -> Iterator[float]:
        """Since when each other service with instances around that time has had some."""
        for other, last in self.last_valid.items():
            if other != key and last.full_since is not None and abs(at - last.at) <= EVIDENCE_SECONDS:
                yield last.full_since

    def roster(self, key: ServiceKey, answer: RegistryAnswer, fault: str = "") -> Roster:
        """The roster of an answer; an invalid one without instances where it has a fault."""
        return Roster(
            at=answer.at,
            valid=not fault,
            protected=answer.protected,
            error=fault or None,
            absence_counts=answer.absence_counts,
            instances=() if fault else answer.instances,
        )
