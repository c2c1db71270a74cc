"""Queries of policies: how names resolve, one question for all who share it, pauses, reloads, and what stays known."""

import asyncio
import random
from collections.abc import AsyncIterator, Iterable
from dataclasses import replace
from typing import Any

import pytest
from aiohttp import web

from adapter.load.quantity import NANO
from adapter.load.samples import UNCOUNTED, Point, QuerySamples, time_text
from adapter.load.spec import Query
from adapter.settings import NamedQuery, PrometheusServer
from adapter.usage.promql import INPUT_LABEL
from adapter.usage.query_catalog import InstantQuery, QueryCatalog, WorkloadQuery
from tests.usage.fakes import NOW, Changes, FakePrometheus, Source, always, named, vector
from tests.waiting import eventually

RPS = "sum by (namespace, pod) (rate(http_requests_total[1m]))"
DEPTH = 'sum(queue_depth{namespace="$namespace",workload="$workload"})'
A = {"namespace": "shop", "pod": "a"}
B = {"namespace": "other", "pod": "b"}
SHOP = WorkloadQuery(Query(name="rps"), "shop", "web")
OTHER = WorkloadQuery(Query(name="rps"), "other", "api")


@pytest.fixture
async def fake() -> AsyncIterator[FakePrometheus]:
    async with FakePrometheus() as prometheus:
        prometheus.rows = {RPS: [(A, "1"), (B, "2")]}
        yield prometheus


def rps(**more: Any) -> NamedQuery:
    return named("rps", RPS, **{"interval_seconds": 0.01, **more})


async def polled(
    fake: FakePrometheus, *queries: NamedQuery, wanted: Iterable[WorkloadQuery] = (), changes: int = 1, **more: Any
) -> Source:
    """A source after so many changes."""
    world = Source(fake.settings(), queries=queries, **more)
    world.source.set_queries(wanted)
    async with world.running():
        await world.change(changes)
    return world


def of(name: str, workload: str = "web") -> WorkloadQuery:
    """The query of this name for a workload of `shop`."""
    return WorkloadQuery(Query(name=name), "shop", workload)


async def asked(world: Source, times: int) -> None:
    """Returns after so many more answers."""
    last = len(world.news.seen) + times
    await world.news.until(lambda: len(world.news.seen) >= last)


failing = always(lambda: web.Response(status=503, text="upstream down"))


class TestSamples:
    async def test_policies_get_the_samples_of_their_pods_with_the_times_of_the_inputs(
        self, fake: FakePrometheus
    ) -> None:
        world = await polled(fake, rps(), wanted=[SHOP, OTHER])
        assert world.of(SHOP).pods == {"a": Point(NOW - 5, NANO, 4)}
        assert world.of(OTHER).pods == {"b": Point(NOW - 5, 2 * NANO, 4)}
        assert (world.of(SHOP).fetched_at, world.of(SHOP).max_age, world.of(SHOP).error) == (NOW, 90.0, None)
        assert world.changes.seen[0] == frozenset({SHOP, OTHER}), "all users are told at once"

    async def test_inline_promql_is_sent_if_it_is_allowed(self, fake: FakePrometheus) -> None:
        fake.rows = {'x{n="shop"}': [(A, "7")]}
        inline = WorkloadQuery(Query(prom_ql='x{n="$namespace"}', server="main"), "shop", "web")
        world = await polled(fake, inline=True, wanted=[inline])
        assert world.of(inline).pods == {"a": Point(NOW - 5, 7 * NANO)}

    async def test_a_date_ahead_of_its_answer_stays_through_a_failure(self, fake: FakePrometheus) -> None:
        """A server whose clock is ahead, and that is frozen: its samples must not be new after each failed poll."""
        fake.sampled_at = NOW + 60
        world = Source(fake.settings(), queries=[rps()])
        async with world.running():
            await world.change()
            world.time += 30
            fake.handler = always(lambda: vector(({**A, INPUT_LABEL: "time7"}, "1")))
            await world.change(2)
            fake.handler = fake.by_rows
            await world.change(3)
            assert (world.of(SHOP).pods["a"].at, world.of(SHOP).fetched_at) == (NOW, NOW + 30)
            fake.sampled_at += 15
            await world.change(4)
            assert world.of(SHOP).pods["a"].at == NOW + 30, "a newer sample has the date of its own first answer"

    @pytest.mark.parametrize(("held", "count"), [([("4", "2")], UNCOUNTED), ([("4", "3"), ("4", "2")], 2)])
    async def test_windows_that_never_agreed_are_not_counted(
        self, fake: FakePrometheus, held: list[tuple[str, str]], count: int
    ) -> None:
        """Different scrape intervals would hide each other's gaps; a gap after they agreed is seen."""
        answers = iter(held)

        async def two(_request: web.Request, _form: dict[str, str]) -> web.StreamResponse:
            one, other = next(answers, held[-1])
            marks = {"time0": str(NOW), "time1": str(NOW), "count0": one, "count1": other}
            return vector((A, "1"), *(({**A, INPUT_LABEL: mark}, value) for mark, value in marks.items()))

        fake.handler = two
        ratio = "rate(x[1m]) / rate(y[1m])"
        world = Source(fake.settings(), queries=[named("rps", ratio, interval_seconds=0.01)])
        async with world.running():
            await world.change(len(held))
            assert world.of(SHOP).pods["a"].count == count


class TestSharing:
    async def test_equal_expressions_cost_one_request_an_interval_whatever_their_names_and_policies(
        self, fake: FakePrometheus
    ) -> None:
        one, two = (named(name, RPS, interval_seconds=60) for name in ("one", "two"))
        await polled(fake, one, two, wanted=[WorkloadQuery(Query(name="one"), f"ns-{n}", "web") for n in range(50)])
        assert fake.questions == [RPS]

    async def test_a_query_with_variables_is_sent_for_each_workload_that_needs_it(self, fake: FakePrometheus) -> None:
        world = Source(fake.settings(), queries=[named("depth", DEPTH, scope="Service", interval_seconds=0.01)])
        async with world.running():
            world.source.set_queries([of("depth")])
            await world.change()
            world.source.set_queries([of("depth", "api")])
            await world.change(2)
            fake.asked.clear()
            await asked(world, 3)
        assert set(fake.questions) == {'sum(queue_depth{namespace="shop",workload="api"})'}
        assert world.of(of("depth")) == QuerySamples(by_pod=False, interval=0.01)

    async def test_the_requests_in_progress_at_a_server_are_limited(self, fake: FakePrometheus) -> None:
        most = under_way = 0
        enough = asyncio.Event()

        async def slow(request: web.Request, form: dict[str, str]) -> web.StreamResponse:
            nonlocal most, under_way
            under_way += 1
            most = max(most, under_way)
            if under_way == 8:
                asyncio.get_running_loop().call_later(0.2, enough.set)  # a ninth would come by then
            await enough.wait()
            under_way -= 1
            return await fake.by_rows(request, form)

        fake.handler = slow
        depth = named("depth", DEPTH, scope="Service", interval_seconds=60)
        await polled(fake, depth, wanted=[of("depth", f"w-{n}") for n in range(40)], changes=40)
        assert most == 8


class TestNamed:
    async def test_a_query_without_variables_needs_no_policy(self, fake: FakePrometheus) -> None:
        world = await polled(fake, rps(), named("depth", DEPTH))
        found = world.named("rps")
        assert {
            namespace: [each.point.value for of in pods.values() for each in of]
            for namespace, pods in found.series.items()
        } == {
            "shop": [NANO],
            "other": [2 * NANO],
        }
        assert [each.labels for each in found.series["shop"]["a"]] == [A]
        assert (found.by_pod, found.fetched_at, found.error, found.max_age) == (True, NOW, None, 90)
        assert [result.name for result in world.source.named_results()] == ["rps"]
        assert world.changes.seen[0] == frozenset()

    async def test_it_has_the_error_of_its_failure(self, fake: FakePrometheus) -> None:
        fake.handler = failing
        world = await polled(fake, rps(), named("bad", "x{"))
        assert "HTTP 503" in (world.named("rps").error or "")
        assert "at character 2" in (world.named("bad").error or "")
        fake.handler, fake.rows = fake.by_rows, {RPS: [({"pod": "a"}, "1")]}
        assert "lack the label 'namespace'" in ((await polled(fake, rps())).named("rps").error or "")


class TestFailing:
    async def test_the_last_samples_stay_until_the_server_is_back_and_the_error_has_their_time(
        self, fake: FakePrometheus
    ) -> None:
        world = Source(fake.settings(), queries=[rps()])
        async with world.running():
            await world.change()
            assert world.value("source_up") == 1
            assert world.value("source_last_success_timestamp_seconds") == NOW
            fake.handler = failing
            await world.change(2)
            world.time += 33
            found = world.of(SHOP)
            assert found.pods == {"a": Point(NOW - 5, NANO, 4)}
            assert found.fetched_at == NOW
            assert found.error == f"Prometheus main: HTTP 503 (last answer at {time_text(NOW)})"
            assert world.value("source_up") == 0
            assert (world.value("source_errors_total", reason="failing") or 0) >= 1
            fake.handler = fake.by_rows
            await world.change(3)
        assert world.of(SHOP).error is None


async def test_polls_that_fail_are_further_apart_until_one_succeeds(
    fake: FakePrometheus, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses, paused, sleep = list[float](), Changes(), asyncio.sleep

    async def noted(seconds: float) -> None:
        """A pause that takes no time."""
        if seconds:
            pauses.append(seconds)
            paused(seconds)
        await sleep(0)

    monkeypatch.setattr(asyncio, "sleep", noted)
    monkeypatch.setattr(random, "random", lambda: 0.5)
    fake.handler = failing
    async with Source(fake.settings(), queries=[rps(interval_seconds=10)]).running():
        await paused.until(lambda: len(pauses) >= 6)
        fake.handler = fake.by_rows
        await paused.until(lambda: len(pauses) >= 12)
        assert pauses[0] == 5, "the first one is a random part of the interval"
        assert 18 <= pauses[1] <= 22
        assert pauses[3:6] == [30, 30, 30]
        assert all(9 <= pause <= 11 for pause in pauses[9:])


class TestReload:
    def reload(self, world: Source, *servers: PrometheusServer, queries: Iterable[NamedQuery]) -> None:
        world.source.reload(servers, queries, inline_allowed=False)

    async def test_an_unchanged_query_keeps_its_result(self, fake: FakePrometheus) -> None:
        world = Source(fake.settings(), queries=[rps(interval_seconds=60)])
        async with world.running():
            await world.change()
            self.reload(world, fake.settings(), queries=[rps(interval_seconds=60), named("more", "vector(1)")])
            await world.change(2)
        assert world.of(SHOP).pods
        assert fake.questions.count(RPS) == 1

    async def test_the_next_poll_of_a_changed_server_is_by_its_new_settings(self, fake: FakePrometheus) -> None:
        """The connections by the old ones are closed."""
        world = Source(fake.settings(), queries=[rps()])
        async with world.running():
            await world.change()
            self.reload(world, fake.settings(headers={"X-Scope-OrgID": "b"}), queries=[rps()])
            fake.sampled_at += 1
            await world.change(2)
            async with asyncio.timeout(10):  # an idle one would be closed after 15 s
                await eventually(lambda: fake.requests[0].transport is None)
        assert fake.requests[-1].headers["X-Scope-OrgID"] == "b"
        assert "X-Scope-OrgID" not in fake.requests[0].headers

    async def test_a_removed_query_is_not_sent_any_more_and_is_an_error(self, fake: FakePrometheus) -> None:
        world = Source(fake.settings(), queries=[rps()])
        world.source.set_queries([SHOP])
        second = fake.settings("second")
        async with world.running():
            await world.change()
            self.reload(world, second, queries=[rps(), named("other", "vector(1)", server="second")])
            await world.change(2)
            assert "no Prometheus server 'main'" in (world.of(SHOP).error or "")
            other = named("other", "vector(1)", server="second", interval_seconds=0.01)
            self.reload(world, second, queries=[other])
            fake.asked.clear()
            await asked(world, 3)
        assert set(fake.questions) == {"vector(1)"}
        assert "they have other" in (world.of(SHOP).error or "")


def catalog(*queries: object, inline: bool = False) -> QueryCatalog:
    return QueryCatalog(["main", "second"], queries, inline_allowed=inline)  # type: ignore[arg-type]


def wanted(query: Query, namespace: str = "shop", workload: str = "web") -> WorkloadQuery:
    return WorkloadQuery(query, namespace, workload)


def resolved(query: InstantQuery | str) -> InstantQuery:
    assert isinstance(query, InstantQuery), query
    return query


class TestResolving:
    def test_workloads_share_a_query_where_it_is_the_same(self) -> None:
        known = catalog(named("load", 'x{n="$namespace"}'), named("own", 'x{n="$namespace",w="$workload"}'))
        one, two = wanted(Query(name="load")), wanted(Query(name="load"), workload="api")
        assert known.resolve(one) == known.resolve(two) == replace(resolved(known.resolve(one)), text='x{n="shop"}')
        assert resolved(known.resolve(wanted(Query(name="load"), "other"))).text == 'x{n="other"}'
        assert resolved(known.resolve(wanted(Query(name="own")))).text == 'x{n="shop",w="web"}'

    def test_the_instant_query_has_all_settings(self) -> None:
        known = catalog(
            named(
                "rps", "x", server="second", scope="Service", namespace_label="ns", pod_label="p",
                max_age_seconds=60, interval_seconds=5,
            )
        )  # fmt: skip
        assert known.resolve(wanted(Query(name="rps"))) == InstantQuery(
            server="second", text="x", by_pod=False, labels=("ns", "p"), max_age=60, interval=5
        )

    def test_the_window_is_that_of_the_text_unless_the_settings_name_one(self) -> None:
        for more, window in (({}, 60), ({"window_seconds": 300}, 300), ({"window_seconds": 0}, 0)):
            known = catalog(named("rps", RPS, **more))
            assert resolved(known.resolve(wanted(Query(name="rps")))).window == window
        inline = wanted(Query(prom_ql=RPS.replace("]", "] offset 5m"), server="main"))
        assert resolved(catalog(inline=True).resolve(inline)).window == 360


NAMED = [named("rps", "x"), named("third", "x", server="third"), named("bad", "x{")]


@pytest.mark.parametrize(
    ("queries", "query", "sentence"),
    [
        (NAMED[:1], Query(name="rsp"), "the settings define no such query (they have rps)"),
        ([], Query(name="rsp"), "the settings define no such query (they have none yet)"),
        (NAMED, Query(name="third"), "the settings define no Prometheus server 'third' (they have main, second)"),
        (NAMED, Query(name="bad"), "at character 2"),
        ([], Query(prom_ql="x", server="third"), "no Prometheus server 'third'"),
        ([], Query(prom_ql="x{", server="main"), "at character 2"),
        ([named("rps", 'x{w="$workload"}')], Query(name="rps"), "'A' is not a valid name of a workload"),
    ],
)
def test_a_query_that_cannot_be_sent_has_a_fault(queries: list[object], query: Query, sentence: str) -> None:
    assert sentence in str(catalog(*queries, inline=True).resolve(wanted(query, workload="A")))
    if query.prom_ql:
        assert "not allowed" in str(catalog(*queries).resolve(wanted(query)))
