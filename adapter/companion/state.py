"""What every plan gets (one policy at one moment, and what the companion remembers of it) and yields: writes."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, NamedTuple, TypeVar, cast

from adapter.kube.api import APPLY_PATCH
from adapter.load.assessment import Decision
from adapter.policy.conditions import ConditionType, Reason
from adapter.policy.hpa import Hpa
from adapter.policy.linking import Neighbours
from adapter.settings import CompanionSettings
from adapter.snapshot import Key, PolicyView

P = TypeVar("P")

BY_SCALE = "/scale"  # ends the name of a manager that set the scale as controllers of HPAs do, whatever their names
REMEMBERED_SECONDS = 3600.0
"""How long a write is remembered; the longest time in which the same is not written again."""


@dataclass(frozen=True, slots=True)
class State:
    """What the companion remembers of one policy: a part for each of its subjects, by its type, and its last writes.

    `attempts` are those of the last hour, the last one of each kind and path.
    """

    parts: Mapping[type, object] = field(default_factory=dict)
    attempts: Mapping[tuple[str, str], "Attempt"] = field(default_factory=dict)

    def of(self, kind: type[P]) -> P:
        """The part of this type; a new one if there is none."""
        return cast("P", self.parts.get(kind)) or kind()

    def having(self, *parts: object) -> "State":
        """The state with these parts in place of those of their types."""
        return State({**self.parts, **{type(part): part for part in parts}}, self.attempts)

    def tried(self, write: "Write", result: "ActionResult", now: float) -> "State":
        """The state once a write was tried at this time (seconds)."""
        kept = {place: one for place, one in self.attempts.items() if now - one.at < REMEMBERED_SECONDS}
        attempts = kept | {(write.kind, write.path): Attempt(write.body, result, now)}
        return write.after(State(self.parts, attempts), result)

    def is_refused(self, kind: str) -> bool:
        """Whether the right for writes of this kind was missing when one was last tried."""
        last = max((one for (of, _), one in self.attempts.items() if of == kind), key=lambda one: one.at, default=None)
        return last is not None and last.result is ActionResult.REFUSED


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenStatus:
    """The status that was written last, by this process or as it was read; `at` is the time in one that was read (s).

    `is_read`: it was read in this term as leader, and was not found to be another one since.
    """

    status: Mapping[str, Any] = field(default_factory=dict)
    at: float | None = None
    is_read: bool = False

    @property
    def conditions(self) -> Mapping[str, Mapping[str, Any]]:
        """Its conditions by type."""
        return {condition["type"]: condition for condition in self.status.get("conditions", ())}


class Condition(NamedTuple):
    """A condition of a policy at this moment, of whatever type."""

    is_true: bool
    reason: Reason | ConditionType
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """One policy at one moment (seconds). `decision` is made with the watched scale; None without an assessment.

    `conditions` are by type. `has_tolerance`: whether the HPAs of this cluster have the field `tolerance`. `manager`:
    the field manager that set the current count (as `read_manager`), read while the count is new.
    """

    key: Key
    now: float
    view: PolicyView
    decision: Decision | None
    hpa: Hpa | None
    settings: CompanionSettings
    state: State
    neighbours: Neighbours = field(default_factory=Neighbours)
    has_tolerance: bool = False
    manager: str = ""
    conditions: Mapping[str, Condition] = field(default_factory=dict)

    @property
    def silent(self) -> bool:
        """Whether a watch that the policy needs shows no sign of life: the status says so, and nothing else is done."""
        return self.view.problem is not None and self.view.problem.reason == "WatchSilent"

    @property
    def problem_text(self) -> str:
        """Why the policy has no decision."""
        return self.view.problem.message if self.view.problem is not None else "it has not been assessed yet"

    @property
    def written(self) -> WrittenStatus:
        """The status that was written last."""
        return self.state.of(WrittenStatus)


class ActionResult(StrEnum):
    """How a write ended.

    `OVERTAKEN`: the object has changed since the write was planned, so nothing was written. `REFUSED`: the right is
    missing.
    """

    DONE = "done"
    OVERTAKEN = "overtaken"
    REFUSED = "refused"
    FAILED = "failed"


class Attempt(NamedTuple):
    """A write that was tried: its body, how it ended, and when (seconds)."""

    body: Any
    result: ActionResult
    at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Write:
    """A request to the API server. `kind` names it in logs and metrics; one that failed delays those of its kind.

    An apply is not forced: a field of another manager is a conflict. `after` is the state once it ended so.
    """

    key: Key
    kind: str
    path: str
    body: Any
    after: Callable[[State, ActionResult], State] = lambda state, _: state
    method: str = "PATCH"
    content_type: str = APPLY_PATCH


def fenced(tests: Mapping[str, Any], path: str, value: Any) -> list[dict[str, Any]]:
    """The body of a JSON patch that sets this path only if each of the tests, by path, holds."""
    checks = ({"op": "test", "path": place, "value": expected} for place, expected in tests.items())
    return [*checks, {"op": "add", "path": path, "value": value}]
