"""The scenarios: a service, its load and what happens to it, and the autoscalers that it is played with."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from adapter.commands.replay.history import Tick
from adapter.commands.replay.model import Setup
from adapter.load.quantity import NANO
from adapter.load.spec import Policy
from adapter.policy.hpa import Hpa
from tests.replay.kit import policy, stock

Shape = Callable[[float], float]
BEGAN = 1_767_571_200
"""Monday, 5 January 2026, 00:00 UTC, in seconds since the epoch."""
MILLI = NANO // 1000
MINUTE, HOUR = 60, 3600
RAW, EFFECTIVE = "HPA, raw average", "HPA, effective average"
WATERMARK, STEP = "Watermark", "Step"
CPU_LIMIT = 1500


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


class Contender(NamedTuple):
    """An autoscaler: a policy and its HPA; or the stock HPA alone, on the raw or on the effective average."""

    name: str
    hpa: Hpa
    policy: Policy | None = None
    effective: bool = False


@dataclass(frozen=True, kw_only=True)
class ReplayScenario:
    """One scenario of `seconds`, in ticks of 5 s from `BEGAN` on. `story` is a sentence.

    `load` is by metric (milli-units of the whole service), `pulled_out` a number of pods over time. `totals` are
    the metrics that are one number for the service.
    """

    name: str
    story: str
    seconds: int
    replicas: int
    load: Mapping[str, Shape]
    contenders: Sequence[Contender]
    pulled_out: Callable[[float], int] = lambda _: 0
    totals: frozenset[str] = frozenset()

    def tick(self, at: int) -> Tick:
        """The tick at a time (seconds since the beginning)."""
        load = {name: round(shape(at) * MILLI) for name, shape in self.load.items()}
        return Tick(at=BEGAN + at, load=load, pulled_out=self.pulled_out(at))


SETUP = Setup(
    sample_age=5.0,
    window=15.0,
    capacity={"cpu": CPU_LIMIT * MILLI},
    requests={"cpu": 1000 * MILLI},
    limits={"cpu": CPU_LIMIT * MILLI},
    throttles={"cpu": CPU_LIMIT * MILLI},
)
"""Pods request 1000m, may use 1500m, and serve 30 s after their creation; samples show no more than the limit."""
FOLLOWING = stock(least=3, most=60, behavior={key: {"tolerance": "0"} for key in ("scaleUp", "scaleDown")})
"""The HPA of a policy."""


def native(average: str = "800m") -> Hpa:
    """The stock HPA; by default at the middle of the band."""
    return stock(average, least=3, most=60)


def usual(average: str = "800m", ours: Policy | None = None, *, step: Policy | None = None) -> tuple[Contender, ...]:
    """The stock HPA on both averages and our policy, with the same bounds; Step where it is given."""
    return (
        Contender(RAW, native(average)),
        Contender(EFFECTIVE, native(average), effective=True),
        Contender(WATERMARK, FOLLOWING, ours or policy(low="750m")),
        *([Contender(STEP, FOLLOWING, step)] if step else []),
    )


SHARE = {"name": "cpu", "resource": {"name": "cpu", "relativeTo": "Request"}, "target": "80%"}
STEP_POLICY = policy(metrics=[SHARE], strategy="Step", step={"tolerance": 20})
"""80 % of the request, give or take 20 points: as wide as the band of `sawtooth`."""
_MONDAY = polyline((8 * HOUR, 8000), (9 * HOUR, 9000), (9 * HOUR + 2 * MINUTE, 36_000), (10 * HOUR, 30_000))
_MONDAY_FROM = 8 * HOUR + 30 * MINUTE
_CPU = {"name": "cpu", "resource": {"name": "cpu"}, "highWatermark": "1000m", "lowWatermark": "750m"}
_FLOOR = {"name": "last-week", "query": {"name": "last-week"}, "highWatermark": "1000m", "floor": True}
_ALL = (
    ReplayScenario(
        name="spike",
        story="The load triples at once and falls back after five minutes.",
        seconds=30 * MINUTE,
        replicas=10,
        load={"cpu": step(8000, 24_000, 5 * MINUTE, 10 * MINUTE)},
        contenders=usual(step=STEP_POLICY),
    ),
    ReplayScenario(
        name="sawtooth",
        story="Every ten minutes the load doubles little by little and falls back at once, as batches do.",
        seconds=65 * MINUTE,
        replicas=12,
        load={"cpu": sawtooth(8000, 16_000, 10 * MINUTE, 5 * MINUTE)},
        contenders=usual(ours=policy(), step=STEP_POLICY),
    ),
    ReplayScenario(
        name="pull-out",
        story="Five of ten pods are pulled out for 15 minutes: they stay Ready and get no requests.",
        seconds=40 * MINUTE,
        replicas=10,
        load={"cpu": lambda _: 8000},
        pulled_out=lambda at: 5 if 5 * MINUTE <= at < 20 * MINUTE else 0,
        contenders=usual(step=STEP_POLICY),
    ),
    ReplayScenario(
        name="weekly-peak",
        story="Monday, 9:00: the load quadruples in two minutes, as last week. The floor is the load of last week, ten"
        " minutes ahead.",
        seconds=90 * MINUTE,
        replicas=11,
        load={
            "cpu": lambda at: _MONDAY(at + _MONDAY_FROM),
            "last-week": lambda at: _MONDAY(at + _MONDAY_FROM + 10 * MINUTE),
        },
        totals=frozenset({"last-week"}),
        contenders=(*usual(), Contender(f"{WATERMARK} with a floor", FOLLOWING, policy(metrics=[_CPU, _FLOOR]))),
    ),
    ReplayScenario(
        name="watermark-at-limit",
        story="The high watermark and the stock target are the CPU limit, and the load doubles: no pod shows more than"
        " its limit.",
        seconds=60 * MINUTE,
        replicas=10,
        load={"cpu": step(12_500, 25_000, 5 * MINUTE, 10 * HOUR)},
        contenders=(
            *usual("1500m", policy("1500m", "1200m")),
            Contender(f"{WATERMARK}, saturation off", FOLLOWING, policy("1500m", "1200m", saturationFactor="1")),
        ),
    ),
)
SCENARIOS: Mapping[str, ReplayScenario] = {scenario.name: scenario for scenario in _ALL}
"""By name, in the order in which they are played."""
