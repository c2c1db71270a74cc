"""Sums over the pods that are in, for one reading of the doubtful ones."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction

from adapter.load.departures import NOBODY_LEFT, DepartedLoad
from adapter.load.effective import Gauge
from adapter.load.quantity import NANO
from adapter.load.spec import Average, Metric

Rational = Fraction | int


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
    high_plus: Fraction | None = field(init=False)
    low_minus: Fraction | None = field(init=False)

    def __post_init__(self) -> None:
        # Every reading asks for them: they are reckoned once.
        object.__setattr__(self, "high_plus", None if self.high is None else self.high * (1 + self.tolerance))
        object.__setattr__(self, "low_minus", None if self.low is None else self.low * (1 - self.tolerance))


@dataclass(frozen=True, slots=True, kw_only=True)
class Tally:
    """Sums in nano-units: `usage` of `n` pods with a sample, and of the gaps what filling them would add.

    `missing` pods are in without a sample; `young` ones do not serve, but may soon. `weight` is what usage is divided
    by for an average: the pods (n), or their capacity in whole units (which leaves nano-units of a ratio);
    `missing_weight` and `young_weight` likewise. `total`: usage is a number for the whole service. `departed`: pods
    whose load the samples do not know where it went.
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
    departed: DepartedLoad = NOBODY_LEFT

    @property
    def counted(self) -> int:
        """The pods that are in, with a sample or without."""
        return self.n + self.missing

    def average(self) -> Fraction:
        """Usage per pod, or per capacity."""
        return Fraction(self.usage) / self.weight

    def departed_load(self) -> Fraction:
        """What the pods that left are taken to have used, in nano-units; only with at least one sample."""
        return self.departed.over(Fraction(self.usage, self.n))


class Scales:
    """Weighs the pods of one metric: what stands behind their usage, and what fills a gap."""

    def __init__(self, metric: Metric, band: Band, mean_capacity: Fraction | None) -> None:
        self._is_share = metric.of is not None
        self._high_plus = band.high_plus
        self._mean = mean_capacity

    def weight(self, gauge: Gauge) -> Rational:
        """1 for plain usage, else the pod's capacity in whole units (the average capacity where it has none)."""
        if not self._is_share:
            return 1
        return Fraction(gauge.capacity or self._mean or 0) / NANO

    def fill(self, gauge: Gauge) -> Rational:
        """What a pod without a sample is taken to use on the way down."""
        assumed = self._high_plus * self.weight(gauge) if self._high_plus is not None else 0
        return max(assumed, gauge.last)

    def rank(self, gauge: Gauge) -> Rational | None:
        """The pod's usage for ranking doubtful pods: high⁺ without a sample, None without even that."""
        if gauge.usage is None:
            return self._high_plus
        weight = self.weight(gauge)
        return Fraction(gauge.usage) / weight if weight else None

    def tally(self, serving: Iterable[Gauge], young: Iterable[Gauge], departed: DepartedLoad = NOBODY_LEFT) -> Tally:
        """The sums over pods that surely serve and those that may soon."""
        seen: list[Gauge] = []
        gaps: list[Gauge] = []
        for gauge in serving:
            (seen if gauge.usage is not None else gaps).append(gauge)
        young = list(young)
        return Tally(
            usage=sum(gauge.usage or 0 for gauge in seen),
            n=len(seen),
            weight=self._weights(seen),
            missing=len(gaps),
            missing_weight=self._weights(gaps),
            missing_fill=sum(map(self.fill, gaps)),
            young=len(young),
            young_weight=self._weights(young),
            young_fill=sum(map(self.fill, young)),
            departed=departed,
        )

    def _weights(self, gauges: Sequence[Gauge]) -> Rational:
        """The sum of all weights; whole nano-units are added first, for sums of fractions are slow."""
        if not self._is_share:
            return len(gauges)
        return Fraction(sum(gauge.capacity or self._mean or 0 for gauge in gauges)) / NANO

    def without_young(self, tally: Tally, gauge: Gauge) -> Tally:
        """The tally without a pod that was young in it."""
        return replace(
            tally,
            young=tally.young - 1,
            young_weight=tally.young_weight - self.weight(gauge),
            young_fill=tally.young_fill - self.fill(gauge),
        )

    def add(self, tally: Tally, gauge: Gauge) -> Tally:
        """The tally with one more pod in."""
        weight = self.weight(gauge)
        has_sample = gauge.usage is not None
        # Built in one go: `replace` takes three times as long, for each of what may be thousands of doubtful pods.
        return Tally(
            usage=tally.usage + (gauge.usage or 0),
            n=tally.n + has_sample,
            weight=tally.weight + weight if has_sample else tally.weight,
            missing=tally.missing + (not has_sample),
            missing_weight=tally.missing_weight if has_sample else tally.missing_weight + weight,
            missing_fill=tally.missing_fill if has_sample else tally.missing_fill + self.fill(gauge),
            young=tally.young,
            young_weight=tally.young_weight,
            young_fill=tally.young_fill,
            total=tally.total,
            departed=tally.departed,
        )
