"""What clusters of several sizes cost: `python -m lab.benchmarks.scale`, on a real API server.

2,000, 20,000 and 50,000 pods by default, 25 for each policy and 500 in a namespace. For each size: the start to the
first correct answer, processor and memory at rest, and latencies: of a metric at the stock controller's rate, and of
`desired_replicas` and the live read behind it at 100 requests a second.
It takes ten minutes.
"""

import sys
import time
from dataclasses import replace
from typing import Any

from lab.benchmarks import record
from lab.benchmarks.measure import measure
from lab.benchmarks.processes import cpu_seconds, favour, memory, share_of_processor
from lab.benchmarks.stage import Stage
from lab.harness.binaries import print_to_stderr

PODS_OF_A_POLICY, PODS_OF_A_NAMESPACE = 25, 500
SYNC_SECONDS = 15.0
"""How often the stock controller asks for each policy."""
_RATE = 100.0


def run(pods: int, python: str, seconds: float) -> dict[str, Any]:
    """The figures of one size; `seconds` of each measurement."""
    policies, namespaces = max(1, pods // PODS_OF_A_POLICY), max(1, pods // PODS_OF_A_NAMESPACE)
    with Stage(policies, pods, namespaces, python) as stage:
        figures = {
            "scene": {"policies": policies, "pods": pods, "namespaces": namespaces},
            "start": _started(stage),
            "rest": {"cpu_share": share_of_processor(stage.pid, seconds), "mib": memory(stage.pid)["now"]},
            "requests": {**_at_the_stock_rate(stage, seconds), **_live(stage, seconds / 2)},
            "mib": memory(stage.pid),
        }
    print_to_stderr(f"{pods} pods: {figures}")
    return figures


def _started(stage: Stage) -> dict[str, float]:
    """Starts the adapter; the seconds and processor time until its first correct answer."""
    seconds = stage.first_answer(180)
    cpu = cpu_seconds(stage.pid)
    time.sleep(5)  # then every path once, which fills the cache of access reviews
    for metric in ("effective_cpu", "desired_replicas"):
        plan = stage.plan(metric, seconds=max(1, len(stage.services) / 250), rate=250)
        measure(replace(plan, tolerant=True), stage.pid)
    time.sleep(5)
    return {"seconds": round(seconds, 2), "cpu_seconds": cpu}


def _at_the_stock_rate(stage: Stage, seconds: float) -> dict[str, Any]:
    """A metric at the rate of the stock controller's requests."""
    rate = max(5.0, len(stage.services) / SYNC_SECONDS)
    plan = stage.plan("effective_cpu", seconds=seconds, rate=rate)
    return {"effective_cpu": {"rate": round(rate), **measure(replace(plan, tolerant=True), stage.pid).summary}}


def _live(stage: Stage, seconds: float) -> dict[str, Any]:
    """`desired_replicas`, and the live read behind it alone."""
    base = "/apis/apps/v1/namespaces"
    reads = [
        (f"{base}/{service.namespace}/deployments/{service.name}/scale", f'"replicas":{service.replicas}')
        for service in stage.services
    ]
    asked = measure(stage.plan("desired_replicas", seconds=seconds, rate=_RATE), stage.pid)
    read = measure(stage.plan_through_api_server(reads, seconds=seconds, rate=_RATE), stage.pid)
    return {
        "desired_replicas": {"rate": _RATE, **asked.summary, "cpu_ms": round(1000 / asked.per_cpu_second, 2)},
        "the live read alone": {"rate": _RATE, **read.summary},
    }


def main() -> None:
    parser = record.argument_parser(__doc__)
    parser.add_argument("--pods", type=int, nargs="+", default=[2_000, 20_000, 50_000])
    parser.add_argument("--seconds", type=float, default=20, help="duration of one measurement (default: %(default)s)")
    parser.add_argument("--python", default=sys.executable, help="interpreter of the adapter (default: this one)")
    given = parser.parse_args()
    favour()
    record.write(given.output, {"sizes": [run(pods, given.python, given.seconds) for pods in given.pods]})


if __name__ == "__main__":
    main()
