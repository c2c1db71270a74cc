"""Latency of the HPA's requests during attacks: `python -m benchmarks.flood [--seconds 8] [--rounds 3]`.

A real etcd and kube-apiserver hold a small scene, and the adapter runs as its command line does. The HPA's request (the
front proxy's certificate, one metric of one policy) is sent at an even rate; a latency counts from the moment that its
request was due. It is measured without an attack and then during each attack (`benchmarks.hostile`), which comes from
its own processes on loopback, ends by itself, and sends as fast as the server reads.

The adapter has its own processor if there are two; attackers share the other one with the rest, at the lowest priority.
Otherwise the scheduler would decide the result, while in a cluster attackers run on other machines. Rounds are
interleaved, calm before every attack, and compared by the median of their 99th percentiles.

Exits with status 1 if an attack costs more than 5 ms at the 99th percentile, memory grows by more than 32 MiB from
before the first attack to the peak, or a probe like the kubelet's fails.
"""

import argparse
import os
import socket
import ssl
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks import record
from benchmarks.measure import Trace, measure
from benchmarks.processes import cpu_seconds, favour, memory
from benchmarks.stage import Stage

MOST_MS, MOST_MIB = 5.0, 32.0
_METRIC = "effective_cpu"
_RATE = 200.0
_LEAD_SECONDS = 3.0
_LOOK_SECONDS = 0.05
_PROBE_EVERY = 0.25
_PROBE_SECONDS = 1.0
_KUBELET = "127.0.0.2"

ATTACKS = {
    "selectors of 60 KiB, each another": ("selectors", 4, 4),
    "heads of 1,900 fields": ("fields", 4, 4),
    "pipelined requests": ("pipeline", 4, 4),
    "unfinished heads of 256 KiB": ("heads", 4, 4),
    "unfinished heads of 2 MiB": ("endless", 4, 4),
    "unfinished heads of 1,900 fields": ("tiny-heads", 4, 4),
    "heads of a byte a second": ("slow", 4, 16),
    "handshakes in a loop": ("handshakes", 8, 1),
    "1,000 idle TLS connections": ("idle", 8, 125),
}
"""Attacks by description: kind, number of processes, connections of each."""


def announce(text: str) -> None:
    print(text, flush=True)


@dataclass
class Beside:
    """The measurements during one attack, and calm just before it, round by round."""

    calm: list[Trace] = field(default_factory=list)
    flooded: list[Trace] = field(default_factory=list)
    busy: list[float] = field(default_factory=list)
    peak: float = 0.0
    probe: float = 0.0
    failed: int = 0
    done: int = 0

    def cost(self) -> float:
        """Milliseconds that the attack adds at the 99th percentile."""
        return _p99(self.flooded) - _p99(self.calm)

    def figures(self) -> dict[str, float]:
        return {
            "calm_p50_ms": round(_p50(self.calm), 3),
            "calm_p99_ms": round(_p99(self.calm), 3),
            "flooded_p50_ms": round(_p50(self.flooded), 3),
            "flooded_p99_ms": round(_p99(self.flooded), 3),
            "p99_more_ms": round(self.cost(), 3),
            "busy_share": round(statistics.median(self.busy), 3),
            "peak_mib": round(self.peak, 1),
            "slowest_probe_ms": round(self.probe, 1),
            "failed_probes": self.failed,
            "attacks": self.done,
        }


def _p99(traces: list[Trace]) -> float:
    return statistics.median(trace.milliseconds(0.99) for trace in traces)


def _p50(traces: list[Trace]) -> float:
    return statistics.median(trace.milliseconds(0.5) for trace in traces)


class Watch:
    """Measures in threads: the adapter's peak memory (MiB), and the latency and failures of its probe.

    Like the kubelet's, each probe is a new TLS connection from its own address, and fails after a second.
    """

    def __init__(self, pid: int, port: int) -> None:
        self._pid, self._port, self._over = pid, port, threading.Event()
        self.mib, self.slowest, self.failed = memory(pid)["now"], 0.0, 0
        self._threads = [threading.Thread(target=one, daemon=True) for one in (self._watch, self._probe)]
        for thread in self._threads:
            thread.start()

    def _watch(self) -> None:
        while not self._over.wait(_LOOK_SECONDS):
            self.mib = max(self.mib, memory(self._pid)["now"])

    def _probe(self) -> None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        while not self._over.wait(_PROBE_EVERY):
            began = time.monotonic()
            try:
                with (
                    socket.create_connection(("127.0.0.1", self._port), _PROBE_SECONDS, (_KUBELET, 0)) as plain,
                    context.wrap_socket(plain) as wire,
                ):
                    wire.sendall(b"GET /readyz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
                    self.failed += not wire.recv(4096).startswith(b"HTTP/1.1 200")
            except OSError:
                self.failed += 1
            self.slowest = max(self.slowest, 1000 * (time.monotonic() - began))

    def stop(self) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join()


@contextmanager
def attackers(port: int, kind: str, processes: int, connections: int, seconds: float) -> Iterator[list[int]]:
    """Runs attacking processes during the body; afterwards the yielded list holds the number of things each did."""
    line = [sys.executable, "-m", "benchmarks.hostile", kind, str(port), str(seconds), str(connections)]
    done: list[int] = []
    running = [subprocess.Popen(line, stdout=subprocess.PIPE) for _ in range(processes)]
    try:
        time.sleep(_LEAD_SECONDS)
        yield done
    finally:
        for process in running:
            output, _ = process.communicate()
            done.append(int(output or 0))


class Flood:
    """Runs every attack repeatedly."""

    def __init__(self, stage: Stage, seconds: float, kinds: list[str]) -> None:
        self.stage, self.seconds = stage, seconds
        self.results = {name: Beside() for name, (kind, _, _) in ATTACKS.items() if not kinds or kind in kinds}
        self._plan = stage.plan(_METRIC, seconds=seconds, rate=_RATE)
        measure(self._plan, stage.pid)  # fills the cache of access reviews
        self.before = memory(stage.pid)["now"]

    def round(self) -> None:
        for name, beside in self.results.items():
            self._measure(name, beside)

    def _measure(self, name: str, beside: Beside) -> None:
        stage, (kind, processes, connections) = self.stage, ATTACKS[name]
        beside.calm.append(measure(self._plan, stage.pid).trace)
        watch = Watch(stage.pid, stage.adapter.port)
        with attackers(stage.adapter.port, kind, processes, connections, self.seconds + 2 * _LEAD_SECONDS) as done:
            cpu, began = cpu_seconds(stage.pid), time.monotonic()
            beside.flooded.append(measure(self._plan, stage.pid).trace)
            beside.busy.append((cpu_seconds(stage.pid) - cpu) / (time.monotonic() - began))
        watch.stop()
        beside.peak, beside.probe = max(beside.peak, watch.mib), max(beside.probe, watch.slowest)
        beside.failed += watch.failed
        beside.done += sum(done)
        announce(
            f"{name}: calm {beside.calm[-1].summary}, flooded {beside.flooded[-1].summary}, peak {beside.peak:.0f} MiB"
        )

    def report(self) -> tuple[str, bool]:
        """A table of the results, and whether all limits are met."""
        lines = [
            f"{'':36}   calm p50    p99   flooded p50    p99   p99 more   busy   RSS peak   probe at most   attacks"
        ]
        for name, beside in self.results.items():
            lines.append(
                f"{name:36}{_p50(beside.calm):9.2f}{_p99(beside.calm):9.2f}{_p50(beside.flooded):12.2f}"
                f"{_p99(beside.flooded):9.2f}{beside.cost():9.2f}{100 * statistics.median(beside.busy):7.0f} %"
                f"{beside.peak:9.1f}{beside.probe:13.0f} ms{beside.done:10,}"
            )
        cost = max(beside.cost() for beside in self.results.values())
        grown = max(beside.peak for beside in self.results.values()) - self.before
        lines.append(_aim("p99 beyond calm, ms", cost, MOST_MS))
        lines.append(_aim(f"RSS beyond {self.before:.1f} MiB before, MiB", grown, MOST_MIB))
        failed = sum(beside.failed for beside in self.results.values())
        lines.append(_aim("probes that were not answered within 1 s", failed, 0))
        return "\n".join(lines) + "\n", cost <= MOST_MS and grown <= MOST_MIB and not failed

    def figures(self) -> dict[str, Any]:
        """What is stored: each attack, and the largest of each figure beside its limit."""
        attacks = {name: beside.figures() for name, beside in self.results.items()}
        peak = max(one["peak_mib"] for one in attacks.values())
        return {
            "aims": {"p99_more_ms": MOST_MS, "rss_more_mib": MOST_MIB},
            "most": {
                "p99_more_ms": max(one["p99_more_ms"] for one in attacks.values()),
                "rss_more_mib": round(peak - self.before, 1),
                "slowest_probe_ms": max(one["slowest_probe_ms"] for one in attacks.values()),
                "failed_probes": sum(one["failed_probes"] for one in attacks.values()),
            },
            "attacks": attacks,
        }


def _aim(what: str, value: float, aim: float) -> str:
    return f"{'met   ' if value <= aim else 'missed'}  {what}: {value:.1f} (aim ≤ {aim:g})"


def _part(stage: Stage) -> None:
    """Pins the adapter to the last processor, and everything else to the others."""
    processors = sorted(os.sched_getaffinity(0))
    if len(processors) < 2:
        return
    with suppress(OSError):
        for thread in Path(f"/proc/{stage.pid}/task").iterdir():
            os.sched_setaffinity(int(thread.name), processors[-1:])
        os.sched_setaffinity(0, processors[:-1])
    favour(stage.pid)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.flood", description=__doc__)
    parser.add_argument("--seconds", type=float, default=8, help="duration of one measurement (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=3, help="rounds of every attack (default: %(default)s)")
    parser.add_argument("--only", nargs="*", default=[], choices=sorted({kind for kind, _, _ in ATTACKS.values()}))
    parser.add_argument("-o", dest="output", metavar="FILE", type=Path)
    given = parser.parse_args()
    with Stage(policies=50, pods=500, namespaces=5, python=sys.executable, announce=announce) as stage:
        announce(f"first answer after {stage.first_answer():.1f} s")
        time.sleep(5)
        _part(stage)
        flood = Flood(stage, given.seconds, given.only)
        for _ in range(given.rounds):
            flood.round()
    text, is_met = flood.report()
    print(text)
    if given.output:
        record.write(given.output, {"rounds": given.rounds, "seconds": given.seconds, **flood.figures()})
    return 0 if is_met else 1


if __name__ == "__main__":
    sys.exit(main())
