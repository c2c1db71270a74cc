"""The cost of one request for a named query, and for a policy's metric on pods, by the number of other series.

    python -m lab.benchmarks.queries [--requests 300] [--sizes 100,1000,20000] [-o FILE]

The handlers' own code runs in this process, without a network: processor time of one request, the snapshot replaced
before each, as after an assessment. A request is for the 20 pods of one policy, or for one series; the size is the
number of series in the namespace, with a tenth as many pods and a twentieth of those policies.
"""

import argparse
import asyncio
import statistics
import time
from dataclasses import replace
from pathlib import Path

from adapter.apiserver.provider import MetricsProvider
from adapter.apiserver.request_info import RequestInfo, RequestKind, parse_target
from adapter.load.pods import Pod
from adapter.snapshot import Snapshot, SnapshotStore
from lab.benchmarks import record
from lab.harness.snapshots import NOW, measured, pod, query, reading, series, snapshot, view
from tests.apiserver.conftest import StubScales
from tests.apiserver.metric_requests import CUSTOM, EXTERNAL

_AT_ONCE = 10  # the processor-time clock is coarse
REQUESTS = {
    "External, a query, one series": f"{EXTERNAL}/depth?labelSelector=queue%3Dq7",
    "External, a query, one series by two labels": f"{EXTERNAL}/depth?labelSelector=queue%3Dq7%2Czone%3Da",
    "Pods, a query, 20 pods": f"{CUSTOM}/pods/%2A/requests?labelSelector=app%3Dweb-1",
    "Pods, effective_cpu, 20 pods": f"{CUSTOM}/pods/%2A/effective_cpu?labelSelector=app%3Dweb-1",
}


def _pods(number: int) -> list[Pod]:
    return [pod(f"web-{index // 20}-{index}", labels={"app": f"web-{index // 20}"}) for index in range(number)]


def scene(size: int) -> Snapshot:
    pods = _pods(max(40, size // 10))
    views = []
    for first in range(0, len(pods), 20):
        readings = [reading(each.name, cpu=100)._replace(pod=each) for each in pods[first : first + 20]]
        name = f"web-{first // 20}"
        views.append(view(name, target=name, pods=readings, assessments=[measured(usage=100)]))
    by_pod = [series(index, pod=pods[index].name if index < len(pods) else f"gone-{index}") for index in range(size)]
    depth = [series(index, queue=f"q{index}", zone="a") for index in range(size)]
    return snapshot(*views, queries=[query("requests", *by_pod), query("depth", *depth, by_pod=False)], pods=pods)


async def cost(snapshots: SnapshotStore, answers: MetricsProvider, target: RequestInfo, requests: int) -> float:
    """Milliseconds of processor time of one request, the median."""
    times = []
    for _ in range(max(3, requests // _AT_ONCE)):
        spent = 0.0
        for _ in range(_AT_ONCE):
            snapshots.swap(replace(snapshots.current, policies=dict(snapshots.current.policies)))
            began = time.process_time()
            await (answers.external(target) if target.kind is RequestKind.EXTERNAL else answers.custom(target))
            spent += time.process_time() - began
        times.append(1000 * spent / _AT_ONCE)
    return statistics.median(times)


async def measure(sizes: list[int], requests: int) -> dict[str, list[float]]:
    """Prints and returns milliseconds of processor time of one request: by request, for each size."""
    stores = []
    for size in sizes:
        snapshots = SnapshotStore()
        snapshots.swap(scene(size))
        stores.append((snapshots, MetricsProvider(snapshots, StubScales(), lambda _: None, lambda: "", lambda: NOW)))
    print(f"{'ms of processor time of one request':48}", *(f"{size:>9,}" for size in sizes), "   ratio")
    by_request = {}
    for name, target in REQUESTS.items():
        costs = by_request[name] = [
            await cost(snapshots, answers, parse_target(target), requests) for snapshots, answers in stores
        ]
        print(f"{name:48}", *(f"{each:9.3f}" for each in costs), f"{costs[-1] / costs[0]:8.1f}")
    return {name: [round(each, 4) for each in costs] for name, costs in by_request.items()}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=300)
    parser.add_argument("--sizes", default="100,1000,20000")
    parser.add_argument("-o", dest="output", metavar="FILE", type=Path)
    options = parser.parse_args()
    sizes = [int(each) for each in options.sizes.split(",")]
    milliseconds = asyncio.run(measure(sizes, options.requests))
    if options.output:
        record.write(options.output, {"sizes": sizes, "milliseconds": milliseconds})
