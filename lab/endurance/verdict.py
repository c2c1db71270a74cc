"""Whether a series is flat: its robust trend after the warm-up, against a bound. No I/O, no clock."""

import itertools
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

Series = Sequence[tuple[float, float]]
"""Minutes since the begin, and a figure."""


@dataclass(frozen=True)
class Bound:
    """How much a quantity may grow from the end of the warm-up to the end: a share of its median plus a number."""

    unit: str
    share: float = 0.0
    more: float = 0.0

    def of(self, median: float) -> float:
        return self.share * median + self.more


BOUNDS: Mapping[str, Bound] = {
    "memory": Bound("MiB", share=0.05),
    "blocks": Bound("blocks", share=0.05),
    "tasks": Bound("tasks", more=2),
    "sockets": Bound("sockets", more=2),
    "threads": Bound("threads", more=3),
    "log": Bound("bytes a minute", share=0.2, more=500),
}
"""By quantity. 5 % of 80 MiB in 40 minutes is a leak of 1.7 KB a second; single tasks, sockets and threads come and go
with connections that happen to be open, and a pool of threads for files grows to six.
"""


@dataclass(frozen=True)
class Verdict:
    """Of one quantity of one process."""

    process: str
    quantity: str
    median: float
    growth: float
    """By the trend, over all minutes after the warm-up."""
    bound: float
    unit: str

    @property
    def flat(self) -> bool:
        return self.growth <= self.bound

    def line(self) -> str:
        """One line for a terminal."""
        return (
            f"{'flat   ' if self.flat else 'GROWS  '}{self.process:12} {self.quantity:8} median {self.median:,.1f}, "
            f"trend {self.growth:+,.2f} {self.unit}, at most {self.bound:,.2f}"
        )


def slope(series: Series) -> float:
    """The median of the slopes between all pairs of points (Theil and Sen); outliers, up to 29 %, do not bend it.

    ValueError: fewer than two different moments.
    """
    slopes = [(b[1] - a[1]) / (b[0] - a[0]) for a, b in itertools.combinations(series, 2) if b[0] != a[0]]
    if not slopes:
        raise ValueError("a trend needs figures of two moments")
    return statistics.median(slopes)


def judge(process: str, quantity: str, series: Series, warm_up: float) -> Verdict:
    """The verdict on a series of BOUNDS. ValueError: fewer than ten figures after the warm-up (minutes)."""
    after = [point for point in series if point[0] >= warm_up]
    if len(after) < 10:
        raise ValueError(f"{len(after)} figures of {quantity} after a warm-up of {warm_up:g} minutes are too few")
    median = statistics.median(value for _, value in after)
    growth = slope(after) * (after[-1][0] - after[0][0])
    bound = BOUNDS[quantity]
    return Verdict(process, quantity, median, growth, bound.of(median), bound.unit)


def together(processes: Sequence[Sequence[Mapping[str, float]]]) -> list[dict[str, float]]:
    """The sums of the figures of several processes, row by row, at the minute of the first."""
    return [
        {**{key: sum(row[key] for row in rows) for key in rows[0]}, "minute": rows[0]["minute"]}
        for rows in zip(*processes, strict=False)
    ]


def judge_all(processes: Mapping[str, Sequence[Mapping[str, float]]], warm_up: float) -> list[Verdict]:
    """The verdicts on the rows of each process: `minute` and a figure by quantity."""
    return [
        judge(process, quantity, [(row["minute"], row[quantity]) for row in rows], warm_up)
        for process, rows in processes.items()
        for quantity in BOUNDS
    ]
