"""What `assess` takes, and what `assess` and `decide` return: data only, each number with its reason."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from fractions import Fraction
from types import MappingProxyType
from typing import Any, NamedTuple

from adapter.load.conditions import ConditionType
from adapter.load.memory import AheadSample, Beyond, Memory
from adapter.load.pod_samples import Readings
from adapter.load.pods import Pod, PodState
from adapter.load.roster import Roster
from adapter.load.samples import Samples
from adapter.load.schedule import Window
from adapter.load.spec import Bounds, Policy, Scale, Target


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
    MIN_SERVING = "MinServing"
    METRIC_ERROR = "MetricError"
    DEPARTED = "Departed"
    DELAY = "Delay"
    SCHEDULE = "Schedule"
    VELOCITY = "Velocity"
    COOLDOWN = "Cooldown"
    MODE = "Mode"
    BOUNDS = "Bounds"
    HPA_TOLERANCE = "HPATolerance"
    FAST_SCALE_UP = "FastScaleUp"


_NOTHING: Mapping[str, Any] = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class AssessmentInputs:
    """Everything that `assess` takes. `now` is the API server's time (seconds since the epoch).

    `pods` are those of the target: it owns them (`matching.owned_by`) and its scale's selector matches. `roster` is the
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


class PodAssessment(NamedTuple):
    """A pod, its state and the reason for it, and its usage: metric name → nano-units, only where a sample is fresh.

    `evidence` names the source of the state. `by_absence`: it is out because the registry no longer lists it.
    `guarded`: the evidence says out, and a guard keeps the pod doubtful, since believing it would take out too many.
    `missing`: metric name → why there is no fresh sample of this pod.
    """

    pod: Pod
    state: PodState
    reason: str
    evidence: str = ""
    by_absence: bool = False
    guarded: bool = False
    usage: Mapping[str, int] = _NOTHING
    missing: Mapping[str, str] = _NOTHING


class Shrink(NamedTuple):
    """A step down of strategy Step: `by` pods fewer, never below `least`, while enough pods are left.

    `fewest` serving pods carry the load within the limit; `fewest_sampled` is that without the load of departed pods.
    """

    by: int
    least: int
    fewest: int
    fewest_sampled: int


class Scenario(NamedTuple):
    """One assumption about a metric's doubtful pods: the `inside` most loaded ones serve, the others are out.

    `usage` is compared with the watermarks (nano-units); None where nothing can be compared: then `verdict` is Error
    and the scenario proposes the current count. `n` pods are in with a sample, `missing` ones without; the samples of
    `partial` ones may say less than was used; `young` pods may serve soon; the load of `departed` pods went to others
    after the samples began. `needed` is the number of serving pods that the strategy asks for (None: hold; `held` is
    the stage that turned a change into a hold). `replaceable` pods may be replaced on the way up, `reserved` ones
    (starting, or doubtful for a short time) already count as replacements, `out` ones are kept in the count on the way
    down. `drift` is a step inside the band; `edge` bounds the number of serving pods that it leads to. `zero`: the
    service needs no pod. `shrink` is a step down (strategy Step), and `extreme` the usage of the one pod that is beyond
    a limit, where that is enough to act (nano-units). `saturation` is the usage as a share of the pods' CPU limits,
    where throttling hides more of it. `is_doubted_zero`: the usage is exactly 0, which is not believed.
    """

    verdict: Verdict
    inside: int = 0
    usage: Fraction | None = None
    n: int = 0
    missing: int = 0
    partial: int = 0
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
    shrink: Shrink | None = None
    extreme: Fraction | None = None
    saturation: Fraction | None = None
    is_doubted_zero: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricAssessment:
    """One metric in every scenario that may win, the one with every doubtful pod in last; or its error (a sentence).

    Of doubtful pods that differ in their usage alone, `scenarios` has those at turns (`scenarios`). `high` and `low`
    are the watermarks, or the limits above and below the `target` (`Policy.limits_of`), in nano-units. `usage` is the
    effective average (or total) with the doubtful pods in, `raw` that of all running pods (nano-units, exact). `n` and
    `missing` count the pods behind `usage`; the samples of `partial` ones may say less than was used, and `fullness` is
    a predicate about the emptiest window. Of the missing, `overdue` have been in service for long enough to have a
    whole sample, and of the partial, `overdue_partial` too, of which nobody knows how much less. `sampled_at` is the
    time of the oldest sample that counted, `window` its window in seconds; the first window began at `began_at`; after
    `stale_at` the first sample no longer counts. `total`: the source gives one number for the service, `total_value`,
    or may do so: it has never answered. It is `total_bound` at most, None where that is not known. A `floor` has no
    scenarios. `beyond`: since when usage has been beyond a watermark, where the metric has a delay in that direction.
    `readings` are the pods' samples (None: the source gives a number for the service). For the memory: `ahead`, that
    number where it is dated ahead; `newest`, when the newest window of the samples that count ended; `read`, when that
    number was last read with samples of each pod, by UID, and with an empty one, as a whole.
    """

    name: str
    high: Fraction | None = None
    low: Fraction | None = None
    target: Fraction | None = None
    n: int = 0
    missing: int = 0
    partial: int = 0
    overdue: int = 0
    overdue_partial: int = 0
    fullness: str = ""
    usage: Fraction | None = None
    raw: Fraction | None = None
    total: bool = False
    total_value: int | None = None
    total_bound: int | None = None
    scenarios: Sequence[Scenario] = ()
    sampled_at: float | None = None
    began_at: float | None = None
    stale_at: float | None = None
    window: float | None = None
    error: str | None = None
    floor: bool = False
    beyond: Beyond | None = None
    readings: Readings | None = field(default=None, compare=False)
    ahead: AheadSample | None = None
    newest: float | None = None
    read: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Assessment:
    """Everything about a policy that does not depend on the live replica count; `decide` adds that. Immutable.

    `target` names the scale target for sentences. `pods` are without their usage, which is in the `metrics`;
    `with_usage` adds it to the few that are shown. `may_shrink` is False where too few pods serve
    (`minServingPercent`). `windows` are the current and the next window of each schedule. `conditions` are findings for
    the user: condition type → a sentence. `memory` belongs into the next assessment's inputs.
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
        """When the first sample behind the metrics stops counting (seconds); None without samples."""
        return min((m.stale_at for m in self.metrics if m.stale_at is not None), default=None)

    @property
    def sampled_at(self) -> float | None:
        """The time of the oldest sample behind the metrics but floors (seconds); None without samples."""
        return min((m.sampled_at for m in self.metrics if m.sampled_at is not None and not m.floor), default=None)

    def with_usage(self, pods: Collection[PodAssessment]) -> Iterator[PodAssessment]:
        """These pods with their usage, and with what is missing of it."""
        used: dict[str, dict[str, int]] = {assessed.pod.uid: {} for assessed in pods}
        missing: dict[str, dict[str, str]] = {assessed.pod.uid: {} for assessed in pods}
        for metric in self.metrics:
            for sample in metric.readings.all if metric.readings is not None else ():
                if sample.pod.uid in used and sample.usage is not None:
                    used[sample.pod.uid][metric.name] = sample.usage
                elif sample.pod.uid in used:
                    missing[sample.pod.uid][metric.name] = sample.missing
        for assessed in pods:
            yield assessed._replace(
                usage=used[assessed.pod.uid] or assessed.usage, missing=missing[assessed.pod.uid] or assessed.missing
            )

    def metric(self, name: str) -> MetricAssessment | None:
        """The metric of this name, None where the policy has none."""
        return next((m for m in self.metrics if m.name == name), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What one metric proposes: the winning scenario, its count, and how many pods of the count replace others."""

    metric: MetricAssessment
    scenario: Scenario
    proposal: int
    replaced: int = 0
    held_by: HeldBy | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """The count that the policy asks for now.

    `desired` and `served` (the metric value in milli-units, `served.served_value`) are None on error. `verdict`
    is that of the winning scenario, before the recount. `outcome` is the winning metric's, `outcomes` has those of
    all metrics with an answer. `swallowed`: the step that the HPA's own tolerance suppresses (negative: downward).
    """

    desired: int | None = None
    served: int | None = None
    error: str | None = None
    verdict: Verdict = Verdict.ERROR
    held_by: HeldBy | None = None
    current: int
    outcome: Outcome | None = None
    outcomes: tuple[Outcome, ...] = ()
    swallowed: int = 0
