"""The cost of following 500 services at rest, for each registry with a real server here, and for HTTP.

    python -m lab.benchmarks.registries [--only consul,nacos] [--services 500] [--instances 10] [--seconds 60] [-o FILE]

A real server on loopback holds the services; a separate process runs the adapter's registry manager with one
connection. Its processor time is measured over a minute without changes. Afterwards every roster must be complete and
fresh: otherwise the connection has failed, and the figure is invalid.
"""

import argparse
import asyncio
import gc
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from pydantic import TypeAdapter

from adapter.registries.manager import RegistryManager
from adapter.registries.roster import EVIDENCE_SECONDS, ServiceKey
from adapter.runtime.fairness import Claim
from adapter.runtime.garbage import collect_in_steps
from adapter.settings import registries
from adapter.telemetry import logs
from adapter.telemetry.metrics import Metrics
from lab.benchmarks import record
from lab.benchmarks.processes import cpu_seconds, memory
from lab.benchmarks.registered import ConsulWithPods, EurekaWithPods, Registry, ZooKeeperWithPods
from lab.harness.registries.polaris import Polaris

AIM = 0.02
"""Share of a processor."""
SETTLE_SECONDS = 10
_PATIENCE_SECONDS = 240
_RESULTS = Path(__file__).parent / "results" / "registries.json"

Services = Mapping[str, list[str]]
"""Addresses by service."""


# --- servers with the services ---


def _joined(registry: Callable[[ExitStack], Registry]) -> Callable[[Services], Any]:
    @contextmanager
    def held(services: Services) -> Iterator[dict[str, Any]]:
        with ExitStack() as stack:
            server = registry(stack)
            server.join(_flat(services))
            yield server.settings

    return held


@contextmanager
def _polaris(services: Services) -> Iterator[Polaris]:
    with Polaris() as server:
        every = _flat(services)
        for first in range(0, len(every), 100):
            chunk = every[first : first + 100]
            instances = [{"service": name, "namespace": "default", "host": ip, "port": 8080} for name, ip in chunk]
            server.call("POST", "/naming/v1/instances", instances)
        server.restart()  # it fills its caches before it answers
        yield server


@contextmanager
def polaris(services: Services) -> Iterator[dict[str, Any]]:
    with _polaris(services) as server:
        yield {"type": "Polaris", "servers": [server.http]}


@contextmanager
def nacos(services: Services) -> Iterator[dict[str, Any]]:
    with _polaris(services) as server:
        yield {"type": "Nacos", "servers": [server.nacos]}


@contextmanager
def http(services: Services) -> Iterator[dict[str, Any]]:
    """A platform that answers "not modified" at once."""

    class Platform(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        wbufsize = 64 * 1024  # an answer in one piece

        def do_GET(self) -> None:
            name = parse_qs(urlsplit(self.path).query)["service"][0]
            instances = [{"ip": ip, "port": 8080, "state": "in"} for ip in services[name]]
            unchanged = self.headers["If-None-Match"] == '"1"'
            document = {"service": name, "complete": True, "instances": instances}
            body = b"" if unchanged else json.dumps(document).encode()
            self.send_response(304 if unchanged else 200)
            self.send_header("ETag", '"1"')
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Platform) as server, ThreadPoolExecutor(1) as thread:
        thread.submit(server.serve_forever)
        yield {"type": "HTTP", "url": f"http://127.0.0.1:{server.server_port}"}
        server.shutdown()


HELD: dict[str, Callable[[Services], Any]] = {
    "consul": _joined(ConsulWithPods),
    "nacos": nacos,
    "zookeeper": _joined(ZooKeeperWithPods),
    "eureka": _joined(EurekaWithPods),
    "polaris": polaris,
    "http": http,
}


def _flat(services: Services) -> list[tuple[str, str]]:
    return [(name, ip) for name, ips in services.items() for ip in ips]


def _services(count: int, instances: int) -> Services:
    return {
        f"shop-{n}": [f"10.{n >> 8}.{n & 255}.{instance + 1}" for instance in range(instances)] for n in range(count)
    }


# --- the measured process ---


async def follow(entry: dict[str, Any], services: int, instances: int) -> None:
    """Follows the services; prints a line once all are known, and their state for each line of standard input."""
    logs.configure("error")
    settings: registries.Registry = TypeAdapter(registries.Registry).validate_python({**entry, "name": "main"})
    changed = asyncio.Event()
    manager = RegistryManager([settings], lambda _: changed.set(), time.time, Metrics())
    keys = [ServiceKey("main", name) for name in _services(services, instances)]
    # Ten namespaces, because each has its own limit.
    manager.watch(Claim(f"team-{number % 10}", (key.service,), key) for number, key in enumerate(keys))
    running = asyncio.create_task(manager.run())
    while _known(manager, keys, instances)["known"] != services:
        changed.clear()
        await changed.wait()
        await asyncio.sleep(0.25)
    gc.collect()
    collecting = asyncio.create_task(collect_in_steps())
    print("ready", flush=True)
    while await asyncio.to_thread(sys.stdin.readline):
        print(json.dumps(_known(manager, keys, instances)), flush=True)
    collecting.cancel()
    running.cancel()


def _known(manager: RegistryManager, keys: list[ServiceKey], instances: int) -> dict[str, float]:
    rosters = [roster for key in keys if (roster := manager.roster(key)) is not None]
    fresh = [one for one in rosters if one.valid and not one.error and len(one.instances) == instances]
    oldest = max((time.time() - one.at for one in fresh), default=0.0)
    return {"known": len(fresh), "oldest_seconds": round(oldest, 1)}


# --- the measurement ---


def measure(name: str, services: int, instances: int, seconds: float) -> dict[str, Any]:
    with HELD[name](_services(services, instances)) as entry:
        command = [sys.executable, "-m", "lab.benchmarks.registries", "--follow", json.dumps(entry)]
        command += ["--services", str(services), "--instances", str(instances)]
        child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        try:
            return {"registry": name, **_measured(child, services, seconds)}
        finally:
            child.kill()
            child.wait()


def _measured(child: "subprocess.Popen[str]", services: int, seconds: float) -> dict[str, Any]:
    assert child.stdin is not None
    assert child.stdout is not None
    began = time.monotonic()
    with ThreadPoolExecutor(1) as pool:
        first_line = pool.submit(child.stdout.readline)
        try:
            line = first_line.result(_PATIENCE_SECONDS)
        except TimeoutError:
            child.kill()
            raise RuntimeError(f"not all services are known after {_PATIENCE_SECONDS} s") from None
    if line != "ready\n":
        raise RuntimeError("the measured process ended")
    known_after, to_know = time.monotonic() - began, cpu_seconds(child.pid)
    time.sleep(SETTLE_SECONDS)
    before, since = cpu_seconds(child.pid), time.monotonic()
    time.sleep(seconds)
    used, elapsed = cpu_seconds(child.pid) - before, time.monotonic() - since
    child.stdin.write("how\n")
    child.stdin.flush()
    state = json.loads(child.stdout.readline())
    if state["known"] != services or state["oldest_seconds"] > EVIDENCE_SECONDS:
        raise RuntimeError(f"some rosters are incomplete or stale: {state}")
    return {
        "cpu_share": round(used / elapsed, 4),
        "meets_aim": used / elapsed < AIM,
        "seconds": round(elapsed, 1),
        "oldest_answer_seconds": state["oldest_seconds"],
        "first_answers_seconds": round(known_after, 1),
        "first_answers_cpu_seconds": round(to_know, 2),
        "memory_mib": memory(child.pid)["now"],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default=",".join(HELD), help="registries, separated by commas")
    parser.add_argument("--services", type=int, default=500)
    parser.add_argument("--instances", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("-o", "--out", type=Path, help=f"default: {_RESULTS.name}")
    parser.add_argument("--follow", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.follow:
        asyncio.run(follow(json.loads(options.follow), options.services, options.instances))
        return
    out = options.out or _RESULTS
    kept = json.loads(out.read_text())["registries"] if out.exists() else []
    results = {one["registry"]: one for one in kept}
    for name in options.only.split(","):
        results[name] = measure(name, options.services, options.instances, options.seconds)
        print(json.dumps(results[name]))
        _write(out, options.services, options.instances, list(results.values()))


def _write(out: Path, services: int, instances: int, results: list[dict[str, Any]]) -> None:
    scene = {"services": services, "instances_each": instances, "aim_cpu_share": AIM}
    # A run of some registries renews their part; the whole is what the command without `--only` measures.
    command = f"python -m lab.benchmarks.registries --services {services} --instances {instances}"
    record.write(out, {"scene": scene, "registries": results}, command)


if __name__ == "__main__":
    main()
