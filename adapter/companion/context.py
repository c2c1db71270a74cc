"""All that the plan for one policy is made from."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from adapter.companion.replica_observer import Watched
from adapter.companion.state import Announced, Noticed, ReplicaHistory
from adapter.load.assessment import Decision
from adapter.policy.hpa import Hpa
from adapter.policy.linking import Neighbours
from adapter.settings import CompanionSettings
from adapter.snapshot import WATCH_SILENT, Key, PolicyView


class PolicyCondition(NamedTuple):
    """A condition as it stands now."""

    type: str
    is_true: bool
    reason: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """The status that was written last, by this process or as it was found; `at` is when (seconds)."""

    status: Mapping[str, Any] = field(default_factory=dict)
    at: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Raised:
    """When this process last tried to raise the count (seconds), to what, and whether the right for it lacked."""

    at: float | None = None
    to: int | None = None
    refused: bool = False


class Marked(NamedTuple):
    """What was last written to a pod, that it goes `first` or no longer does, and when (seconds)."""

    first: bool
    at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Marking:
    """Pods (by UID) that were written to, and those whose deletion cost proved to be somebody else's, with when.

    `refused`: whether the right for marking pods lacked.
    """

    done: Mapping[str, Marked] = field(default_factory=dict)
    foreign: Mapping[str, float] = field(default_factory=dict)
    refused: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Wired:
    """What was last set of an HPA's behavior, over which version of it, when (seconds), and how often in a row.

    `missed_at`: when that was last tried in vain, `refused` because the right for it lacked.
    """

    behavior: Mapping[str, Any] = field(default_factory=dict)
    version: str = ""
    at: float | None = None
    times: int = 0
    missed_at: float | None = None
    refused: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ToleranceField:
    """Whether the cluster's HPAs have the field `tolerance` (None: not known), and when it was asked (seconds)."""

    known: bool | None = None
    asked_at: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """What the companion remembers of one policy from plan to plan: each feature has a part of its own."""

    written: Written = Written()
    raised: Raised = Raised()
    marking: Marking = field(default_factory=Marking)
    wired: Wired = field(default_factory=Wired)
    course: ReplicaHistory = field(default_factory=ReplicaHistory)
    announced: Announced = field(default_factory=Announced)
    noticed: Noticed = field(default_factory=Noticed)


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """A policy as it stands: `decision` is by the watched scale, None where there is no assessment.

    `watched` is the count's course. `leads_since`: since when this process may act (seconds).
    """

    key: Key
    now: float
    view: PolicyView
    decision: Decision | None
    hpa: Hpa | None
    settings: CompanionSettings
    past: State
    watched: Watched | None = None
    leads_since: float = 0.0
    neighbours: Neighbours = field(default_factory=Neighbours)
    tolerance_field: ToleranceField = ToleranceField()

    @property
    def silent(self) -> bool:
        """Whether a watch that the policy needs is not to be believed: this is told, and nothing is done on it."""
        return self.view.problem is not None and self.view.problem.reason == WATCH_SILENT
