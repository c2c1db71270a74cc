"""Answers of sources: limited each and together, counted uncompressed as they arrive, decoded in short steps."""

import asyncio
import gzip
import json
import subprocess
import sys

import pytest
from aiohttp import web

from adapter.kube import reflector as reflector_module
from adapter.kube.errors import TooLarge
from adapter.kube.reflector import Reflector
from adapter.kube.session import LARGEST_ANSWER, LARGEST_LINE
from adapter.runtime.answer_budget import FREE_BYTES, MIB, AnswerBudget, Body, Limit
from adapter.runtime.decoding import Uncut, array, pieces
from adapter.runtime.http1 import LONGEST_LINE, ResponseReader
from adapter.runtime.outbound import Access, Client
from adapter.runtime.source_errors import SourceError, SourceUnreachable, WrongAnswer
from adapter.settings import ResourceMetricsSettings as Options
from adapter.settings import SettingsError, parse_settings
from adapter.telemetry.metrics import Metrics
from adapter.usage.prometheus_api import PrometheusClient
from adapter.usage.resource_metrics import ResourceMetrics
from tests.fuzz.kit import in_a_step
from tests.security.sources import padded, running, serving, session_to
from tests.usage.fakes import FakePrometheus

STEP_CALLS = 30_000
"""Of 200,000 series that are decoded, or 50,000; a slice of 2 ms makes a third of it."""
PEAK_MIB = 240
"""1.1 KiB a series. The same code takes between 207 and 222 MiB, by the version of Python and by chance."""


class TestCost:
    def test_a_large_prometheus_answer_costs_little_memory_and_holds_the_loop_for_no_long_step(
        self, exhaustive: bool
    ) -> None:
        share = 1 if exhaustive else 4
        command = [sys.executable, "-m", "tests.security.answer_cost", str(31.9 / share)]
        found = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)
        assert found["error"] is None
        assert found["series"] > 100_000 / share
        assert found["peak"] < PEAK_MIB * MIB / share
        assert found["calls"] < STEP_CALLS


class TestPieces:
    def test_no_piece_of_a_large_answer_is_large(self) -> None:
        body = Body(json.dumps({"items": [{"metadata": {"name": f"pod-{n}"}} for n in range(50_000)]}).encode())
        sizes = [len(piece.text) for piece in pieces(body, array("items"))]
        assert max(sizes) < 256 * 1024
        assert len(body) == 0, "it is used up"

    def test_one_element_above_the_limit_is_refused(self) -> None:
        with pytest.raises(Uncut):
            list(pieces(json.dumps([{"a": "x" * 3 * MIB}, {"a": ""}]).encode(), array("")))


class TestPrometheus:
    async def test_an_answer_over_its_limit_names_address_key_value_and_remedy(self) -> None:
        async with FakePrometheus() as fake:
            server, url = PrometheusClient(fake.settings(max_answer_mib=1)), fake.url

            async def huge(_request: web.Request, _form: dict[str, str]) -> web.StreamResponse:
                return web.Response(body=b" " * (MIB + 1))

            fake.handler = huge
            with pytest.raises(WrongAnswer) as caught:
                await server.query("x", max_age=90)
            await server.close()
        assert url in str(caught.value)
        assert "larger than maxAnswerMiB of Prometheus server main (1): ask for less, or raise" in str(caught.value)

    async def test_a_packed_bomb_is_counted_unpacked_and_while_it_arrives(self) -> None:
        """64 MiB in 64 KiB: the limit must apply while it is decompressed."""
        bomb = gzip.compress(b" " * (64 * MIB))
        budget = AnswerBudget()

        async def answer(_: web.Request) -> web.StreamResponse:
            return web.Response(body=bomb, headers={"Content-Encoding": "gzip"})

        async with serving(answer) as url:
            client = Client(Access(), timeout=20, limit=Limit(MIB, "maxAnswerMiB"), budget=budget)
            with pytest.raises(Exception, match=r"larger than maxAnswerMiB \(1\)"):
                await client.send("GET", url)
            await client.close()
        assert budget.taken == 0


class TestResourceMetrics:
    async def test_an_answer_over_its_limit_is_an_error_and_the_last_one_stays(self) -> None:
        """The answers of metrics.k8s.io were read without a limit."""
        small = b'{"items":[{"metadata":{"name":"web-1"},"timestamp":"2026-01-01T12:00:00Z","containers":[]}]}'
        bodies = [small, b'{"items":[]}' + b" " * (2 * MIB)]

        async def answer(_: web.Request) -> web.StreamResponse:
            return web.Response(body=bodies.pop(0) if len(bodies) > 1 else bodies[0])

        changes: asyncio.Queue[str] = asyncio.Queue()
        async with session_to(answer) as session:
            options = Options(interval_seconds=0.01, max_answer_mib=1)  # type: ignore[call-arg]
            usage = ResourceMetrics(session, lambda: ["shop"], options, changes.put_nowait, Metrics())
            async with running(usage.run()):
                while usage.samples("shop").error is None:
                    await changes.get()
            found = usage.samples("shop")
        assert "the answer is larger than its limit" in (found.error or "")
        assert list(found.pods) == ["web-1"], "no decision to shrink may come of it"


class TestBudget:
    async def test_the_budget_bounds_the_answers_of_all_sources_together(self) -> None:
        budget = AnswerBudget(4 * MIB)
        gate, most = asyncio.Event(), 0

        async def answer(_: web.Request) -> web.StreamResponse:
            return web.Response(body=b" " * (2 * MIB))

        async with serving(answer) as url:
            clients = [
                Client(Access(), timeout=20, source=f"source {n}", limit=Limit(2 * MIB), budget=budget)
                for n in range(8)
            ]
            held = asyncio.Semaphore(0)

            async def read(client: Client) -> None:
                nonlocal most
                async with client.answer("GET", url) as reply:
                    assert len(reply.body) == 2 * MIB
                    most = max(most, budget.taken)
                    held.release()
                    await gate.wait()

            reading = [asyncio.create_task(read(client)) for client in clients]
            async with asyncio.timeout(20):
                await held.acquire()
                await held.acquire()
                assert budget.taken == 4 * MIB
                gate.set()
                await asyncio.gather(*reading)
            for client in clients:
                await client.close()
        assert most <= 4 * MIB
        assert budget.taken == 0

    async def test_a_source_with_many_slow_answers_keeps_no_other_source_waiting(self) -> None:
        budget = AnswerBudget(4 * MIB)
        async with budget.reserve("hostile") as first:
            await first.take(2 * MIB)
            waiting = [asyncio.create_task(budget.take("hostile", 2 * MIB)) for _ in range(20)]
            await asyncio.sleep(0)
            async with asyncio.timeout(5), budget.reserve("metrics.k8s.io") as other:
                await other.take(2 * MIB)
            for task in waiting:
                task.cancel()
            await asyncio.gather(*waiting, return_exceptions=True)
        assert budget.taken == 0

    async def test_an_answer_that_is_given_up_in_the_moment_of_its_turn_keeps_nothing(self) -> None:
        """It kept the memory until a restart: no large answer of that source, or of two such, was read any more."""
        budget = AnswerBudget(4)
        async with budget.reserve("a") as lease:
            await lease.take(4)
            given_up, next_one = (asyncio.create_task(budget.take(source, 4)) for source in ("a", "b"))
            await asyncio.sleep(0)
            given_up.cancel()
        async with asyncio.timeout(5):
            await next_one
        with pytest.raises(asyncio.CancelledError):
            await given_up

    async def test_waiting_answers_are_served_in_order_whatever_their_size(self) -> None:
        budget = AnswerBudget(4)
        served: list[str] = []

        async def take(source: str, size: int) -> None:
            await budget.take(source, size)
            served.append(source)

        async with budget.reserve("a") as lease:
            await lease.take(3)
            large = asyncio.create_task(take("large", 4))
            await asyncio.sleep(0)
            small = asyncio.create_task(take("small", 1))
            await asyncio.sleep(0)
            assert served == [], "one that is smaller must not overtake for ever"
        await large
        assert served == ["large"]
        small.cancel()
        await asyncio.gather(small, return_exceptions=True)

    async def test_a_hung_answer_frees_its_memory_at_its_deadline_and_a_waiting_one_names_the_cause(self) -> None:
        budget = AnswerBudget(MIB)
        over = asyncio.Event()

        async def hang(request: web.Request) -> web.StreamResponse:
            response = web.StreamResponse(headers={"Content-Length": str(MIB)})
            await response.prepare(request)
            await response.write(b" " * (FREE_BYTES * 2))
            await over.wait()
            return response

        async with serving(hang) as url:
            clients = [
                Client(Access(), timeout=seconds, source=str(seconds), limit=Limit(MIB), budget=budget)
                for seconds in (1.5, 0.5)
            ]
            first = asyncio.create_task(clients[0].send("GET", url))
            async with asyncio.timeout(10):
                while not budget.taken:  # noqa: ASYNC110  nothing tells of it
                    await asyncio.sleep(0.01)
            with pytest.raises(SourceUnreachable, match=r"waiting for memory .*answers\.maxTotalMiB"):
                await clients[1].send("GET", url)
            with pytest.raises(SourceUnreachable, match=r"no answer within 1\.5 s$"):
                await first
            over.set()
            for client in clients:
                await client.close()
        assert budget.taken == 0


CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


@pytest.mark.parametrize(
    ("parts", "says"),
    [
        pytest.param([b"HTTP/1.1 " + b"2" * 5_000 + b" OK\r\n\r\n"], "not HTTP/1.1", id="status without end"),
        pytest.param(
            [b"HTTP/1.1 200 OK\r\nContent-Length: " + b"9" * 5_000 + b"\r\n\r\n"], "how long", id="length without end"
        ),
        pytest.param([CHUNKED, b"1;" + b"x" * LONGEST_LINE], "chunks cannot be read", id="line before a chunk"),
        pytest.param([CHUNKED, b"0\r\nX: " + b"x" * 70_000], "trailers", id="trailers that never end"),
        pytest.param([CHUNKED, b"1\r\nx\r\n" * 40_000], "chunks of less than", id="chunks of single bytes"),
        pytest.param(
            [CHUNKED, b"80000\r\n" + b"x" * 0x80000 + b"\r\n80001\r\n"],
            r"larger than maxAnswerMiB of registry main \(1\)",
            id="chunk sizes are summed before the chunks arrive",
        ),
    ],
)
def test_http_of_a_registry_without_bounds_is_refused_at_once(parts: list[bytes], says: str) -> None:
    reader = ResponseReader(Limit(MIB, "maxAnswerMiB of registry main"))
    with pytest.raises(SourceError, match=says):
        in_a_step(lambda: [reader.feed(part) for part in parts])


class TestApiServer:
    async def test_any_answer_of_the_api_server_is_bounded(self) -> None:
        async with session_to(padded(2 * LARGEST_ANSWER // MIB)) as session:
            with pytest.raises(TooLarge, match="larger than 16 MiB"):
                await session.get("/api/v1/pods")
            with pytest.raises(TooLarge):
                await session.request("POST", "/apis/authentication.k8s.io/v1/tokenreviews", body=b"{}")

    async def test_a_line_of_a_watch_is_bounded(self) -> None:
        async with session_to(padded(2 * LARGEST_LINE // MIB)) as session:
            with pytest.raises(TooLarge, match="a line of the answer"):
                async with session.stream("/api/v1/pods") as lines:
                    await anext(lines)

    async def test_a_page_of_large_objects_is_requested_in_shorter_pages(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """A user who may write policies may write large ones: they must not break the list."""
        monkeypatch.setattr(reflector_module, "LARGEST_PAGE", 100_000)
        limits: list[int] = []

        async def answer(request: web.Request) -> web.StreamResponse:
            if "watch" in request.query:
                await asyncio.Event().wait()
            at, limit = int(request.query.get("continue", "0")), int(request.query["limit"])
            limits.append(limit)
            end = min(at + limit, 10)
            items = [
                {"metadata": {"name": f"p{n}", "resourceVersion": "1"}, "spec": "x" * 40_000} for n in range(at, end)
            ]
            token = str(end) if end < 10 else ""
            return web.json_response({"metadata": {"resourceVersion": "9", "continue": token}, "items": items})

        async with session_to(answer) as session:
            reflector = Reflector(session, "/things", bytes, name="things")
            async with running(reflector.run()):
                await reflector.synced.wait()
        assert len(reflector.items) == 10
        assert limits[0] > limits[-1]


@pytest.mark.parametrize("value", ["0", "2000", "1.5", "'8'"])
def test_an_invalid_limit_is_rejected_and_so_is_one_above_that_of_all_together(value: str) -> None:
    with pytest.raises(SettingsError, match="maxAnswerMiB"):
        parse_settings(f"resourceMetrics: {{maxAnswerMiB: {value}}}")
    with pytest.raises(SettingsError, match=r"resourceMetrics\.maxAnswerMiB: 64: must not be more than answers\.max"):
        parse_settings("answers: {maxTotalMiB: 32}\nresourceMetrics: {maxAnswerMiB: 64}")
