"""A replay of a made-up week, without the simulation: counts, loads and figures that look like a service's."""

import math
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

from adapter.commands.replay.comparison import Result, compare
from adapter.commands.replay.report import Report
from adapter.commands.replay.service import Bucket, Judge, Run, Setup, Summary
from adapter.load.spec import Policy
from adapter.policy.watermark_policy import parse_policy

SINCE = 1_767_225_600.0
HOUR = 3600.0
NANO = 10**9
MANIFEST: dict[str, Any] = {
    "metadata": {"namespace": "shop", "name": "checkout"},
    "spec": {
        "metrics": [
            {"name": "cpu", "resource": {"name": "cpu"}, "highWatermark": "1200m", "lowWatermark": "400m"},
            {"name": "memory", "resource": {"name": "memory"}, "highWatermark": "2Gi"},
        ]
    },
}
POLICY: Policy = parse_policy(MANIFEST)


def summary(**fields: Any) -> Summary:
    """Figures of a quiet run, but for `fields`."""
    known = dict.fromkeys(Summary._fields, 0) | {"seconds": 168 * HOUR, "pod_seconds": 5000 * HOUR, "peak": 40}
    return Summary(**(known | fields))


def buckets(number: int = 500, share: float = 1.0, out: int = 6) -> tuple[Bucket, ...]:
    """A week in buckets with a day's wave, and pods pulled out on its third day; `share` scales the counts."""
    seconds = 168 * HOUR / number
    made = []
    for index in range(number):
        day = index * seconds / (24 * HOUR)
        demand = 24 - 16 * math.cos(2 * math.pi * (day - 0.1)) + 2 * math.sin(37 * day)
        pulled = out if 2.3 < day < 2.6 else 0
        serving = max(2, math.ceil(demand * share))
        average = demand * NANO / serving
        made.append(
            Bucket(
                at=SINCE + index * seconds,
                end=SINCE + (index + 1) * seconds,
                seconds=seconds,
                least=serving + pulled - 1,
                most=serving + pulled + 1,
                served=serving * seconds,
                out=pulled * seconds,
                carried=average * seconds,
                carrying=seconds,
                highest=1.15 * average,
            )
        )
    return tuple(made)


def run(name: str, share: float, number: int = 500, **figures: Any) -> Run:
    """A run whose counts are a share of the demand in cores."""
    return Run(name=name, summary=summary(**figures), buckets=buckets(number, share))


def three(policy: Run, stock: Run | None = None) -> tuple[Run, ...]:
    """The runs of a comparison: the stock HPA on both averages, and the policy."""
    stock = stock or run(
        "stock HPA, raw average", 0.8, over_high=20_400.0, recovery=7_200.0, shortfall=0.0123, flaps=14
    )
    effective = {"over_high": 4_200.0, "pod_seconds": 5200 * HOUR, "shortfall": stock.summary.shortfall and 0.001}
    return stock, run("stock HPA, effective average", 0.95, **effective), policy


def report(
    policy: Policy = POLICY,
    runs: Sequence[Run] = (),
    *,
    price: Fraction | None = Fraction(42, 1000),
    judged_by: str = "cpu",
    stock_is: str = "as it is today",
    source: str = "Prometheus main",
) -> Report:
    """The report of a week."""
    usual = run("policy", 1.05, over_high=720.0, recovery=90.0, pod_seconds=4870 * HOUR, shortfall=0.0, flaps=2)
    setup = Setup(replicas=10, capacity={"cpu": 1500 * NANO // 1000})
    comparison = replace(
        compare(policy, None, setup, price=price), judge=Judge({judged_by: Fraction(1)}), stock_is=stock_is
    )
    result = Result(comparison=comparison, begin=SINCE, end=SINCE + 168 * HOUR, ticks=40_320, runs=runs or three(usual))
    return Report(result=result, source=source)


def policy_named(name: str) -> Policy:
    """The policy with any name, and a metric of that name, though the API server would refuse most."""
    metrics = tuple(replace(metric, name=name) for metric in POLICY.metrics)
    return replace(POLICY, namespace=name, name=name, metrics=metrics)
