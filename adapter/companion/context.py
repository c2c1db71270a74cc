"""The input of every plan: one policy at one moment."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from adapter.companion.state import State, ToleranceField
from adapter.load.assessment import Decision
from adapter.load.conditions import ConditionType, Reason
from adapter.policy.hpa import Hpa
from adapter.policy.linking import Neighbours
from adapter.settings import CompanionSettings
from adapter.snapshot import Key, PolicyView


class PolicyCondition(NamedTuple):
    """A condition of a policy at this moment."""

    type: ConditionType
    is_true: bool
    reason: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """One policy at one moment (seconds). `decision` is made with the watched scale; None without an assessment.

    `conditions` are those of all features, by type. `leads_since` is when this process became the leader (seconds).
    """

    key: Key
    now: float
    view: PolicyView
    decision: Decision | None
    hpa: Hpa | None
    settings: CompanionSettings
    state: State
    leads_since: float = 0.0
    neighbours: Neighbours = field(default_factory=Neighbours)
    tolerance_field: ToleranceField = field(default_factory=ToleranceField)
    conditions: Mapping[str, PolicyCondition] = field(default_factory=dict)

    @property
    def silent(self) -> bool:
        """Whether a watch that the policy needs shows no sign of life: the status says so, and nothing else is done."""
        return self.view.problem is not None and self.view.problem.reason is Reason.WATCH_SILENT
