"""The cost of following 500 services at rest, for each registry with a real server here, and for HTTP.

    python -m lab.benchmarks.registries [--only consul,nacos] [--services 500] [--instances 10] [--seconds 60] [-o FILE]
    python -m lab.benchmarks.registries --requests     # one polled request: the pool's processor time beside aiohttp's

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
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from statistics import median
from typing import Any
from urllib.parse import parse_qs, urlsplit

from pydantic import TypeAdapter

from adapter.registries.manager import RegistryManager
from adapter.registries.polling_pool import CONNECTIONS, Pool
from adapter.registries.roster import EVIDENCE_SECONDS, ServiceKey
from adapter.runtime.answer_budget import MIB, Limit
from adapter.runtime.fairness import Claim
from adapter.runtime.garbage import collect_in_steps
from adapter.runtime.http1 import RawReply, Request
from adapter.runtime.outbound import Access, Client
from adapter.settings.registries import Registry
from adapter.telemetry import logs
from adapter.telemetry.metrics import Metrics
from lab.benchmarks import record
from lab.benchmarks.processes import cpu_seconds, memory
from lab.harness.registries.consul import Consul
from lab.harness.registries.eureka import EurekaServer
from lab.harness.registries.polaris import Polaris
from lab.harness.registries.zookeeper import ZooKeeper

AIM = 0.02
"""Share of a processor."""
SETTLE_SECONDS = 10
ROUNDS = 40
_PATIENCE_SECONDS = 240
_RESULTS = Path(__file__).parent / "results" / "registries.json"

Services = Mapping[str, list[str]]
"""Addresses by service."""


# --- servers with the services ---


@contextmanager
def consul(services: Services) -> Iterator[dict[str, Any]]:
    with Consul(limits={"http_max_conns_per_client": 1000}) as server:  # by default 200
        server.call("PUT", "/v1/catalog/register", {"Node": "outside", "Address": "127.0.0.2"})
        for chunk in _chunks(_flat(services), 64):
            server.call("PUT", "/v1/txn", [_consul_service(name, ip) for name, ip in chunk])
        yield {"type": "Consul", "servers": [server.url]}


def _consul_service(name: str, ip: str) -> dict[str, Any]:
    service = {"ID": f"{name}-{ip}", "Service": name, "Address": ip, "Port": 8080}
    return {"Service": {"Verb": "set", "Node": "outside", "Service": service}}


@contextmanager
def _polaris(services: Services) -> Iterator[Polaris]:
    with Polaris() as server:
        for chunk in _chunks(_flat(services), 100):
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
def zookeeper(services: Services) -> Iterator[dict[str, Any]]:
    with ZooKeeper() as server, server.session() as client:
        made = []
        for name, ips in services.items():
            client.ensure_path(f"/services/{name}")
            made += [client.create_async(f"/services/{name}/{ip}", _curator(name, ip), ephemeral=True) for ip in ips]
        for one in made:
            one.get(timeout=60)
        yield {"type": "ZooKeeper", "servers": [server.address], "layout": "Curator"}


def _curator(name: str, ip: str) -> bytes:
    metadata = {"instance_status": "UP"}
    instance = {"name": name, "id": ip, "address": ip, "port": 8080, "serviceType": "DYNAMIC"}
    return json.dumps({**instance, "payload": {"metadata": metadata}}).encode()


@contextmanager
def eureka(services: Services) -> Iterator[dict[str, Any]]:
    with EurekaServer() as server:
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda one: server.register(one[0], "-".join(one), one[1], lease=7200), _flat(services)))
        yield {"type": "Eureka", "servers": [server.url]}


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
    "consul": consul,
    "nacos": nacos,
    "zookeeper": zookeeper,
    "eureka": eureka,
    "polaris": polaris,
    "http": http,
}


def _flat(services: Services) -> list[tuple[str, str]]:
    return [(name, ip) for name, ips in services.items() for ip in ips]


def _chunks(items: list[Any], size: int) -> Iterator[list[Any]]:
    for first in range(0, len(items), size):
        yield items[first : first + size]


def _services(count: int, instances: int) -> Services:
    return {
        f"shop-{n}": [f"10.{n >> 8}.{n & 255}.{instance + 1}" for instance in range(instances)] for n in range(count)
    }


# --- the measured process ---


async def follow(entry: dict[str, Any], services: int, instances: int) -> None:
    """Follows the services; prints a line once all are known, and their state for each line of standard input."""
    logs.configure("error")
    settings: Registry = TypeAdapter(Registry).validate_python({**entry, "name": "main"})
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


# --- one request ---


async def compare_requests(url: str, services: Services) -> dict[str, float]:
    """Microseconds of processor time for one answer "not modified", in rounds of a quarter of the services."""
    keys = [(f"?service={name}", (("If-None-Match", '"1"'),)) for name in list(services)[: len(services) // 4]]
    source, limit = "registry/main", Limit(MIB)
    pool = Pool(url, Access(), timeout=5, source=source, limit=limit)
    client = Client(Access(), timeout=5, source=source, limit=limit)

    async def read(_: int, reply: RawReply) -> int:
        return reply.status

    async def by_pool() -> None:
        await pool.ask([Request("GET", *key) for key in keys], read)

    async def by_aiohttp() -> None:
        left = iter(keys)

        async def work() -> None:
            for target, headers in left:
                await client.send("GET", f"{url}/{target}", headers=dict(headers))

        await asyncio.gather(*(work() for _ in range(CONNECTIONS)))

    microseconds: dict[str, list[float]] = {"pool": [], "aiohttp": []}
    for _ in range(ROUNDS):
        for name, ask in (("pool", by_pool), ("aiohttp", by_aiohttp)):
            began = time.process_time()
            await ask()
            microseconds[name].append((time.process_time() - began) / len(keys) * 1e6)
            await asyncio.sleep(0.1)
    pool.close()
    await client.close()
    return {name: round(median(times)) for name, times in microseconds.items()}


def measure_requests(count: int) -> dict[str, float]:
    with http(_services(count, 1)) as entry:
        command = [sys.executable, "-m", "lab.benchmarks.registries", "--requests", "--follow", json.dumps(entry)]
        done = subprocess.run([*command, "--services", str(count)], check=True, capture_output=True, text=True)
        return dict(json.loads(done.stdout))


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
    parser.add_argument("--requests", action="store_true", help="compare one request of the pool with aiohttp's")
    parser.add_argument("--follow", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.requests:
        if options.follow:
            services = _services(options.services, 1)
            print(json.dumps(asyncio.run(compare_requests(json.loads(options.follow)["url"], services))))
        else:
            microseconds = measure_requests(options.services)
            print(json.dumps(microseconds))
            if options.out:
                record.write(options.out, {"microseconds": microseconds})
        return
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
