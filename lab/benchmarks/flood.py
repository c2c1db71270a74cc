"""Latency of the HPA's requests during attacks: `python -m lab.benchmarks.flood`.

A real etcd and kube-apiserver hold 10,000 pods, and the adapter runs as its command line does. The HPA's request (one
metric of one policy) is sent through the API server, at an even rate; a latency counts from the moment that its request
was due. Beside it, a new connection with the front proxy's certificate and a probe like the kubelet's are made four
times a second. All is measured without an attack and then during each attack: `lab.benchmarks.hostile`, from its own
processes on loopback, which end by themselves and send as fast as the server reads.

The adapter has its own processor if there are two; attackers share the other one with the rest, at the lowest priority.
Otherwise the scheduler would decide the result, while in a cluster attackers run on other machines. Rounds are
interleaved, calm before every attack, and compared by the median of their 99th percentiles.

Exits with status 1 if an attack costs more than 50 ms at the 99th percentile, if memory grows by more than 48 MiB
beyond what it was before that attack, or if a request, a new connection or a probe fails.
"""

import json
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
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

from lab.benchmarks import record
from lab.benchmarks.measure import Measured, measure
from lab.benchmarks.processes import cpu_seconds, favour, memory
from lab.benchmarks.stage import HEADERS, Stage, request
from lab.harness.binaries import print_to_stderr
from lab.harness.client import tls_context

MOST_MS, MOST_MIB = 50.0, 48.0
_METRIC = "effective_cpu"
_RATE = 50.0
_LEAD_SECONDS = 3.0
_LOOK_SECONDS = 0.05
_PROBE_EVERY = 0.25
_PROBE_SECONDS = 1.0
_KUBELET = "127.0.0.2"


class Attack(NamedTuple):
    """`kind` is one of `lab.benchmarks.hostile`, in `processes` with so many `connections` each."""

    kind: str
    processes: int
    connections: int


ATTACKS = {
    "connections that are reset at once, 1 address": Attack("aborts1", 4, 1),
    "connections that are reset at once, 200 addresses": Attack("aborts", 4, 1),
    "a byte of a handshake and a reset, 200 addresses": Attack("begun", 4, 1),
    "handshakes in a loop": Attack("handshakes", 8, 1),
    "records after a handshake without a certificate": Attack("records", 8, 1),
    "1,000 connections without a handshake": Attack("silent", 8, 125),
    "1,000 handshakes without a certificate": Attack("idle", 8, 125),
}
"""Attacks by description."""


@dataclass
class Beside:
    """The measurements during one attack, and calm just before it, round by round."""

    calm: list[Measured] = field(default_factory=list)
    flooded: list[Measured] = field(default_factory=list)
    busy: list[float] = field(default_factory=list)
    grown: float = 0.0
    peak: float = 0.0
    probe: float = 0.0
    failed: int = 0
    done: int = 0

    def figures(self) -> dict[str, float]:
        return {
            "calm_p50_ms": _middle(self.calm, 0.5),
            "calm_p99_ms": _middle(self.calm, 0.99),
            "flooded_p50_ms": _middle(self.flooded, 0.5),
            "flooded_p99_ms": _middle(self.flooded, 0.99),
            "p99_more_ms": round(_middle(self.flooded, 0.99) - _middle(self.calm, 0.99), 3),
            "busy_share": round(statistics.median(self.busy), 3),
            "peak_mib": round(self.peak, 1),
            "rss_more_mib": round(self.grown, 1),
            "slowest_probe_ms": round(self.probe, 1),
            "failed": self.failed,
            "attacks": self.done,
        }


def _middle(runs: list[Measured], share: float) -> float:
    """The median of the rounds' percentiles, in milliseconds."""
    return round(statistics.median(run.milliseconds(share) for run in runs), 3)


class Watch:
    """Measures in threads: the adapter's peak memory (MiB), and the latency and failures of new connections.

    Like the kubelet's, each probe of the telemetry port is a new connection, and fails after a second; and so does each
    handshake and request of a front proxy.
    """

    def __init__(self, stage: Stage) -> None:
        self._pid, self._over = stage.pid, threading.Event()
        self.mib, self.slowest, self.failed = memory(stage.pid)["now"], 0.0, 0
        pair = stage.cluster.front_proxy_cert()
        proxy = tls_context(None, pair.cert_file, pair.key_file)
        head = "".join(f"{name}: {value}\r\n" for name, value in HEADERS)
        request = f"GET /apis/custom.metrics.k8s.io HTTP/1.1\r\n{head}Connection: close\r\n\r\n".encode()
        probe = b"GET /readyz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
        targets = (
            self._watch,
            lambda: self._connect(stage.adapter.metrics_port, _KUBELET, probe, None),
            lambda: self._connect(stage.adapter.port, "127.0.0.1", request, proxy),
        )
        self._threads = [threading.Thread(target=one, daemon=True) for one in targets]
        for thread in self._threads:
            thread.start()

    def _watch(self) -> None:
        while not self._over.wait(_LOOK_SECONDS):
            self.mib = max(self.mib, memory(self._pid)["now"])

    def _connect(self, port: int, source: str, request: bytes, context: ssl.SSLContext | None) -> None:
        while not self._over.wait(_PROBE_EVERY):
            began, answer = time.monotonic(), b""
            try:
                with socket.create_connection(("127.0.0.1", port), _PROBE_SECONDS, (source, 0)) as plain:
                    wire = context.wrap_socket(plain) if context is not None else plain
                    wire.sendall(request)
                    answer = wire.recv(4096)
            except OSError as error:
                answer = repr(error).encode()
            seconds = time.monotonic() - began
            if not answer.startswith(b"HTTP/1.1 200"):
                self.failed += 1
                print_to_stderr(f"port {port} after {seconds:.2f} s: {answer[:200]!r}")
            self.slowest = max(self.slowest, 1000 * seconds)

    def stop(self) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join()


@contextmanager
def attackers(stage: Stage, attack: Attack, seconds: float) -> Iterator[list[int]]:
    """Runs attacking processes during the body; afterwards the yielded list holds the number of things each did."""
    line = [sys.executable, "-m", "lab.benchmarks.hostile", attack.kind, str(stage.adapter.port), str(seconds)]
    line += [str(attack.connections)]
    done: list[int] = []
    running = [subprocess.Popen(line, stdout=subprocess.PIPE) for _ in range(attack.processes)]
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
        self.results = {name: Beside() for name, attack in ATTACKS.items() if not kinds or attack.kind in kinds}
        requests = [request(service, _METRIC) for service in stage.services]
        plan = stage.plan_through_api_server(requests, seconds=seconds, rate=_RATE)
        self._plan = replace(plan, tolerant=True)
        measure(self._plan, stage.pid)  # fills the cache of access reviews

    def round(self) -> None:
        for name, beside in self.results.items():
            self._measure(name, beside)

    def _measure(self, name: str, beside: Beside) -> None:
        stage, attack = self.stage, ATTACKS[name]
        beside.calm.append(measure(self._plan, stage.pid))
        before, watch = memory(stage.pid)["now"], Watch(stage)
        with attackers(stage, attack, self.seconds + 2 * _LEAD_SECONDS) as done:
            cpu, began = cpu_seconds(stage.pid), time.monotonic()
            flooded = measure(self._plan, stage.pid)
            beside.flooded.append(flooded)
            beside.busy.append((cpu_seconds(stage.pid) - cpu) / (time.monotonic() - began))
        watch.stop()
        beside.peak, beside.probe = max(beside.peak, watch.mib), max(beside.probe, watch.slowest)
        beside.grown = max(beside.grown, watch.mib - before)
        beside.failed += watch.failed + flooded.refused
        beside.done += sum(done)
        calm, under = beside.calm[-1].summary, beside.flooded[-1].summary
        print_to_stderr(f"{name}: calm {calm}, flooded {under}, {flooded.refused} refused, peak {beside.peak:.0f} MiB")

    def figures(self, others: dict[str, Any]) -> dict[str, Any]:
        """What is stored: each attack, and the largest of each figure beside its limit. `others`: stored before."""
        attacks = others | {name: beside.figures() for name, beside in self.results.items()}
        return {
            "aims": {"p99_more_ms": MOST_MS, "rss_more_mib": MOST_MIB, "failed": 0},
            "most": {
                "p99_more_ms": max(one["p99_more_ms"] for one in attacks.values()),
                "rss_more_mib": max(one["rss_more_mib"] for one in attacks.values()),
                "slowest_probe_ms": max(one["slowest_probe_ms"] for one in attacks.values()),
                "failed": sum(one["failed"] for one in attacks.values()),
            },
            "attacks": attacks,
        }


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
    parser = record.argument_parser(__doc__)
    parser.add_argument("--seconds", type=float, default=8, help="duration of one measurement (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=3, help="rounds of every attack (default: %(default)s)")
    kinds = sorted({attack.kind for attack in ATTACKS.values()})
    parser.add_argument("--only", nargs="*", default=[], choices=kinds, help="the other rows of FILE stay")
    parser.add_argument("--pods", type=int, default=10_000, help="pods of the scene (default: %(default)s)")
    given = parser.parse_args()
    with Stage(50, given.pods, 1, sys.executable) as stage:
        print_to_stderr(f"first answer after {stage.first_answer():.1f} s")
        time.sleep(5)
        _part(stage)
        flood = Flood(stage, given.seconds, given.only)
        for _ in range(given.rounds):
            flood.round()
    out = given.output
    others = json.loads(out.read_text())["attacks"] if given.only and out and out.exists() else {}
    figures = {"rounds": given.rounds, "seconds": given.seconds, "rate": _RATE, **flood.figures(others)}
    record.write(out, figures, f"python -m lab.benchmarks.flood --rounds {given.rounds} --seconds {given.seconds:g}")
    most, aims = figures["most"], figures["aims"]
    return int(any(most[name] > aim for name, aim in aims.items()))


if __name__ == "__main__":
    sys.exit(main())
