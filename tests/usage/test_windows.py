"""How many samples a full window holds, what is partial, and what is unknown."""

import itertools
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from aiohttp import web
from structlog.testing import capture_logs

from adapter.load.quantity import NANO
from adapter.load.samples import Point
from adapter.load.spec import Query
from adapter.settings import NamedQuery
from adapter.usage.promql import parse_inputs
from adapter.usage.query_catalog import WorkloadQuery
from adapter.usage.windows import _interval, lowest_share
from tests.usage.fakes import (
    NOW,
    FakePrometheus,
    Handler,
    asks_scrapes,
    asks_times,
    matrix,
    named,
    values_of,
    vector,
)
from tests.usage.test_prometheus import Source
from tests.usage.window_bounds import bound, is_partial

RATE = "sum by (namespace, pod) (rate(hits[1m]))"
A = {"namespace": "shop", "pod": "a"}
SHOP = WorkloadQuery(Query(name="hits"), "shop", "web")


@pytest.fixture
async def fake() -> AsyncIterator[FakePrometheus]:
    async with FakePrometheus() as prometheus:
        prometheus.rows = {RATE: [(A, "1")]}
        yield prometheus


def hits(text: str = RATE, **more: object) -> NamedQuery:
    return named("hits", text, **{"interval_seconds": 0.01, **more})


def distances(times: list[float]) -> list[float]:
    return [later - earlier for earlier, later in itertools.pairwise(times)]


class TestIntervals:
    def test_it_is_that_of_a_regular_target(self) -> None:
        assert _interval([15.0] * 11) == 15

    @pytest.mark.parametrize("failing", [0.1, 0.3, 0.5])
    def test_of_a_flaky_target_it_is_that_of_two_scrapes_in_a_row(self, failing: float) -> None:
        dice = random.Random(1)
        scrapes = ([15.0 * at for at in range(24) if dice.random() >= failing] for _ in range(1000))
        assert sum(_interval(distances(times)) == 15 for times in scrapes) > 950

    def test_jitter_and_a_late_scrape_do_not_shorten_it(self) -> None:
        dice = random.Random(1)
        times = [15.0 * number + dice.uniform(0, 0.02) for number in range(24)]
        times[10] += 5
        assert _interval(distances(times)) == pytest.approx(15, abs=0.02)

    def test_of_samples_that_bring_their_own_times_it_is_about_the_middle(self) -> None:
        """As cAdvisor's, whose container statistics are renewed every 10 to 20 s."""
        dice = random.Random(1)
        times = list(itertools.accumulate(dice.uniform(10, 20) for _ in range(24)))
        assert 12 <= _interval(distances(times)) <= 15

    @pytest.mark.parametrize(
        ("window", "interval", "share"),
        [(60, 15, 1), (60, 7, 0.875), (60, 13, 0.758), (60, 25, 0.625), (120, 15.002, 1), (300, 30, 1)],
    )
    def test_a_full_window_reads_down_to(self, window: float, interval: float, share: float) -> None:
        assert lowest_share(window, interval) == pytest.approx(share, abs=0.001)


class TestSelectors:
    @pytest.mark.parametrize(
        ("text", "seconds"),
        [
            ("rate(x[1m])", [60]),
            ("sum(increase(x[90s] offset 1d)) / sum_over_time((y[2m]))", [90, 120]),
            ("rate(x[1m]) + rate(x[5m])", [60, 300]),
            ("avg_over_time(x[5m]) + max_over_time(x[1m]) + quantile_over_time(0.9, x[1m]) + irate(x[2m])", []),
            ("x", []),
        ],
    )
    def test_windows_are_those_whose_value_sinks_with_the_number_of_samples(
        self, text: str, seconds: list[float]
    ) -> None:
        inputs = parse_inputs(text)
        assert [window.seconds for window in inputs.windows] == seconds
        assert not inputs.uncounted

    @pytest.mark.parametrize("text", ["max_over_time(rate(x[1m])[10m:1m])", "rate(x[1m + 30s])"])
    def test_the_samples_of_others_cannot_be_counted(self, text: str) -> None:
        inputs = parse_inputs(text)
        assert inputs.uncounted
        assert not inputs.windows


class Gapped:
    """A server whose series is scraped every 15 s, of which the window holds `held` samples."""

    def __init__(self, held: int) -> None:
        self.held, self.now, self.interval, self.scrapes = held, NOW, 15.0, 8
        self.refuses: tuple[str, ...] = ()
        self.pauses: set[float] = set()
        """After these times three samples are missing."""
        self.silence = range(0)
        """The polls in which the newest sample stays the same: its window empties, and the value sinks."""
        self.polls = 0
        self.newest = NOW

    async def __call__(self, _request: web.Request, form: dict[str, str]) -> web.StreamResponse:
        query = form["query"]
        if any(word in query for word in self.refuses):
            return web.Response(status=422, text="no")
        if asks_scrapes(query):
            return matrix((A, [self.now - self.interval * number for number in reversed(range(self.scrapes))]))
        if asks_times(query):
            return vector((A, str(self.newest)), at=self.now)
        self.polls += 1
        self.now += 60 if self.now in self.pauses else 15
        label = {"effective_load_samples": str(self.held)} if "count_values" in query else A
        counts = [({**label, "effective_load_input": "0"}, str(self.held))] if query != values_of(query) else []
        if self.polls not in self.silence:
            self.newest = self.now
        return vector((A, "1" if self.newest == self.now else "0.5"), *counts, at=self.now)


class TestAsking:
    async def points(self, fake: FakePrometheus, server: Gapped, number: int, *texts: str) -> list[Point]:
        seen: list[Point] = []
        async with self.polled(fake, server, *texts) as world:
            while len(seen) < number:
                await world.change(len(seen) + 1)
                seen.append(world.of(SHOP).pods["a"])
        return seen

    @asynccontextmanager
    async def polled(self, fake: FakePrometheus, server: Handler, *texts: str, **more: str) -> AsyncIterator[Source]:
        """A source of the windows that this server answers."""
        fake.handler = server
        world = Source(fake.settings(), queries=[hits(*texts, **more)])
        world.time += 3600  # no sample is ahead of its answer
        world.source.set_queries([SHOP])
        async with world.running():
            yield world

    @pytest.mark.parametrize("interval", [15.0, 15.002])
    async def test_a_window_with_fewer_samples_than_the_interval_leaves_is_partial(
        self, fake: FakePrometheus, interval: float
    ) -> None:
        """Also where the scrapes come a little late: three samples of a minute would read a quarter too little."""
        server = Gapped(3)
        server.interval = interval
        [point] = await self.points(fake, server, 1)
        assert (point.count, point.full) == (3, 4)

    async def test_the_window_of_a_total_is_that_of_the_series_with_the_fewest_samples(
        self, fake: FakePrometheus
    ) -> None:
        held = {"a": "4", "b": "3", "c": "4"}

        async def answer(_request: web.Request, form: dict[str, str]) -> web.StreamResponse:
            pods = [{"namespace": "shop", "pod": pod} for pod in held]
            if asks_scrapes(form["query"]):
                return matrix(*((labels, [NOW - 15.0 * number for number in reversed(range(8))]) for labels in pods))
            if asks_times(form["query"]):
                return vector(*((labels, str(NOW)) for labels in pods))
            counts = [({**labels, "effective_load_input": "0"}, held[labels["pod"]]) for labels in pods]
            return vector(({"namespace": "shop"}, "1"), *counts)

        async with self.polled(fake, answer, "sum by (namespace) (rate(hits[1m]))", scope="Service") as world:
            await world.change()
        total = world.of(SHOP).total
        assert total is not None
        assert (total.count, total.full) == (3, 4)

    async def test_full_windows_cost_one_short_answer(self, fake: FakePrometheus) -> None:
        points = await self.points(fake, Gapped(4), 3)
        assert not any(is_partial(point) for point in points)
        asked = [form["query"] for form in fake.asked if not asks_times(form["query"])]
        assert sum(map(asks_scrapes, asked)) == 1
        assert "count_values(" in asked[-1]

    async def test_more_than_a_full_window_holds_may_be_a_shorter_interval(self, fake: FakePrometheus) -> None:
        """Half of the samples of the window may have come at the old distance: their rate reads too little."""
        server = Gapped(4)
        async with self.polled(fake, server) as world:
            await world.change(6)
            server.held, server.interval = 5, 7.5
            await world.changes.until(lambda: is_partial(world.of(SHOP).pods["a"]))
        point = world.of(SHOP).pods["a"]
        assert (point.count, point.full) == (5, 8)

    async def test_while_no_times_explain_more_than_a_full_window_holds_nobody_knows_whether_it_is_full(
        self, fake: FakePrometheus
    ) -> None:
        server = Gapped(4)
        async with self.polled(fake, server) as world:
            await world.change(2)
            server.held, server.scrapes = 5, 2
            await world.changes.until(lambda: is_partial(world.of(SHOP).pods["a"]))
        point = world.of(SHOP).pods["a"]
        assert (point.count, point.full) == (5, None)

    async def test_a_gap_is_seen_in_the_answer_that_has_it(self, fake: FakePrometheus) -> None:
        """The value of the question that said so is not used: another replica may have answered it."""
        server = Gapped(4)
        async with self.polled(fake, server) as world:
            await world.change(2)
            server.held = 2
            await world.changes.until(lambda: is_partial(world.of(SHOP).pods["a"]))
            server.held = 4
            await world.changes.until(lambda: not is_partial(world.of(SHOP).pods["a"]))

    async def test_a_named_query_that_is_served_without_a_policy_is_what_the_server_answers(
        self, fake: FakePrometheus
    ) -> None:
        """An HPA that uses it as a Pods metric has what prometheus-adapter would give; a policy has the bound."""
        async with self.polled(fake, Gapped(3)) as world:
            await world.change()
        result = world.named("hits")
        [series] = [one for place in result.series.values() for one in place]
        assert (series.value, result.error) == (NANO, None)
        assert bound(world.of(SHOP).pods["a"]) == 2 * NANO

    @pytest.mark.parametrize("refused", ["count_over_time", "60000ms", "ms]"])
    async def test_a_server_that_refuses_the_question_leaves_the_windows_unknown_for_two_of_them(
        self, fake: FakePrometheus, refused: str
    ) -> None:
        server = Gapped(4)
        server.refuses = (refused,)
        with capture_logs() as logs:
            points = await self.points(fake, server, 12)
        assert [point.at for point in points if is_partial(point)] == [points[0].at + 15 * at for at in range(8)]
        assert all(bound(point) is None for point in points[:8])
        assert sum(each["event"] == "query_windows_unknown" for each in logs) == 1

    async def test_so_they_are_after_each_gap_that_the_dates_show(self, fake: FakePrometheus) -> None:
        server = Gapped(4)
        server.refuses, server.pauses = ("count_over_time",), {NOW + 15 * 12, NOW + 15 * 30}
        points = {point.at: point for point in await self.points(fake, server, 42)}
        unknown = [round(at - NOW) // 15 for at, point in points.items() if is_partial(point) and bound(point) is None]
        begins = [round(min(points) - NOW) // 15, 12 + 4, 30 + 4]
        assert unknown == [begin + number for begin in begins for number in range(8)]

    async def test_and_while_no_sample_comes_and_the_window_empties(self, fake: FakePrometheus) -> None:
        """No date shows a gap before the first sample after it, and until then the value sinks."""
        server = Gapped(4)
        server.refuses, server.silence = ("count_over_time",), range(12, 15)
        points = await self.points(fake, server, 24)
        sunk = [point for point in points if point.value < NANO]
        assert sunk
        assert all(is_partial(point) and bound(point) is None for point in sunk)
