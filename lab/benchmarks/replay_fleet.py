"""The speed of `replay --all`: `python -m lab.benchmarks.replay_fleet` replays generated weeks of many services.

Each service is a process's task exactly as from Prometheus, but its history is made up: waves by day and week, noise of
3 % at every tick, bursts and pull-outs. Each is replayed for the stock HPA on both averages and for the policy.
"""

import argparse
import json
import math
import os
import random
import resource
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from adapter.commands.replay import add_arguments
from adapter.commands.replay.command import Service
from adapter.commands.replay.fleet.parts import ServiceRow
from adapter.commands.replay.fleet.runner import Task, replay_one, run_tasks
from adapter.commands.replay.fleet.services import FleetService
from adapter.commands.replay.service import Tick
from adapter.load.quantity import NANO
from adapter.policy.hpa import parse_hpa
from adapter.policy.watermark_policy import parse_policy
from lab.benchmarks import record

BEGAN = 1_767_225_600.0
STEP = 15
_DAY = 86_400.0


def ticks(days: float, pods: int, seed: str) -> Iterator[Tick]:
    """A service that needs about this many pods at most, the same ones for the same seed."""
    rng = random.Random(seed)
    out, burst = 0, 1.0
    for index in range(int(days * _DAY / STEP)):
        at = index * STEP
        day = 1 + 0.5 * math.sin(2 * math.pi * at / _DAY)
        week = 1.0 if at // _DAY % 7 < 5 else 0.7
        if burst < 1.01 and rng.random() < STEP / 75_000:
            burst = rng.uniform(1.2, 1.8)
        burst = 1 + (burst - 1) * 0.99
        if rng.random() < STEP / 30_000:
            out = rng.randrange(4)
        load = pods * 0.55 * NANO * day * week * burst * rng.gauss(1, 0.03)
        yield Tick(BEGAN + at, {"cpu": int(load)}, out)


@dataclass(frozen=True, slots=True)
class Generated:
    """Histories of so many days, of services of about so many pods."""

    days: float
    pods: int
    folder: Path

    def open(self, service: Service) -> "GeneratedHistory":
        return GeneratedHistory(self.days, self.pods, service.policy.name)


@dataclass(frozen=True, slots=True)
class GeneratedHistory:
    """The same ticks for the same name; one after the other, never all at once."""

    days: float
    pods: int
    name: str

    def __iter__(self) -> Iterator[Tick]:
        return ticks(self.days, self.pods, self.name)


def services(count: int, pods: int) -> list[FleetService]:
    made = []
    for number in range(count):
        name, version = f"service-{number:03}", "effective-load.io/v1alpha1"
        metadata = {"namespace": "shop", "name": name}
        cpu = {"name": "cpu", "resource": {"name": "cpu"}, "highWatermark": "1", "lowWatermark": "500m"}
        policy = {"apiVersion": version, "kind": "WatermarkPolicy", "metadata": metadata, "spec": {"metrics": [cpu]}}
        described = {"apiVersion": version, "kind": "WatermarkPolicy", "name": name}
        metric = {
            "describedObject": described,
            "metric": {"name": "desired_replicas"},
            "target": {"type": "AverageValue", "averageValue": "1"},
        }
        spec = {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": name},
            "minReplicas": 2,
            "maxReplicas": 4 * pods,
            "behavior": {"scaleUp": {"tolerance": "0"}, "scaleDown": {"tolerance": "0"}},
            "metrics": [{"type": "Object", "object": metric}],
        }
        hpa = parse_hpa({"metadata": metadata, "spec": spec})
        made.append(FleetService(namespace="shop", name=name, policy=parse_policy(policy), hpa=hpa))
    return made


def measured(task: Task) -> ServiceRow:
    """Replays a service, and notes what its process has used so far: workers are nobody's children here."""
    row = replay_one(task)
    used = resource.getrusage(resource.RUSAGE_SELF)
    assert isinstance(task.source, Generated)
    (task.source.folder / str(os.getpid())).write_text(f"{used.ru_utime + used.ru_stime} {used.ru_maxrss / 1024}")
    return row


def default_arguments() -> argparse.Namespace:
    """The arguments of `replay --all` where nothing else is said."""
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    return parser.parse_args(["--all"])


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m lab.benchmarks.replay_fleet", description=__doc__)
    parser.add_argument("--services", type=int, default=200, help="default: %(default)s")
    parser.add_argument("--days", type=float, default=7, help="default: %(default)s")
    parser.add_argument("--pods", type=int, default=50, help="default: %(default)s")
    parser.add_argument("--workers", type=int)
    parser.add_argument("-o", dest="output", metavar="FILE", type=Path)
    parsed = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        source = Generated(parsed.days, parsed.pods, Path(folder))
        arguments = default_arguments()
        tasks = [Task(service, arguments, source) for service in services(parsed.services, parsed.pods)]
        began = time.monotonic()
        rows = list(run_tasks(tasks, parsed.workers, measured))
        seconds = time.monotonic() - began
        used = [tuple(map(float, file.read_text().split())) for file in Path(folder).iterdir()]
    figures = {
        "services": len(rows),
        "failed": sum(row.error is not None for row in rows),
        "days": parsed.days,
        "pods": parsed.pods,
        "ticks": sum(row.ticks for row in rows),
        "changes": sum(run.change_count for row in rows for run in row.runs),
        "cores": parsed.workers or len(os.sched_getaffinity(0)),
        "loadAverage": round(os.getloadavg()[0], 1),
        "seconds": round(seconds, 1),
        "processorSeconds": round(sum(cpu for cpu, _ in used), 1),
        "largestWorkerMiB": round(max(memory for _, memory in used)),
    }
    print(json.dumps(figures, indent=2))
    if parsed.output:
        record.write(parsed.output, figures)
    return 1 if figures["failed"] else 0


if __name__ == "__main__":
    sys.exit(main())
