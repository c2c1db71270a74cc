"""Unknown clients share a limited number of connections and little of the event loop."""

import asyncio
import dataclasses
import gc
import socket
import time
import tracemalloc
from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack

import pytest
import trustme

from adapter.apiserver.server import ServerOptions
from adapter.inbound.connections import DEFAULT_LIMITS, ConnectionLimits
from adapter.inbound.fairness import EvictingPool, FairQueue
from adapter.kube.session import Session
from adapter.telemetry.metrics import Metrics
from adapter.telemetry.rows import PolicyRow
from adapter.telemetry.server import listen
from harness import snapshots
from tests.apiserver.cluster import TOKENS, Cluster
from tests.apiserver.conftest import HPA, Service, pem, running
from tests.apiserver.metric_requests import POLICY
from tests.security.connections import Streams, asked, connected, drop, is_ended, opened

FEW = ConnectionLimits(unknown_clients=8, handshakes=8)
OTHER = "127.0.0.2"
METRIC = f"{POLICY}/effective_cpu"
HEALTH = b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"
REQUEST = f"GET {METRIC} HTTP/1.1\r\nHost: x\r\nX-Remote-User: {HPA}\r\n\r\n".encode()
TOKEN = f"GET {METRIC} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer good\r\n\r\n".encode()
MIB = 1 << 20


@pytest.fixture
async def strict(
    cluster: Cluster, session: Session, options: ServerOptions, front_proxy: trustme.CA
) -> AsyncIterator[Service]:
    """A server with room for few unknown clients."""
    cluster.trust(pem(front_proxy))
    cluster.tokens["good"] = {"username": "token-user"}
    service = Service(cluster, session, dataclasses.replace(options, limits=FEW))
    service.snapshot_store.swap(snapshots.snapshot(snapshots.view(at=session.now())))
    async with running(service):
        await service.ready()
        yield service


async def strangers(service: Service, number: int) -> list[Streams]:
    """Connections of unknown clients, each served once, in order."""
    wires = []
    for _ in range(number):
        wires.append(await opened(service))
        assert (await asked(wires[-1], HEALTH)).split()[1] == b"200"
    return wires


async def test_beyond_the_limit_the_oldest_idle_unknown_client_is_closed(strict: Service) -> None:
    wires = await strangers(strict, FEW.unknown_clients)
    assert (await asked(wires[0], HEALTH)).split()[1] == b"200"  # and is the youngest now
    wires += await strangers(strict, 1)
    assert await is_ended(wires[1])
    for index in (0, 2, FEW.unknown_clients):
        assert (await asked(wires[index], HEALTH)).split()[1] == b"200"
    drop(*wires)


async def test_the_front_proxy_is_never_closed_for_unknown_clients(strict: Service, proxy: trustme.LeafCert) -> None:
    proxies = [await opened(strict, proxy) for _ in range(2 * FEW.unknown_clients)]
    wires = await strangers(strict, 3 * FEW.unknown_clients)
    for wire in proxies:
        assert (await asked(wire, REQUEST)).split()[1] == b"200"
    new = await opened(strict, proxy)
    assert (await asked(new, REQUEST)).split()[1] == b"200"
    drop(*proxies, *wires, new)


async def test_a_client_that_waits_for_its_answer_is_kept_while_others_are_idle(strict: Service) -> None:
    held = asyncio.Event()
    strict.cluster.faults[TOKENS] = held
    waiting = await opened(strict)
    answered = asyncio.create_task(asked(waiting, TOKEN))
    await strict.cluster.until(lambda: strict.cluster.asked[f"POST {TOKENS}"] > 0)
    wires = await strangers(strict, 2 * FEW.unknown_clients)
    held.set()
    assert (await answered).split()[1] == b"200"
    drop(waiting, *wires)


async def test_an_address_with_many_connections_closes_only_its_own(strict: Service) -> None:
    kubelet = await opened(strict, source=OTHER)
    assert (await asked(kubelet, HEALTH)).split()[1] == b"200"
    wires = await strangers(strict, 3 * FEW.unknown_clients)
    assert (await asked(kubelet, HEALTH)).split()[1] == b"200"
    drop(kubelet, *wires)


async def test_stalled_handshakes_keep_no_client_out(strict: Service, proxy: trustme.LeafCert) -> None:
    begun = [await connected(strict.server.port) for _ in range(3 * FEW.handshakes)]
    for wire in begun[-FEW.handshakes :]:
        wire[1].write(b"\x16\x03\x01\x02\x00\x01")
    for leaf in (None, proxy):
        wire = await opened(strict, leaf)
        assert (await asked(wire, HEALTH)).split()[1] == b"200"
        drop(wire)
    assert await is_ended(begun[0])
    drop(*begun)


async def test_a_thousand_silent_connections_take_little_memory_and_keep_no_client_out(
    service: Service, proxy: trustme.LeafCert
) -> None:
    loop = asyncio.get_running_loop()
    await service.ask("/healthz", leaf=proxy)
    gc.collect()
    tracemalloc.start()
    with ExitStack() as silent:
        for _ in range(1000):
            plain = silent.enter_context(socket.socket())
            plain.setblocking(False)
            await loop.sock_connect(plain, ("127.0.0.1", service.server.port))
        probe = await opened(service, source=OTHER)
        assert (await asked(probe, HEALTH)).split()[1] == b"200"
        wire = await opened(service, proxy)
        assert (await asked(wire, REQUEST)).split()[1] == b"200"
        taken, _ = tracemalloc.get_traced_memory()
        drop(probe, wire)
    tracemalloc.stop()
    assert taken < 8 * MIB


async def test_the_telemetry_port_has_a_cap_of_its_own() -> None:
    async with listen(Metrics(), "127.0.0.1", 0, FEW) as port:
        prometheus = await connected(port, source=OTHER)
        assert (await asked(prometheus, HEALTH)).split()[1] == b"200"
        wires = [await connected(port) for _ in range(3 * FEW.unknown_clients)]
        assert (await asked(wires[-1], HEALTH)).split()[1] == b"200"
        assert (await asked(prometheus, HEALTH)).split()[1] == b"200"
        assert await is_ended(wires[0])
        drop(prometheus, *wires)


def test_the_limits_exceed_the_expected_connections() -> None:
    assert DEFAULT_LIMITS.unknown_clients >= 128
    assert DEFAULT_LIMITS.handshakes >= 64


# --- turns


async def turns(number: int) -> None:
    for _ in range(number):
        await asyncio.sleep(0)


async def test_the_queue_rotates_between_addresses() -> None:
    queue, done = FairQueue(clock=lambda: 0.0), list[str]()

    def step(name: str) -> Callable[[], None]:
        return lambda: done.append(name)

    for index in range(3):
        queue.put("many", step(f"many {index}"))
    queue.put("one", step("one"))
    await turns(2)
    assert len(done) <= 2
    await turns(10)
    assert done == ["many 0", "one", "many 1", "many 2"]
    await queue.wait("again")


async def test_a_step_that_raises_does_not_stop_the_queue() -> None:
    """The error is logged; a queue that stopped would keep out the kubelet until a restart."""
    queue, errors, done = FairQueue(clock=lambda: 0.0), list[object](), list[str]()
    asyncio.get_running_loop().set_exception_handler(lambda _, context: errors.append(context["exception"]))
    failure = ValueError("made to fail")

    def fail() -> None:
        raise failure

    queue.put("one", fail)
    queue.put("other", lambda: done.append("other"))
    await turns(10)
    assert (errors, done) == ([failure], ["other"])
    queue.put("one", lambda: done.append("one"))
    await turns(10)
    assert done == ["other", "one"]


async def test_the_queue_leaves_most_of_the_loop_to_others() -> None:
    queue, spent = FairQueue(), 0.0

    def work() -> None:
        nonlocal spent
        began = time.perf_counter()
        while time.perf_counter() - began < 0.002:
            pass
        spent += time.perf_counter() - began
        queue.put("busy", work)

    began = time.perf_counter()
    queue.put("busy", work)
    await asyncio.sleep(0.5)
    assert 0 < spent < 0.5 * (time.perf_counter() - began)
    queue._steps.clear()


async def test_a_full_pool_evicts_the_oldest_of_the_largest_address() -> None:
    crowd: EvictingPool[tuple[str, int]] = EvictingPool(4, lambda member: member[0])
    assert [crowd.add(("a", index)) for index in range(3)] == [None, None, None]
    assert crowd.add(("b", 0)) is None
    assert crowd.add(("b", 1)) == ("a", 0)
    crowd.discard(("a", 0))
    crowd.refresh(("a", 1))
    assert crowd.add(("c", 0), lambda member: member == ("a", 2)) == ("a", 1)
    assert len(crowd) == 5
    assert ("c", 0) in crowd


async def test_scrapes_at_once_share_one_exposition() -> None:
    made = 0

    def rows() -> list[PolicyRow]:
        nonlocal made
        made += 1
        return [PolicyRow(namespace="shop", policy=f"p{made}", desired=3)]

    async with listen(Metrics(rows), "127.0.0.1", 0) as port:
        wires = [await connected(port) for _ in range(20)]
        scrape = b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n"
        answers = await asyncio.gather(*(asked(wire, scrape) for wire in wires))
        assert [head.split()[1] for head in answers] == 20 * [b"200"]
        assert made < 10
        drop(*wires)
