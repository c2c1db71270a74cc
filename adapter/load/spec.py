"""A policy, its scale target and the HPA's bounds, with defaults resolved and exact units."""

from dataclasses import dataclass, field
from datetime import tzinfo
from enum import StrEnum
from fractions import Fraction
from typing import Literal, NamedTuple

from adapter.load.quantity import NANO


class Mode(StrEnum):
    """Whether a policy acts, only computes and publishes (`Observe` keeps the count), or is paused."""

    ACTIVE = "Active"
    OBSERVE = "Observe"
    PAUSED = "Paused"


HELD = "Held"
"""The mode of an active policy while an annotation holds the count."""


class Strategy(StrEnum):
    """The algorithm that turns usage into a count."""

    WATERMARK = "Watermark"
    RATIO = "Ratio"
    STEP = "Step"


class Algorithm(StrEnum):
    """Whether the watermarks apply to one pod or to the whole service."""

    AVERAGE = "Average"
    ABSOLUTE = "Absolute"


class Capacity(StrEnum):
    """The capacity that a utilization is a share of."""

    LIMIT = "Limit"
    REQUEST = "Request"


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """A named query of the settings, or inline PromQL where they allow it."""

    name: str = ""
    prom_ql: str = ""
    server: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Seconds:
    """A time on the way up, and one on the way down: of a delay before a change, or of a cooldown after one."""

    up: float = 0.0
    down: float = 0.0


class Limits(NamedTuple):
    """The high and the low limit of a metric (nano-units); None: no such limit."""

    high: Fraction | None
    low: Fraction | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """One metric with its watermarks in nano-units (for `relativeTo` metrics: nano of a ratio, so 80 % is 0.8 × 10⁹).

    Without a `query` it is the usage of `resource` from metrics.k8s.io. With `relative_to` it is divided by that
    capacity of `resource`. `containers`: those that are measured, or whose capacity counts; empty means all running
    ones. Strategy Watermark needs at least one watermark; Ratio and Step need the `target` instead. `floor`: a service
    total that only keeps the count from falling below what it needs; its high watermark or target is the load of one
    pod. `delay`: how long usage must be beyond a watermark before it acts.
    """

    name: str
    resource: str = ""
    query: Query | None = None
    relative_to: Capacity | None = None
    containers: tuple[str, ...] = ()
    high: Fraction | None = None
    low: Fraction | None = None
    target: Fraction | None = None
    floor: bool = False
    delay: Seconds = Seconds()

    @property
    def watermarks(self) -> Limits:
        """The high and the low watermark; a target is both."""
        return Limits(self.high, self.low) if self.target is None else Limits(self.target, self.target)

    @property
    def is_cpu(self) -> bool:
        """Whether it is the pods' own CPU, which is measured over a window."""
        return self.query is None and self.resource == "cpu"


@dataclass(frozen=True, slots=True, kw_only=True)
class Registry:
    """The service registry that a policy names. Times in seconds.

    `registration_grace_seconds`: how long after Ready a pod may register. `absence_confirmation_seconds`: how long a
    pod must be absent before that is evidence.
    `treat_unhealthy_as_out`: whether an unhealthy registration is explicit evidence. `any_instance_out`: a pod with
    several registrations is out if one is (default: if all are). `pod_name_key`: the metadata key of a registration
    with its pod's name. `port`: the only port that counts, for pods that register several. `match`: an address that
    several pods share (host network) counts only with a port that the pod declares, or always (`IP`).
    """

    name: str
    service: str = ""
    namespace: str = ""
    group: str = ""
    registration_grace_seconds: float = 180.0
    absence_confirmation_seconds: float = 45.0
    treat_unhealthy_as_out: bool = True
    any_instance_out: bool = False
    match: Literal["IPPort", "IP"] = "IPPort"
    port: int | None = None
    pod_name_key: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PulledOut:
    """How pulled-out pods are treated: whether and after how many seconds they are replaced on the way up.

    Only pods older than `min_age` (seconds) are replaced: replacements that are pulled out themselves would be replaced
    without end. `delete_first`: whether pulled-out pods are to be deleted first on the way down.
    """

    replace: bool = True
    replace_after: float = 60.0
    min_age: float = 600.0
    delete_first: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Velocity:
    """How far the count may change in one decision, in percent of the current one; None: no limit, 0: not at all."""

    up: int | None = None
    down: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """The parameters of strategy Step: it acts where one pod, or the average, is `tolerance` beyond the target.

    Points are percentage points of a utilization, or units of a query's values. `up` pods are added beyond what the
    target needs, `down` pods are removed at a time, never below `min_pods`.
    """

    tolerance: int = 15
    tolerance_unit: Literal["Points", "Percent"] = "Points"
    trigger: Literal["AnyPod", "Average"] = "AnyPod"
    up: int = 2
    down: int = 2
    min_pods: int = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """At least `minimum` and at most `maximum` pods for `duration` seconds from each time of a cron expression."""

    name: str
    cron: str
    zone: tzinfo
    duration: float
    minimum: int | None = None
    maximum: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Fallback:
    """The minimum count once no metric has had an answer for `after` seconds."""

    after: float
    replicas: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """A WatermarkPolicy with every default resolved. `tolerance` is a ratio: 1 % is 1/100. `step` is for strategy Step.

    `hold_until`: the count is kept until then (seconds), as in mode Paused. `saturation_factor`: how many times the
    load of throttled pods may be what they show; 1: as much. `converge_towards`: the watermark that the count drifts to
    inside the band. `hpa_configuration`: whether the companion only reports unwise fields of the HPA, or also sets
    those that it may. `fast_scale_up`: whether it raises the count before the HPA's next sync. `notify` names routes.
    """

    namespace: str
    name: str
    uid: str = ""
    generation: int = 0
    hpa: str
    mode: Mode = Mode.ACTIVE
    hold_until: float | None = None
    hpa_configuration: Literal["Report", "Manage"] = "Report"
    strategy: Strategy = Strategy.WATERMARK
    algorithm: Algorithm = Algorithm.AVERAGE
    tolerance: Fraction = Fraction(1, 100)
    metrics: tuple[Metric, ...]
    registry: Registry | None = None
    pulled_out: PulledOut = field(default_factory=PulledOut)
    velocity: Velocity = Velocity()
    cooldown: Seconds = Seconds()
    schedules: tuple[Schedule, ...] = ()
    fallback: Fallback | None = None
    min_serving_percent: int = 50
    accept_zero_usage: bool | None = None
    saturation_factor: Fraction = Fraction(5, 4)
    replica_multiple: int = 1
    converge_towards: Literal["High", "Low"] | None = None
    step: Step = Step()
    fast_scale_up: bool = False
    notify: tuple[str, ...] = ()

    def edges_of(self, metric: Metric) -> Limits:
        """How far usage may go above and below: the watermarks or the target, with the tolerance around them."""
        (high, low), tolerance = metric.watermarks, self.tolerance
        if self.strategy is Strategy.STEP and metric.target is not None:
            is_ratio = self.step.tolerance_unit == "Percent" or metric.relative_to is not None
            tolerance = Fraction(self.step.tolerance, 100) if is_ratio else Fraction(self.step.tolerance)
            if self.step.tolerance_unit == "Points":
                tolerance *= NANO / metric.target
        return Limits(None if high is None else high * (1 + tolerance), None if low is None else low * (1 - tolerance))

    def limits_of(self, metric: Metric) -> Limits:
        """The limits that people are shown: the watermarks; or how far usage may go above and below the target.

        Of a floor it is the load of one pod.
        """
        if metric.target is None:
            return metric.watermarks
        return Limits(metric.target, None) if metric.floor else self.edges_of(metric)

    def mode_at(self, now: float) -> str:
        """The mode at this time, or HELD. A mode other than Active takes precedence over a hold."""
        is_held = self.mode is Mode.ACTIVE and self.hold_until is not None and now < self.hold_until
        return HELD if is_held else self.mode.value


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """The scale subresource: the desired replicas, the existing replicas and the pods' label selector."""

    replicas: int
    status_replicas: int
    selector: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """The scale target of a policy, and its rollout.

    `progressing` is the reason of the Progressing condition (empty without one), `progressing_since` its lastUpdateTime
    (seconds).
    """

    api_version: str
    kind: str
    name: str
    uid: str = ""
    progressing: str = ""
    progressing_since: float | None = None


class HpaTolerance(NamedTuple):
    """How far a value may be above or below the HPA's target without a change; a ratio (10 % is 1/10)."""

    up: Fraction
    down: Fraction


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """An HPA's minimum and maximum, and when it last scaled (seconds; None: never).

    `tolerance` is None where it is 0 in both directions, or unknown.
    """

    minimum: int = 1
    maximum: int
    last_scale: float | None = None
    tolerance: HpaTolerance | None = None
