"""The telemetry port, asked over loopback."""

import asyncio
import gzip
import socket

import aiohttp
import pytest
from blockbuster import blockbuster_ctx

from adapter.telemetry.health import Health
from adapter.telemetry.metrics import Metrics
from adapter.telemetry.rows import PolicyRow
from adapter.telemetry.server import listen
from tests.security.connections import asked, connected, drop

ROWS = [PolicyRow(namespace="shop", policy=f"p{i}", desired=3) for i in range(20)]
LOOPBACK = "127.0.0.1"
HEALTHY = Health({"ping": lambda: None}, {})
HEALTHZ = b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"
SCRAPE = b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n"


async def test_metrics_are_served_as_prometheus_text() -> None:
    async with listen(Metrics(lambda: ROWS), HEALTHY, LOOPBACK, 0) as port, aiohttp.ClientSession() as client:
        async with client.get(f"http://{LOOPBACK}:{port}/metrics", headers={"Accept-Encoding": "identity"}) as answer:
            text = await answer.text()
        assert answer.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
        assert 'effective_load_policy_desired_replicas{namespace="shop",policy="p7"} 3.0' in text


async def test_a_scraper_that_takes_gzip_gets_the_same_shorter() -> None:
    async with (
        listen(Metrics(lambda: ROWS), HEALTHY, LOOPBACK, 0) as port,
        aiohttp.ClientSession(auto_decompress=False) as client,
        client.get(f"http://{LOOPBACK}:{port}/metrics", headers={"Accept-Encoding": "gzip;q=1.0"}) as answer,
    ):
        body = await answer.read()
    assert answer.headers["Content-Encoding"] == "gzip"
    plain = gzip.decompress(body)
    assert plain.count(b"effective_load_policy_desired_replicas{") == 20
    assert len(body) < len(plain) / 3


async def test_healthz_says_ok_and_other_paths_do_not_exist() -> None:
    async with listen(Metrics(), HEALTHY, LOOPBACK, 0) as port, aiohttp.ClientSession() as client:
        async with client.get(f"http://{LOOPBACK}:{port}/healthz") as answer:
            assert (answer.status, await answer.text()) == (200, "ok")
        async with client.get(f"http://{LOOPBACK}:{port}/apis") as answer:
            assert answer.status == 404


async def test_the_kubelet_reads_why_a_server_is_not_ready_and_a_proxy_gets_it_with_status_200() -> None:
    health = Health({}, {"caches": lambda: "pods are not read yet"})
    text = "[-]caches failed: pods are not read yet\nreadyz check failed\n"
    async with listen(Metrics(), health, LOOPBACK, 0) as port, aiohttp.ClientSession() as client:
        for query, status in (("", 500), ("?report", 200)):
            async with client.get(f"http://{LOOPBACK}:{port}/readyz{query}") as answer:
                assert (answer.status, await answer.text()) == (status, text)


async def test_the_port_is_free_again_afterwards() -> None:
    async with listen(Metrics(), HEALTHY, LOOPBACK, 0) as port:
        pass
    async with listen(Metrics(), HEALTHY, LOOPBACK, port) as again:
        assert again == port


async def test_a_taken_port_is_an_error_at_the_start() -> None:
    with socket.socket() as taken:
        taken.bind((LOOPBACK, 0))
        taken.listen()
        with pytest.raises(OSError, match="in use"):
            async with listen(Metrics(), HEALTHY, LOOPBACK, taken.getsockname()[1]):
                pass


async def test_without_an_address_every_interface_is_served() -> None:
    with socket.socket() as probe:
        probe.bind((LOOPBACK, 0))
        free = probe.getsockname()[1]
    async with (
        listen(Metrics(), HEALTHY, "", free) as port,
        aiohttp.ClientSession() as client,
        client.get(f"http://{LOOPBACK}:{port}/healthz") as answer,
    ):
        assert answer.status == 200


async def test_a_scrape_does_nothing_that_blocks_the_loop_but_read_its_own_process_facts() -> None:
    metrics = Metrics(lambda: ROWS)
    async with listen(metrics, HEALTHY, LOOPBACK, 0) as port, aiohttp.ClientSession() as client:
        with blockbuster_ctx() as blocking:
            # prometheus-client reads /proc/self here: memory, not a disk.
            for name in ("io.BufferedReader.read", "io.TextIOWrapper.read", "os.listdir", "os.sysconf"):
                if name in blocking.functions:
                    blocking.functions[name].deactivate()
            async with client.get(f"http://{LOOPBACK}:{port}/metrics") as answer:
                assert answer.status == 200


async def test_scrapes_at_once_share_one_exposition() -> None:
    made = 0

    def rows() -> list[PolicyRow]:
        nonlocal made
        made += 1
        return [PolicyRow(namespace="shop", policy=f"p{made}", desired=3)]

    async with listen(Metrics(rows), HEALTHY, LOOPBACK, 0) as port:
        wires = [await connected(port) for _ in range(20)]
        answers = await asyncio.gather(*(asked(wire, SCRAPE) for wire in wires))
        assert [head.split()[1] for head in answers] == 20 * [b"200"]
        assert made < 10
        drop(*wires)


async def test_scrapers_that_do_not_read_share_one_body_and_keep_nobody_waiting() -> None:
    rows = [PolicyRow(namespace="shop", policy=f"p{i}" + "x" * 4000, desired=3) for i in range(1_000)]
    async with listen(Metrics(lambda: rows), HEALTHY, LOOPBACK, 0) as port:
        wires = [await asyncio.to_thread(silent_scraper, port) for _ in range(20)]
        for wire in wires:
            await asyncio.to_thread(wire.recv, 1, socket.MSG_PEEK)
        other = await connected(port)
        assert (await asked(other, HEALTHZ)).split()[1] == b"200"
        drop(other)
        for wire in wires:
            wire.close()


def silent_scraper(port: int) -> socket.socket:
    """A client with a small buffer that asks and does not read."""
    wire = socket.socket()
    wire.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    wire.connect((LOOPBACK, port))
    wire.sendall(SCRAPE)
    return wire
