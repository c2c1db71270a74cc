"""The serving benchmark: `python -m benchmarks.serving [--policies 1000] [--pods 20000] [--out benchmarks/results]`.

A real etcd and kube-apiserver hold the scene, the adapter runs as its command line does, and an aiohttp server whose
handler does nothing answers the same requests over the same TLS. Both are asked in turn, many times over, so that what
else the machine does hits both.
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
_RELIST_SECONDS = 20  # the other API server has to read all of it first
_RATE = 500.0
_WARM_RATE = 250.0
_SLOW_RATE = 100.0  # one policy is asked every 10 s: every answer needs a live read


def announce(text: str) -> None:
    print(text, flush=True)


class Benchmark:
    """Runs every part on one stage and gathers the figures."""

    def __init__(self, stage: Stage, rounds: int, seconds: float) -> None:
        self.stage, self.rounds, self.seconds = stage, rounds, seconds

    def run(self) -> dict[str, Any]:
        found: dict[str, Any] = {"start": self.start()}
        announce(f"start: {json.dumps(found['start'])}")
        self.settle()
        for name, part in (
            ("rest", self.rest),
            ("capacity", lambda: self.capacity(found["rest"]["cpu_share"])),
            ("latency", self.latency),
            ("relist", self.relists),
            ("memory", lambda: memory(self.stage.pid)),
        ):
            found[name] = part()
            announce(f"{name}: {json.dumps(found[name])}")
        return found

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
        """Every path asked once, which asks the API server for its right; then a while of peace."""
        time.sleep(5)
        for metric in (READ_ONLY, DESIRED):
            measure(self._paced(metric, 2 * len(self.stage.services) / _RATE, _RATE), self.stage.pid)
        time.sleep(5)

    def rest(self) -> dict[str, float]:
        """What the adapter uses while nobody asks: watches, usage of all pods, assessment of all policies."""
        before, began = cpu_seconds(self.stage.pid), time.monotonic()
        time.sleep(30)
        share = (cpu_seconds(self.stage.pid) - before) / (time.monotonic() - began)
        return {"cpu_share": round(share, 3), **memory(self.stage.pid)}

    def capacity(self, rest: float) -> dict[str, Any]:
        """As many requests as are answered; adapter and constant server in turn.

        A ratio compares neighbouring runs; the net one leaves out what the adapter uses at rest too (`rest`, a share).
        """
        runs: dict[str, list[Measured]] = {CONSTANT: [], READ_ONLY: [], DESIRED: []}
        for _ in range(self.rounds):
            for metric, done in runs.items():
                done.append(measure(self.stage.plan(metric, seconds=self.seconds), self._pid(metric)))
        constant = [run.per_cpu_second for run in runs[CONSTANT]]
        found: dict[str, Any] = {}
        for metric, done in runs.items():
            gross = [run.per_cpu_second / other for run, other in zip(done, constant, strict=True)]
            idle = rest if metric else 0.0
            net = [run.without(idle).per_cpu_second / other for run, other in zip(done, constant, strict=True)]
            found[metric or "constant"] = {
                "per_second": round(statistics.median(run.per_second for run in done)),
                "per_cpu_second": round(statistics.median(run.per_cpu_second for run in done)),
                "ratio": round(statistics.median(gross), 3),
                "net_ratio": round(statistics.median(net), 3),
                "ratios": [round(ratio, 3) for ratio in gross],
                **_joined(done).summary,
            }
        return found

    def latency(self) -> dict[str, Any]:
        """At an even rate, at rest."""
        found = {}
        for metric, rate in ((CONSTANT, _RATE), (READ_ONLY, _RATE), (DESIRED, _SLOW_RATE)):
            done = [measure(self._paced(metric, 2 * self.seconds, rate), self._pid(metric)) for _ in range(self.rounds)]
            found[metric or "constant"] = {"rate": rate, **_joined(done).summary}
        return found

    def relists(self) -> dict[str, Any]:
        found = {}
        for changed in (False, True):
            name = "every pod changed" if changed else "nothing changed"
            for metric, rate in ((CONSTANT, _RATE), (READ_ONLY, _RATE), (DESIRED, _SLOW_RATE)):
                found[f"{metric or 'constant'}, {name}"] = self._relisted(metric, rate, changed=changed)
        return found

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
        """Latencies while the adapter lists everything anew, how long that took, and the processor time it used."""
        for _ in range(5):
            found = self._try_relist(metric, rate, changed=changed)
            if found is not None:
                return found
            announce("the watches went on without a list; once more")
        raise RuntimeError("no relist could be brought about")

    def _try_relist(self, metric: str, rate: float, *, changed: bool) -> Measured | None:
        stage = self.stage
        if metric:  # HPAs ask all the time: a right forgotten meanwhile would be asked about in the midst of the list
            measure(self._paced(metric, len(stage.services) / _WARM_RATE + 1, _WARM_RATE), stage.pid)
        # Bookmarks would bring the adapter to where the other API server begins, and no list were needed.
        stage.forwarder.hold()
        if changed:
            stage.touch_pods()
        name = stage.prepare_other()
        stage.heard()
        # At the moment of the change nobody can be asked for a scale or a right: an adapter that refuses then is right.
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
        """The moment that the list was in, and half a second for what follows; None where none came."""
        while time.monotonic() - began < _RELIST_SECONDS:
            time.sleep(0.1)
            if any(line.get("event") == "listed" and line["resource"] == "pods" for line in self.stage.heard()):
                time.sleep(0.5)
                return time.monotonic()
        return None

    # -- small things

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
    parser.add_argument("--rounds", type=int, default=3, help="how often each part is repeated (default: %(default)s)")
    parser.add_argument("--seconds", type=float, default=5, help="of one run at full speed (default: %(default)s)")
    parser.add_argument("--python", default=sys.executable, help="interpreter of the servers (default: this one)")
    parser.add_argument("--out", type=Path, help="a folder for serving.json and serving.txt")
    given = parser.parse_args()
    favour()
    scene = {name: getattr(given, name) for name in ("policies", "pods", "namespaces")}
    with Stage(**scene, python=given.python, announce=announce) as stage:
        found = {"machine": machine(), "scene": scene, **Benchmark(stage, given.rounds, given.seconds).run()}
    text = report.text(found)
    print(text)
    if given.out:
        given.out.mkdir(parents=True, exist_ok=True)
        (given.out / "serving.json").write_text(json.dumps(found, indent=1) + "\n")
        (given.out / "serving.txt").write_text(text)


if __name__ == "__main__":
    main()
