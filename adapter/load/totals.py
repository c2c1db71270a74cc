"""Sums over the pods that a scenario counts: integers where possible, so exact and fast."""

from dataclasses import dataclass, field
from fractions import Fraction

from adapter.load.pod_samples import PodSample
from adapter.load.remembering import NO_DEPARTURES, DepartedLoad
from adapter.load.spec import Average, Converge, Step

Rational = Fraction | int
_FINE = 1 << 256
SATURATED = Fraction(97, 100)
"""Pods that use this much of their limits are throttled at times, so they may need more than they show."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Band:
    """The watermarks of one metric with the tolerance around them (nano-units, exact). None: no such watermark.

    Where the CPU limit caps the usage, `saturation` is the factor by which the load of saturated pods is taken for
    more. A strategy with one target has it as both watermarks; `step` has the parameters of strategy Step. Usage is
    above the band beyond `high_plus` = high · (1 + tolerance), and below it under `low_minus` = low · (1 − tolerance).
    The strategy acts towards the watermarks themselves; inside the band the count drifts to the one named `converge`.
    """

    high: Fraction | None
    low: Fraction | None
    tolerance: Fraction
    average: Average
    tolerate_zero: bool
    multiple_of: int = 1
    converge: Converge | None = None
    saturation: Fraction | None = None
    step: Step | None = None
    high_plus: Fraction | None = field(init=False)
    low_minus: Fraction | None = field(init=False)

    def __post_init__(self) -> None:
        # Computed once, because every scenario compares with them.
        object.__setattr__(self, "high_plus", None if self.high is None else self.high * (1 + self.tolerance))
        object.__setattr__(self, "low_minus", None if self.low is None else self.low * (1 - self.tolerance))


@dataclass(slots=True, kw_only=True)
class Totals:
    """Sums over pods: `usage` (nano-units) of `n` pods with a sample, and the fills of the gaps.

    `missing` pods are in without a sample; `young` ones do not serve, but may soon. `weight` is what usage is divided
    by for an average: the number of pods, or for a utilization their capacity (nano-units), where the ratio is in parts
    of 1/`unit`; `missing_weight` and `young_weight` likewise. A pod without a capacity has the `mean` (None: no
    utilization). A fill is the usage assumed of a gap: `full` for each weight, or the pod's last usage if larger. Of
    `partial` pods the sample's window is not full: `bound` is the most that the pods with a sample may have used, but
    for the `unbounded` ones of which nobody knows. `total`: usage is one number for the whole service; `is_blind`: it
    may be any larger number, since it knows less than all of the pods. `limit` is the sum of the limits that cap the
    usage of the pods with a sample, `missing_limit` of those without; `unlimited` pods have none. `departed`: pods
    whose load has gone to others since the samples began. `most` and `least` are the most and the least usage of a pod
    for its weight, in the unit of the watermarks, `least_bound` the least bound. They are only sought where one pod
    beyond a limit is enough to act.
    """

    usage: int = 0
    n: int = 0
    weight: Rational = 0
    missing: int = 0
    missing_weight: Rational = 0
    missing_fill: Rational = 0
    young: int = 0
    young_weight: Rational = 0
    young_fill: Rational = 0
    partial: int = 0
    bound: int = 0
    unbounded: int = 0
    unbounded_fill: Rational = 0
    total: bool = False
    is_blind: bool = False
    unit: int = 1
    mean: Rational | None = None
    full: Rational = 0
    limit: int = 0
    missing_limit: int = 0
    unlimited: int = 0
    departed: DepartedLoad = NO_DEPARTURES
    seeks_extremes: bool = False
    most: Fraction | None = None
    least: Fraction | None = None
    least_bound: Fraction | None = None

    @property
    def counted(self) -> int:
        """The pods that are in, with a sample or without."""
        return self.n + self.missing

    def effective_usage(self, average: Average) -> Fraction:
        """The usage that the watermarks are for (nano-units): per pod, or per capacity, or the total.

        At least one sample is needed.
        """
        return Fraction(self.usage * self.unit, self.weight) if average is Average.PER_POD else Fraction(self.usage)

    @property
    def saturation(self) -> Fraction | None:
        """The usage as a share of the limits of the same pods; None unless each of them has a limit."""
        return Fraction(self.usage, self.limit) if self.limit and not self.unlimited else None

    @property
    def is_saturated(self) -> bool:
        """Whether throttling hides a part of the load."""
        share = self.saturation
        return share is not None and share >= SATURATED

    @property
    def stays_saturated(self) -> bool:
        """Whether that is still so with the pods without a sample at 0."""
        return self.is_saturated and self.usage >= SATURATED * (self.limit + self.missing_limit)

    def departed_load(self) -> Fraction:
        """The usage assumed of the pods that left (nano-units): on the way down, so samples count with their bounds."""
        bounded = self.n - self.unbounded
        return self.departed.over(Fraction(self.bound, bounded) if bounded else Fraction(0))

    def weigh(self, sample: PodSample) -> Rational:
        """What the pod's usage is divided by."""
        return 1 if self.mean is None else sample.capacity or self.mean

    def fill(self, sample: PodSample) -> Rational:
        """The usage assumed of a pod without a sample on the way down (nano-units)."""
        return max(self.full * self.weigh(sample), sample.last)

    def rank_up(self, sample: PodSample) -> int:
        """By this, largest first, pods are in the order of their usage for their weight, those without a sample last.

        Two different ratios differ by more than 1/_FINE, so rounding down keeps their order.
        """
        weight = self.weigh(sample)
        return -1 if sample.usage is None or not weight else int(sample.usage * _FINE // weight)

    def rank_down(self, sample: PodSample) -> int:
        """Likewise by what is assumed of them on the way down: the fill of a gap, the bound of a partial window."""
        load, weight = self.fill(sample) if sample.bound is None else sample.bound, self.weigh(sample)
        return int(load * _FINE // weight) if weight else -1

    def add(self, sample: PodSample) -> None:
        """Count a pod as in."""
        weight, usage, bound, limit = self.weigh(sample), sample.usage, sample.bound, sample.limit or 0
        self.unlimited += not limit
        if usage is None:
            self.missing += 1
            self.missing_weight += weight
            self.missing_fill += self.fill(sample)
            self.missing_limit += limit
            return
        self.usage += usage
        self.n += 1
        self.weight += weight
        self.partial += usage != bound
        self.limit += limit
        if bound is None:
            self.unbounded += 1
            self.unbounded_fill += self.fill(sample)
        else:
            self.bound += bound
        if self.seeks_extremes:
            each, at_most = Fraction(usage * self.unit, weight), Fraction((bound or 0) * self.unit, weight)
            self.most = each if self.most is None else max(self.most, each)
            self.least = each if self.least is None else min(self.least, each)
            self.least_bound = at_most if self.least_bound is None else min(self.least_bound, at_most)

    def add_young(self, sample: PodSample, sign: int = 1) -> None:
        """Count a pod among those that may serve soon; `sign` -1: no longer."""
        self.young += sign
        self.young_weight += sign * self.weigh(sample)
        self.young_fill += sign * self.fill(sample)
