"""What the companion remembers of one policy, a part for each feature, and the input that every plan gets."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from adapter.load.assessment import Decision
from adapter.policy.behavior import ReplicaChange
from adapter.policy.conditions import ConditionType, Reason
from adapter.policy.hpa import Hpa
from adapter.policy.linking import Neighbours
from adapter.settings import CompanionSettings
from adapter.settings.companion import Severity, Topic
from adapter.snapshot import Key, PolicyView


class DesiredCount(NamedTuple):
    """A count that the policy asked for while another one was set, and the reason it gave."""

    replicas: int
    why: str


class Scaling(NamedTuple):
    """An observed scaling: when (seconds), from and to which count, why, and by whom.

    `why` and `by` are empty where they are not known. `number` counts a policy's scalings.
    """

    number: int
    at: float
    before: int
    after: int
    why: str
    by: str

    def __str__(self) -> str:
        by, why = f" by {self.by}" if self.by else "", f": {self.why}" if self.why else ""
        return f"from {self.before} to {self.after}{by}{why}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaHistory:
    """The replica count of a target (a UID, empty before the first observation). Times are in seconds.

    Every replica of the companion observes: since when, `scaled_before` (when the HPA had last scaled the target by
    then, None for never), the current count `replicas`, and its rises of the last half hour, whoever made them.

    The leader attributes: `reported` is the count up to which it has (None before the first look), `pending` the
    scaling from there whose author or reason is still looked for, `desired` what the policy last asked for before that,
    `credited` the HPA's last scaling that was attributed to it, and `last` the last scaling.
    """

    target: str = ""
    since: float = 0.0
    scaled_before: float | None = None
    replicas: int = 0
    rises: tuple[ReplicaChange, ...] = ()
    reported: int | None = None
    pending: Scaling | None = None
    desired: DesiredCount | None = None
    credited: float | None = None
    last: Scaling | None = None


# --- status


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenStatus:
    """The status that was written last, by this process or as it was read; `at` is when (seconds)."""

    status: Mapping[str, Any] = field(default_factory=dict)
    at: float | None = None

    @property
    def conditions(self) -> Mapping[str, Mapping[str, Any]]:
        """Its conditions by type."""
        return {condition["type"]: condition for condition in self.status.get("conditions", ())}


# --- fast scale-up


@dataclass(frozen=True, slots=True, kw_only=True)
class LastRaise:
    """When this process last tried to raise the count (seconds), and to what; `refused`: it lacked the right."""

    at: float | None = None
    to: int | None = None
    refused: bool = False


# --- deletion cost


class PodMark(NamedTuple):
    """What was last tried with a pod, that it is deleted `first` or no longer so, and when (seconds).

    `foreign`: its cost proved to be set by another client.
    """

    first: bool
    at: float
    foreign: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Marking:
    """The pods (by UID) that were written to of late. `refused`: the right to mark pods was missing."""

    pods: Mapping[str, PodMark] = field(default_factory=dict)
    refused: bool = False


# --- HPA configuration


@dataclass(frozen=True, slots=True, kw_only=True)
class LastWiring:
    """What was last set of an HPA's behavior, over which version of it, when (seconds), and how often in a row.

    `refused`: the right was missing when that was last tried.
    """

    behavior: Mapping[str, Any] = field(default_factory=dict)
    version: str = ""
    at: float | None = None
    times: int = 0
    refused: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ToleranceField:
    """Whether the cluster's HPAs have the field `tolerance` (None: not known), and when it was asked (seconds)."""

    known: bool | None = None
    asked_at: float | None = None


# --- Events


class Event(NamedTuple):
    """An Event: its reason, the type of condition that it is about (empty: a scaling), and when it became due."""

    name: str
    reason: str
    about: str
    warning: bool
    action: str
    note: str
    at: float


class ConditionState(NamedTuple):
    """A condition as the last Event, or the status, has it."""

    is_true: bool
    reason: str


class PendingChange(NamedTuple):
    """What a condition seems to have become (None: it is no longer shown), and since when (seconds)."""

    state: ConditionState | None
    since: float


@dataclass(frozen=True, slots=True, kw_only=True)
class EventState:
    """What Events have said. `scaling` is the number of the last scaling among them.

    `conditions` are those that are known to readers (None before the first look), `pending` those that seem to have
    changed. `due` are the Events that are not written yet, `lately` those of the last hour; `dropped` counts those
    that the hourly limit has left out since.
    """

    scaling: int = 0
    conditions: Mapping[str, ConditionState] | None = None
    pending: Mapping[str, PendingChange] = field(default_factory=dict)
    due: tuple[Event, ...] = ()
    lately: tuple[Event, ...] = ()
    dropped: int = 0


# --- notifications


@dataclass(frozen=True, slots=True, kw_only=True)
class Notification:
    """A notification, before it is written out for a route. `severity_in_production` is set where it is higher there.

    `at` is in seconds, `fields` are for templates.
    """

    topic: Topic
    severity: Severity
    severity_in_production: Severity | None = None
    at: float
    target: str
    text: str
    fields: Mapping[str, str] = field(default_factory=dict)


class TroubleState(NamedTuple):
    """Whether a trouble was notified, and since when (seconds) it has been otherwise; None: it has not."""

    notified: bool = False
    since: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NotificationState:
    """What notifications have said: the last scaling's number, the troubles (None before the first look).

    `due` are those that were not handed to the notifier yet.
    """

    scaling: int = 0
    troubles: Mapping[Topic, TroubleState] | None = None
    due: tuple[Notification, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """What the companion remembers of one policy."""

    history: ReplicaHistory = field(default_factory=ReplicaHistory)
    written: WrittenStatus = field(default_factory=WrittenStatus)
    raised: LastRaise = field(default_factory=LastRaise)
    marking: Marking = field(default_factory=Marking)
    wired: LastWiring = field(default_factory=LastWiring)
    events: EventState = field(default_factory=EventState)
    notifications: NotificationState = field(default_factory=NotificationState)


class PolicyCondition(NamedTuple):
    """A condition of a policy at this moment."""

    type: ConditionType
    is_true: bool
    reason: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """One policy at one moment (seconds). `decision` is made with the watched scale; None without an assessment.

    `conditions` are those of all features, by type.
    """

    key: Key
    now: float
    view: PolicyView
    decision: Decision | None
    hpa: Hpa | None
    settings: CompanionSettings
    state: State
    neighbours: Neighbours = field(default_factory=Neighbours)
    tolerance_field: ToleranceField = field(default_factory=ToleranceField)
    conditions: Mapping[str, PolicyCondition] = field(default_factory=dict)

    @property
    def silent(self) -> bool:
        """Whether a watch that the policy needs shows no sign of life: the status says so, and nothing else is done."""
        return self.view.problem is not None and self.view.problem.reason is Reason.WATCH_SILENT
