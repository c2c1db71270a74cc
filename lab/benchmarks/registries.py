"""Processor time of 500 followed services at rest: `python -m lab.benchmarks.registries`.

*polled*: a platform's HTTP registry (a stub in a process of its own), each service every 2 s, answered "not modified".
*pushed*: a real Consul, which answers when something changes. The follower and its cache run in this process, without
the rest of the adapter. Three minutes.

Exits with status 1 if polling takes more than 4 % of a processor, or pushing more than 1 %, or if an answer failed.
"""

import asyncio
import sys
import time

from aiohttp import web

from adapter.load.roster import Roster
from adapter.registries.cache import InstanceCache
from adapter.registries.follow import Follower, open_source
from adapter.registries.source import ServiceKey
from adapter.settings.registries import ConsulRegistry, HttpRegistry, Registry
from adapter.telemetry.metrics import Metrics
from lab.benchmarks import record
from lab.harness.client import fetch
from lab.harness.processes import LocalServer, free_ports
from lab.harness.registries.consul import Consul

AIMS = {"polled": 4.0, "pushed": 1.0}  # percent of a processor
_TAG = '"a"'


class CountingCache(InstanceCache):
    """Counts the answers that a source gives."""

    answers = 0

    def put(self, key: ServiceKey, answer: Roster) -> None:
        self.answers += 1
        super().put(key, answer)


async def at_rest(settings: Registry, services: list[str], settle: float, seconds: float) -> dict[str, float]:
    """What following these services costs once each has a list."""
    keys = [ServiceKey(settings.name, service) for service in services]
    changed = asyncio.Event()
    cache = CountingCache(settings, lambda _: changed.set(), time.time, Metrics())
    follower = Follower(open_source(settings), cache)
    follower.follow(keys)
    while not all((listed := cache.instances(key)) and listed.valid for key in keys):
        await changed.wait()
        changed.clear()
    await asyncio.sleep(settle)
    answers, cpu, began = cache.answers, time.process_time(), time.monotonic()
    await asyncio.sleep(seconds)
    cpu, passed, answers = time.process_time() - cpu, time.monotonic() - began, cache.answers - answers
    figures = {"percent": round(100 * cpu / passed, 2), "answers": answers, "failed": len(cache.troubles)}
    await follower.close()
    return figures


class Platform(LocalServer):
    """The stub."""

    name = "platform"
    cwd = record.ROOT

    def command(self) -> list[str]:
        [self.port] = free_ports(1)
        return [sys.executable, "-m", __spec__.name, "--serve", str(self.port)]

    def is_ready(self) -> bool:
        return fetch(self.port, "/instances?service=s0").status == 200


async def instances(request: web.Request) -> web.Response:
    """The stub's answer: 20 pods that serve, or that nothing changed."""
    if request.headers.get("If-None-Match") == _TAG:
        return web.Response(status=304, headers={"ETag": _TAG})
    pods = [{"pod": f"p-{index}", "ip": f"10.0.0.{index}", "state": "in"} for index in range(20)]
    document = {"service": request.query["service"], "complete": True, "instances": pods}
    return web.json_response(document, headers={"ETag": _TAG})


def main() -> int:
    parser = record.argument_parser(__doc__)
    parser.add_argument("--services", type=int, default=500, help="default: %(default)s")
    parser.add_argument("--settle", type=float, default=15, help="seconds before each measurement")
    parser.add_argument("--seconds", type=float, default=60, help="of each measurement (default: %(default)s)")
    parser.add_argument("--serve", type=int, metavar="PORT", help="serve the stub only")
    given = parser.parse_args()
    if given.serve:
        app = web.Application()
        app.router.add_get("/instances", instances)
        web.run_app(app, host="127.0.0.1", port=given.serve, print=None, access_log=None)
        return 0
    services = [f"s{number}" for number in range(given.services)]
    with Platform() as platform:
        url = f"http://127.0.0.1:{platform.port}/instances"
        polled = HttpRegistry(name="own", type="HTTP", url=url, interval_seconds=2)
        figures = {"polled": asyncio.run(at_rest(polled, services, given.settle, given.seconds))}
    with Consul(limits={"http_max_conns_per_client": 4 * given.services}) as consul:
        for service in services:
            consul.register(service, f"{service}-0", "10.0.0.1")
        pushed = ConsulRegistry(name="consul", type="Consul", servers=(consul.url,))
        figures["pushed"] = asyncio.run(at_rest(pushed, services, given.settle, given.seconds))
    record.write(given.output, {"services": given.services, "aims": AIMS, **figures})
    return int(any(figures[name]["percent"] > aim or figures[name]["failed"] for name, aim in AIMS.items()))


if __name__ == "__main__":
    sys.exit(main())
