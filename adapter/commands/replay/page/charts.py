"""What the charts draw, as JSON data: runs on one time axis, loads in the unit of the watermarks."""

from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from fractions import Fraction
from typing import Any, NamedTuple

from adapter.commands.replay.hpas import resource_of, shared_amount
from adapter.commands.replay.service import Bucket, Run, Setup
from adapter.load.quantity import NANO
from adapter.load.spec import Average, Metric, Policy

Column = list[float | None]
_STYLES = 8


class LoadScale(NamedTuple):
    """The unit that the loads of one metric are drawn in: `unit` as text, worth `worth` nano-units of plain usage.

    `high` and `low` are the watermarks in that unit, None where there is none or it does not apply to a single pod.
    """

    unit: str
    worth: Fraction
    high: float | None
    low: float | None

    def of(self, nano: float | None) -> float | None:
        """A load in this unit, None where there is none."""
        return None if nano is None else rounded(nano / float(self.worth))


def load_scale(policy: Policy, setup: Setup, metric: Metric) -> LoadScale:
    """The unit of a policy's metric: percent of the capacity, millicores, bytes, or the metric's own."""
    unit = {"cpu": "m", "memory": "B", "ephemeral-storage": "B"}.get(resource_of(metric), "")
    worth = mark = Fraction(NANO, 1000 if unit == "m" else 1)
    capacity = shared_amount(metric, setup) if metric.of else 0
    if capacity:
        unit, worth, mark = "%", Fraction(capacity, 100), Fraction(NANO, 100)
    if (metric.of and not capacity) or policy.average is Average.TOTAL:
        return LoadScale(unit, worth, None, None)  # the watermarks cannot be compared with the loads
    high, low = (None if nano is None else float(nano / mark) for nano in policy.limits_of(metric))
    return LoadScale(unit, worth, high, low)


def chart_data(policy: Policy, setup: Setup, metric: Metric, runs: Sequence[Run], subject: int) -> dict[str, Any]:
    """The columns of every run on one axis of times. A column has one value for each time; None is a gap.

    `metric` is the one that the runs' loads are of.
    """
    scale = load_scale(policy, setup, metric)
    times = sorted({bucket.at for run in runs for bucket in run.buckets})
    end = max((bucket.at + bucket.seconds for run in runs for bucket in run.buckets), default=0.0)
    aligned = [_aligned(run.buckets, times) for run in runs]
    # The limits around a target have the tolerance in them.
    tolerance = float(policy.tolerance) if metric.target is None else 0.0
    return {
        "times": [*(round(at, 3) for at in times), round(end, 3)] if times else [],
        "unit": scale.unit,
        "metric": metric.name,
        "band": {
            "high": scale.high,
            "low": scale.low,
            "highPlus": None if scale.high is None else scale.high * (1 + tolerance),
            "lowMinus": None if scale.low is None else scale.low * (1 - tolerance),
        },
        "needed": [] if setup.is_open else _needed(aligned, scale),
        "pulledOut": _extended([_most(bucket.pulled_out for bucket in row if bucket) for row in _rows(aligned)]),
        "runs": [
            _run(run, buckets, scale) | {"style": line_style(index, subject)}
            for index, (run, buckets) in enumerate(zip(runs, aligned, strict=True))
        ],
    }


def line_style(index: int, subject: int) -> int:
    """The colour and dash of a run, a number that the style sheet and the script know: 0 for the subject's."""
    return 0 if index == subject else 1 + (index if index < subject else index - 1) % (_STYLES - 1)


def _run(run: Run, buckets: Sequence[Bucket | None], scale: LoadScale) -> dict[str, Any]:
    def column(value: Callable[[Bucket], float | None]) -> Column:
        return _extended([None if bucket is None else value(bucket) for bucket in buckets])

    return {
        "name": run.name,
        "least": column(lambda bucket: bucket.least),
        "most": column(lambda bucket: bucket.most),
        "average": column(lambda bucket: scale.of(bucket.average)),
        "highest": column(lambda bucket: scale.of(bucket.highest)),
    }


def _needed(aligned: Sequence[Sequence[Bucket | None]], scale: LoadScale) -> Column:
    """Serving pods that the load needs at the high watermark each; every run carries the same load."""
    if not scale.high:
        return []
    at_high = float(scale.worth) * scale.high
    return _extended(
        [
            _most(bucket.average * bucket.serving / at_high for bucket in row if bucket and bucket.average is not None)
            for row in _rows(aligned)
        ]
    )


def _rows(aligned: Sequence[Sequence[Bucket | None]]) -> Iterable[tuple[Bucket | None, ...]]:
    return zip(*aligned, strict=True)


def _most(values: Iterable[float]) -> float | None:
    most = max(values, default=None)
    return None if most is None else rounded(most)


def _extended(values: Column) -> Column:
    """Repeats the last value: lines are steps, and the last one lasts until the end."""
    return [*values, *values[-1:]]


def _aligned(buckets: Sequence[Bucket], times: Sequence[float]) -> list[Bucket | None]:
    starts = [bucket.at for bucket in buckets]
    found = (bisect_right(starts, at) - 1 for at in times)
    return [buckets[index] if index >= 0 else None for index in found]


def rounded(value: float) -> float:
    """Four significant digits are more than a chart shows, and keep the page small."""
    short = float(f"{value:.4g}")
    return int(short) if short.is_integer() and abs(short) < 2**53 else short
