"""The loads at which the stock HPA surely keeps its count: guessed from its target, then asked of the model itself."""

from collections.abc import Callable, Mapping

from adapter.load.resting import UNBOUNDED, RestingRange
from adapter.policy.hpa import HpaMetric, MetricTargetType
from adapter.replay.hpa.calculator import Tolerances
from adapter.replay.hpa.controller import Values
from adapter.replay.hpa.machine import milli
from adapter.replay.hpa.pods import ModelPod
from adapter.replay.service import View

_MILLI = 10**6
"""Nano-units in a milli-unit."""

Recommend = Callable[[View], int | None]
"""What the HPA recommends at a view."""


def hpa_range(
    metric: HpaMetric,
    values: Values,
    view: View,
    pods: tuple[ModelPod, ...],
    tolerances: Tolerances,
    recommend: Recommend,
    *,
    may_fall: bool,
    may_rise: bool,
) -> RestingRange | None:
    """The loads at which this metric, all others as they are, surely keeps the count; None where nothing is sure.

    The serving pods carry equal shares; `values` is what the metric answers at the view. A larger load never recommends
    less, so it is enough to ask for both ends.
    """
    serving = [pod.name for pod in view.pods if pod.is_ready and not pod.deleting and not pod.pulled_out_annotation]
    aim = _whole_aim(metric, values, view, pods)
    if aim is None or not serving or metric.aim is None:
        return None
    idle = values.items() if isinstance(values, Mapping) else ()
    out = sum(sample.value for name, sample in idle if name not in serving)
    # Rounding: of each pod's milli-units, of their mean, and of a whole percent.
    slack = 2 * len(view.pods) + 2 + aim // (metric.aim if _is_percent(metric) else aim)
    floor = least = len(serving) + 1
    most = UNBOUNDED
    if may_fall:
        least = max(floor, (round(aim * (1 - tolerances.down)) - out + slack) * _MILLI)
    if may_rise:
        most = (round(aim * (1 + tolerances.up)) - out - slack) * _MILLI
    if least > most:
        return None
    ends = [end for end, asked in ((least, may_fall), (most, may_rise)) if asked]
    sure = all(recommend(at_load(view, metric.name, end, serving)) == view.replicas for end in ends)
    return RestingRange(floor, least, most) if sure else None


def at_load(view: View, metric: str, load: int, serving: list[str]) -> View:
    """The view with another load of the service, shared by the serving pods."""
    samples = dict(view.samples.get(metric, {})) | dict.fromkeys(serving, -(-load // len(serving)))
    return view._replace(samples={**view.samples, metric: samples}, load={**view.load, metric: load})


def _whole_aim(metric: HpaMetric, values: Values, view: View, pods: tuple[ModelPod, ...]) -> int | None:
    """The usage of all pods at which the ratio is 1 (milli-units)."""
    if metric.aim is None or isinstance(values, str):
        return None
    if not isinstance(values, Mapping):
        by_average = metric.target is MetricTargetType.AVERAGE_VALUE
        return milli(metric.aim) * view.status_replicas if by_average else None
    if _is_percent(metric):
        return metric.aim * sum(pod.requests.get(metric.name, 0) for pod in pods if pod.name in values) // 100
    return milli(metric.aim) * len(values)


def _is_percent(metric: HpaMetric) -> bool:
    return metric.target is MetricTargetType.UTILIZATION
