"""What a Prometheus source costs: ours and Prometheus' own processor time at the workload of 300 HPAs.

    python -m lab.benchmarks.polling [--before FOLDER] [--rounds 1] [--seconds 45] [-o FILE]

Prometheus scrapes 1,000 services of 20 pods; 300 of them have a policy on two queries by pod, and an HPA that the stock
controller syncs every 15 s (`lab/benchmarks/prometheus_scene.py`). Everything else is by default. The versions take
turns on the same Prometheus, `before` being the folder of another version with its .venv. While none runs, Prometheus
only scrapes: what it costs beyond that is the version's. The age of a value is that of the
oldest sample in it, read every few seconds.
"""

import argparse
import datetime as dt
import itertools
import statistics
import sys
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from lab.benchmarks import record
from lab.benchmarks.attribution import Meter
from lab.benchmarks.processes import memory
from lab.benchmarks.prometheus_scene import PrometheusScene, Size
from lab.harness.adapter import AdapterProcess

ROOT = Path(__file__).resolve().parents[2]
QUERIES = ("requests", "in_flight")
SETTLING_SECONDS = 9.0
"""From the start of a version: its first polls, and the first of every assessment."""
IDLE_SECONDS = 15.0
AGE_SECONDS = 4.0


@dataclass(frozen=True)
class Version:
    """A version of the adapter: its folder, and the interpreter with its packages."""

    name: str
    folder: Path
    python: Path


def versions(before: Path | None) -> list[Version]:
    """The version before, if there is one, and this one."""
    ours = Version("after", ROOT, Path(sys.executable))
    if before is None:
        return [ours]
    return [Version("before", before.resolve(), before.resolve() / ".venv" / "bin" / "python"), ours]


def phase(scene: PrometheusScene, version: Version, seconds: float) -> dict[str, Any]:
    """Figures of one turn of a version."""
    adapter = AdapterProcess(scene.cluster, scene.settings(*QUERIES))
    adapter.component.command[0] = str(version.python)
    adapter.component.cwd = version.folder
    with adapter:
        time.sleep(SETTLING_SECONDS)
        pid = adapter.component.pid or 0
        meter = Meter(lambda: scene.processes() | {"adapter": pid}, scene.prometheus.url)
        before = meter.read()
        ages = sampled_ages(scene, time.monotonic() + seconds)
        figures = meter.since(before)
        return {**figures, "memory": memory(pid), "ages": ages}


def sampled_ages(scene: PrometheusScene, until: float) -> list[float]:
    """The age of a policy's value every few seconds, by the time of its samples: seconds."""
    ages, services = [], itertools.cycle(scene.scaled)
    while time.monotonic() + AGE_SECONDS < until:
        time.sleep(AGE_SECONDS)
        answer = scene.cluster.client.get(scene.metric_path(next(services), f"effective_{QUERIES[0]}"))
        sampled = dt.datetime.fromisoformat(answer["items"][0]["timestamp"])
        ages.append(round((dt.datetime.now(dt.UTC) - sampled).total_seconds(), 1))
    time.sleep(max(0.0, until - time.monotonic()))
    return ages


def summary(turns: Iterable[Mapping[str, Any]], idle: Mapping[str, Any]) -> dict[str, float]:
    """Shares of one processor: the adapter's, Prometheus' beyond scraping, and both."""
    turns = list(turns)
    ours = statistics.mean(turn["cpu_share"]["adapter"] for turn in turns)
    theirs = statistics.mean(turn["cpu_share"]["prometheus"] for turn in turns) - idle["cpu_share"]["prometheus"]
    rates = {name: statistics.mean(turn["prometheus_per_second"][name] for turn in turns) for name in ("queries",)}
    return {
        "adapter": round(ours, 4),
        "prometheus": round(theirs, 4),
        "together": round(ours + theirs, 4),
        "queries_per_second": round(rates["queries"], 3),
        "median_age": statistics.median(age for turn in turns for age in turn["ages"]),
        "largest_age": max(age for turn in turns for age in turn["ages"]),
        "peak_mib": max(turn["memory"]["peak"] for turn in turns),
    }


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """All turns, and their summary."""
    size = replace(Size(), **({"services": options.services, "scaled": options.scaled} if options.services else {}))
    turns: dict[str, list[dict[str, Any]]] = defaultdict(list)
    with PrometheusScene(size, controller=True) as scene:
        scene.put_policies(QUERIES)
        meter = Meter(scene.processes, scene.prometheus.url)
        before = meter.read()
        time.sleep(IDLE_SECONDS)
        idle = meter.since(before)
        chosen = versions(options.before)
        for turn in range(options.rounds):
            for version in chosen if turn % 2 == 0 else chosen[::-1]:
                turns[version.name].append(phase(scene, version, options.seconds))
                print(version.name, turns[version.name][-1], file=sys.stderr, flush=True)
        kept = statistics.mean(one == scene.size.pods for one in scene.replicas().values())
    figures = {name: summary(own, idle) for name, own in turns.items()}
    ratio = figures["after"]["together"] / figures["before"]["together"] if "before" in figures else None
    return {
        "scene": {"services": size.services, "pods": size.pods, "hpas": size.scaled, "queries": len(QUERIES)},
        "idle": idle,
        "versions": figures,
        "ratio": round(ratio, 3) if ratio is not None else None,
        "kept_replicas": kept,
        "turns": turns,
    }


def main() -> None:
    """Reads the arguments, measures, prints and stores."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--before", type=Path, help="the folder of another version, with its .venv")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=45.0)
    parser.add_argument("--services", type=int, default=0, help="a smaller scene, for a try")
    parser.add_argument("--scaled", type=int, default=30)
    parser.add_argument("-o", "--output", type=Path)
    options = parser.parse_args()
    figures = measure(options)
    for name, row in figures["versions"].items():
        print(name, row)
    print("ratio", figures["ratio"], "kept", figures["kept_replicas"])
    if options.output is not None:
        record.write(options.output, figures)


if __name__ == "__main__":
    main()
