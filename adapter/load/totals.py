"""Sums over the pods that a scenario counts: integers where possible, so exact and fast."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import NamedTuple

from adapter.load.departures import NO_DEPARTURES, DepartedLoad
from adapter.load.effective_usage import PodSample
from adapter.load.quantity import NANO
from adapter.load.sample_columns import Column
from adapter.load.spec import Average, Step, Trigger
from adapter.load.steps import Steps, mapped, sorted_in_steps

Rational = Fraction | int


class Edge(NamedTuple):
    """A limit (nano-units) as a ratio of two integers: comparing products is exact and faster than fractions."""

    numerator: int
    denominator: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Band:
    """The watermarks of one metric with the tolerance around them (nano-units, exact). None: no such watermark.

    A strategy with one target has it as both watermarks; `step` has the parameters of strategy Step. Usage is above the
    band beyond `high_plus` = high · (1 + tolerance), and below it under `low_minus` = low · (1 − tolerance). The
    strategy acts towards the watermarks themselves.
    """

    high: Fraction | None
    low: Fraction | None
    tolerance: Fraction
    average: Average
    tolerate_zero: bool
    multiple_of: int = 1
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
    """One pod's usage (nano-units) and its weight in the units of the totals."""

    usage: int
    weight: int

    def exceeds(self, other: "PodLoad") -> bool:
        """Whether its usage for its weight is larger."""
        return self.usage * other.weight > other.usage * self.weight


class Extremes(NamedTuple):
    """The pods with the most and with the least usage for their weight."""

    most: PodLoad
    least: PodLoad

    def including(self, pod: PodLoad) -> "Extremes":
        """These extremes, with one pod more."""
        if pod.exceeds(self.most):
            return Extremes(pod, self.least)
        return Extremes(self.most, pod) if self.least.exceeds(pod) else self


@dataclass(slots=True, kw_only=True)
class Totals:
    """Sums over pods: `usage` (nano-units) of `n` pods with a sample, and the fills of the gaps.

    `missing` pods are in without a sample; `young` ones do not serve, but may soon. `weight` is what usage is divided
    by for an average: the number of pods, or their capacity in whole units (which leaves nano-units of a ratio), in
    parts of 1/`unit`; `missing_weight` and `young_weight` likewise. A fill is the usage assumed of a gap, in parts of
    1/`fill_unit` nano-units. `total`: usage is one number for the whole service. `departed`: pods whose load has gone
    to others since the samples began. `extremes` are only sought where one pod beyond a limit is enough to act.
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
    total: bool = False
    unit: int = 1
    fill_unit: int = 1
    departed: DepartedLoad = NO_DEPARTURES
    seeks_extremes: bool = False
    extremes: Extremes | None = None

    @property
    def counted(self) -> int:
        """The pods that are in, with a sample or without."""
        return self.n + self.missing

    def effective_usage(self, average: Average) -> Fraction:
        """The usage that the watermarks are for (nano-units): per pod, or per capacity, or the total. At least one
        sample is needed.
        """
        return Fraction(self.usage * self.unit, self.weight) if average is Average.PER_POD else Fraction(self.usage)

    def departed_load(self) -> Fraction:
        """The usage assumed of the pods that left (nano-units). At least one sample is needed."""
        return self.departed.over(Fraction(self.usage, self.n))

    def add(self, pod: "DoubtfulPod") -> None:
        """Count a doubtful pod as in."""
        if pod.is_young:
            self.young -= 1
            self.young_weight -= pod.weight
            self.young_fill -= pod.fill
        if pod.usage is None:
            self.missing += 1
            self.missing_weight += pod.weight
            self.missing_fill += pod.fill
        else:
            self.usage += pod.usage
            self.n += 1
            self.weight += pod.weight
            if self.seeks_extremes:
                self.include(PodLoad(pod.usage, pod.weight))

    def include(self, pod: PodLoad) -> None:
        """Count a pod with a sample among the extremes."""
        self.extremes = Extremes(pod, pod) if self.extremes is None else self.extremes.including(pod)


class DoubtfulPod(NamedTuple):
    """A doubtful pod: its usage (None: no sample), and its weight and fill in the units of the totals.

    `is_long` (doubtful for long) and `is_replaceable` matter where a scenario has it out. `is_young`: it may only not
    be registered yet.
    """

    usage: int | None
    weight: int
    fill: int
    is_long: bool
    is_replaceable: bool
    is_young: bool


class Weights:
    """The weights of a metric's pods: what their usage is divided by, and the fill of one without a sample.

    A pod weighs 1, or its capacity where the metric is a utilization. `mean` is the average capacity of the pods that
    have one; None where it is not needed.
    """

    def __init__(self, band: Band, mean: Fraction | None, *, is_utilization: bool) -> None:
        self.band = band
        self._is_utilization = is_utilization
        self._mean, parts = (mean or Fraction(0)).as_integer_ratio()
        self._parts = parts if is_utilization else 1
        self._high_plus = band.high_plus or Edge(0, 1)
        self._ranks_missing = band.high_plus is not None
        self._seeks_extremes = band.step is not None and band.step.trigger is Trigger.ANY_POD
        self.unit = NANO * parts if is_utilization else 1
        self.fill_unit = self.unit * self._high_plus.denominator

    def weigh(self, capacity: int | None) -> int:
        """A pod's weight: 1, or its capacity (the mean one where it has none)."""
        if not self._is_utilization:
            return 1
        return capacity * self._parts if capacity else self._mean

    def fill(self, weight: int, last: int) -> int:
        """The usage assumed of a pod without a sample on the way down: `high_plus`, or its last usage if larger."""
        return max(self._high_plus.numerator * weight, last * self.fill_unit)

    def totals(
        self, columns: Iterable[Column], young: Sequence[PodSample] = (), departed: DepartedLoad = NO_DEPARTURES
    ) -> Totals:
        """The sums over the pods that are in (`columns`) and those that may be soon (`young`)."""
        totals = Totals(
            unit=self.unit, fill_unit=self.fill_unit, departed=departed, seeks_extremes=self._seeks_extremes
        )
        for column in columns:
            if self._seeks_extremes:
                for pod in self._outliers(column):
                    totals.include(pod)
            usage, capacity = column.sums()
            totals.usage += usage
            totals.n += len(column.values)
            totals.weight += capacity * self._parts if self._is_utilization else len(column.values)
            weights = [self.weigh(sample.capacity) for sample in column.gaps]
            totals.missing += len(weights)
            totals.missing_weight += sum(weights)
            totals.missing_fill += sum(map(self.fill, weights, (sample.last for sample in column.gaps)))
        weights = [self.weigh(sample.capacity) for sample in young]
        totals.young = len(weights)
        totals.young_weight = sum(weights)
        totals.young_fill = sum(map(self.fill, weights, (sample.last for sample in young)))
        return totals

    def may_be_above(self, none_in: Totals, all_in: Totals, doubtful: Column) -> bool:
        """Whether a scenario may be above the band; False where none is, whichever of the doubtful pods are in.

        An average is above the limit only where a pod is, or the average of the pods that are always in.
        """
        limit = self.band.high_plus
        if limit is None:
            return False
        if self.band.average is Average.TOTAL and self.band.step is None:
            return all_in.usage * limit.denominator > limit.numerator
        pods = [*self._outliers(doubtful), *(none_in.extremes or ())]
        if none_in.n:
            pods.append(PodLoad(none_in.usage, int(none_in.weight)))
        return any(pod.usage * self.unit * limit.denominator > limit.numerator * pod.weight for pod in pods)

    def _outliers(self, column: Column) -> list[PodLoad]:
        """The pods with the most and the least usage, of all with one capacity: the extremes are among them."""
        if not column.values:
            return []
        if not self._is_utilization or len(set(column.capacities)) == 1:
            weight = self.weigh(column.capacities[0])
            return [PodLoad(max(column.values), weight), PodLoad(min(column.values), weight)]
        most: dict[int, int] = {}
        least: dict[int, int] = {}
        for value, capacity in zip(column.values, column.capacities, strict=True):
            if value > most.get(capacity, -1):
                most[capacity] = value
            if value < least.get(capacity, value + 1):
                least[capacity] = value
        return [PodLoad(value, self.weigh(capacity)) for each in (most, least) for capacity, value in each.items()]

    def ranked(self, doubtful: Sequence[DoubtfulPod]) -> Steps[list[DoubtfulPod]]:
        """The doubtful pods by usage for their weight, largest first.

        One without a sample ranks at `high_plus`; without a high watermark, or without weight, it ranks first.
        """
        denominators = [*(pod.weight for pod in doubtful), self._high_plus.denominator]
        # Two different ratios with these denominators differ by more than 2^-shift, so rounding down keeps their order.
        shift = 2 * max(each.bit_length() for each in denominators)
        missing = (self._high_plus.numerator << shift) // self._high_plus.denominator if self._ranks_missing else None

        def load(pod: DoubtfulPod) -> tuple[bool, int]:
            if pod.usage is None:
                return missing is None, missing or 0
            if not pod.weight:
                return True, 0
            return False, (pod.usage * self.unit << shift) // pod.weight

        loads = yield from mapped(load, doubtful)
        order = yield from sorted_in_steps(range(len(doubtful)), loads.__getitem__, reverse=True)
        return [doubtful[place] for place in order]
