"""What the charts draw, as JSON data: runs on one time axis, loads in the unit of the watermarks."""

from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from fractions import Fraction
from typing import Any, NamedTuple

from adapter.commands.replay.service import Bucket, Run, Setup
from adapter.load.quantity import NANO
from adapter.load.spec import Average, Capacity, Metric, Policy

Column = list[float | None]
MOST_POINTS = 2000
"""The most points of a line; a history with more buckets is thinned, with its extremes kept."""
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
    source = metric.resource or metric.query
    resource = metric.resource.name if metric.resource else metric.query.resource if metric.query else ""
    capacity = (setup.limits if metric.of is Capacity.LIMIT else setup.requests).get(resource, 0)
    assert source is not None
    if metric.of and capacity:
        return _scale("%", Fraction(capacity, 100), Fraction(NANO, 100), policy, metric)
    unit = {"cpu": "m", "memory": "B", "ephemeral-storage": "B"}.get(resource, "")
    worth = Fraction(NANO, 1000 if unit == "m" else 1)
    return _scale(unit, worth, None if metric.of else worth, policy, metric)


def _scale(unit: str, worth: Fraction, mark: Fraction | None, policy: Policy, metric: Metric) -> LoadScale:
    """`mark` is what one unit of the watermarks is in nano-units; None: they cannot be compared with the loads."""
    if mark is None or policy.average is Average.TOTAL:
        return LoadScale(unit, worth, None, None)
    high, low = (None if nano is None else float(nano / mark) for nano in policy.limits_of(metric))
    return LoadScale(unit, worth, high, low)


def chart_data(policy: Policy, setup: Setup, metric: Metric, runs: Sequence[Run], subject: int) -> dict[str, Any]:
    """The columns of every run on one axis of times. A column has one value for each time; None is a gap.

    `metric` is the one that the runs' loads are of.
    """
    scale = load_scale(policy, setup, metric)
    shown = [_thinned(run.buckets) for run in runs]
    times = sorted({bucket.at for buckets in shown for bucket in buckets})
    end = max((bucket.at + bucket.seconds for buckets in shown for bucket in buckets), default=0.0)
    aligned = [_aligned(buckets, times) for buckets in shown]
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


def _thinned(buckets: Sequence[Bucket]) -> Sequence[Bucket]:
    step = -(-len(buckets) // MOST_POINTS)
    return buckets if step <= 1 else [_merged(buckets[at : at + step]) for at in range(0, len(buckets), step)]


def _merged(buckets: Sequence[Bucket]) -> Bucket:
    seconds = sum(bucket.seconds for bucket in buckets)

    def mean(value: Callable[[Bucket], float | None]) -> float | None:
        known = [(number, bucket.seconds) for bucket in buckets if (number := value(bucket)) is not None]
        weight = sum(length for _, length in known)
        return sum(number * length for number, length in known) / weight if weight else None

    highest = [bucket.highest for bucket in buckets if bucket.highest is not None]
    return Bucket(
        at=buckets[0].at,
        seconds=seconds,
        least=min(bucket.least for bucket in buckets),
        most=max(bucket.most for bucket in buckets),
        serving=mean(lambda bucket: bucket.serving) or 0.0,
        pulled_out=mean(lambda bucket: bucket.pulled_out) or 0.0,
        average=mean(lambda bucket: bucket.average),
        highest=max(highest, default=None),
    )


def rounded(value: float) -> float:
    """Four significant digits are more than a chart shows, and keep the page small."""
    short = float(f"{value:.4g}")
    return int(short) if short.is_integer() and abs(short) < 2**53 else short
