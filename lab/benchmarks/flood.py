"""Latency of the HPA's requests while a stranger floods the port: `python -m lab.benchmarks.flood`.

A real etcd and kube-apiserver hold 10,000 pods, and the adapter runs as its command line does. The HPA's request (one
metric of one policy) is sent through the API server, at an even rate; a latency counts from the moment that its request
was due. Beside it, a new connection with the front proxy's certificate is made four times a second. All is measured
without an attack and then during each attack, in which another address makes 500 connections a second.

The adapter has its own processor if there are two. The attacker shares the other one with the rest and gets what that
leaves. Otherwise the scheduler would decide the result, while in a cluster attackers run on other machines.

Exits with status 1 if an attack costs more than 20 ms at the 99th percentile, if memory grows by more than 64 MiB
beyond what it was before the first attack, or if a request or a new connection fails; and if an attack came to less
than half of its rate.
"""

import asyncio
import functools
import os
import resource
import socket
import ssl
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from lab.benchmarks import record
from lab.benchmarks.measure import measure
from lab.benchmarks.processes import favour, memory
from lab.benchmarks.stage import HEADERS, Stage, request
from lab.harness.binaries import print_to_stderr
from lab.harness.client import tls_context

MOST_MS, MOST_MIB = 20.0, 64.0
ATTACKS = {
    "silent": "connections that say nothing",
    "half": "half a hello",
    "handshakes": "handshakes without a certificate",
}
_METRIC = "effective_cpu"
_RATE = 50.0
_ATTACK_RATE, _BEATS = 500, 50
"""Connections a second, and the bursts that they come in."""
_HELD = 2000
"""Connections that the attacker keeps open; the oldest are closed."""
_THREADS = 32
_STRANGER = "127.0.0.9"
_HALF_A_HELLO = b"\x16\x03\x01\x02\x00\x01\x00"
_LEAD_SECONDS = 3.0
_LOOK_SECONDS = 0.05
_CONNECT_EVERY, _CONNECT_SECONDS = 0.25, 1.0


class Watch:
    """Measures in threads: the adapter's peak memory (MiB), and new connections of the front proxy."""

    def __init__(self, stage: Stage) -> None:
        self._pid, self._port, self._over = stage.pid, stage.adapter.port, threading.Event()
        self.mib, self.slowest_ms, self.failed = memory(stage.pid)["now"], 0.0, 0
        pair = stage.cluster.front_proxy_cert()
        self._context = tls_context(None, pair.cert_file, pair.key_file)
        self._threads = [threading.Thread(target=one, daemon=True) for one in (self._look, self._connect)]
        for thread in self._threads:
            thread.start()

    def _look(self) -> None:
        while not self._over.wait(_LOOK_SECONDS):
            self.mib = max(self.mib, memory(self._pid)["now"])

    def _connect(self) -> None:
        head = "".join(f"{name}: {value}\r\n" for name, value in HEADERS)
        sent = f"GET /apis/custom.metrics.k8s.io HTTP/1.1\r\n{head}Connection: close\r\n\r\n".encode()
        while not self._over.wait(_CONNECT_EVERY):
            began, answer = time.monotonic(), b""
            try:
                with socket.create_connection(("127.0.0.1", self._port), _CONNECT_SECONDS) as plain:
                    wire = self._context.wrap_socket(plain)
                    wire.sendall(sent)
                    answer = wire.recv(4096)
            except OSError as error:
                answer = repr(error).encode()
            if not answer.startswith(b"HTTP/1.1 200"):
                self.failed += 1
                print_to_stderr(f"a new connection failed: {answer[:200]!r}")
            self.slowest_ms = max(self.slowest_ms, 1000 * (time.monotonic() - began))

    def stop(self) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join()


async def attack(kind: str, port: int, seconds: float) -> int:
    """Attacks the port from one other address; returns the number of connections."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    loop, held, made = asyncio.get_running_loop(), list[socket.socket](), 0
    with ThreadPoolExecutor(_THREADS) as threads:
        due = loop.time()  # of the next burst: a late one is made up for
        until = due + seconds
        while loop.time() < until:
            due += 1 / _BEATS
            if kind == "handshakes":
                handshakes = [loop.run_in_executor(threads, handshake, port) for _ in range(_ATTACK_RATE // _BEATS)]
                made += len(handshakes)
                await asyncio.gather(*handshakes, asyncio.sleep(due - loop.time()))
                continue
            for _ in range(_ATTACK_RATE // _BEATS):
                held.append(connection := socket.socket())
                connection.setblocking(False)
                connection.bind((_STRANGER, 0))
                with suppress(OSError):  # it is in progress
                    connection.connect(("127.0.0.1", port))
            made += _ATTACK_RATE // _BEATS
            await asyncio.sleep(due - loop.time())
            if kind == "half":
                for connection in held[-_ATTACK_RATE // _BEATS :]:
                    with suppress(OSError):
                        connection.send(_HALF_A_HELLO)
            while len(held) > _HELD:
                held.pop(0).close()
    for connection in held:
        connection.close()
    return made


@functools.cache
def _stranger() -> ssl.SSLContext:
    """Made once: it costs as much as a handshake."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


def handshake(port: int) -> None:
    """A whole handshake without a certificate."""
    with (
        suppress(OSError),
        socket.create_connection(("127.0.0.1", port), 5, (_STRANGER, 0)) as plain,
        _stranger().wrap_socket(plain) as wire,
    ):
        wire.recv(1)


def flooded(stage: Stage, kind: str, seconds: float) -> dict[str, Any]:
    """The HPA's latencies calm and during the attack, and what it cost."""
    requests = [request(service, _METRIC) for service in stage.services]
    plan = replace(stage.plan_through_api_server(requests, seconds=seconds, rate=_RATE), tolerant=True)
    calm, watch = measure(plan, stage.pid), Watch(stage)
    line = [sys.executable, "-m", __spec__.name, "--attack", kind, str(stage.adapter.port)]
    line += ["--seconds", str(seconds + _LEAD_SECONDS)]
    with subprocess.Popen(line, stdout=subprocess.PIPE, start_new_session=True) as attacker:
        favour(attacker.pid, 19)
        time.sleep(_LEAD_SECONDS)
        under = measure(plan, stage.pid)
        output, _ = attacker.communicate()
    watch.stop()
    figures = {
        "calm_p50_ms": calm.milliseconds(0.5),
        "calm_p99_ms": calm.milliseconds(0.99),
        "flooded_p50_ms": under.milliseconds(0.5),
        "flooded_p99_ms": under.milliseconds(0.99),
        "p99_more_ms": round(under.milliseconds(0.99) - calm.milliseconds(0.99), 3),
        "peak_mib": round(watch.mib, 1),
        "slowest_probe_ms": round(watch.slowest_ms, 1),
        "failed": watch.failed + under.refused,
        "attacks": int(output),
        "attacks_a_second": round(int(output) / (seconds + _LEAD_SECONDS)),
    }
    print_to_stderr(f"{ATTACKS[kind]}: {figures}")
    return figures


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
    parser.add_argument("--seconds", type=float, default=60, help="duration of one measurement (default: %(default)s)")
    parser.add_argument("--pods", type=int, default=10_000, help="pods of the scene (default: %(default)s)")
    parser.add_argument("--attack", nargs=2, metavar=("KIND", "PORT"), help="attack only, and print the connections")
    given = parser.parse_args()
    if given.attack:
        kind, port = given.attack
        print(asyncio.run(attack(kind, int(port), given.seconds)))
        return 0
    with Stage(50, given.pods, 1, sys.executable) as stage:
        print_to_stderr(f"first answer after {stage.first_answer():.1f} s")
        time.sleep(5)
        _part(stage)
        before = memory(stage.pid)["now"]
        attacks = {text: flooded(stage, kind, given.seconds) for kind, text in ATTACKS.items()}
    for row in attacks.values():
        row["rss_more_mib"] = round(row["peak_mib"] - before, 1)
    aims = {"p99_more_ms": MOST_MS, "rss_more_mib": MOST_MIB, "failed": 0}
    most = {name: max(row[name] for row in attacks.values()) for name in (*aims, "slowest_probe_ms")}
    figures = {"seconds": given.seconds, "rate": _RATE, "aims": aims, "most": most, "attacks": attacks}
    record.write(given.output, figures, f"python -m lab.benchmarks.flood --seconds {given.seconds:g}")
    is_weak = any(row["attacks_a_second"] < _ATTACK_RATE / 2 for row in attacks.values())
    return int(is_weak or any(most[name] > aim for name, aim in aims.items()))


if __name__ == "__main__":
    sys.exit(main())
