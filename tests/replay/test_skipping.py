"""Syncs that surely keep the count are left out: with and without that, every count is the same at every moment."""

import random
from dataclasses import replace
from fractions import Fraction
from zoneinfo import ZoneInfo

from hypothesis import given, settings
from hypothesis import strategies as st

from adapter.commands.replay.autoscalers import HpaAutoscaler, PolicyAutoscaler
from adapter.commands.replay.hpas import hpa_following, judge_of, stock_hpa_for
from adapter.commands.replay.service import Autoscaler, Setup, Tick
from adapter.commands.replay.simulation import simulate
from adapter.load.spec import (
    Algorithm,
    Capacity,
    Cooldown,
    Delay,
    Metric,
    Policy,
    PulledOut,
    Query,
    ResourceMetric,
    Schedule,
    Strategy,
    Velocity,
)
from adapter.policy.hpa import Hpa, ScalingPolicy, ScalingRules
from tests.load.kit import cpu, nano, policy
from tests.replay.services import POD, hpa, wandering

SCHEDULE = Schedule(name="peak", cron="*/40 * * * *", zone=ZoneInfo("UTC"), duration=900.0, minimum=9, maximum=None)
CAP = replace(SCHEDULE, name="cap", minimum=None, maximum=8)


def random_policy(rng: random.Random) -> Policy:
    metrics = [cpu(*rng.choice((("1000m", "600m"), ("1000m", "900m"), ("800m", None), (None, "500m"))))]
    if rng.random() < 0.3:
        metrics = [replace(cpu("800m", "500m"), resource=ResourceMetric(name="cpu", relative_to=Capacity.REQUEST))]
    if rng.random() < 0.3:
        query = Query(name="calls")
        metrics.append(Metric(name="calls", query=query, high=Fraction(nano("1500m")), low=Fraction(nano("700m"))))
    if rng.random() < 0.2:
        metrics[0] = replace(metrics[0], delay=rng.choice((Delay(up=45), Delay(down=120), Delay(up=30, down=60))))
    if rng.random() < 0.2:
        query = Query(name="queue")
        metrics.append(Metric(name="queue", query=query, high=Fraction(nano("1")), floor=True))
    strategy = rng.choice((Strategy.WATERMARK, Strategy.WATERMARK, Strategy.RATIO, Strategy.STEP))
    if strategy is not Strategy.WATERMARK:
        metrics = [replace(one, high=None, low=None, target=one.high or one.low) for one in metrics]
    return policy(
        *metrics,
        strategy=strategy,
        velocity=rng.choice((Velocity(), Velocity(up=20, down=10), Velocity(down=0))),
        cooldown=rng.choice((Cooldown(), Cooldown(), Cooldown(up=60, down=300), Cooldown(down=900))),
        schedules=rng.choice(((), (), (SCHEDULE,), (SCHEDULE, CAP))),
        pulled_out=PulledOut(delete_first=rng.random() < 0.3),
        tolerance=rng.choice((Fraction(1, 100), Fraction(0), Fraction(1, 10))),
        replica_multiple=rng.choice((1, 1, 3)),
        accept_zero_usage=rng.choice((None, True, False)),
        min_serving_percent=rng.choice((50, 90)),
        fast_scale_up=rng.random() < 0.1,
    )


def random_rules(rng: random.Random) -> ScalingRules:
    limits = (ScalingPolicy("Percent", 50, 60), ScalingPolicy("Pods", 2, 30), ScalingPolicy("Pods", 4, 300))
    return ScalingRules(
        tolerance=rng.choice((Fraction(0), Fraction(0), Fraction(1, 20), None)),
        stabilization=rng.choice((None, 0, 60, 300, 900)),
        select=rng.choice(("", "Max", "Min", "Disabled") if rng.random() < 0.3 else ("Max",)),
        policies=tuple(rng.sample(limits, rng.randrange(3))),
    )


def random_hpa(rng: random.Random) -> Hpa:
    bounds = rng.choice(((1, 100), (5, 12), (9, 11), (0, 30)))
    if rng.random() < 0.2:
        return hpa(*bounds)
    return hpa(*bounds, up=random_rules(rng), down=random_rules(rng), has_behavior=rng.random() < 0.8)


def random_setup(rng: random.Random) -> Setup:
    return Setup(
        replicas=rng.randrange(1, 14),
        starts=rng.choice((0.0, 6.0, 30.0, 200.0)),
        stops=rng.choice((0.0, 5.0, 40.0)),
        sync=rng.choice((15.0, 15.0, 15.0, 10.0)),
        delay=rng.choice((0.0, 0.0, 0.0, 20.0, 45.0)),
        window=rng.choice((None, None, None, 30.0, 60.0)),
        requests={"cpu": POD},
        capacity={"cpu": 2 * POD},
        idle={"cpu": POD // 50},
        lasts=60.0,
    )


def random_history(rng: random.Random, seed: int) -> list[Tick]:
    history = wandering(seed, 250, step=rng.choice((15.0, 15.0, 15.0, 5.0, 40.0)))
    calls, queue = wandering(seed + 1, 250), wandering(seed + 2, 250)
    both = []
    for tick, other, third in zip(history, calls, queue, strict=True):
        load = {**tick.load, "calls": other.load["cpu"], "queue": third.load["cpu"] // 2}
        if rng.random() < 0.006:
            del load[rng.choice(("calls", "queue"))]
        both.append(tick._replace(load=load))
    return both


def autoscalers(rule: Policy, native: Hpa, setup: Setup, totals: list[str]) -> list[Autoscaler]:
    stock = stock_hpa_for(rule, native, setup, totals)
    asked = hpa_following(rule, native)
    both = replace(asked, metrics=(*asked.metrics, *stock.metrics))
    return [
        PolicyAutoscaler(rule, native, totals=totals),
        PolicyAutoscaler(rule, both, "both", totals),
        HpaAutoscaler(stock),
        HpaAutoscaler(stock, effective=True),
    ]


def compared(seed: int) -> None:
    rng = random.Random(seed)
    rule, native, setup = random_policy(rng), random_hpa(rng), random_setup(rng)
    totals = rng.choice(([], ["calls"]))
    if rng.random() < 0.15:
        totals = ["cpu", "calls"]
        metrics = [
            replace(one, resource=None, query=Query(name=one.name)) for one in rule.metrics if not one.relative_to
        ]
        if metrics:
            algorithm = Algorithm.ABSOLUTE if len(metrics) == 1 and not metrics[0].target else Algorithm.AVERAGE
            scale = 10 if algorithm is Algorithm.ABSOLUTE else 1
            metrics = [
                replace(one, high=one.high and one.high * scale, low=one.low and one.low * scale) for one in metrics
            ]
            rule = replace(rule, metrics=tuple(metrics), algorithm=algorithm)
    history = random_history(rng, seed)
    judge = judge_of(rule, setup)
    fast = simulate(history, setup, autoscalers(rule, native, setup, totals), judge)
    slow = simulate(history, setup, autoscalers(rule, native, setup, totals), judge, skip=False)
    assert [(run.name, run.changes) for run in fast] == [(run.name, run.changes) for run in slow], seed
    assert fast == slow


@given(st.integers(0, 10**9))
@settings(max_examples=settings().max_examples // 12, deadline=None)
def test_leaving_out_syncs_changes_no_count(seed: int) -> None:
    compared(seed)
