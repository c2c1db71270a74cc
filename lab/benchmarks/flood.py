"""Latency of the HPA's requests during attacks: `python -m lab.benchmarks.flood`.

A real etcd and kube-apiserver hold 10,000 pods, and the adapter runs as its command line does. The HPA's request (one
metric of one policy) is sent through the API server, at an even rate; a latency counts from the moment that its request
was due. Beside it, a new connection with the front proxy's certificate and a probe like the kubelet's are made four
times a second. All is measured without an attack and then during each attack: `lab.benchmarks.hostile`, from its own
processes on loopback, which end by themselves and send as fast as the server reads, or thousands of policies of one
namespace that are made and then patched.

The adapter has its own processor if there are two; attackers share the other one with the rest, at the lowest priority.
Otherwise the scheduler would decide the result, while in a cluster attackers run on other machines. Rounds are
interleaved, calm before every attack, and compared by the median of their 99th percentiles.

Exits with status 1 if an attack costs more than 50 ms at the 99th percentile, if memory grows by more than 48 MiB
beyond what it was before that attack, or if a request, a new connection or a probe fails.
"""

import itertools
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

from lab.benchmarks import record, scene
from lab.benchmarks.measure import Measured, measure
from lab.benchmarks.processes import cpu_seconds, favour, memory
from lab.benchmarks.stage import HEADERS, Stage, request
from lab.harness import objects
from lab.harness.binaries import print_to_stderr
from lab.harness.client import tls_context
from lab.harness.pki import Pair

MOST_MS, MOST_MIB = 50.0, 48.0
_METRIC = "effective_cpu"
_RATE = 50.0
_LEAD_SECONDS = 3.0
_LOOK_SECONDS = 0.05
_PROBE_EVERY = 0.25
_PROBE_SECONDS = 1.0
_KUBELET = "127.0.0.2"

_CROWD, _TENANT = "crowd", "tenant"
_CONTROLLERS = "clusterrole-aggregation-controller,namespace-controller,serviceaccount-controller"
"""They give the role `view` the metrics, end the namespace of the crowd, and make what the harness waits for."""
_POLICIES = 5000
_PATCHES_A_SECOND = 25


class Attack(NamedTuple):
    """`kind` is one of `lab.benchmarks.hostile`, in `processes` with so many `connections` each.

    Without processes it is the number of targets that 5,000 policies have; these are made before the measurement, and
    patched during it.
    """

    kind: str
    processes: int = 0
    connections: int = 0
    targets: int = 0


ATTACKS = {
    "connections that are reset at once, 1 address": Attack("aborts1", 4, 1),
    "connections that are reset at once, 200 addresses": Attack("aborts", 4, 1),
    "a byte of a handshake and a reset, 200 addresses": Attack("begun", 4, 1),
    "handshakes in a loop": Attack("handshakes", 8, 1),
    "records after a handshake without a certificate": Attack("records", 8, 1),
    "1,000 connections without a handshake": Attack("silent", 8, 125),
    "1,000 handshakes without a certificate": Attack("idle", 8, 125),
    "a tenant lists 10,000 pods, 4 connections": Attack("lists", 4, 1),
    "a tenant lists 10,000 pods, 16 connections": Attack("lists", 16, 1),
    "a tenant does not read its lists, 190 connections": Attack("unread", 2, 95),
    "32 scrapers that do not read": Attack("scrapes", 1, 32),
    "5,000 policies of one target, 25 patches a second": Attack("policies", targets=1),
    "5,000 policies of 1,000 targets, 25 patches a second": Attack("policies", targets=1000),
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
def attackers(stage: Stage, attack: Attack, tenant: Pair, seconds: float) -> Iterator[list[int]]:
    """Runs attacking processes during the body; afterwards the yielded list holds the number of things each did."""
    api_server = stage.cluster.layout.port("kube-apiserver")
    ports = {"lists": api_server, "unread": api_server, "scrapes": stage.adapter.metrics_port}
    port = ports.get(attack.kind, stage.adapter.port)
    line = [sys.executable, "-m", "lab.benchmarks.hostile", attack.kind, str(port), str(seconds)]
    line += [str(attack.connections), str(tenant.cert_file), str(tenant.key_file), stage.services[0].namespace]
    done: list[int] = []
    running = [subprocess.Popen(line, stdout=subprocess.PIPE) for _ in range(attack.processes)]
    try:
        time.sleep(_LEAD_SECONDS)
        yield done
    finally:
        for process in running:
            output, _ = process.communicate()
            done.append(int(output or 0))


@contextmanager
def crowd(stage: Stage, targets: int) -> Iterator[list[int]]:
    """5,000 policies of so many targets, made before the body; 25 a second are patched in it."""
    client, done, over = stage.cluster.client, [0], threading.Event()
    client.create(objects.namespace(_CROWD))
    for number in range(targets):
        client.create(scene.hpa(replace(stage.services[0], namespace=_CROWD, name=f"t{number}")))
    path = f"/apis/effective-load.io/v1alpha1/namespaces/{_CROWD}/watermarkpolicies"
    for number in range(_POLICIES):
        policy = scene.policy(replace(stage.services[0], namespace=_CROWD, name=f"{'p' * 50}-{number}"))
        policy["spec"]["hpa"] = f"t{number % targets}"
        client.create(policy)

    def patch() -> None:
        for number in itertools.count():
            if over.wait(1 / _PATCHES_A_SECOND):
                return
            change = {"spec": {"metrics": [{**policy["spec"]["metrics"][0], "highWatermark": f"{1200 + number % 9}m"}]}}
            client.patch(f"{path}/{'p' * 50}-{number % _POLICIES}", change)
            done[0] += 1

    thread = threading.Thread(target=patch, daemon=True)
    thread.start()
    try:
        time.sleep(_LEAD_SECONDS)
        yield done
    finally:
        over.set()
        thread.join()
        client.delete(f"/api/v1/namespaces/{_CROWD}", wait=600)  # 5,000 objects; one request for all would time out


class Flood:
    """Runs every attack repeatedly."""

    def __init__(self, stage: Stage, seconds: float, kinds: list[str]) -> None:
        self.stage, self.seconds = stage, seconds
        self.results = {name: Beside() for name, attack in ATTACKS.items() if not kinds or attack.kind in kinds}
        self._tenant = stage.cluster.pki.client(_TENANT)
        stage.cluster.client.apply(_viewer(_TENANT))
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
        under_attack = (
            attackers(stage, attack, self._tenant, self.seconds + 2 * _LEAD_SECONDS)
            if attack.processes
            else crowd(stage, attack.targets)
        )
        with under_attack as done:
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


def _viewer(user: str) -> scene.Object:
    """What a tenant may do, in all namespaces: read, metrics included."""
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": f"flood-{user}"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"},
        "subjects": [{"kind": "User", "name": user, "apiGroup": "rbac.authorization.k8s.io"}],
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
    # One namespace has all pods, for the tenant's lists.
    with Stage(50, given.pods, 1, sys.executable, controllers=_CONTROLLERS) as stage:
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
