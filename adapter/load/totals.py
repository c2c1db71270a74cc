"""Sums over the pods that a scenario counts: integers where possible, so exact and fast."""

from dataclasses import dataclass, field
from fractions import Fraction
from typing import NamedTuple

from adapter.load.quantity import NANO
from adapter.load.remembering import NO_DEPARTURES, DepartedLoad
from adapter.load.spec import Average, Step

Rational = Fraction | int
_SHIFT = 256
SATURATED = Fraction(97, 100)
"""Pods that use this much of their limits are throttled at times, so they may need more than they show."""


class Edge(NamedTuple):
    """A limit (nano-units) as a ratio of two integers: comparing products is exact and faster than fractions."""

    numerator: int
    denominator: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Band:
    """The watermarks of one metric with the tolerance around them (nano-units, exact). None: no such watermark.

    Where the CPU limit caps the usage, `saturation` is the factor by which the load of saturated pods is taken for
    more. A strategy with one target has it as both watermarks; `step` has the parameters of strategy Step. Usage is
    above the band beyond `high_plus` = high · (1 + tolerance), and below it under `low_minus` = low · (1 − tolerance).
    The strategy acts towards the watermarks themselves.
    """

    high: Fraction | None
    low: Fraction | None
    tolerance: Fraction
    average: Average
    tolerate_zero: bool
    multiple_of: int = 1
    saturation: Fraction | None = None
    step: Step | None = None
    high_edge: Edge | None = field(init=False)
    low_edge: Edge | None = field(init=False)
    high_plus: Edge | None = field(init=False)
    low_minus: Edge | None = field(init=False)

    def __post_init__(self) -> None:
        # Computed once, because every scenario compares with them; as integers, which need no common divisor.
        part, whole = self.tolerance.as_integer_ratio()
        object.__setattr__(self, "high_edge", _edge(self.high, 1, 1))
        object.__setattr__(self, "low_edge", _edge(self.low, 1, 1))
        object.__setattr__(self, "high_plus", _edge(self.high, whole + part, whole))
        object.__setattr__(self, "low_minus", _edge(self.low, whole - part, whole))


def _edge(limit: Fraction | None, numerator: int, denominator: int) -> Edge | None:
    """The limit times a ratio of two integers."""
    return None if limit is None else Edge(limit.numerator * numerator, limit.denominator * denominator)


class PodLoad(NamedTuple):
    """One pod's usage (nano-units; None: no sample), and its weight and fill in the units of the totals.

    `bound`: the most that it may have used; None where that is not known. It is more than `usage` where the window of
    its sample is partial.
    """

    usage: int | None
    weight: int
    fill: int = 0
    bound: int | None = None
    limit: int | None = None

    @property
    def is_partial(self) -> bool:
        """Whether it may have used more than its sample says."""
        return self.usage is not None and self.usage != self.bound


@dataclass(slots=True, kw_only=True)
class Totals:
    """Sums over pods: `usage` (nano-units) of `n` pods with a sample, and the fills of the gaps.

    `missing` pods are in without a sample; `young` ones do not serve, but may soon. `weight` is what usage is divided
    by for an average: the number of pods, or their capacity in whole units (which leaves nano-units of a ratio), in
    parts of 1/`unit`; `missing_weight` and `young_weight` likewise. A fill is the usage assumed of a gap, in parts of
    1/`fill_unit` nano-units. Of `partial` pods the sample's window is not full: `bound` is the most that the pods with
    a sample may have used, but for the `unbounded` ones of which nobody knows. `total`: usage is one number for the
    whole service; `is_blind`: it may be any larger number, since it knows less than all of the pods. `limit` is the sum
    of the limits that cap the usage of the pods with a sample, `missing_limit` of those without; `unlimited` pods have
    none. `departed`: pods whose load has gone to others since the samples began. `most` and `least`: the pods with the
    most and the least usage for their weight, which are only sought where one pod beyond a limit is enough to act;
    `least_bound` likewise by their bounds.
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
    fill_unit: int = 1
    limit: int = 0
    missing_limit: int = 0
    unlimited: int = 0
    departed: DepartedLoad = NO_DEPARTURES
    seeks_extremes: bool = False
    most: PodLoad | None = None
    least: PodLoad | None = None
    least_bound: PodLoad | None = None

    @property
    def counted(self) -> int:
        """The pods that are in, with a sample or without."""
        return self.n + self.missing

    def effective_usage(self, average: Average) -> Fraction:
        """The usage that the watermarks are for (nano-units): per pod, or per capacity, or the total. At least one
        sample is needed.
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

    def add(self, pod: PodLoad) -> None:
        """Count a pod as in."""
        if pod.usage is None:
            self.missing += 1
            self.missing_weight += pod.weight
            self.missing_fill += pod.fill
            self.missing_limit += pod.limit or 0
            self.unlimited += not pod.limit
            return
        self.usage += pod.usage
        self.n += 1
        self.weight += pod.weight
        self.partial += pod.usage != pod.bound
        self.limit += pod.limit or 0
        self.unlimited += not pod.limit
        if pod.bound is None:
            self.unbounded += 1
            self.unbounded_fill += pod.fill
        else:
            self.bound += pod.bound
        if self.seeks_extremes:
            self._seek(pod)

    def _seek(self, pod: PodLoad) -> None:
        usage, weight, bound = pod.usage or 0, pod.weight, pod.bound or 0
        if self.most is None or usage * self.most.weight > (self.most.usage or 0) * weight:
            self.most = pod
        if self.least is None or usage * self.least.weight < (self.least.usage or 0) * weight:
            self.least = pod
        if self.least_bound is None or bound * self.least_bound.weight < (self.least_bound.bound or 0) * weight:
            self.least_bound = pod

    def add_young(self, pod: PodLoad, sign: int = 1) -> None:
        """Count a pod among those that may serve soon; `sign` -1: no longer."""
        self.young += sign
        self.young_weight += sign * pod.weight
        self.young_fill += sign * pod.fill


class Weights:
    """The weights of a metric's pods: what their usage is divided by, and the fill of one without a sample.

    A pod weighs 1, or its capacity where the metric is a utilization. `mean` is the average capacity of the pods that
    have one.
    """

    def __init__(self, band: Band, mean: Fraction | None = None, *, is_utilization: bool) -> None:
        self._is_utilization = is_utilization
        self._mean, parts = (mean or Fraction(0)).as_integer_ratio()
        self._parts = parts if is_utilization else 1
        self._fill = band.high_plus.numerator if band.high_plus is not None else 0
        self.unit = NANO * parts if is_utilization else 1
        self.fill_unit = self.unit * (band.high_plus.denominator if band.high_plus is not None else 1)

    def load(
        self,
        usage: int | None,
        capacity: int | None = None,
        last: int = 0,
        bound: int | None = None,
        limit: int | None = None,
    ) -> PodLoad:
        """The load of a pod: without a sample, `high_plus` is assumed on the way down, or its last usage if larger."""
        weight = 1
        if self._is_utilization:
            weight = capacity * self._parts if capacity else self._mean
        return PodLoad(usage, weight, max(self._fill * weight, last * self.fill_unit), bound, limit)

    def rank_up(self, pod: PodLoad) -> int:
        """By this, largest first, pods are in the order of their usage for their weight, those without a sample last.

        Two different ratios differ by more than 2^-_SHIFT, so rounding down keeps their order.
        """
        return -1 if pod.usage is None or not pod.weight else (pod.usage * self.unit << _SHIFT) // pod.weight

    def rank_down(self, pod: PodLoad) -> int:
        """Likewise by what is assumed of them on the way down: the fill of a gap, the bound of a partial window."""
        load = pod.fill if pod.bound is None else pod.bound * self.fill_unit
        return (int(load * self.unit) << _SHIFT) // pod.weight if pod.weight else -1
