"""Requests at full speed and at an even rate, beside the constant server's: `python -m lab.benchmarks.serving`.

A real etcd and kube-apiserver hold the scene, the adapter runs as its command line does, and an aiohttp server whose
handler does nothing answers the same requests over the same TLS. Short runs of all take turns, so that other work on
the machine affects all alike. It takes about two minutes.
"""

import statistics
import sys
import time
from dataclasses import replace
from typing import Any

from lab.benchmarks import record
from lab.benchmarks.measure import Measured, measure
from lab.benchmarks.processes import favour, memory, share_of_processor
from lab.benchmarks.stage import Stage
from lab.harness.binaries import print_to_stderr

READ_ONLY, DESIRED, CONSTANT = "effective_cpu", "desired_replicas", ""
_METRICS = (CONSTANT, READ_ONLY, DESIRED)
_RATE = 500.0
_SLOW_RATE = 100.0  # each of 1,000 policies gets a request every 10 s: every answer needs a live read
_TURNS = 12
_TURN_SECONDS = 0.6
_LATENCY_SECONDS = 4.0
_REST_SECONDS = 16.0
"""One interval of the samples, so that every policy is assessed once."""


def run(stage: Stage) -> dict[str, Any]:
    """The adapter's processor use and memory at rest, and the figures of each metric."""
    print_to_stderr(f"first answer after {stage.first_answer():.1f} s")
    time.sleep(5)
    for metric in (READ_ONLY, DESIRED):  # every path once, which fills the cache of access reviews
        plan = stage.plan(metric, seconds=2 * len(stage.services) / _RATE, rate=_RATE)
        measure(replace(plan, tolerant=True), stage.pid)
    time.sleep(5)
    rest = {"cpu_share": share_of_processor(stage.pid, _REST_SECONDS), **memory(stage.pid)}
    return {"rest": rest, "capacity": _capacity(stage), "latency": _latency(stage)}


def _measured(stage: Stage, metric: str, seconds: float, rate: float) -> Measured:
    pid = stage.pid if metric else stage.constant.pid or 0
    return measure(stage.plan(metric, seconds=seconds, rate=rate), pid)


def _capacity(stage: Stage) -> list[dict[str, Any]]:
    """Full speed, in short turns; the ratios are those of all turns together."""
    runs: dict[str, list[Measured]] = {metric: [] for metric in _METRICS}
    for _ in range(_TURNS):
        for metric in _METRICS:
            runs[metric].append(_measured(stage, metric, _TURN_SECONDS, 0))
    whole = {metric: sum(done, Measured()) for metric, done in runs.items()}
    return [
        {
            "metric": metric or "constant",
            "per_second": round(statistics.median(run.per_second for run in runs[metric])),
            "per_cpu_second": round(done.per_cpu_second),
            "ratio": round(done.per_cpu_second / whole[CONSTANT].per_cpu_second, 3),
            **done.summary,
        }
        for metric, done in whole.items()
    ]


def _latency(stage: Stage) -> list[dict[str, Any]]:
    """Latency at an even rate, at rest; and that of the live read behind `desired_replicas`."""
    rows = []
    for metric in _METRICS:
        rate = _SLOW_RATE if metric == DESIRED else _RATE
        summary = _measured(stage, metric, _LATENCY_SECONDS, rate).summary
        rows.append({"metric": metric or "constant", "rate": rate, **summary})
    base = "/apis/apps/v1/namespaces"
    reads = [
        (f"{base}/{service.namespace}/deployments/{service.name}/scale", f'"replicas":{service.replicas}')
        for service in stage.services
    ]
    plan = stage.plan_through_api_server(reads, seconds=_LATENCY_SECONDS, rate=_SLOW_RATE)
    live = measure(plan, stage.constant.pid or 0).summary
    return [*rows, {"metric": "the live read alone", "rate": _SLOW_RATE, **live}]


def main() -> None:
    parser = record.argument_parser(__doc__)
    parser.add_argument("--policies", type=int, default=1000)
    parser.add_argument("--pods", type=int, default=20_000)
    parser.add_argument("--namespaces", type=int, default=20)
    parser.add_argument("--python", default=sys.executable, help="interpreter of the servers (default: this one)")
    given = parser.parse_args()
    favour()
    scene = {name: getattr(given, name) for name in ("policies", "pods", "namespaces")}
    with Stage(**scene, python=given.python) as stage:
        record.write(given.output, {"scene": scene, **run(stage)})


if __name__ == "__main__":
    main()
