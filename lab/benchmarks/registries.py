"""The cost of following 500 services at rest, for each registry with a real server here, and for HTTP.

    python -m lab.benchmarks.registries [--only consul nacos]

A real server on loopback holds the services; a separate process runs the adapter's registry manager with one
connection. Its processor time is measured over a minute without changes. Afterwards every roster must be complete and
fresh: otherwise the connection has failed, and the figure is invalid.
"""

import asyncio
import gc
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
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
from lab.benchmarks.processes import share_of_processor
from lab.benchmarks.registered import ConsulWithPods, EurekaWithPods, Registry, ZooKeeperWithPods
from lab.harness.registries.polaris import Polaris

SETTLE_SECONDS = 10
_PATIENCE_SECONDS = 240

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
def _polaris(services: Services, kind: str = "Polaris") -> Iterator[dict[str, Any]]:
    """Polaris, which speaks the protocol of Nacos as well."""
    with Polaris() as server:
        every = _flat(services)
        for first in range(0, len(every), 100):
            chunk = every[first : first + 100]
            instances = [{"service": name, "namespace": "default", "host": ip, "port": 8080} for name, ip in chunk]
            server.call("POST", "/naming/v1/instances", instances)
        server.restart()  # it fills its caches before it answers
        yield {"type": kind, "servers": [server.nacos if kind == "Nacos" else server.http]}


@contextmanager
def _http(services: Services) -> Iterator[dict[str, Any]]:
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
    "nacos": partial(_polaris, kind="Nacos"),
    "zookeeper": _joined(ZooKeeperWithPods),
    "eureka": _joined(EurekaWithPods),
    "polaris": _polaris,
    "http": _http,
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
    async with asyncio.timeout(_PATIENCE_SECONDS):
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
    if child.stdout.readline() != "ready\n":
        raise RuntimeError(f"not all services were known within {_PATIENCE_SECONDS} s")
    time.sleep(SETTLE_SECONDS)
    used = share_of_processor(child.pid, seconds)
    child.stdin.write("how\n")
    child.stdin.flush()
    state = json.loads(child.stdout.readline())
    if state["known"] != services or state["oldest_seconds"] > EVIDENCE_SECONDS:
        raise RuntimeError(f"some rosters are incomplete or stale: {state}")
    return {"cpu_share": used, "seconds": seconds, "oldest_answer_seconds": state["oldest_seconds"]}


def main() -> None:
    parser = record.argument_parser(__doc__)
    parser.add_argument("--only", nargs="+", choices=HELD, default=list(HELD))
    parser.add_argument("--services", type=int, default=500)
    parser.add_argument("--instances", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--follow", help="the settings of a registry: be the measured process")
    given = parser.parse_args()
    if given.output and given.only != list(HELD):
        parser.error("-o stores all kinds together; leave --only away")
    if given.follow:
        asyncio.run(follow(json.loads(given.follow), given.services, given.instances))
        return
    rows = [measure(name, given.services, given.instances, given.seconds) for name in given.only]
    scene = {"services": given.services, "instances_each": given.instances}
    record.write(given.output, {"scene": scene, "registries": rows})


if __name__ == "__main__":
    main()
