"""What `assess` and `decide` answer: data only, each number with its reason."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from fractions import Fraction

from adapter.load.memory import Memory
from adapter.load.pods import Pod, PodState
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
    MODE = "Mode"
    BOUNDS = "Bounds"


@dataclass(frozen=True, slots=True, kw_only=True)
class PodReading:
    """A pod, its state, and what it was seen to use: metric name → nano-units, only where a fresh sample exists.

    `evidence` says what the state rests on, `missing` why a metric has no sample of this pod.
    """

    pod: Pod
    state: PodState
    reason: str
    evidence: str = ""
    usage: Mapping[str, int] = field(default_factory=dict)
    missing: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """One way to see the doubtful pods: the `inside` most loaded of them in, the others out (decision by `verdict`).

    `needed` is the count the strategy asks for, before what is added for pods that are out; `counted` the pods that are
    in, `out` the pods that are not, `replaceable` those of them that may be replaced on the way up, `reserved` the pods
    (starting ones, young doubt) that already stand in for somebody. `held` is the stage that turned an act into a hold.
    """

    inside: int
    verdict: Verdict
    usage: Fraction | None = None
    counted: int = 0
    out: int = 0
    needed: int | None = None
    replaceable: int = 0
    reserved: int = 0
    held: HeldBy | None = None
    sentence: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricAssessment:
    """One metric: usage of the pods that surely serve (nano-units, exact), all readings, or the error.

    `raw` is what an average over all running pods would say. `n` counts serving pods with a sample, `missing` those
    without. `sampled_at` is the oldest sample that counted, `window` its window in seconds. `values_trusted` is False
    where only doubtful pods were seen.
    """

    name: str
    n: int = 0
    missing: int = 0
    usage: Fraction | None = None
    raw: Fraction | None = None
    high: Fraction | None = None
    low: Fraction | None = None
    total: bool = False
    readings: tuple[Reading, ...] = ()
    sampled_at: float | None = None
    window: float | None = None
    error: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Assessment:
    """Everything about a policy that does not hang on the live replica count. Immutable; `decide` finishes it.

    `error` is set where no metric matters (no pods, no policy target); `conditions` are findings by name with their
    sentence, for status and metrics.
    """

    policy: Policy
    at: float
    pods: tuple[PodReading, ...] = ()
    counts: Mapping[PodState, int] = field(default_factory=dict)
    metrics: tuple[MetricAssessment, ...] = ()
    error: str | None = None
    sentences: tuple[str, ...] = ()
    conditions: Mapping[str, str] = field(default_factory=dict)
    memory: Memory = field(default_factory=Memory)

    @property
    def sampled_at(self) -> float | None:
        """The oldest sample behind any metric (seconds), None where there is none."""
        return min((m.sampled_at for m in self.metrics if m.sampled_at is not None), default=None)

    def metric(self, name: str) -> MetricAssessment | None:
        """The metric of that name."""
        return next((m for m in self.metrics if m.name == name), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """The count the policy asks for now.

    `desired` and `served` (milli-units, shaped for the HPA) are None on error. `verdict` is that of the winning
    reading, before the recount.
    """

    desired: int | None
    served: int | None
    error: str | None
    verdict: Verdict
    held_by: HeldBy | None
    current: int
    metric: str = ""
    proposals: Mapping[str, int] = field(default_factory=dict)
    replaced: int = 0
    explanation: tuple[str, ...] = ()
