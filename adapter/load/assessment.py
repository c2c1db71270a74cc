"""What `assess` and `decide` answer: data only, each number with its reason."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from fractions import Fraction
from types import MappingProxyType
from typing import Any, NamedTuple

from adapter.load.conditions import ConditionType
from adapter.load.memory import Memory
from adapter.load.pods import Pod, PodState
from adapter.load.schedule import Window
from adapter.load.spec import Policy


class Verdict(StrEnum):
    """Where usage stands against the watermarks."""

    ABOVE = "Above"
    INSIDE = "Inside"
    BELOW = "Below"
    ERROR = "Error"


class HeldBy(StrEnum):
    """The last stage that changed the count."""

    DOUBT = "Doubt"
    MISSING = "Missing"
    MIN_SERVING = "MinServing"
    METRIC_ERROR = "MetricError"
    DEPARTED = "Departed"
    SCHEDULE = "Schedule"
    VELOCITY = "Velocity"
    COOLDOWN = "Cooldown"
    MODE = "Mode"
    BOUNDS = "Bounds"
    HPA_TOLERANCE = "HPATolerance"
    FAST_SCALE_UP = "FastScaleUp"


_NOTHING: Mapping[str, Any] = MappingProxyType({})


class PodAssessment(NamedTuple):
    """A pod, its state, and what it was seen to use: metric name → nano-units, only where a fresh sample exists.

    `evidence` says what the state rests on, `missing` why a metric has no sample of this pod. `guarded`: the evidence
    says out, and a guard keeps the pod doubtful, since believing it would take out too many pods.
    """

    pod: Pod
    state: PodState
    reason: str
    evidence: str = ""
    usage: Mapping[str, int] = _NOTHING
    missing: Mapping[str, str] = _NOTHING
    guarded: bool = False


class Scenario(NamedTuple):
    """One way to see the doubtful pods of one metric: the `inside` most loaded of them in, the others out.

    `usage` is what was compared (nano-units); None where nothing could be, and `verdict` is Error: such a reading
    proposes the current count. `n` pods are in with a sample, `missing` in without one; `young` ones may serve soon,
    `departed` ones left with load that the samples do not know of. `needed` is the count of
    serving pods that the strategy asks for (None: hold; `held` says which stage turned an act into a hold).
    `replaceable` pods may be replaced on the way up, `reserved` ones (starting, young doubt) already stand in for
    somebody, `out` are kept in the count on the way down. `drift`: a step inside the band, and `edge` the count of
    serving pods that it may lead to at most (or at least, downward). `zero`: no pod is needed.
    """

    inside: int
    verdict: Verdict
    usage: Fraction | None = None
    n: int = 0
    missing: int = 0
    young: int = 0
    departed: int = 0
    needed: int | None = None
    held: HeldBy | None = None
    replaceable: int = 0
    reserved: int = 0
    out: int = 0
    drift: int = 0
    edge: int | None = None
    zero: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricAssessment:
    """One metric in every reading that may win, the one with every doubtful pod in last; or the error (a sentence).

    `usage` is the effective average (or total) with the doubtful pods in, `raw` what an average over all running pods
    would say (nano-units, exact). `n` and `missing` count the pods behind `usage`. `sampled_at` is the oldest sample
    that counted, `window` its window in seconds, `stale_at` until when all samples count. `total`: the source gives one
    number for the service, or may: it never answered. `total_value` is that number.
    """

    name: str
    high: Fraction | None = None
    low: Fraction | None = None
    n: int = 0
    missing: int = 0
    usage: Fraction | None = None
    raw: Fraction | None = None
    total: bool = False
    total_value: int | None = None
    readings: tuple[Scenario, ...] = ()
    sampled_at: float | None = None
    stale_at: float | None = None
    window: float | None = None
    error: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Assessment:
    """Everything about a policy that does not hang on the live replica count. Immutable; `decide` finishes it.

    `target` names the scale target for sentences. `may_shrink` is False where too few pods serve
    (`minServingPercent`). `windows` are the schedules' times, now and next. `conditions` are what a user should
    know of it, each a sentence; a condition without trouble is absent.
    """

    policy: Policy
    target: str
    at: float
    pods: Sequence[PodAssessment] = ()
    counts: Mapping[PodState, int] = field(default_factory=dict)
    metrics: tuple[MetricAssessment, ...] = ()
    may_shrink: bool = True
    windows: tuple[Window, ...] = ()
    conditions: Mapping[ConditionType, str] = field(default_factory=dict)
    memory: Memory = field(default_factory=Memory)

    @property
    def stale_at(self) -> float | None:
        """Until when (seconds) every sample behind the metrics counts, None where there is none."""
        return min((m.stale_at for m in self.metrics if m.stale_at is not None), default=None)

    @property
    def sampled_at(self) -> float | None:
        """The oldest sample behind any metric (seconds), None where there is none."""
        return min((m.sampled_at for m in self.metrics if m.sampled_at is not None), default=None)

    def metric(self, name: str) -> MetricAssessment | None:
        """The metric of that name."""
        return next((m for m in self.metrics if m.name == name), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What one metric proposes: the winning reading, the count it proposes, and how many of it replace others."""

    metric: MetricAssessment
    reading: Scenario
    proposal: int
    replaced: int = 0
    held_by: HeldBy | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """The count the policy asks for now.

    `desired` and `served` (milli-units, shaped for the HPA) are None on error. `verdict` is that of the winning
    reading, before the recount; `outcome` the winning metric's, `outcomes` those of all metrics without error.
    `swallowed`: by how much the count would be more (or, negative, less) if the HPA's own tolerance let it be set.
    """

    desired: int | None
    served: int | None
    error: str | None
    verdict: Verdict
    held_by: HeldBy | None
    current: int
    outcome: Outcome | None = None
    outcomes: tuple[Outcome, ...] = ()
    swallowed: int = 0
