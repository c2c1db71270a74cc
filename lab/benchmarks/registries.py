"""Processor time of 500 followed services at rest: `python -m lab.benchmarks.registries`.

*polled*: a platform's HTTP registry (a stub in a process of its own), each service every 2 s, answered "not modified".
*pushed*: a real ZooKeeper, whose watches say when something changes; a ping each 4 s confirms all lists.
*confirmed*: a real Consul, which answers each service's query when something changes, and each 10 s without a change.
The follower and its cache run in this process, without the rest of the adapter. Six minutes.

*bare*: the polls' requests by a loop around aiohttp's session alone, at the same times; nothing reads the answers.

Exits with status 1 if one takes more than its aim, or if an answer failed. Polls meet theirs of 4 % in a quiet minute
only: this machine's minutes differ by half, so look at *bare* beside them (3.8 to 5.0 % where they take 3.9 to 6.1 %).
Consul's is 3.5 %: it gives 57 answers a second (500 queries of 10.3 s, and a list of each service a minute), and adds
a random time to each query, so that they come one by one, which takes more than twice as much for each.
"""

import asyncio
import json
import sys
import time

import aiohttp

from adapter.load.roster import Roster
from adapter.registries.cache import InstanceCache
from adapter.registries.follow import Follower, open_source
from adapter.registries.servers import sleep_until
from adapter.registries.source import ServiceKey
from adapter.settings.registries import ConsulRegistry, HttpRegistry, Registry, ZooKeeperRegistry
from adapter.telemetry.metrics import Metrics
from lab.benchmarks import record
from lab.harness.client import fetch
from lab.harness.processes import LocalServer, free_ports
from lab.harness.registries.consul import Consul
from lab.harness.registries.zookeeper import ZooKeeper

AIMS = {"polled": 4.0, "pushed": 1.0, "confirmed": 3.5}  # percent of a processor
EVERY_SECONDS = 2.0


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
    answers = cache.answers
    figures = {"percent": await percent(seconds), "answers": cache.answers - answers, "failed": len(cache.troubles)}
    await follower.close()
    return figures


async def percent(seconds: float) -> float:
    """This process' share of a processor while that time passes."""
    cpu, began = time.process_time(), time.monotonic()
    await asyncio.sleep(seconds)
    return round(100 * (time.process_time() - cpu) / (time.monotonic() - began), 2)


async def bare(url: str, services: list[str], settle: float, seconds: float) -> float:
    """What the same requests cost by aiohttp's session alone, in percent of a processor."""

    async def follow(number: int, service: str) -> None:
        due = asyncio.get_running_loop().time() + EVERY_SECONDS * number / len(services)
        while True:
            await sleep_until(due)
            asked = session.get(url, params={"service": service}, headers={"If-None-Match": '"a"'})
            async with asked as answer:
                await answer.read()
            due += EVERY_SECONDS

    everything = {"connector": aiohttp.TCPConnector(limit=0), "cookie_jar": aiohttp.DummyCookieJar()}
    async with aiohttp.ClientSession(**everything) as session:
        tasks = [asyncio.create_task(follow(*one)) for one in enumerate(services)]
        await asyncio.sleep(settle)
        taken = await percent(seconds)
        assert not any(task.done() for task in tasks), "a request failed"
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    return taken


class Platform(LocalServer):
    """The stub."""

    name = "platform"
    cwd = record.ROOT

    def command(self) -> list[str]:
        [self.port] = free_ports(1)
        return [sys.executable, "-m", __spec__.name, "--serve", str(self.port)]

    def is_ready(self) -> bool:
        return fetch(self.port, "/instances?service=s0").status == 200


class Answering(asyncio.Protocol):
    """A connection to the stub, as quick as a compiled server: slow answers would wake the client one by one.

    It answers with 20 pods that serve, or that nothing changed.
    """

    def __init__(self) -> None:
        self._received = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        *requests, self._received = (self._received + data).split(b"\r\n\r\n")
        for request in requests:
            status, body = b"304 Not Modified", b""
            if b"If-None-Match" not in request:
                service = request.partition(b"service=")[2].partition(b" ")[0].decode()
                pods = [{"pod": f"p-{index}", "ip": f"10.0.0.{index}", "state": "in"} for index in range(20)]
                document = {"service": service, "complete": True, "instances": pods}
                status, body = b"200 OK", json.dumps(document).encode()
            head = b'HTTP/1.1 %b\r\nETag: "a"\r\nContent-Length: %d\r\n\r\n' % (status, len(body))
            self._transport.write(head + body)


async def serve(port: int) -> None:
    """Run the stub."""
    server = await asyncio.get_running_loop().create_server(Answering, "127.0.0.1", port)
    await server.serve_forever()


def main() -> int:
    parser = record.argument_parser(__doc__)
    parser.add_argument("--services", type=int, default=500, help="default: %(default)s")
    parser.add_argument("--settle", type=float, default=15, help="seconds before each measurement")
    parser.add_argument("--seconds", type=float, default=60, help="of each measurement (default: %(default)s)")
    parser.add_argument("--serve", type=int, metavar="PORT", help="serve the stub only")
    given = parser.parse_args()
    if given.serve:
        asyncio.run(serve(given.serve))
        return 0
    services = [f"s{number}" for number in range(given.services)]
    with Platform() as platform:
        url = f"http://127.0.0.1:{platform.port}/instances"
        polled = HttpRegistry(name="own", type="HTTP", url=url, interval_seconds=EVERY_SECONDS)
        figures = {"polled": asyncio.run(at_rest(polled, services, given.settle, given.seconds))}
        alone = asyncio.run(bare(url, services, given.settle, given.seconds))
    with Consul(limits={"http_max_conns_per_client": 4 * given.services}) as consul:
        for service in services:
            consul.register(service, f"{service}-0", "10.0.0.1")
        confirmed = ConsulRegistry(name="consul", type="Consul", servers=(consul.url,))
        figures["confirmed"] = asyncio.run(at_rest(confirmed, services, given.settle, given.seconds))
    with ZooKeeper() as zookeeper, zookeeper.session() as session:
        for service in services:
            instance = {"name": service, "id": "0", "address": "10.0.0.1", "port": 8080, "enabled": True}
            session.create(f"/services/{service}/0", json.dumps(instance).encode(), ephemeral=True, makepath=True)
        pushed = ZooKeeperRegistry(name="zk", type="ZooKeeper", layout="Curator", servers=(zookeeper.address,))
        figures["pushed"] = asyncio.run(at_rest(pushed, services, given.settle, given.seconds))
    record.write(given.output, {"services": given.services, "aims": AIMS, "bare": alone, **figures})
    return int(any(figures[name]["percent"] > aim or figures[name]["failed"] for name, aim in AIMS.items()))


if __name__ == "__main__":
    sys.exit(main())
