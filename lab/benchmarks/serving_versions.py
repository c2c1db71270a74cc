"""Two versions and the constant server in one run.

    python -m lab.benchmarks.serving_versions --before FOLDER [-o FILE]

FOLDER is a working copy of the earlier version with a `.venv` of its own. A real etcd and kube-apiserver hold the
scene, both adapters run as their command line does, and an aiohttp server whose handler does nothing answers the same
requests over the same TLS. Short runs of all take turns, so that other work on the machine affects all alike. It takes
about two minutes.
"""

import argparse
import json
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from lab.benchmarks import record
from lab.benchmarks.measure import Measured, Trace, measure
from lab.benchmarks.processes import cpu_seconds, favour, memory
from lab.benchmarks.stage import Stage
from lab.harness.adapter import AdapterProcess

READ_ONLY, DESIRED, CONSTANT = "effective_cpu", "desired_replicas", ""
NOW, BEFORE = "now", "before"
_SCALE = "the live read alone"
_RATE = 500.0
_SLOW_RATE = 100.0  # each policy gets a request every 10 s: every answer needs a live read
_TURNS = 12
_TURN_SECONDS = 0.6
_LATENCY_SECONDS = 4.0
_REST_SECONDS = 16.0
"""One interval of the samples, so that every policy is assessed once."""

Row = tuple[str, str]
"""A version (empty: the constant server) and a metric."""
_ROWS: tuple[Row, ...] = (
    ("", CONSTANT),
    (NOW, READ_ONLY),
    (BEFORE, READ_ONLY),
    (NOW, DESIRED),
    (BEFORE, DESIRED),
)


class Versions:
    """Measures both versions on one stage."""

    def __init__(self, stage: Stage, before: Path) -> None:
        self.stage = stage
        self.adapters: dict[str, AdapterProcess] = {NOW: stage.adapter, BEFORE: stage.other_version(before)}

    def run(self) -> dict[str, Any]:
        for version in self.adapters:
            with self._using(version):
                _announce(f"{version}: first answer after {self.stage.first_answer():.1f} s")
        for version in self.adapters:
            with self._using(version):
                self._settle()
        figures: dict[str, Any] = {}
        for name, part in (("rest", self.rest), ("capacity", self.capacity), ("latency", self.latency)):
            figures[name] = part()
            _announce(f"{name}: {json.dumps(figures[name])}")
        return figures

    def rest(self) -> dict[str, Any]:
        """Processor time without requests, of both versions at the same time, and memory (MiB)."""
        pids = {version: adapter.component.pid or 0 for version, adapter in self.adapters.items()}
        before = {version: cpu_seconds(pid) for version, pid in pids.items()}
        time.sleep(_REST_SECONDS)
        return {
            version: {"cpu_share": round((cpu_seconds(pid) - before[version]) / _REST_SECONDS, 3), **memory(pid)}
            for version, pid in pids.items()
        }

    def capacity(self) -> list[dict[str, Any]]:
        """Full speed, in short turns; the ratios are those of all turns together."""
        runs: dict[Row, list[Measured]] = {row: [] for row in _ROWS}
        for _ in range(_TURNS):
            for row in _ROWS:
                runs[row].append(self._run(row, _TURN_SECONDS, 0))
        constant = _per_cpu_second(runs["", CONSTANT])
        return [
            {
                **_named(row),
                "per_second": round(statistics.median(run.per_second for run in done)),
                "per_cpu_second": round(_per_cpu_second(done)),
                "ratio": round(_per_cpu_second(done) / constant, 3),
                **_joined(done).summary,
            }
            for row, done in runs.items()
        ]

    def latency(self) -> list[dict[str, Any]]:
        """Latency at an even rate, at rest."""
        figures = []
        for row in _ROWS:
            rate = _SLOW_RATE if row[1] == DESIRED else _RATE
            figures.append({**_named(row), "rate": rate, **self._run(row, _LATENCY_SECONDS, rate).trace.summary})
        plan = self.stage.scale_plan(seconds=_LATENCY_SECONDS, rate=_SLOW_RATE)
        bare = measure(plan, self.stage.constant.pid or 0).trace.summary
        return [*figures, {"version": "", "metric": _SCALE, "rate": _SLOW_RATE, **bare}]

    def _settle(self) -> None:
        """Requests every path once, which fills the cache of access reviews; then waits for rest."""
        time.sleep(5)
        for metric in (READ_ONLY, DESIRED):
            plan = self.stage.plan(metric, seconds=2 * len(self.stage.services) / _RATE, rate=_RATE)
            measure(replace(plan, tolerant=True), self.stage.pid)
        time.sleep(5)

    def _run(self, row: Row, seconds: float, rate: float) -> Measured:
        version, metric = row
        if not version:
            plan = self.stage.plan(metric, seconds=seconds, rate=rate)
            return measure(plan, self.stage.constant.pid or 0)
        with self._using(version):
            return measure(self.stage.plan(metric, seconds=seconds, rate=rate), self.stage.pid)

    @contextmanager
    def _using(self, version: str) -> Iterator[None]:
        """The stage's requests go to this version."""
        self.stage.adapter = self.adapters[version]
        try:
            yield
        finally:
            self.stage.adapter = self.adapters[NOW]


def _joined(done: Sequence[Measured]) -> Trace:
    """The requests of all runs."""
    return sum((run.trace for run in done), Trace((), ()))


def _per_cpu_second(done: Sequence[Measured]) -> float:
    return sum(len(run.trace.latencies) for run in done) / sum(run.cpu for run in done)


def _named(row: Row) -> dict[str, str]:
    version, metric = row
    return {"version": version, "metric": metric or "constant"}


def _announce(text: str) -> None:
    print(text, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m lab.benchmarks.serving_versions", description=__doc__)
    parser.add_argument("--before", type=Path, required=True, help="a working copy of the earlier version")
    parser.add_argument("--policies", type=int, default=1000)
    parser.add_argument("--pods", type=int, default=20_000)
    parser.add_argument("--namespaces", type=int, default=20)
    parser.add_argument("--python", default=sys.executable, help="interpreter of the servers (default: this one)")
    parser.add_argument("-o", "--output", type=Path, metavar="FILE", help="a file for the figures, as JSON")
    given = parser.parse_args()
    favour()
    scene = {name: getattr(given, name) for name in ("policies", "pods", "namespaces")}
    with Stage(**scene, python=given.python, announce=_announce) as stage:
        figures = {"scene": scene, **Versions(stage, given.before).run()}
    if given.output:
        record.write(given.output, figures)


if __name__ == "__main__":
    main()
