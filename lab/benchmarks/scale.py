"""A large cluster at rest: `python -m lab.benchmarks.scale`, on a real API server.

2,000 policies and 50,000 pods by default. Requests come at the stock controller's rate, to the adapter and to the
constant server at the same time. It takes four minutes.
"""

import sys
import time
from dataclasses import replace
from typing import Any

from lab.benchmarks import record
from lab.benchmarks.measure import Load
from lab.benchmarks.processes import cpu_seconds, favour, memory, share_of_processor
from lab.benchmarks.stage import Stage

SYNC_SECONDS = 15.0
"""How often the stock controller asks for each policy."""


def run(policies: int, pods: int, namespaces: int, python: str, seconds: float) -> dict[str, Any]:
    """The figures of the start and at rest; `seconds` of each measurement."""
    with Stage(policies, pods, namespaces, python) as stage:
        figures: dict[str, Any] = {"scene": {"policies": policies, "pods": pods, "namespaces": namespaces}}
        figures["start"] = _started(stage)
        figures["rest"] = _phase(stage, seconds)
        return {**figures, "mib": memory(stage.pid)}


def _started(stage: Stage) -> dict[str, float]:
    """Starts the adapter; the seconds and processor time until its first correct answer."""
    seconds = stage.first_answer(180)
    cpu = cpu_seconds(stage.pid)
    time.sleep(5)  # then every path once, which fills the cache of access reviews
    plan = stage.plan("effective_cpu", seconds=len(stage.services) / 250, rate=250)
    Load(replace(plan, tolerant=True), stage.pid).finish()
    time.sleep(5)
    return {"seconds": round(seconds, 2), "cpu_seconds": cpu}


def _phase(stage: Stage, seconds: float) -> dict[str, Any]:
    """Processor time and memory without requests; latencies beside the constant server's."""
    figures: dict[str, Any] = {"cpu_share": share_of_processor(stage.pid, seconds), "mib": memory(stage.pid)["now"]}
    figures["requests"] = _requests(stage, seconds / 2)
    return figures


def _requests(stage: Stage, seconds: float) -> dict[str, Any]:
    """The stock controller's rate to both servers at the same time."""
    rate = len(stage.services) / SYNC_SECONDS
    pids = {"effective_cpu": stage.pid, "": stage.constant.pid or 0}
    plans = {metric: stage.plan(metric, seconds=seconds, rate=rate) for metric in pids}
    loads = {metric: Load(replace(plan, tolerant=True), pids[metric]) for metric, plan in plans.items()}
    done = {metric or "constant": load.finish() for metric, load in loads.items()}
    figures: dict[str, Any] = {name: each.summary for name, each in done.items()}
    figures["p99_beyond_ms"] = round(figures["effective_cpu"]["p99_ms"] - figures["constant"]["p99_ms"], 3)
    figures["refused"] = sum(each.refused for each in done.values())
    return figures


def main() -> None:
    parser = record.argument_parser(__doc__)
    parser.add_argument("--policies", type=int, default=2000)
    parser.add_argument("--pods", type=int, default=50_000)
    parser.add_argument("--namespaces", type=int, default=100)
    parser.add_argument("--seconds", type=float, default=20, help="duration of one measurement (default: %(default)s)")
    parser.add_argument("--python", default=sys.executable, help="interpreter of the servers (default: this one)")
    given = parser.parse_args()
    favour()
    record.write(given.output, run(given.policies, given.pods, given.namespaces, given.python, given.seconds))


if __name__ == "__main__":
    main()
