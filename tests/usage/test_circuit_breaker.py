"""A source that fails and recovers, in simulated time: how soon it is polled again, and how often meanwhile."""

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator, Callable

import pytest

from adapter.kube.errors import Unreachable
from adapter.runtime.backoff import ProbeTurns
from adapter.runtime.outbound import AT_ONCE
from adapter.runtime.source_errors import QueryRejected, SourceError, SourceUnreachable
from adapter.settings import NamedQuery, PrometheusServer
from adapter.telemetry.metrics import Metrics
from adapter.usage import prometheus as module
from adapter.usage.prometheus import Prometheus
from adapter.usage.prometheus_api import CONCURRENT_SLOW_QUERIES
from adapter.usage.resource_metrics import ResourceMetrics
from tests.kube.lease_kit import moment, run

TIMEOUT = 10.0
GOES, COMES = 100.0, 160.0


class FakeClient:
    """A client that succeeds, but between `goes` and `comes` fails at once or hangs until the deadline."""

    hangs = False
    goes, comes = GOES, COMES
    refuses: Callable[[str], bool] = staticmethod(lambda _: False)
    refusal: SourceError = SourceUnreachable("no answer within 10 s")
    asked: list[tuple[float, str]]

    def __init__(self, settings: PrometheusServer) -> None:
        self.settings = settings
        self.slots = asyncio.Semaphore(AT_ONCE)
        self.slow_slots = asyncio.Semaphore(CONCURRENT_SLOW_QUERIES)
        self.probe_turns = ProbeTurns()

    async def query(self, text: str, *_: object, **__: object) -> None:
        self.asked.append((moment(), text))
        if self.goes <= moment() < self.comes:
            await asyncio.sleep(TIMEOUT if self.hangs else 0.001)
            raise SourceUnreachable("no answer")
        await asyncio.sleep(0.01)
        if type(self).refuses(text):
            raise self.refusal

    async def close(self) -> None:
        pass


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> type[FakeClient]:
    class Own(FakeClient):
        asked: list[tuple[float, str]] = []  # noqa: RUF012  of this test

    monkeypatch.setattr(module, "PrometheusClient", Own)
    return Own


def queries(count: int, seconds: float) -> list[NamedQuery]:
    names = [(f"q-{seconds:g}-{index}", f"vector({seconds:g}{index:03})") for index in range(count)]
    return [NamedQuery(name=name, server="main", query=text, interval_seconds=seconds) for name, text in names]


@contextlib.asynccontextmanager
async def polling(*asked: NamedQuery) -> AsyncIterator[Prometheus]:
    source = Prometheus(
        [PrometheusServer(name="main", url="http://main")],
        asked,
        inline_allowed=False,
        on_change=lambda _: None,
        clock=moment,
        metrics=Metrics(),
    )
    task = asyncio.create_task(source.run())
    yield source
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


def answered_since(source: Prometheus, name: str, since: float) -> bool:
    found = source.named_result(name)
    return found is not None and found.fetched_at is not None and found.fetched_at >= since


def poll(seconds: float, *asked: NamedQuery) -> set[str]:
    """Polls for so long in simulated time; returns the queries that were answered since the server is back."""
    answered: set[str] = set()

    async def work() -> None:
        async with polling(*asked) as source:
            await asyncio.sleep(seconds)
            answered.update(query.name for query in asked if answered_since(source, query.name, COMES))

    run(work())
    return answered


@pytest.mark.parametrize("hangs", [False, True], ids=["refusing", "hanging"])
def test_after_a_server_recovers_every_query_is_answered_within_its_interval_and_two_seconds(
    server: type[FakeClient], hangs: bool
) -> None:
    server.hangs = hangs
    asked = [*queries(200, 15), *queries(20, 60)]

    async def work() -> None:
        async with polling(*asked) as source:
            for seconds in (15, 60):
                await asyncio.sleep(COMES + seconds + 2 - moment())
                late = [
                    q.name for q in asked if q.interval_seconds == seconds and not answered_since(source, q.name, COMES)
                ]
                assert late == []

    run(work())


def test_a_server_that_is_down_gets_one_probe_an_interval_whatever_the_number_of_queries(
    server: type[FakeClient],
) -> None:
    server.comes = GOES + 600
    poll(server.comes - 1, *queries(200, 15))
    first = [at for at, _ in server.asked if GOES <= at < GOES + 17]
    later = [(at, text) for at, text in server.asked if at >= GOES + 17]
    assert len(first) <= 201, "each finds out once"
    assert 36 <= len(later) <= 40, "and then one of them in every 15 s"
    assert len({text for _, text in later}) == len(later), "each in its turn"


def test_waiting_queries_are_spread_when_the_breaker_closes(server: type[FakeClient]) -> None:
    poll(COMES + 17, *queries(200, 15))
    back = [at for at, _ in server.asked if at >= COMES]
    assert max(sum(1 for at in back if at // 0.1 == tenth) for tenth in {at // 0.1 for at in back}) < 60


@pytest.mark.parametrize("refusal", [SourceUnreachable("no answer within 10 s"), QueryRejected("no such function")])
def test_a_query_that_always_fails_keeps_its_interval_and_delays_no_other(
    server: type[FakeClient], refusal: SourceError
) -> None:
    """A query may be too heavy for a server that is well, or somebody may be mending its data."""
    server.goes, server.comes, server.refusal = 0, 0, refusal
    heavy, *light = queries(10, 15)
    server.refuses = staticmethod(lambda text: text == heavy.query)
    poll(150, heavy, *light)
    times = {text: [at for at, asked in server.asked if asked == text] for _, text in server.asked}
    assert times.keys() == {query.query for query in (heavy, *light)}
    assert all(9 <= len(at) <= 14 for at in times.values())


@pytest.mark.parametrize("answers", [False, True], ids=["unanswered", "answered"])
def test_many_slow_queries_do_not_delay_fast_ones(
    server: type[FakeClient], answers: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.goes = server.comes = 0
    slow, quick = queries(60, 15), queries(3, 5)
    texts, true = {query.query for query in slow}, server.query
    times: dict[str, list[float]] = {query.query: [] for query in quick}

    async def query(self: FakeClient, text: str, *others: object, **more: object) -> None:
        if text in texts:
            await asyncio.sleep(TIMEOUT - 1)
            if not answers:
                raise SourceUnreachable("no answer within 9 s")
        else:
            times[text].append(moment())
        return await true(self, text, *others, **more)

    monkeypatch.setattr(server, "query", query)
    poll(600, *slow, *quick)
    found_out = 60 * TIMEOUT / AT_ONCE
    for at in times.values():
        later = [one for one in at if one > found_out]
        assert max(b - a for a, b in itertools.pairwise(later)) <= 6


def test_after_an_outage_a_query_that_always_fails_does_not_keep_the_breaker_open(server: type[FakeClient]) -> None:
    fast, slow = queries(1, 5)[0], queries(1, 15)[0]
    server.refuses = staticmethod(lambda text: text == fast.query)
    # A probe of the failing query may come first (5 s), and an interval has a jitter of a tenth.
    assert slow.name in poll(COMES + 5 + 15 * 1.1 + 1, fast, slow)


def test_a_removed_query_leaves_its_probe_to_others(server: type[FakeClient]) -> None:
    one, other = queries(2, 15)

    async def work() -> None:
        async with polling(one, other) as source:
            await asyncio.sleep(GOES + 40)
            source.reload([PrometheusServer(name="main", url="http://main")], [other], inline_allowed=False)
            await asyncio.sleep(COMES + 17 - moment())
            assert answered_since(source, other.name, COMES)

    run(work())


def test_a_response_closes_the_breaker_for_all_waiting_queries() -> None:
    probe_turns = ProbeTurns()

    async def work() -> None:
        responses = probe_turns.responses
        waiting = [asyncio.create_task(probe_turns.wait(responses, 15)) for _ in range(3)]
        await asyncio.sleep(1)
        probe_turns.close()
        await asyncio.sleep(2)
        assert all(task.done() for task in waiting)

    run(work())


def test_a_rejected_query_closes_the_breaker(server: type[FakeClient]) -> None:
    *rejected, other = queries(40, 15)
    server.refuses = staticmethod(lambda text: text != other.query)
    server.refusal = QueryRejected("no such function")
    assert other.name in poll(COMES + 17, *rejected, other)


class Options:
    interval_seconds = 60.0
    max_age_seconds = 90.0
    timeout_seconds = TIMEOUT
    max_answer_mib = 32


class Session:
    """An API server that lets requests for metrics hang while metrics-server is away."""

    def now(self) -> float:
        return moment()

    async def get(self, path: str, *, timeout: float, **_: object) -> bytes:  # noqa: ASYNC109
        if GOES <= moment() < COMES:
            await asyncio.sleep(timeout)
            raise Unreachable(f"{path}: no answer")
        return b'{"items":[]}'


def test_after_metrics_server_recovers_every_namespace_is_polled_within_the_interval_and_two_seconds() -> None:
    names = [f"ns-{index}" for index in range(100)]

    async def work() -> None:
        usage = ResourceMetrics(Session(), lambda: names, Options(), lambda _: None, Metrics())
        task = asyncio.create_task(usage.run())
        await asyncio.sleep(COMES + Options.interval_seconds + 2)
        late = [name for name in names if (usage.samples(name).fetched_at or 0) < COMES]
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert late == []

    run(work())
