"""The scenarios: a service, its load and what happens to it, and the autoscalers that it is played with."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, NamedTuple

from adapter.commands.replay.history import Tick
from adapter.commands.replay.model import Setup
from adapter.load.quantity import NANO
from adapter.policy.behavior import count_metric

Shape = Callable[[float], float]
Object = dict[str, Any]
BEGAN = 1_767_571_200
"""Monday, 5 January 2026, 00:00 UTC, in seconds since the epoch."""
MILLI = NANO // 1000
MINUTE, HOUR = 60, 3600
RAW, EFFECTIVE = "HPA, raw average", "HPA, effective average"
WATERMARK, STEP = "Watermark", "Step"
CPU_REQUEST, CPU_LIMIT = 1000, 1500
HIGH, LOW, TARGET = 1000, 750, 800
"""The watermarks of CPU in millicores, and the target of the stock HPA: the middle of the band."""
CPU_METRIC = {"name": "cpu", "resource": {"name": "cpu"}, "highWatermark": f"{HIGH}m", "lowWatermark": f"{LOW}m"}
SHARE = {"name": "cpu", "resource": {"name": "cpu", "relativeTo": "Request"}}
_GIB = 2**30
_MEMORY = {
    "name": "memory", "resource": {"name": "memory", "relativeTo": "Limit"},
    "highWatermark": "80%", "lowWatermark": "60%",
}  # fmt: skip
_REGISTRY = {"name": "main", "service": "com.shop.web"}


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
class ReplayScenario:
    """One scenario of `seconds`, in ticks of `step` seconds from `BEGAN` on. `story` is a sentence.

    `load` is by metric (milli-units of the whole service), `pulled_out` a number of pods over time. `silent`: whether
    the registry gives no answers. `totals` are the metrics that are one number for the service. `high` is the high
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
        sample_age=5.0,
        window=15.0,
        capacity={"cpu": CPU_LIMIT * MILLI},
        requests={"cpu": CPU_REQUEST * MILLI, "memory": 2**30 * NANO},
        limits={"cpu": CPU_LIMIT * MILLI, "memory": 2**30 * NANO},
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


STEP_POLICY = policy({**SHARE, "target": "80%"}, strategy="Step", step={"tolerance": 20})
"""80 % of the request, give or take 20 points: as wide as the band of `sawtooth`."""
_LEAKING = polyline((0, 4 * _GIB), (4 * HOUR, 12 * _GIB), (4 * HOUR, 4 * _GIB))
_MONDAY = polyline((8 * HOUR, 8000), (9 * HOUR, 9000), (9 * HOUR + 2 * MINUTE, 36_000), (10 * HOUR, 30_000))
_MONDAY_FROM = 8 * HOUR + 30 * MINUTE
_FLOOR = {"name": "last-week", "query": {"name": "last-week"}, "highWatermark": f"{HIGH}m", "floor": True}
_AT_LIMIT = {**CPU_METRIC, "highWatermark": f"{CPU_LIMIT}m", "lowWatermark": "1200m"}
_ALL = (
    ReplayScenario(
        name="spike",
        story="The load triples at once and falls back after five minutes.",
        seconds=30 * MINUTE,
        setup=service(10),
        load={"cpu": step(8000, 24_000, 5 * MINUTE, 10 * MINUTE)},
        contenders=usual(step=STEP_POLICY),
    ),
    ReplayScenario(
        name="ramp",
        story="The load grows fivefold within 20 minutes, and stays.",
        seconds=40 * MINUTE,
        setup=service(10),
        load={"cpu": polyline((5 * MINUTE, 8000), (25 * MINUTE, 40_000))},
        contenders=usual(step=STEP_POLICY),
    ),
    ReplayScenario(
        name="sawtooth",
        story="Every ten minutes the load doubles little by little and falls back at once, as batches do.",
        seconds=65 * MINUTE,
        setup=service(12),
        load={"cpu": sawtooth(8000, 16_000, 10 * MINUTE, 5 * MINUTE)},
        contenders=usual(ours=policy({**CPU_METRIC, "lowWatermark": "600m"}), step=STEP_POLICY),
    ),
    ReplayScenario(
        name="pull-out",
        story="Five of ten pods are pulled out for 15 minutes: they stay Ready and get no requests.",
        seconds=40 * MINUTE,
        setup=service(10),
        load={"cpu": constant(8000)},
        pulled_out=lambda at: 5 if 5 * MINUTE <= at < 20 * MINUTE else 0,
        contenders=usual(step=STEP_POLICY),
    ),
    ReplayScenario(
        name="memory-leak",
        story="Every request leaks a little memory: the total triples in four hours, until a restart frees it.",
        seconds=5 * HOUR,
        step=30,
        setup=service(6, capacity={"memory": _GIB * 1000 * MILLI}, throttles={}),
        load={"memory": lambda at: _LEAKING(at) * 1000},
        high={"memory": _GIB * 808},
        contenders=usual(resource("memory", str(_GIB * 65 // 100)), policy(_MEMORY)),
    ),
    ReplayScenario(
        name="night-valley",
        story="A short night: 30 pods' worth of load, a sixth of it four hours later, and back.",
        seconds=8 * HOUR,
        step=60,
        setup=service(30, sync=60.0),
        load={"cpu": valley(4000, 24_000, 8 * HOUR)},
        contenders=usual(step=STEP_POLICY),
    ),
    ReplayScenario(
        name="registry-outage",
        story="Two of ten pods are out; the registry falls silent for 15 minutes, and meanwhile the load halves.",
        seconds=45 * MINUTE,
        setup=service(12),
        load={"cpu": step(8000, 4400, 10 * MINUTE, 10 * HOUR)},
        pulled_out=lambda at: 2 if at >= 2 * MINUTE else 0,
        silent=spells((8 * MINUTE, 23 * MINUTE)),
        contenders=usual(ours=policy(registry=_REGISTRY)),
    ),
    ReplayScenario(
        name="weekly-peak",
        story="Monday, 9:00: the load quadruples in two minutes, as last week. The floor is the load of last week, ten"
        " minutes ahead.",
        seconds=90 * MINUTE,
        setup=service(11),
        load={
            "cpu": lambda at: _MONDAY(at + _MONDAY_FROM),
            "last-week": lambda at: _MONDAY(at + _MONDAY_FROM + 10 * MINUTE),
        },
        totals=frozenset({"last-week"}),
        contenders=(*usual(), Contender(f"{WATERMARK} with a floor", hpa(), policy(CPU_METRIC, _FLOOR))),
    ),
    ReplayScenario(
        name="watermark-at-limit",
        story="The high watermark and the stock target are the CPU limit, and the load doubles: no pod shows more than"
        " its limit.",
        seconds=60 * MINUTE,
        setup=service(10),
        load={"cpu": step(12_500, 25_000, 5 * MINUTE, 10 * HOUR)},
        contenders=(
            *usual(resource("cpu", f"{CPU_LIMIT}m"), policy(_AT_LIMIT)),
            Contender(f"{WATERMARK}, saturation off", hpa(), policy(_AT_LIMIT, saturationFactor="1")),
        ),
    ),
)
SCENARIOS: Mapping[str, ReplayScenario] = {scenario.name: scenario for scenario in _ALL}
"""By name, in the order in which they are played."""
