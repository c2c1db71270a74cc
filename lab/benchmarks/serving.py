"""The serving benchmark: `python -m lab.benchmarks.serving [--policies 1000] [--pods 20000] [-o FILE]`.

A real etcd and kube-apiserver hold the scene, the adapter runs as its command line does, and an aiohttp server whose
handler does nothing answers the same requests over the same TLS. Both are measured in turn, many times, so that other
work on the machine affects both.
"""

import argparse
import json
import statistics
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from lab.benchmarks import record, report
from lab.benchmarks.load import Plan
from lab.benchmarks.measure import Load, Measured, Trace, measure
from lab.benchmarks.processes import cpu_seconds, favour, memory
from lab.benchmarks.stage import Stage

READ_ONLY, DESIRED, CONSTANT = "effective_cpu", "desired_replicas", ""
_RELIST_SECONDS = 20  # the other API server must read all objects first
RATE = 500.0
_WARM_RATE = 250.0
SLOW_RATE = 100.0  # each policy gets a request every 10 s: every answer needs a live read


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
            measure(self._tolerant(metric, 2 * len(self.stage.services) / RATE, RATE), self.stage.pid)
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
            figures[_name(metric)] = {
                "per_second": round(statistics.median(run.per_second for run in done)),
                "per_cpu_second": round(statistics.median(run.per_cpu_second for run in done)),
                "ratio": round(statistics.median(gross), 3),
                "net_ratio": round(statistics.median(net), 3),
                "ratios": [round(ratio, 3) for ratio in gross],
                **joined(done).summary,
            }
        return figures

    def latency(self) -> dict[str, Any]:
        """Latency at an even rate, at rest."""
        figures = {}
        for metric, rate in ((CONSTANT, RATE), (READ_ONLY, RATE), (DESIRED, SLOW_RATE)):
            done = [measure(self._paced(metric, 2 * self.seconds, rate), self._pid(metric)) for _ in range(self.rounds)]
            figures[_name(metric)] = {"rate": rate, **joined(done).summary}
        return figures

    def relists(self) -> dict[str, Any]:
        figures: dict[str, Any] = {}
        for changed in (False, True):
            for rates in ({CONSTANT: RATE, READ_ONLY: RATE}, {DESIRED: SLOW_RATE}):
                done = [self.relist(rates, changed=changed) for _ in range(self.rounds)]
                name = "every pod changed" if changed else "nothing changed"
                figures |= {f"{metric}, {name}": one for metric, one in relist_figures(rates, done).items()}
        return figures

    # -- one relist

    def relist(self, rates: Mapping[str, float], *, changed: bool) -> dict[str, Measured]:
        """Latencies of each metric during a full relist of the adapter, its duration, and its processor time.

        `rates` has the requests a second of each metric, all at the same time.
        """
        for _ in range(5):
            measured = self._try_relist(rates, changed=changed)
            if measured is not None:
                return measured
            announce("the watches resumed without a list; retrying")
        raise RuntimeError("no relist took place")

    def _try_relist(self, rates: Mapping[str, float], *, changed: bool) -> dict[str, Measured] | None:
        stage = self.stage
        for metric in filter(None, rates):
            # HPAs send requests all the time, so cached access reviews must not expire during the list
            measure(self._tolerant(metric, len(stage.services) / _WARM_RATE + 1, _WARM_RATE), stage.pid)
        # With bookmarks the adapter could resume at the other API server without a list.
        stage.forwarder.hold()
        if changed:
            stage.touch_pods()
        name = stage.prepare_other()
        stage.new_log_lines()
        # During the change the API server answers no scale or access review: refusals of the adapter are correct then.
        plans = {metric: self._tolerant(metric, _RELIST_SECONDS + 5, rate) for metric, rate in rates.items()}
        loads = {metric: Load(plan, self._pid(metric)) for metric, plan in plans.items()}
        time.sleep(1)
        before = cpu_seconds(stage.pid)
        began = stage.roll_over(name)
        ended = self._wait_relisted(began)
        cpu = cpu_seconds(stage.pid) - before
        runs = {metric: load.finish() for metric, load in loads.items()}
        stage.stop_other()
        if ended is None:
            return None
        done = {
            metric: Measured(run.trace.within(began, ended), ended - began, cpu, run.refused)
            for metric, run in runs.items()
        }
        for metric, one in done.items():
            announce(f"relist, asking for {_name(metric)}: {one.seconds:.1f} s, {json.dumps(one.trace.summary)}")
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

    def _tolerant(self, metric: str, seconds: float, rate: float) -> Plan:
        return replace(self._paced(metric, seconds, rate), tolerant=True)


def relist_figures(rates: Mapping[str, float], done: Sequence[Mapping[str, Measured]]) -> dict[str, Any]:
    """The figures of some relists, by metric."""
    figures = {}
    for metric, rate in rates.items():
        runs = [one[metric] for one in done]
        figures[_name(metric)] = {
            "rate": rate,
            **joined(runs).summary,
            "refused": sum(run.refused for run in runs),
            "relist_seconds": round(statistics.median(run.seconds for run in runs), 2),
            "relist_cpu_seconds": round(statistics.median(run.cpu for run in runs), 2),
        }
    return figures


def _name(metric: str) -> str:
    return metric or "constant"


def joined(done: Sequence[Measured]) -> Trace:
    """The requests of all runs."""
    whole = Trace((), ())
    for run in done:
        whole += run.trace
    return whole


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m lab.benchmarks.serving", description=__doc__)
    parser.add_argument("--policies", type=int, default=1000)
    parser.add_argument("--pods", type=int, default=20_000)
    parser.add_argument("--namespaces", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=3, help="repetitions of each part (default: %(default)s)")
    parser.add_argument(
        "--seconds", type=float, default=5, help="duration of one run at full speed (default: %(default)s)"
    )
    parser.add_argument("--python", default=sys.executable, help="interpreter of the servers (default: this one)")
    parser.add_argument("-o", "--output", type=Path, metavar="FILE", help="a file for the figures, as JSON")
    given = parser.parse_args()
    favour()
    scene = {name: getattr(given, name) for name in ("policies", "pods", "namespaces")}
    with Stage(**scene, python=given.python, announce=announce) as stage:
        figures = {"scene": scene, **Benchmark(stage, given.rounds, given.seconds).run()}
    print(report.text({"machine": record.machine(), **figures}))
    if given.output:
        record.write(given.output, figures)


if __name__ == "__main__":
    main()
