"""What the companion remembers of a policy to tell people: how its count went, and what was told already."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from adapter.settings.notifications import Severity, Topic


class DesiredCount(NamedTuple):
    """A count that the policy asked for while another one was set, and what that rested on."""

    replicas: int
    why: str


class Scaling(NamedTuple):
    """A scaling that was seen: when (seconds), from and to which count, why, and by whom.

    `why` and `by` are empty where they are not known. `number` counts a policy's steps.
    """

    number: int
    at: float
    before: int
    after: int
    why: str
    by: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaHistory:
    """How the count of a target (a UID) went while this process led.

    `replicas` is the count that is known to all, `moved_at` when it was first seen to be another. `asked` is what the
    policy last asked for while the count was that. `credited`: the HPA's last scaling that a step was put down to.
    """

    target: str = ""
    replicas: int | None = None
    asked: DesiredCount | None = None
    moved_at: float | None = None
    credited: float | None = None
    last: Scaling | None = None


class SeriesKey(NamedTuple):
    """What an Event says, but for its words: Events that agree in it are one series."""

    reason: str
    about: str
    warning: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class EventSeries:
    """An Event and its repetitions: first and last (seconds), how many there were, and how many of them are written."""

    name: str
    note: str
    action: str
    first: float
    last: float
    count: int = 1
    written: int = 0
    written_at: float = 0.0


class ConditionState(NamedTuple):
    """A condition as people know it."""

    is_true: bool
    reason: str


class PendingChange(NamedTuple):
    """What a condition seems to have become (None: it is shown no more), and since when (seconds)."""

    shown: ConditionState | None
    since: float


@dataclass(frozen=True, slots=True, kw_only=True)
class EventState:
    """What Events have told. `step` is the number of the last scaling among them.

    `conditions` are those that people know of, None before the first look; `turning` those that seem to have changed.
    `begun` are the times of the series begun within the last hour, `unsaid` how many were left out since.
    """

    step: int = 0
    conditions: Mapping[str, ConditionState] | None = None
    turning: Mapping[str, PendingChange] = field(default_factory=dict)
    series: Mapping[SeriesKey, EventSeries] = field(default_factory=dict)
    begun: tuple[float, ...] = ()
    unsaid: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Notification:
    """Something people are to be told, once. `severity_in_production` is set where it matters more there.

    `number` counts a policy's notices, `at` is in seconds, `fields` are for templates.
    """

    number: int
    topic: Topic
    severity: Severity
    severity_in_production: Severity | None = None
    at: float
    target: str
    text: str
    fields: Mapping[str, str] = field(default_factory=dict)


class TroubleState(NamedTuple):
    """Something that people are told when it comes: whether they were, and since when it has been otherwise."""

    told: bool = False
    since: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NotificationState:
    """What notifications have told: the last scaling, what stands (None before the first look), and what is due."""

    step: int = 0
    standing: Mapping[Topic, TroubleState] | None = None
    due: tuple[Notification, ...] = ()
    number: int = 0
