"""The serving benchmark: `python -m benchmarks.serving [--policies 1000] [--pods 20000] [--out benchmarks/results]`.

A real etcd and kube-apiserver hold the scene, the adapter runs as its command line does, and an aiohttp server whose
handler does nothing answers the same requests over the same TLS. Both are measured in turn, many times, so that other
work on the machine affects both.
"""

import argparse
import json
import os
import platform
import statistics
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks import report
from benchmarks.load import Plan
from benchmarks.measure import Load, Measured, Trace, measure
from benchmarks.processes import cpu_seconds, favour, memory
from benchmarks.stage import Stage

READ_ONLY, DESIRED, CONSTANT = "effective_cpu", "desired_replicas", ""
_RELIST_SECONDS = 20  # the other API server must read all objects first
_RATE = 500.0
_WARM_RATE = 250.0
_SLOW_RATE = 100.0  # each policy gets a request every 10 s: every answer needs a live read


def announce(text: str) -> None:
    print(text, flush=True)


class Benchmark:
    """Runs every part on one stage and collects the figures."""

    def __init__(self, stage: Stage, rounds: int, seconds: float) -> None:
        self.stage, self.rounds, self.seconds = stage, rounds, seconds

    def run(self) -> dict[str, Any]:
        figures: dict[str, Any] = {"start": self.start()}
        announce(f"start: {json.dumps(figures['start'])}")
        self.settle()
        for name, part in (
            ("rest", self.rest),
            ("capacity", lambda: self.capacity(figures["rest"]["cpu_share"])),
            ("latency", self.latency),
            ("relist", self.relists),
            ("memory", lambda: memory(self.stage.pid)),
        ):
            figures[name] = part()
            announce(f"{name}: {json.dumps(figures[name])}")
        return figures

    # -- parts

    def start(self) -> dict[str, Any]:
        """Start to first correct answer, several times; the last adapter stays."""
        seconds, cpu = [], []
        for index in range(self.rounds):
            if index:
                self.stage.adapter.stop()
                time.sleep(3)
            seconds.append(round(self.stage.first_answer(), 2))
            cpu.append(cpu_seconds(self.stage.pid))
        return {"seconds": seconds, "median_seconds": statistics.median(seconds), "cpu_seconds": statistics.median(cpu)}

    def settle(self) -> None:
        """Requests every path once, which fills the cache of access reviews; then waits for rest."""
        time.sleep(5)
        for metric in (READ_ONLY, DESIRED):
            measure(self._paced(metric, 2 * len(self.stage.services) / _RATE, _RATE), self.stage.pid)
        time.sleep(5)

    def rest(self) -> dict[str, float]:
        """The adapter's processor time without requests: watches, usage of all pods, assessment of all policies."""
        before, began = cpu_seconds(self.stage.pid), time.monotonic()
        time.sleep(30)
        share = (cpu_seconds(self.stage.pid) - before) / (time.monotonic() - began)
        return {"cpu_share": round(share, 3), **memory(self.stage.pid)}

    def capacity(self, rest: float) -> dict[str, Any]:
        """Full speed: adapter and constant server in turn.

        A ratio compares neighbouring runs; the net one subtracts the adapter's processor share at rest (`rest`).
        """
        runs: dict[str, list[Measured]] = {CONSTANT: [], READ_ONLY: [], DESIRED: []}
        for _ in range(self.rounds):
            for metric, done in runs.items():
                done.append(measure(self.stage.plan(metric, seconds=self.seconds), self._pid(metric)))
        constant = [run.per_cpu_second for run in runs[CONSTANT]]
        figures: dict[str, Any] = {}
        for metric, done in runs.items():
            gross = [run.per_cpu_second / other for run, other in zip(done, constant, strict=True)]
            idle = rest if metric else 0.0
            net = [run.without(idle).per_cpu_second / other for run, other in zip(done, constant, strict=True)]
            figures[metric or "constant"] = {
                "per_second": round(statistics.median(run.per_second for run in done)),
                "per_cpu_second": round(statistics.median(run.per_cpu_second for run in done)),
                "ratio": round(statistics.median(gross), 3),
                "net_ratio": round(statistics.median(net), 3),
                "ratios": [round(ratio, 3) for ratio in gross],
                **_joined(done).summary,
            }
        return figures

    def latency(self) -> dict[str, Any]:
        """Latency at an even rate, at rest."""
        figures = {}
        for metric, rate in ((CONSTANT, _RATE), (READ_ONLY, _RATE), (DESIRED, _SLOW_RATE)):
            done = [measure(self._paced(metric, 2 * self.seconds, rate), self._pid(metric)) for _ in range(self.rounds)]
            figures[metric or "constant"] = {"rate": rate, **_joined(done).summary}
        return figures

    def relists(self) -> dict[str, Any]:
        figures = {}
        for changed in (False, True):
            name = "every pod changed" if changed else "nothing changed"
            for metric, rate in ((CONSTANT, _RATE), (READ_ONLY, _RATE), (DESIRED, _SLOW_RATE)):
                figures[f"{metric or 'constant'}, {name}"] = self._relisted(metric, rate, changed=changed)
        return figures

    def _relisted(self, metric: str, rate: float, *, changed: bool) -> dict[str, Any]:
        done = [self.relist(metric, rate, changed=changed) for _ in range(self.rounds)]
        whole = Trace((), ())
        for one in done:
            whole += one.trace
        return {
            "rate": rate,
            **whole.summary,
            "refused": sum(one.refused for one in done),
            "relist_seconds": round(statistics.median(one.seconds for one in done), 2),
            "relist_cpu_seconds": round(statistics.median(one.cpu for one in done), 2),
        }

    # -- one relist

    def relist(self, metric: str, rate: float, *, changed: bool) -> Measured:
        """Latencies during a full relist of the adapter, the duration of the relist, and its processor time."""
        for _ in range(5):
            measured = self._try_relist(metric, rate, changed=changed)
            if measured is not None:
                return measured
            announce("the watches resumed without a list; retrying")
        raise RuntimeError("no relist took place")

    def _try_relist(self, metric: str, rate: float, *, changed: bool) -> Measured | None:
        stage = self.stage
        if metric:  # HPAs send requests all the time, so cached access reviews must not expire during the list
            measure(self._paced(metric, len(stage.services) / _WARM_RATE + 1, _WARM_RATE), stage.pid)
        # With bookmarks the adapter could resume at the other API server without a list.
        stage.forwarder.hold()
        if changed:
            stage.touch_pods()
        name = stage.prepare_other()
        stage.new_log_lines()
        # During the change the API server answers no scale or access review: refusals of the adapter are correct then.
        plan = replace(self._paced(metric, _RELIST_SECONDS + 5, rate), tolerant=True)
        load = Load(plan, self._pid(metric))
        time.sleep(1)
        before = cpu_seconds(stage.pid)
        began = stage.roll_over(name)
        ended = self._wait_relisted(began)
        cpu = cpu_seconds(stage.pid) - before
        measured = load.finish()
        stage.stop_other()
        if ended is None:
            return None
        done = Measured(measured.trace.within(began, ended), ended - began, cpu, measured.refused)
        announce(f"relist, asking for {metric or 'constant'}: {done.seconds:.1f} s, {json.dumps(done.trace.summary)}")
        return done

    def _wait_relisted(self, began: float) -> float | None:
        """Waits for the list and half a second for its effects; returns the moment, None if there was no list."""
        while time.monotonic() - began < _RELIST_SECONDS:
            time.sleep(0.1)
            if any(line.get("event") == "listed" and line["resource"] == "pods" for line in self.stage.new_log_lines()):
                time.sleep(0.5)
                return time.monotonic()
        return None

    # -- helpers

    def _pid(self, metric: str) -> int:
        return self.stage.pid if metric else self.stage.constant.pid or 0

    def _paced(self, metric: str, seconds: float, rate: float) -> Plan:
        return self.stage.plan(metric, seconds=seconds, rate=rate)


def _joined(done: list[Measured]) -> Trace:
    whole = Trace((), ())
    for run in done:
        whole += run.trace
    return whole


def machine() -> dict[str, Any]:
    return {
        "processors": os.cpu_count(),
        "architecture": platform.machine(),
        "python": platform.python_version(),
        "system": platform.system(),
    }


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.serving", description=__doc__)
    parser.add_argument("--policies", type=int, default=1000)
    parser.add_argument("--pods", type=int, default=20_000)
    parser.add_argument("--namespaces", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=3, help="repetitions of each part (default: %(default)s)")
    parser.add_argument(
        "--seconds", type=float, default=5, help="duration of one run at full speed (default: %(default)s)"
    )
    parser.add_argument("--python", default=sys.executable, help="interpreter of the servers (default: this one)")
    parser.add_argument("--out", type=Path, help="a folder for serving.json and serving.txt")
    given = parser.parse_args()
    favour()
    scene = {name: getattr(given, name) for name in ("policies", "pods", "namespaces")}
    with Stage(**scene, python=given.python, announce=announce) as stage:
        figures = {"machine": machine(), "scene": scene, **Benchmark(stage, given.rounds, given.seconds).run()}
    text = report.text(figures)
    print(text)
    if given.out:
        given.out.mkdir(parents=True, exist_ok=True)
        (given.out / "serving.json").write_text(json.dumps(figures, indent=1) + "\n")
        (given.out / "serving.txt").write_text(text)


if __name__ == "__main__":
    main()
