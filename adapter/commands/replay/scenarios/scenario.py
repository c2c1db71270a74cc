"""A scenario: a service, its load and what happens to it, and the objects of the autoscalers that it is played with."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, NamedTuple

from adapter.commands.replay.service import Setup, Tick
from adapter.load.quantity import NANO
from adapter.policy.behavior import count_metric

Shape = Callable[[float], float]
Object = dict[str, Any]
BEGAN = 1_767_571_200
"""Monday, 5 January 2026, 00:00 UTC, in seconds since the epoch."""
MILLI = NANO // 1000
MINUTE, HOUR, DAY = 60, 3600, 86_400
RAW, EFFECTIVE = "HPA, raw average", "HPA, effective average"
WATERMARK, STEP, BUILT_IN = "Watermark", "Step", "HPA of 2018"
CPU_REQUEST, CPU_LIMIT = 1000, 1500
HIGH, LOW, TARGET = 1000, 750, 800
"""The watermarks of CPU in millicores, and the target of the stock HPA: the middle of the band."""
CPU_METRIC = {"name": "cpu", "resource": {"name": "cpu"}, "highWatermark": f"{HIGH}m", "lowWatermark": f"{LOW}m"}


def constant(level: float) -> Shape:
    """The same load all the time."""
    return lambda _: level


def polyline(*points: tuple[float, float]) -> Shape:
    """Straight lines between (seconds, load); constant before the first point and after the last one.

    Two points at the same time are a jump.
    """

    def shape(at: float) -> float:
        if at < points[0][0]:
            return points[0][1]
        for (begin, low), (end, high) in pairwise(points):
            if begin <= at < end:
                return low + (high - low) * (at - begin) / (end - begin)
        return points[-1][1]

    return shape


def step(low: float, high: float, begin: float, end: float) -> Shape:
    """`high` in [begin, end), `low` otherwise."""
    return lambda at: high if begin <= at < end else low


def sawtooth(low: float, high: float, period: float, begin: float = 0.0) -> Shape:
    """From `begin` on the load rises from `low` to `high` within each period, and falls at once."""
    return lambda at: low + (high - low) * ((at - begin) % period) / period if at >= begin else low


def valley(low: float, high: float, period: float) -> Shape:
    """A cosine: `high` at the beginning and the end of each period, `low` in its middle."""
    return lambda at: (high + low) / 2 + (high - low) / 2 * math.cos(2 * math.pi * at / period)


def spells(*ranges: tuple[float, float]) -> Callable[[float], bool]:
    """Whether a time lies in one of the ranges [begin, end)."""
    kept: Sequence[tuple[float, float]] = ranges
    return lambda at: any(begin <= at < end for begin, end in kept)


class Contender(NamedTuple):
    """An autoscaler: a policy and its HPA; or the stock HPA alone, on the raw or on the effective average."""

    name: str
    hpa: Object
    policy: Object | None = None
    effective: bool = False


@dataclass(frozen=True, kw_only=True)
class ShippedScenario:
    """One scenario of `seconds`, in ticks of `step` seconds from `BEGAN` on. `story` is a sentence.

    `load` is by metric (milli-units of the whole service), `pulled_out` a number of pods over time. At each of
    `rollouts` (seconds) a rolling update begins, with at most `surge` pods beyond the count. `silent`: whether the
    registry gives no answers. `totals` are the metrics that are one number for the service. `high` is the high
    watermark, with its tolerance of 1 %, beyond which a pod counts as overloaded (milli-units by metric).
    """

    name: str
    story: str
    seconds: int
    setup: Setup
    load: Mapping[str, Shape]
    contenders: Sequence[Contender]
    high: Mapping[str, int] = field(default_factory=lambda: {"cpu": HIGH * 101 // 100})
    step: int = 5
    pulled_out: Callable[[float], int] = lambda _: 0
    rollouts: Sequence[int] = ()
    surge: int = 0
    silent: Callable[[float], bool] = lambda _: False
    totals: frozenset[str] = frozenset()

    def tick(self, at: int) -> Tick:
        """The tick at a time (seconds since the beginning)."""
        load = {name: round(shape(at) * MILLI) for name, shape in self.load.items()}
        return Tick(at=BEGAN + at, load=load, pulled_out=self.pulled_out(at))


def service(replicas: int, **changes: Any) -> Setup:
    """A service whose pods request 1000m, may use 1500m, and serve 30 s after their creation.

    Samples are averages over 15 s and 5 s old; none shows more than the limit, as CPU is throttled there.
    """
    usual = Setup(
        replicas=replicas,
        delay=5.0,
        window=15.0,
        capacity={"cpu": CPU_LIMIT * MILLI},
        requests={"cpu": CPU_REQUEST * MILLI, "memory": 2**30 * NANO},
        limits={"cpu": CPU_LIMIT * MILLI, "memory": 2**30 * NANO},
        idle={"cpu": 20 * MILLI},
        starting={"cpu": 900 * MILLI},
        throttles={"cpu": CPU_LIMIT * MILLI},
    )
    return replace(usual, **changes)


def policy(*metrics: Object, **spec: Any) -> Object:
    """A WatermarkPolicy object; by default with the watermarks of CPU."""
    return {
        "apiVersion": "effective-load.io/v1alpha1",
        "kind": "WatermarkPolicy",
        "metadata": {"name": "web", "namespace": "shop"},
        "spec": {"metrics": list(metrics or (CPU_METRIC,)), **spec},
    }


def hpa(metric: Object | None = None, least: int = 3, most: int = 60, behavior: Object | None = None) -> Object:
    """An HPA object. Without a metric it asks for `desired_replicas` at a tolerance of 0, and scales as the default."""
    if metric is None:
        zero: Object = {"tolerance": "0"}
        given = behavior or {}
        behavior = {key: {**zero, **given.get(key, {})} for key in ("scaleUp", "scaleDown")}
        metric = count_metric("web")
    spec = {
        "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
        "minReplicas": least,
        "maxReplicas": most,
        "metrics": [metric],
    }
    return {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": "web", "namespace": "shop"},
        "spec": spec | ({"behavior": behavior} if behavior else {}),
    }


def resource(name: str, average: str) -> Object:
    """A metric of a stock HPA: a resource with a target for the average of a pod."""
    return {"type": "Resource", "resource": {"name": name, "target": {"type": "AverageValue", "averageValue": average}}}


def usual(
    stock: Object | None = None, ours: Object | None = None, *, step: Object | None = None, **bounds: Any
) -> tuple[Contender, ...]:
    """The stock HPA on both averages and our policy, with the same bounds and behavior; Step where it is given."""
    metric = stock or resource("cpu", f"{TARGET}m")
    policies = {WATERMARK: ours or policy()} | ({STEP: step} if step else {})
    return (
        Contender(RAW, hpa(metric, **bounds)),
        Contender(EFFECTIVE, hpa(metric, **bounds), effective=True),
        *(Contender(name, hpa(**bounds), spec) for name, spec in policies.items()),
    )
