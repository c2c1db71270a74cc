"""Sums over the pods that are in, for one scenario of the doubtful ones: whole numbers, so exact and fast."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import NamedTuple

from adapter.load.departures import NO_DEPARTURES, DepartedLoad
from adapter.load.effective_usage import PodSample
from adapter.load.quantity import NANO
from adapter.load.sample_columns import Column
from adapter.load.spec import Average

Rational = Fraction | int


class Edge(NamedTuple):
    """A limit in nano-units as the ratio of two whole numbers: comparing by products is exact and fast."""

    numerator: int
    denominator: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Band:
    """The watermarks of one metric with the tolerance around them (nano-units; exact). None: no such watermark.

    Beyond `high_plus` usage is above, under `low_minus` below.
    """

    high: Fraction | None
    low: Fraction | None
    tolerance: Fraction
    average: Average
    tolerate_zero: bool
    multiple_of: int = 1
    high_edge: Edge | None = field(init=False)
    low_edge: Edge | None = field(init=False)
    high_plus: Edge | None = field(init=False)
    low_minus: Edge | None = field(init=False)

    def __post_init__(self) -> None:
        # Every scenario asks for them: they are reckoned once.
        object.__setattr__(self, "high_edge", _edge(self.high))
        object.__setattr__(self, "low_edge", _edge(self.low))
        object.__setattr__(self, "high_plus", _edge(None if self.high is None else self.high * (1 + self.tolerance)))
        object.__setattr__(self, "low_minus", _edge(None if self.low is None else self.low * (1 - self.tolerance)))


def _edge(limit: Fraction | None) -> Edge | None:
    return None if limit is None else Edge(*limit.as_integer_ratio())


@dataclass(slots=True, kw_only=True)
class Totals:
    """Sums: `usage` (nano-units) of `n` pods with a sample, and of the gaps what filling them would add.

    `missing` pods are in without a sample; `young` ones do not serve, but may soon. `weight` is what usage is divided
    by for an average: the pods (n), or their capacity in whole units (which leaves nano-units of a ratio), in parts of
    1/`unit`; `missing_weight` and `young_weight` likewise. Fills are in parts of 1/`fill_unit` nano-units. `total`:
    usage is a number for the whole service. `departed`: pods whose load the samples do not know where it went.
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

    @property
    def counted(self) -> int:
        """The pods that are in, with a sample or without."""
        return self.n + self.missing

    def average(self) -> Fraction:
        """Usage per pod, or per capacity."""
        return Fraction(self.usage * self.unit) / self.weight

    def departed_load(self) -> Fraction:
        """What the pods that left are taken to have used, in nano-units; only with at least one sample."""
        return self.departed.over(Fraction(self.usage, self.n))

    def add(self, pod: "DoubtfulPod") -> None:
        """One more pod is in."""
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


class DoubtfulPod(NamedTuple):
    """A doubtful pod as a scenario counts it: its usage (None: no sample), weight and fill in a totals's units.

    `is_old`, `is_replaceable`: what it is where a scenario has it out. `is_young`: it may only not be registered yet.
    """

    usage: int | None
    weight: int
    fill: int
    is_old: bool
    is_replaceable: bool
    is_young: bool


class Weights:
    """Weighs the pods of one metric: what stands behind their usage, and what fills a gap.

    `mean` is the average capacity of the pods that have one, None where the metric is no share of a capacity: then
    every pod weighs 1.
    """

    def __init__(self, band: Band, mean: Fraction | None, *, is_share: bool) -> None:
        self._is_share = is_share
        self._mean, parts = (mean or Fraction(0)).as_integer_ratio()
        self._parts = parts if is_share else 1
        self._high_plus = band.high_plus or Edge(0, 1)
        self._ranks_blind = band.high_plus is not None
        self.unit = NANO * parts if is_share else 1
        self.fill_unit = self.unit * self._high_plus.denominator

    def weigh(self, capacity: int | None) -> int:
        """A pod's weight: 1 for plain usage, else its capacity (the average one where it has none)."""
        if not self._is_share:
            return 1
        return capacity * self._parts if capacity else self._mean

    def fill(self, weight: int, last: int) -> int:
        """What a pod without a sample is taken to use on the way down: high⁺, or what it used last if that is more."""
        return max(self._high_plus.numerator * weight, last * self.fill_unit)

    def totals(
        self, columns: Iterable[Column], young: Sequence[PodSample] = (), departed: DepartedLoad = NO_DEPARTURES
    ) -> Totals:
        """The sums over pods that are in and those that may be soon."""
        found = Totals(unit=self.unit, fill_unit=self.fill_unit, departed=departed)
        for column in columns:
            found.usage += sum(column.values)
            found.n += len(column.values)
            found.weight += sum(column.capacities) * self._parts if self._is_share else len(column.values)
            weights = [self.weigh(sample.capacity) for sample in column.gaps]
            found.missing += len(weights)
            found.missing_weight += sum(weights)
            found.missing_fill += sum(map(self.fill, weights, (sample.last for sample in column.gaps)))
        weights = [self.weigh(sample.capacity) for sample in young]
        found.young = len(weights)
        found.young_weight = sum(weights)
        found.young_fill = sum(map(self.fill, weights, (sample.last for sample in young)))
        return found

    def ranked(self, doubtful: Iterable[DoubtfulPod]) -> list[DoubtfulPod]:
        """The doubtful pods, most loaded for its weight first; one without a sample as high⁺, or before all others."""
        doubtful = list(doubtful)
        denominators = [*(pod.weight for pod in doubtful), self._high_plus.denominator]
        # Two ratios of so small denominators are further apart than 2^-shift: rounded down they keep their order.
        shift = 2 * max(each.bit_length() for each in denominators)
        blind = (self._high_plus.numerator << shift) // self._high_plus.denominator if self._ranks_blind else None

        def load(pod: DoubtfulPod) -> tuple[bool, int]:
            if pod.usage is None:
                return blind is None, blind or 0
            if not pod.weight:
                return True, 0
            return False, (pod.usage * self.unit << shift) // pod.weight

        return sorted(doubtful, key=load, reverse=True)
