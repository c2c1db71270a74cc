"""The cost of a replay: processor time for a week of one service, and memory by the length of the history.

    python -m lab.benchmarks.replay [--pods 50] [--days 7] [--step 15] [--delay 0] [--window 0] [-o FILE]

Processor time of this process, without a network; the ticks are made while they are read, which is measured apart. The
history has waves by day and week, noise of 3 % at every tick, bursts and pull-outs. The comparison is that of the
command: the stock HPA on the raw and on the effective average, a policy, and a second one.
"""

import argparse
import gc
import json
import math
import random
import time
import tracemalloc
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

from adapter.commands.replay.autoscalers import HpaAutoscaler, PolicyAutoscaler
from adapter.commands.replay.hpas import judge_of, stock_hpa_for
from adapter.commands.replay.service import Autoscaler, Setup, Tick
from adapter.commands.replay.simulation import simulate
from adapter.load.quantity import NANO
from adapter.load.spec import Bounds, Cooldown, Metric, Policy, ResourceMetric, Velocity
from adapter.policy.hpa import CrossVersionReference, Hpa, ScalingRules
from lab.benchmarks import record

BEGAN = 1_767_225_600.0
_DAY = 86_400.0


def ticks(days: float, step: float, pods: int, seed: str | int = 1) -> Iterator[Tick]:
    """A service that needs about this many pods at most, the same ones for the same seed."""
    rng = random.Random(seed)
    out, burst = 0, 1.0
    for index in range(int(days * _DAY / step)):
        at = index * step
        day = 1 + 0.5 * math.sin(2 * math.pi * at / _DAY)
        week = 1.0 if at // _DAY % 7 < 5 else 0.7
        if burst < 1.01 and rng.random() < step / 75_000:
            burst = rng.uniform(1.2, 1.8)
        burst = 1 + (burst - 1) * 0.99
        if rng.random() < step / 30_000:
            out = rng.randrange(4)
        load = pods * 0.55 * NANO * day * week * burst * rng.gauss(1, 0.03)
        yield Tick(BEGAN + at, {"cpu": int(load)}, out)


def policy(name: str, high: int, low: int, **changes: Any) -> Policy:
    """A policy on CPU, its watermarks in milli-units."""
    milli = NANO // 1000
    metric = Metric(
        name="cpu", resource=ResourceMetric(name="cpu"), high=Fraction(high * milli), low=Fraction(low * milli)
    )
    return Policy(namespace="shop", name=name, hpa="web", metrics=(metric,), **changes)


def comparison(setup: Setup) -> tuple[Policy, list[Autoscaler]]:
    """What the command compares."""
    exact = ScalingRules(tolerance=Fraction(0))
    native = Hpa(
        namespace="shop",
        name="web",
        target=CrossVersionReference("apps/v1", "Deployment", "web"),
        bounds=Bounds(minimum=2, maximum=500),
        scale_up=exact,
        scale_down=exact,
        has_behavior=True,
    )
    first = policy("first", 1000, 600)
    second = policy("second", 900, 700, velocity=Velocity(up=50, down=10), cooldown=Cooldown(down=300))
    stock = stock_hpa_for(first, native, setup)
    return first, [
        HpaAutoscaler(stock),
        HpaAutoscaler(stock, effective=True),
        PolicyAutoscaler(first, native),
        PolicyAutoscaler(second, native),
    ]


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """The figures, in seconds of processor time."""
    began = time.process_time()
    made = sum(1 for _ in ticks(options.days, options.step, options.pods))
    making = time.process_time() - began
    setup = Setup(
        replicas=options.pods // 2,
        delay=options.delay,
        window=options.window or None,
        requests={"cpu": NANO},
        capacity={"cpu": 3 * NANO // 2},
    )
    rule, autoscalers = comparison(setup)
    judge = judge_of(rule, setup)
    rows = []
    for autoscaler in autoscalers:
        began = time.process_time()
        (run,) = simulate(ticks(options.days, options.step, options.pods), setup, [autoscaler], judge)
        seconds = round(time.process_time() - began - making, 2)
        rows.append({"name": run.name, "seconds": seconds, "changes": run.summary.changes})
    _, again = comparison(setup)
    began = time.process_time()
    simulate(ticks(options.days, options.step, options.pods), setup, again, judge)
    return {
        "pods": options.pods,
        "days": options.days,
        "ticks": made,
        "seconds_to_make_ticks": round(making, 2),
        "autoscalers": rows,
        "seconds_in_one_pass": round(time.process_time() - began, 2),
    }


def memory(options: argparse.Namespace) -> dict[str, float]:
    """The peak of allocated memory (MiB) for one day and for a week; only the policy."""
    peaks = {}
    for days in (1, 7):
        setup = Setup(replicas=options.pods // 2, requests={"cpu": NANO})
        rule, autoscalers = comparison(setup)
        gc.collect()
        tracemalloc.start()
        simulate(ticks(days, 60.0, options.pods), setup, autoscalers[2:3], judge_of(rule, setup))
        peaks[f"{days} d"] = round(tracemalloc.get_traced_memory()[1] / 2**20, 2)
        tracemalloc.stop()
    return peaks


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pods", type=int, default=50)
    parser.add_argument("--days", type=float, default=7)
    parser.add_argument("--step", type=float, default=15)
    parser.add_argument("--delay", type=float, default=0)
    parser.add_argument("--window", type=float, default=0)
    parser.add_argument("-o", dest="output", metavar="FILE", type=Path)
    options = parser.parse_args()
    figures = {**measure(options), "peak_mib": memory(options)}
    print(json.dumps(figures, indent=2))
    if options.output:
        record.write(options.output, figures)


if __name__ == "__main__":
    main()
