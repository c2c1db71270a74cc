"""What `assess` takes, and what `assess` and `decide` return: data only, each number with its reason."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from fractions import Fraction
from typing import Literal, NamedTuple

from adapter.load.memory import Memory
from adapter.load.pod_samples import PodSample, Total
from adapter.load.pods import Pod, PodAssessment, PodState
from adapter.load.roster import Roster
from adapter.load.samples import Samples
from adapter.load.schedule import Window
from adapter.load.spec import Bounds, Metric, Policy, Scale, Target


class Verdict(StrEnum):
    """Where usage stands against the watermarks."""

    ABOVE = "Above"
    INSIDE = "Inside"
    BELOW = "Below"
    ERROR = "Error"


class HeldBy(StrEnum):
    """The last stage of the decision that changed the count."""

    DOUBT = "Doubt"
    MISSING = "Missing"
    DEPARTED = "Departed"
    WARMING_UP = "WarmingUp"
    WINDOWS = "Windows"
    MIN_SERVING = "MinServing"
    METRIC_ERROR = "MetricError"
    DELAY = "Delay"
    SCHEDULE = "Schedule"
    VELOCITY = "Velocity"
    COOLDOWN = "Cooldown"
    MODE = "Mode"
    BOUNDS = "Bounds"
    HPA_TOLERANCE = "HPATolerance"


@dataclass(frozen=True, slots=True, kw_only=True)
class AssessmentInputs:
    """Everything that `assess` takes. `now` is the API server's time (seconds since the epoch).

    `pods` are those of the target: it owns them (`policy.linking`) and its scale's selector matches. `roster` is the
    registry's latest answer, None where the policy names no registry or none has answered yet. `scale` is the watched
    one and only updates the memory; `decide` takes the live one. `memory` is that of the previous assessment.
    """

    policy: Policy
    pods: Sequence[Pod] = ()
    samples: Samples = field(default_factory=Samples)
    roster: Roster | None = None
    scale: Scale
    bounds: Bounds
    target: Target | None = None
    memory: Memory = field(default_factory=Memory)
    now: float


class Reading(NamedTuple):
    """One reading of the lower bound: what `pods` need that show `usage` on average (nano-units; None: no sample).

    `needed` serving pods carry the load at the high watermark; None where usage is not above it. Besides, up to
    `replaceable` pods are replaced, as far as there is room in the count. `saturation`: the usage as a share of the
    pods' CPU limits, where throttling hides more of it. `extreme`: the usage of the one pod that is beyond the limit of
    strategy Step (nano-units).
    """

    pods: int
    usage: Fraction | None
    needed: int | None = None
    replaceable: int = 0
    saturation: Fraction | None = None
    extreme: Fraction | None = None


class Upper(NamedTuple):
    """The upper bound of one metric: the count that the possible load justifies (None: no limit), as `bound`.

    `known` is what the known load alone justifies (None: it is not below the band), and `cause` the larger part of what
    is possible besides. `hold` keeps the count on the way down whatever the bound. `idle`: the service has no load, and
    needs only the pods of this number that may be out. Strategy Step may take away `spare` serving pods instead.
    """

    known: int | None = None
    bound: int | None = None
    cause: HeldBy | None = None
    hold: HeldBy | None = None
    idle: int | None = None
    spare: int | None = None


class MetricAssessment(NamedTuple):
    """One metric: its usage and the range of counts that its load allows; or its error (a sentence).

    `high` and `low` are the watermarks, or how far usage may go from the target (nano-units). `usage` is the effective
    average (or total) of the `n` pods with a sample, the doubtful ones among them; `raw` that of all running pods
    (nano-units, exact). `missing` pods lack a sample; `samples` has each pod's, with the reason. `total`: the source
    gives one number for the service; without a value it has no fresh one. `lower` are the readings of the lower bound,
    `upper` is the upper bound; inside the band a step toward `drift` is allowed. `is_delayed`: the delay of the way up
    still runs. `lost`: how many scrape targets fewer than in the last hour its values are of. The oldest sample that
    counts is of `sampled_at`; the oldest window began at `began_at`, less one poll, and is `window` seconds long; after
    `stale_at` the first sample no longer counts.
    """

    metric: Metric
    high: Fraction | None = None
    low: Fraction | None = None
    n: int = 0
    missing: int = 0
    usage: Fraction | None = None
    raw: Fraction | None = None
    total: Total | None = None
    verdict: Verdict = Verdict.ERROR
    lower: tuple[Reading, ...] = ()
    upper: Upper = Upper()
    drift: Literal["High", "Low"] | None = None
    is_delayed: bool = False
    lost: int = 0
    sampled_at: float | None = None
    began_at: float | None = None
    stale_at: float | None = None
    window: float | None = None
    error: str | None = None
    samples: Sequence[PodSample] = ()

    @property
    def name(self) -> str:
        """The name of the metric in the policy."""
        return self.metric.name

    @property
    def floor(self) -> bool:
        """Whether the metric only keeps the count from falling."""
        return self.metric.floor

    @property
    def is_partial(self) -> bool:
        """Whether windows lack samples, so that pods may have used more than they show."""
        is_partial = self.total is not None and self.total.bound != self.total.value
        return is_partial or any(sample.bound != sample.usage for sample in self.samples)

    @property
    def is_ignored_zero(self) -> bool:
        """Whether the usage is exactly 0, which the policy does not accept: it holds the count."""
        return self.error is None and self.usage == 0 and not self.lower and not self.floor


@dataclass(frozen=True, slots=True, kw_only=True)
class Assessment:
    """Everything about a policy that does not depend on the live replica count; `decide` adds that. Immutable.

    `target` names the scale target for sentences. `young` pods may serve soon. `windows` are the current and the next
    window of each schedule. `conditions`: sentences by type (`policy.conditions`). `memory` is for the next assessment.
    """

    policy: Policy
    target: str
    at: float
    pods: Sequence[PodAssessment] = ()
    counts: Mapping[PodState, int] = field(default_factory=dict)
    young: int = 0
    metrics: tuple[MetricAssessment, ...] = ()
    windows: tuple[Window, ...] = ()
    conditions: Mapping[str, str] = field(default_factory=dict)
    memory: Memory = field(default_factory=Memory)

    @property
    def stale_at(self) -> float | None:
        """When the first sample behind the metrics stops counting (seconds); None without samples."""
        return min((m.stale_at for m in self.metrics if m.stale_at is not None), default=None)

    @property
    def sampled_at(self) -> float | None:
        """The time of the oldest sample behind the metrics but floors (seconds); None without samples."""
        return min((m.sampled_at for m in self.metrics if m.sampled_at is not None and not m.floor), default=None)


class Limited(NamedTuple):
    """A count, and the last stage that changed it."""

    desired: int
    held_by: HeldBy | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What one metric proposes at the current count: its range of counts, and the count nearest to the current one.

    `lower_bound` and `upper_bound` are None where the load sets none. `reading` is the one that the lower bound is of,
    `replaced` pods of it replace others. `held_by`: what kept the count from moving further.
    """

    metric: MetricAssessment
    proposal: int
    verdict: Verdict
    lower_bound: int | None = None
    upper_bound: int | None = None
    reading: Reading | None = None
    replaced: int = 0
    held_by: HeldBy | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """The count that the policy asks for now.

    `desired` and `served` (the metric value in milli-units, `decide.served_value`) are None on error. The count
    moves only as far as it must to be between `lower_bound` and `upper_bound` (None: no such bound); what follows the
    metrics (schedules, velocity, cooldown, the HPA's bounds) may move it again. `verdict` is that of the winning
    metric, whose `outcome` it is; `outcomes` has those of all metrics with an answer. `suppressed`: the step that
    the HPA's own tolerance suppresses (negative: downward).
    """

    desired: int | None = None
    served: int | None = None
    error: str | None = None
    verdict: Verdict = Verdict.ERROR
    held_by: HeldBy | None = None
    current: int
    lower_bound: int | None = None
    upper_bound: int | None = None
    outcome: Outcome | None = None
    outcomes: tuple[Outcome, ...] = ()
    suppressed: int = 0
