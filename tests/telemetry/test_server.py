"""The telemetry port over loopback, and the health that it answers."""

import asyncio
import contextlib
import gzip
import socket
from collections.abc import AsyncIterator

import aiohttp
import pytest

from adapter.telemetry.health import LATE_SECONDS, Health, HealthAnswer, Heartbeat
from adapter.telemetry.metrics import Metrics
from adapter.telemetry.series import PolicyRow
from adapter.telemetry.server import listen
from lab.harness.processes import free_ports
from tests.kube.conftest import Clock

ROWS = [PolicyRow(namespace="shop", policy=f"p{i}", desired=3) for i in range(20)]
LOOPBACK = "127.0.0.1"
HEALTHY = Health({"ping": lambda: None}, {})


@contextlib.asynccontextmanager
async def asked(path: str, health: Health = HEALTHY, **headers: str) -> AsyncIterator[aiohttp.ClientResponse]:
    """The answer of a port of its own."""
    async with (
        listen(Metrics(lambda: ROWS), health, LOOPBACK, 0) as port,
        aiohttp.ClientSession(auto_decompress=False) as client,
        client.get(f"http://{LOOPBACK}:{port}{path}", headers=headers) as answer,
    ):
        yield answer


async def test_metrics_are_served_as_prometheus_text_without_blocking() -> None:
    async with asked("/metrics", **{"Accept-Encoding": "identity"}) as answer:
        text = await answer.text()
    assert answer.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
    assert 'effective_load_policy_desired_replicas{namespace="shop",policy="p7"} 3.0' in text


async def test_a_scraper_that_takes_gzip_gets_the_same_shorter() -> None:
    async with asked("/metrics", **{"Accept-Encoding": "gzip;q=1.0"}) as answer:
        body = await answer.read()
    assert answer.headers["Content-Encoding"] == "gzip"
    plain = gzip.decompress(body)
    assert plain.count(b"effective_load_policy_desired_replicas{") == 20
    assert len(body) < len(plain) / 3


@pytest.mark.parametrize(
    ("path", "status", "text"),
    [
        ("/healthz", 200, "ok"),
        ("/apis", 404, None),
        # The kubelet reads why, and a proxy shows the text of no other answer than 200.
        ("/readyz", 500, "[-]caches failed: pods are not read yet\nreadyz check failed\n"),
        ("/readyz?report", 200, "[-]caches failed: pods are not read yet\nreadyz check failed\n"),
    ],
)
async def test_health_is_served_with_its_reasons(path: str, status: int, text: str | None) -> None:
    async with asked(path, Health({}, {"caches": lambda: "pods are not read yet"})) as answer:
        assert answer.status == status
        assert text is None or await answer.text() == text


async def test_without_an_address_every_interface_is_served_and_its_port_is_taken() -> None:
    [free] = free_ports(1)
    async with (
        listen(Metrics(), HEALTHY, "", free) as port,
        aiohttp.ClientSession() as client,
        client.get(f"http://{LOOPBACK}:{port}/healthz") as answer,
    ):
        assert answer.status == 200
        with pytest.raises(OSError, match="in use"):
            async with listen(Metrics(), HEALTHY, LOOPBACK, port):
                pass


async def test_health_answers_beside_scrapers_that_do_not_read() -> None:
    rows = [PolicyRow(namespace="shop", policy=f"p{i}" + "x" * 4000, desired=3) for i in range(200)]
    async with listen(Metrics(lambda: rows), HEALTHY, LOOPBACK, 0) as port, aiohttp.ClientSession() as client:
        with contextlib.ExitStack() as wires:
            for _ in range(20):
                wire = wires.enter_context(socket.create_connection((LOOPBACK, port)))
                wire.sendall(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
            async with client.get(f"http://{LOOPBACK}:{port}/healthz") as answer:
                assert answer.status == 200


ILL = "the pods' watch is silent"


def health(sentence: str | None = None) -> Health:
    return Health({"ping": lambda: None}, {"caches": lambda: sentence})


FAILED = f"[+]ping ok\n[-]caches failed: {ILL}\nreadyz check failed\n"


@pytest.mark.parametrize(
    ("sentence", "path", "answer"),
    [
        *((None, path, (200, "ok")) for path in ("/livez", "/readyz", "/healthz")),
        (None, "/readyz?verbose", (200, "[+]ping ok\n[+]caches ok\nreadyz check passed\n")),
        (ILL, "/readyz", (500, FAILED)),
        pytest.param(ILL, "/readyz?verbose=&report=", (200, FAILED), id="a failure that is only reported"),
        *((ILL, path, (200, "ok")) for path in ("/livez", "/healthz", "/readyz/ping")),
        (ILL, "/readyz/caches", (500, f"[-]caches failed: {ILL}\nreadyz check failed\n")),
        pytest.param(None, "/livez/caches", None, id="a check that is none of the endpoint's"),
    ],
)
def test_an_endpoint_says_ok_or_each_of_its_checks(
    sentence: str | None, path: str, answer: tuple[int, str] | None
) -> None:
    assert health(sentence).answer(path) == answer


async def test_a_stalled_event_loop_fails_the_heartbeat() -> None:
    clock = Clock()
    heart = Heartbeat(lambda: clock.monotonic)
    clock.pass_(LATE_SECONDS)
    assert heart.check() is None
    clock.pass_(1)
    assert "16 s" in (heart.check() or "")
    beating = asyncio.create_task(heart.run())
    await asyncio.sleep(0)
    assert heart.check() is None
    beating.cancel()


def test_a_warning_is_shown_by_readyz_and_fails_nothing() -> None:
    warning = "the watch of pods in namespace shop has shown no life"
    health = Health({"ping": lambda: None}, {"watches": lambda: None}, {"watches": lambda: warning})
    text = f"[+]ping ok\n[+]watches ok\n[!]watches: {warning}\nreadyz check passed\n"
    assert health.answer("/readyz") == HealthAnswer(200, text)
    assert health.answer("/livez") == HealthAnswer(200, "ok")


def test_a_failed_check_is_logged_once_a_minute_and_when_it_fails_again(capsys: pytest.CaptureFixture[str]) -> None:
    clock, failing = Clock(), [ILL]
    checked = Health({}, {"caches": lambda: failing[0] if failing else None}, clock=lambda: clock.monotonic)

    def logged() -> int:
        checked.answer("/readyz")
        return capsys.readouterr().out.count("health_check_failed")

    assert [logged(), logged()] == [1, 0]
    clock.pass_(60)
    assert logged() == 1
    failing.clear()
    assert logged() == 0
    failing.append(ILL)
    assert logged() == 1
