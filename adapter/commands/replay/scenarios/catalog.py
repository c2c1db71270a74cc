"""The shipped scenarios, by name, in the order in which they are played."""

from collections.abc import Mapping
from dataclasses import replace

from adapter.commands.replay.scenarios.scenario import (
    BUILT_IN,
    CPU_LIMIT,
    CPU_METRIC,
    DAY,
    HIGH,
    HOUR,
    MILLI,
    MINUTE,
    RAW,
    STEP,
    WATERMARK,
    Contender,
    Object,
    ShippedScenario,
    constant,
    hpa,
    policy,
    polyline,
    resource,
    sawtooth,
    service,
    spells,
    step,
    usual,
    valley,
)
from adapter.commands.replay.service import Setup

SHARE = {"name": "cpu", "resource": {"name": "cpu", "of": "Request"}}
STEP_POLICY = policy({**SHARE, "target": "80%"}, strategy="Step", stepTolerance=20)
"""80 % of the request, give or take 20 points: as wide as the band of `sawtooth`."""
_GIB = 2**30
_MEMORY = {
    "name": "memory", "resource": {"name": "memory", "of": "Limit"}, "highWatermark": "80%", "lowWatermark": "60%",
}  # fmt: skip
_REGISTRY = {"name": "main", "service": "com.shop.web"}


def _spike() -> ShippedScenario:
    return ShippedScenario(
        name="spike",
        story="The load triples at once and falls back after five minutes.",
        seconds=30 * MINUTE,
        setup=service(10),
        load={"cpu": step(8000, 24_000, 5 * MINUTE, 10 * MINUTE)},
        contenders=usual(step=STEP_POLICY),
    )


def _ramp() -> ShippedScenario:
    return ShippedScenario(
        name="ramp",
        story="The load grows fivefold within 20 minutes, and stays.",
        seconds=40 * MINUTE,
        setup=service(10),
        load={"cpu": polyline((5 * MINUTE, 8000), (25 * MINUTE, 40_000))},
        contenders=usual(step=STEP_POLICY),
    )


def _sawtooth() -> ShippedScenario:
    return ShippedScenario(
        name="sawtooth",
        story="Every ten minutes the load doubles little by little and falls back at once, as batches do.",
        seconds=65 * MINUTE,
        setup=service(12),
        load={"cpu": sawtooth(8000, 16_000, 10 * MINUTE, 5 * MINUTE)},
        contenders=usual(ours=policy({**CPU_METRIC, "lowWatermark": "600m"}), step=STEP_POLICY),
    )


def _pull_out() -> ShippedScenario:
    return ShippedScenario(
        name="pull-out",
        story="Five of ten pods are pulled out for 15 minutes: they stay Ready and get no requests.",
        seconds=40 * MINUTE,
        setup=service(10),
        load={"cpu": constant(8000)},
        pulled_out=lambda at: 5 if 5 * MINUTE <= at < 20 * MINUTE else 0,
        contenders=usual(step=STEP_POLICY),
    )


def _rolling_update() -> ShippedScenario:
    return ShippedScenario(
        name="rolling-update",
        story="Under a load that is close to the high watermark, a rolling update replaces all pods, three at a time.",
        seconds=20 * MINUTE,
        setup=service(10, starting={"cpu": 1400 * MILLI}),
        load={"cpu": constant(9500)},
        rollouts=(5 * MINUTE,),
        surge=3,
        contenders=usual(resource("cpu", "950m")),
    )


def _leak() -> ShippedScenario:
    leaking = polyline((0, 4 * _GIB), (4 * HOUR, 12 * _GIB), (4 * HOUR, 4 * _GIB))
    return ShippedScenario(
        name="memory-leak",
        story="Every request leaks a little memory: the total triples in four hours, until a restart frees it.",
        seconds=5 * HOUR,
        step=30,
        setup=service(6, capacity={"memory": _GIB * 1000 * MILLI}, idle={}, starting={}, throttles={}),
        load={"memory": lambda at: leaking(at) * 1000},
        high={"memory": _GIB * 808},
        contenders=usual(resource("memory", str(_GIB * 65 // 100)), policy(_MEMORY)),
    )


def _night() -> ShippedScenario:
    return ShippedScenario(
        name="night-valley",
        story="A day: 40 pods' worth of load at midnight, an eighth of it twelve hours later, and back.",
        seconds=DAY,
        step=60,
        setup=service(40, sync=30.0),
        load={"cpu": valley(4000, 32_000, DAY)},
        contenders=usual(step=STEP_POLICY),
    )


def _registry_outage() -> ShippedScenario:
    return ShippedScenario(
        name="registry-outage",
        story="Two of ten pods are out; the registry falls silent for 15 minutes, and meanwhile the load halves.",
        seconds=45 * MINUTE,
        setup=service(12),
        load={"cpu": step(8000, 4400, 10 * MINUTE, 10 * HOUR)},
        pulled_out=lambda at: 2 if at >= 2 * MINUTE else 0,
        silent=spells((8 * MINUTE, 23 * MINUTE)),
        contenders=usual(ours=policy(registry=_REGISTRY)),
    )


def _weekly_peak() -> ShippedScenario:
    monday = polyline((8 * HOUR, 8000), (9 * HOUR, 9000), (9 * HOUR + 2 * MINUTE, 36_000), (10 * HOUR, 30_000))
    offset = 8 * HOUR + 30 * MINUTE
    floor = {"name": "last-week", "query": {"name": "last-week"}, "highWatermark": f"{HIGH}m", "floor": True}
    ours = policy(CPU_METRIC, floor)
    return ShippedScenario(
        name="weekly-peak",
        story="Monday, 9:00: the load quadruples in two minutes, as last week. The floor is the load of last week, ten"
        " minutes ahead.",
        seconds=90 * MINUTE,
        setup=service(11),
        load={"cpu": lambda at: monday(at + offset), "last-week": lambda at: monday(at + offset + 10 * MINUTE)},
        totals=frozenset({"last-week"}),
        contenders=(*usual(), Contender(f"{WATERMARK} with a floor", hpa(), ours)),
    )


def _at_limit() -> ShippedScenario:
    marks = {**CPU_METRIC, "highWatermark": f"{CPU_LIMIT}m", "lowWatermark": "1200m"}
    return ShippedScenario(
        name="watermark-at-limit",
        story="The high watermark and the stock target are the CPU limit, and the load doubles: no pod shows more than"
        " its limit.",
        seconds=60 * MINUTE,
        setup=service(10),
        load={"cpu": step(12_500, 25_000, 5 * MINUTE, 10 * HOUR)},
        contenders=(
            *usual(resource("cpu", f"{CPU_LIMIT}m"), policy(marks)),
            Contender(f"{WATERMARK}, saturation off", hpa(), policy(marks, saturationFactor="1")),
        ),
    )


PAPER = Setup(
    replicas=2,
    starts=6.0,
    sync=30.0,
    window=15.0,
    capacity={"cpu": 1000 * MILLI},
    requests={"cpu": 1000 * MILLI},
    limits={"cpu": 1000 * MILLI},
    idle={"cpu": 10 * MILLI},
    throttles={"cpu": 1000 * MILLI},
)
"""A small service: two pods that carry 1000m each, new ones serve 6 s after their creation; a loop of 30 s."""


def _of_the_paper(ours: str) -> tuple[Contender, ...]:
    """The contenders of the experiment: target 60 %, tolerance 15 points, two pods more, 180 s and 300 s apart.

    The HPA of those days: the ratio rule with 10 % tolerance, a count at most doubled or 4, once in 3 minutes up and
    in 5 minutes down.
    """
    limit = {"name": "cpu", "resource": {"name": "cpu", "of": "Limit"}}
    share = {"type": "Utilization", "averageUtilization": 60}
    today = {"type": "Resource", "resource": {"name": "cpu", "target": share}}
    apart = {"scaleUpSeconds": 180, "scaleDownSeconds": 300}
    built_in = policy({**limit, "target": "60%"}, strategy="Ratio", cooldown=apart)
    watermark = policy({**limit, "highWatermark": "75%", "lowWatermark": ours})
    bounds: Object = {"least": 2, "most": 30}
    doubling = {
        "scaleUp": {"stabilizationWindowSeconds": 0, "policies": [_rate("Percent", 100, 15)]},
        "scaleDown": {"stabilizationWindowSeconds": 0},
    }
    return (
        Contender(BUILT_IN, hpa(**bounds, behavior=doubling), built_in),
        Contender(RAW, hpa(today, **bounds)),
        Contender(STEP, hpa(**bounds), policy({**limit, "target": "60%"}, strategy="Step")),
        Contender(WATERMARK, hpa(**bounds), watermark),
    )


def _step_tolerance() -> ShippedScenario:
    return ShippedScenario(
        name="step-tolerance",
        story="The experiment of the step-tolerance paper: sudden load on a small service whose pods start in 6 s.",
        seconds=20 * MINUTE,
        step=1,
        setup=PAPER,
        load={"cpu": step(800, 4500, 2 * MINUTE + 10, 10 * MINUTE + 10)},
        high={"cpu": 757},
        contenders=_of_the_paper("45%"),
    )


def _step_tolerance_rise() -> ShippedScenario:
    rise = polyline((130, 800), (250, 4500), (610, 4500), (610, 800))
    return replace(
        _step_tolerance(),
        name="step-tolerance-rise",
        story="The same experiment, with a load that rises within two minutes.",
        load={"cpu": rise},
    )


def _behavior() -> ShippedScenario:
    pace = {
        "scaleUp": {"stabilizationWindowSeconds": 0, "policies": [_rate("Percent", 900, 300)]},
        "scaleDown": {"stabilizationWindowSeconds": 60, "policies": [_rate("Pods", 1, 10)]},
    }
    return ShippedScenario(
        name="behavior",
        story="The load needs 13 pods instead of one, then one again: at most 900 % more in 5 minutes, one pod less in"
        " 10 seconds.",
        seconds=20 * MINUTE,
        step=5,
        setup=service(1, sync=5.0, starts=5.0, delay=0.0, window=None, throttles={}, starting={}, idle={}),
        load={"cpu": step(800, 12_500, 1 * MINUTE, 11 * MINUTE)},
        contenders=(
            Contender(RAW, hpa(resource("cpu", "1"), 1, 20, pace)),
            Contender(WATERMARK, hpa(None, 1, 20, pace), policy({**CPU_METRIC, "lowWatermark": "500m"})),
        ),
    )


def _rate(kind: str, value: int, period: int) -> Object:
    return {"type": kind, "value": value, "periodSeconds": period}


SCENARIOS: Mapping[str, ShippedScenario] = {
    one.name: one
    for one in (
        _spike(),
        _ramp(),
        _sawtooth(),
        _pull_out(),
        _rolling_update(),
        _leak(),
        _night(),
        _registry_outage(),
        _weekly_peak(),
        _at_limit(),
        _step_tolerance(),
        _step_tolerance_rise(),
        _behavior(),
    )
}
