"""Against a real Prometheus: what time a value really has, what an outage looks like, what PromQL really is."""

import asyncio
import json
import shutil
import time
import urllib.parse
import urllib.request
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from adapter.load.quantity import NANO
from adapter.load.samples import UNCOUNTED, Point, QuerySamples
from adapter.load.spec import Query
from adapter.settings import NamedQuery, PrometheusServer
from adapter.telemetry.metrics import Metrics
from adapter.usage.prometheus import Prometheus
from adapter.usage.promql import (
    ended_times_query,
    parse_inputs,
    sample_times_query,
    scrapes_query,
    with_counts,
)
from adapter.usage.query_catalog import WorkloadQuery
from lab.faults.proxies import before_prometheus
from lab.harness.prometheus import Exporter
from lab.harness.prometheus import Prometheus as RealPrometheus
from tests.usage.window_bounds import bound, is_hollow, is_partial

pytestmark = [pytest.mark.integration, pytest.mark.builds("prometheus")]


@pytest.fixture(scope="module")
def page() -> Iterator[Exporter]:
    with Exporter() as exporter:
        yield exporter


@pytest.fixture(scope="module")
def real(page: Exporter) -> Iterator[RealPrometheus]:
    """One Prometheus for this module; each test writes a page with metrics of its own."""
    with RealPrometheus([page]) as prometheus:
        yield prometheus


@pytest.fixture(autouse=True)
def _well(page: Exporter) -> None:
    page.failing = False


def counter(name: str, **pods: float) -> dict[str, float]:
    return {f'{name}{{namespace="shop",pod="{pod}"}}': value for pod, value in pods.items()}


class World:
    """The adapter's side: one query under the name `q`, asked twice a second."""

    def __init__(self, server: PrometheusServer, text: str, max_age: float = 5, **more: Any) -> None:
        query = NamedQuery(
            **{
                "name": "q",
                "server": "real",
                "query": text,
                "interval_seconds": 0.5,
                "max_age_seconds": max_age,
                **more,
            }
        )
        self._news = asyncio.Event()
        self.source = Prometheus(
            [server],
            [query],
            inline_allowed=False,
            on_change=lambda _: self._news.set(),
            clock=self._clock,
            metrics=Metrics(),
        )
        self.source.set_queries([WorkloadQuery(Query(name="q"), "shop", "web")])

    def _clock(self) -> float:
        self._news.set()  # it is read at each answer, also where nothing has changed
        return time.time()

    @property
    def samples(self) -> QuerySamples:
        return self.source.samples(Query(name="q"), "shop", "web")

    async def until(self, holds: Callable[[QuerySamples], object]) -> QuerySamples:
        """The first samples for which it holds; looked at in every cycle."""
        async with asyncio.timeout(40):
            while not holds(self.samples):
                self._news.clear()
                await self._news.wait()
        return self.samples


@asynccontextmanager
async def asking(real: RealPrometheus, text: str, **more: Any) -> AsyncIterator[World]:
    server = PrometheusServer(name="real", url=more.pop("url", real.url), timeout_seconds=5)
    world = World(server, text, **more)
    task = asyncio.create_task(world.source.run())
    try:
        yield world
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def scrape_times(real: RealPrometheus, selector: str) -> list[float]:
    """When Prometheus itself says that it sampled this series."""
    [series] = await asyncio.to_thread(real.query, f"{selector}[1m]")
    return [at for at, _ in series["values"]]


class TestTimes:
    @pytest.mark.parametrize(
        "text", ["t1", "sum by (namespace, pod) (rate(t1[10s])) * 0 + on (namespace, pod) t1", "t1 * 1 # c"]
    )
    async def test_a_value_has_the_time_of_a_scrape_whatever_is_computed(
        self, real: RealPrometheus, page: Exporter, text: str
    ) -> None:
        page.set(counter("t1", a=7))
        async with asking(real, text) as world:
            found = await world.until(lambda samples: samples.pods)
            times = await scrape_times(real, 't1{pod="a"}')
        assert found.pods["a"].value == 7 * NANO
        assert any(abs(found.pods["a"].at - at) < 0.0005 for at in times)

    async def test_a_rate_that_outlives_its_target_keeps_the_last_scrapes_time_and_then_goes(
        self, real: RealPrometheus, page: Exporter
    ) -> None:
        page.set(counter("t2", a=7))
        async with asking(real, "sum by (namespace, pod) (rate(t2[1m]))", max_age=4) as world:
            await world.until(lambda samples: samples.pods)
            page.failing = True
            await world.until(lambda samples: not samples.pods)
            still = await asyncio.to_thread(real.query, "sum by (namespace, pod) (rate(t2[1m]))")
            last = (await scrape_times(real, 't2{pod="a"}'))[-1]
            answered = world.samples.fetched_at
        assert still, "Prometheus itself goes on answering with a number nobody measured"
        assert answered is not None
        assert answered - last >= 3.9
        assert "no series that it reads has a sample of the same namespace and pod in the last 4 s" in (
            world.samples.error or ""
        )

    async def test_one_missed_scrape_does_not_cost_a_rate_its_sample(
        self, real: RealPrometheus, page: Exporter
    ) -> None:
        page.set(counter("t3", a=7))
        async with asking(real, "sum by (namespace, pod) (rate(t3[30s]))", max_age=20) as world:
            await world.until(lambda samples: samples.pods)
            # A series that lived for less than a step of the search (20 s / 6) can fall between two steps.
            await asyncio.to_thread(real.wait_value, "count_over_time(t3[1m]) > bool 5", 1)
            page.failing = True
            await asyncio.to_thread(real.wait_value, "absent(t3)", 1)
            gone = time.time()
            found = await world.until(lambda samples: (samples.fetched_at or 0) > gone + 0.5)
            last = (await scrape_times(real, 't3{pod="a"}'))[-1]
        assert found.error is None
        # To within a step of the search: the last sample, or the one that a step before it saw.
        assert last - 20 / 6 - 1 <= found.pods["a"].at <= last + 0.001

    async def test_an_instant_value_goes_with_its_target(self, real: RealPrometheus, page: Exporter) -> None:
        page.set(counter("t4", a=7))
        async with asking(real, "t4", max_age=60) as world:
            await world.until(lambda samples: samples.pods)
            page.failing = True
            found = await world.until(lambda samples: not samples.pods)
        assert found.error is None

    async def test_samples_that_bring_their_own_time_are_as_old_as_they_say(
        self, real: RealPrometheus, page: Exporter
    ) -> None:
        at = time.time() - 30
        page.set_text(f't5{{namespace="shop",pod="a"}} 7 {round(at * 1000)}\n')
        async with asking(real, "t5 * 2", max_age=60) as world:
            found = await world.until(lambda samples: samples.pods)
        assert found.pods["a"].at == pytest.approx(at, abs=0.001)

    async def test_beyond_the_age_given_they_are_not_even_found(self, real: RealPrometheus, page: Exporter) -> None:
        page.set_text(
            f't6{{namespace="shop",pod="old"}} 7 {round((time.time() - 30) * 1000)}\n'
            't6{namespace="shop",pod="new"} 7\n'
        )
        async with asking(real, "t6", max_age=10) as world:
            found = await world.until(lambda samples: samples.pods)
        assert list(found.pods) == ["new"]

    async def test_the_past_is_dated_as_the_past(self, real: RealPrometheus, page: Exporter) -> None:
        page.set(counter("t7", a=7))
        async with asking(real, "t7 offset 3s", max_age=60) as world:
            found = await world.until(lambda samples: samples.pods)
        assert found.fetched_at is not None
        assert 3 <= found.fetched_at - found.pods["a"].at < 15
        assert found.behind == 3


class TestValues:
    async def test_what_is_no_number_is_no_sample(self, real: RealPrometheus, page: Exporter) -> None:
        values = {"a": "NaN", "b": "+Inf", "c": "-Inf", "d": "-1", "e": "1e300", "f": "0", "g": "1.5e-07"}
        page.pods("v1", "shop", values)
        async with asking(real, "v1") as world:
            found = await world.until(lambda samples: samples.pods)
        assert {pod: point.value for pod, point in found.pods.items()} == {"f": 0, "g": 150}

    async def test_a_quotient_of_nothing_is_no_sample(self, real: RealPrometheus, page: Exporter) -> None:
        page.set(counter("v2", a=0, b=4))
        async with asking(real, "8 / v2 < +Inf or v2 / v2") as world:
            found = await world.until(lambda samples: samples.pods)
        assert {pod: point.value for pod, point in found.pods.items()} == {"b": 2 * NANO}

    async def test_thousands_of_pods_arrive_complete(self, real: RealPrometheus, page: Exporter) -> None:
        page.pods("v3", "shop", {f"web-{number}": number for number in range(5000)})
        async with asking(real, "v3", max_age=30) as world:
            found = await world.until(lambda samples: len(samples.pods) == 5000)
        assert all(found.pods[f"web-{number}"].value == number * NANO for number in range(0, 5000, 97))


class TestServices:
    async def test_a_sum_is_one_number(self, real: RealPrometheus, page: Exporter) -> None:
        page.set({'s1{namespace="shop",queue="a"}': 3, 's1{namespace="shop",queue="b"}': 4, 's1{namespace="x"}': 9})
        async with asking(real, 'sum(s1{namespace="$namespace"})', scope="Service") as world:
            found = await world.until(lambda samples: samples.total)
        assert found.total is not None
        assert found.total.value == 7 * NANO
        assert found.fetched_at is not None
        assert found.fetched_at - found.total.at < 6

    async def test_an_outage_is_not_a_zero(self, real: RealPrometheus, page: Exporter) -> None:
        page.set({'s2{namespace="shop"}': 3})
        async with asking(real, "sum(s2) or vector(0)", scope="Service") as world:
            await world.until(lambda samples: samples.total)
            page.failing = True
            found = await world.until(lambda samples: samples.error)
            zero = await asyncio.to_thread(real.query, "sum(s2) or vector(0)")
        assert zero[0]["value"][1] == "0"
        assert found.total is None
        assert found.error == "no series that it reads has a sample in the last 5 s"

    async def test_a_query_without_an_aggregation_says_what_it_lacks(
        self, real: RealPrometheus, page: Exporter
    ) -> None:
        page.set({'s3{namespace="shop",queue="a"}': 3, 's3{namespace="shop",queue="b"}': 4})
        async with asking(real, "s3", scope="Service") as world:
            found = await world.until(lambda samples: samples.error)
        assert "answers 2 series where one number is wanted" in (found.error or "")


class TestRefusals:
    async def test_what_prometheus_says_of_a_query_is_for_the_log(self, real: RealPrometheus) -> None:
        with capture_logs() as logs:
            async with asking(real, "rate(r1)") as world:
                found = await world.until(lambda samples: samples.error)
        assert (found.error or "").startswith("Prometheus real: HTTP 400: the query is rejected (bad_data)")
        assert "expected type range vector in call to function" in logs[0]["error"]

    async def test_a_selector_of_several_metrics_cannot_be_dated(self, real: RealPrometheus, page: Exporter) -> None:
        page.set({'r2{namespace="shop",pod="a"}': 1, 'r3{namespace="shop",pod="a"}': 1})
        async with asking(real, 'sum by (namespace, pod) ({__name__=~"r2|r3"})') as world:
            found = await world.until(lambda samples: samples.error)
        assert "name one metric in each selector" in (found.error or "")

    async def test_a_warning_is_a_failure(self, real: RealPrometheus, page: Exporter) -> None:
        page.set({'r4{namespace="shop",pod="a"}': 1})
        with capture_logs() as logs:
            async with asking(real, "quantile by (namespace, pod) (7, r4)") as world:
                found = await world.until(lambda samples: samples.error)
        assert (found.error or "").startswith("Prometheus real: answers with a warning")
        assert "quantile value should be between 0 and 1" in logs[0]["error"]


async def test_a_server_that_dies_leaves_its_samples_and_says_so(
    prometheus: RealPrometheus, exporter: Exporter
) -> None:
    exporter.set(counter("up1", a=7))
    async with asking(prometheus, "up1", max_age=60) as world:
        before = (await world.until(lambda samples: samples.pods)).pods["a"]
        await asyncio.to_thread(prometheus.kill)
        found = await world.until(lambda samples: samples.error)
        assert found.pods["a"].value == before.value
        assert "Prometheus real: connection refused" in (found.error or "")
        await asyncio.to_thread(prometheus.resume)
        found = await world.until(lambda samples: samples.pods["a"].at > before.at)
    assert found.error is None


RATE = "sum by (namespace, pod) (rate({}[12s]))"


class TestWindows:
    """How many samples the windows hold, and what that says of an unchanged load: 100 a second in each series."""

    @asynccontextmanager
    async def grown(self, page: Exporter, *series: str) -> AsyncIterator[list[str]]:
        """Counters that grow; a test may add to them."""
        names = list(series)
        page.set_page(lambda: "".join(f"{name} {100 * time.time():.1f}\n" for name in names))
        yield names

    @pytest.mark.parametrize("missed", [1, 4, 7])
    async def test_after_a_gap_the_load_is_between_a_value_and_its_bound(
        self, real: RealPrometheus, page: Exporter, missed: int
    ) -> None:
        name = f"gapped{missed}"
        async with (
            self.grown(page, f'{name}{{namespace="shop",pod="a"}}'),
            asking(real, RATE.format(name), max_age=20) as world,
        ):
            await world.until(_is_full)
            until, read, fetched_at = page.scrapes + missed + 12, [], 0.0
            page.failing = True
            while page.scrapes < until:
                page.failing = page.scrapes < until - 12
                found = await world.until(lambda samples, last=fetched_at: samples.fetched_at > last)  # type: ignore[misc]
                fetched_at = found.fetched_at or 0.0
                read += [found.pods["a"]]
            await world.until(_is_full)
        assert min(point.value for point in read) < 96 * NANO, "Prometheus itself answers with less"
        for point in read:
            assert is_hollow(point) or (bound(point) or 0) >= 97 * NANO, point

    async def test_a_server_that_lost_its_data_says_so_until_the_window_is_full(
        self, prometheus: RealPrometheus, exporter: Exporter
    ) -> None:
        exporter.set(counter("lost", a=7))
        async with asking(prometheus, "sum_over_time(lost[8s])", max_age=60) as world:
            await world.until(_is_full)
            await asyncio.to_thread(prometheus.kill)
            shutil.rmtree(prometheus.folder / "data")
            await asyncio.to_thread(prometheus.resume)
            found = await world.until(lambda samples: samples.pods and not _is_full(samples))
            assert found.pods["a"].value < 49 * NANO
            found = await world.until(_is_full)
        assert found.pods["a"].value >= 49 * NANO

    async def test_a_series_that_begins_in_a_target_that_is_scraped_shows_no_gap(
        self, real: RealPrometheus, page: Exporter
    ) -> None:
        """As the first error: a pod that says so must not lose its sample."""
        labels = 'namespace="shop",pod="a"'
        async with (
            self.grown(page, f"born{{{labels}}}") as names,
            asking(real, RATE.format("born"), max_age=20) as world,
        ):
            await world.until(_is_full)
            names.append(f'born{{{labels},code="500"}}')
            await asyncio.to_thread(real.wait_value, 'count_over_time(born{code="500"}[12s]) >= bool 2', 1)
            # A question between a scrape and its storing finds one sample fewer.
            since = time.time()
            found = await world.until(lambda samples: samples.fetched_at > since and _is_full(samples))
        assert found.fetched_at < since + 6, "the new series has no whole window yet"

    async def test_a_total_is_as_full_as_the_emptiest_of_its_windows(
        self, real: RealPrometheus, page: Exporter, prometheus: RealPrometheus, exporter: Exporter
    ) -> None:
        page.failing = True
        with Exporter() as other, RealPrometheus([exporter, other]) as both:
            async with (
                self.grown(exporter, 'all{namespace="shop",pod="a"}'),
                self.grown(other, 'all{namespace="shop",pod="b"}'),
                asking(both, "sum by (namespace) (rate(all[8s]))", max_age=20, scope="Service") as world,
            ):
                await world.until(lambda samples: samples.total and not is_partial(samples.total))
                other.failing = True
                found = await world.until(lambda samples: samples.total and is_partial(samples.total))
                assert found.total is not None
                assert found.total.count in {0, 5, 6, 7}

    async def test_the_pods_of_a_wiped_shard_behind_a_querier_are_partial_alone(self) -> None:
        """The querier is a Prometheus that reads from two others."""
        with Exporter() as kept, Exporter() as lost, RealPrometheus([kept]) as one, RealPrometheus([lost]) as other:
            reads = [{"url": f"{shard.url}/api/v1/read", "read_recent": True} for shard in (one, other)]
            with RealPrometheus(config={"remote_read": reads}) as querier:
                async with (
                    self.grown(kept, 'sharded{namespace="shop",pod="a"}'),
                    self.grown(lost, 'sharded{namespace="shop",pod="b"}'),
                    asking(querier, RATE.format("sharded"), max_age=20) as world,
                ):
                    await world.until(lambda samples: len(samples.pods) == 2 and _partial(samples) == set())
                    await asyncio.to_thread(other.kill)
                    shutil.rmtree(other.folder / "data")
                    await asyncio.to_thread(other.resume)
                    read: list[Point] = []
                    partial: list[set[str]] = []

                    def is_full_again(samples: QuerySamples) -> bool:
                        read.extend(point for pod, point in samples.pods.items() if pod == "b" and not samples.error)
                        partial.append(_partial(samples))  # a late scrape makes the other so for a moment
                        return {"b"} in partial and "b" in samples.pods and not partial[-1]

                    await world.until(is_full_again)
        assert all(is_hollow(point) or (bound(point) or 0) >= 97 * NANO for point in read)

    async def test_a_target_that_is_up_and_down_by_turns_hides_no_fall_of_the_others(
        self, real: RealPrometheus, page: Exporter
    ) -> None:
        rate, counted, at = 100.0, 1e6, time.time()

        def count() -> float:
            return counted + rate * (time.time() - at)

        with Exporter() as flaky, RealPrometheus([page, flaky]) as both:
            page.set_page(lambda: f'turned{{namespace="shop",pod="b"}} {count()}\n')
            flaky.set_page(lambda: f'turned{{namespace="shop",pod="a"}} {count()}\n')
            async with asking(both, RATE.format("turned"), max_age=20) as world:
                await world.until(lambda samples: len(samples.pods) == 2 and _partial(samples) == set())
                for _ in range(3):
                    flaky.failing = not flaky.failing
                    scrapes = flaky.scrapes + 3
                    await world.until(lambda _, until=scrapes: flaky.scrapes >= until)  # type: ignore[misc]
                    assert "b" not in _partial(world.samples)
                assert _partial(world.samples) == {"a"}
                counted, at, rate = count(), time.time(), 10.0
                fell = at
                await world.until(lambda samples: samples.pods["b"].value < 15 * NANO)
        assert time.time() - fell < 12 + 2 + 2

    async def test_each_selector_of_a_query_has_its_own_window(self, real: RealPrometheus, page: Exporter) -> None:
        text = "sum by (namespace, pod) (rate(two[6s])) + sum by (namespace, pod) (rate(two[12s]))"
        async with (
            self.grown(page, 'two{namespace="shop",pod="a"}'),
            asking(real, text, max_age=20) as world,
        ):
            found = await world.until(lambda samples: samples.pods)
            assert is_partial(found.pods["a"])
            await world.until(_is_full)

    @pytest.mark.parametrize("text", ["rate(refused[4s])", "max_over_time(rate(deep[3s])[1s:1s])"])
    async def test_a_window_that_cannot_be_asked_for_is_unknown_for_two_windows_after_a_start_and_a_gap(
        self, real: RealPrometheus, page: Exporter, text: str
    ) -> None:
        """The server refuses to count; the windows of a subquery it is not even asked for."""

        def refuse(asked: str, answer: Any) -> Any:
            return {"status": "error", "errorType": "execution", "error": "no"} if "count_over" in asked else answer

        names = (f'{name}{{namespace="shop",pod="a"}}' for name in ("refused", "deep"))
        with before_prometheus(real.port) as proxy:
            proxy.falsify = refuse
            async with (
                self.grown(page, *names),
                asking(real, text, max_age=20, url=f"http://127.0.0.1:{proxy.port}") as world,
            ):
                for missed in (0, 4):
                    until, page.failing = page.scrapes + missed, missed > 0
                    await world.until(lambda _, until=until: page.scrapes >= until)  # type: ignore[misc]
                    page.failing = False
                    first = (await world.until(_partial)).pods["a"]
                    last = (await world.until(_is_full)).pods["a"]
                    assert (first.count, first.full) == (UNCOUNTED, None)
                    assert last.at - first.at >= 7  # more where scrapes were late meanwhile


def _partial(samples: QuerySamples) -> set[str]:
    return {pod for pod, point in samples.pods.items() if is_partial(point)}


def _is_full(samples: QuerySamples) -> bool:
    return bool(samples.pods) and not is_partial(samples.pods["a"])


HASH_OF_TEST = "$2b$12$hNf2lSsxfm0.i4a.1kVpSOVyBCfIB51VRjgBUyv6kdnyTlgWj81Ay"


async def test_a_password_is_asked_for_and_given(tmp_path: Path) -> None:
    """A wrong one is refused; once the file is right the next question is answered."""
    password = tmp_path / "password"
    password.write_text("wrong")
    with RealPrometheus(web_config={"basic_auth_users": {"admin": HASH_OF_TEST}}) as real:
        server = PrometheusServer(name="real", url=real.url, username="admin", password_file=str(password))
        world = World(server, "vector(1)", scope="Service")
        task = asyncio.create_task(world.source.run())
        found = await world.until(lambda samples: samples.error)
        assert "HTTP 401" in (found.error or "")
        password.write_text("test\n")
        found = await world.until(lambda samples: samples.total)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    assert found.error is None


EXPRESSIONS = [
    "up",
    "sum by (namespace, pod) (rate(container_cpu_usage_seconds_total{container!=\"\",image!=''}[5m]))",
    "sum(rate(http_requests_total{code=~`5..`}[1m])) without (instance) / ignoring (code) group_left sum(rate(b[1m]))",
    "histogram_quantile(0.99, sum by (le, namespace, pod) (rate(latency_bucket[2m]))) > bool 0.5",
    "max_over_time((sum by (pod) (rate(a[1m])) / on (pod) group_left (x, y) b)[10m:30s] offset 5m) + c",
    "topk by (namespace) (3, a) and on (pod) b unless c or vector(0)",
    '{__name__="x",pod=~".+"} * -1 ^ 2 % 3',
    'label_replace(rate(a:b:c[5m] offset -1h), "pod", "$1", "instance", "(.*):.*")',
    "count_values('v', sum) + count + avg by () (min) # and max\n - quantile(0.5, max)",
    "a @ 1700000000 + b @ start()",
    "SUM BY (x) (a) OR b",
    "absent(nonexistent{job='x'}) * 1e-3 + 0x1F + .5 + Inf - NaN",
    "predict_linear(disk[1h], 4 * 3600) < 0 or time() - timestamp(backup)",
    "rate(a[5m]) / rate(a[1h])",
    "a offset 1w + on () group_right () b",
    'sum_over_time(a{x="}"}[1d2h3m]) atan2 scalar(b)',
    "clamp_max(sort_desc(-x), 1_000) != 5",
    "rate(x[5m] @ end() offset 1m)",
]  # fmt: skip


class TestLanguage:
    """The tokens against Prometheus' own parser."""

    @pytest.mark.parametrize("text", EXPRESSIONS)
    def test_the_selectors_are_those_that_prometheus_finds(self, real: RealPrometheus, text: str) -> None:
        expected = list(_selectors(_parsed(real, text)))
        present = [one for one in expected if not one[2]] or expected
        found = parse_inputs(text).selectors
        read = [_canonical(next(_selectors(_parsed(real, one.text)))[0]) for one in found]
        assert set(read) == {_canonical(selector) for selector, _, _ in present}
        assert len(read) == len({(name, one.ranged) for name, one in zip(read, found, strict=True)})
        for name, one in zip(read, found, strict=True):
            ranges = {ranged for selector, ranged, _ in present if _canonical(selector) == name}
            # Where there is a subquery all count as read over a range: that only looks further for the last sample.
            assert one.ranged in ranges or (one.ranged and ":" in text)

    @pytest.mark.parametrize("text", EXPRESSIONS)
    def test_the_query_for_their_times_is_promql(self, real: RealPrometheus, text: str) -> None:
        selectors, labels = parse_inputs(text).selectors, ("namespace", "k8s.pod")
        names = {number: ["web-0", "web.1"] for number in range(len(selectors))}
        _parsed(real, sample_times_query(selectors, labels, 90))
        _parsed(real, sample_times_query(selectors, labels, None))
        _parsed(real, ended_times_query(selectors, labels, 90, names))

    @pytest.mark.parametrize("text", EXPRESSIONS)
    def test_the_question_for_their_windows_is_promql(self, real: RealPrometheus, text: str) -> None:
        windows, labels = parse_inputs(text).windows, ("namespace", "k8s.pod")
        for window in windows:
            _parsed(real, scrapes_query(window, 90, "k8s.pod", ["web-0", "web.1"]))
        if windows:
            _parsed(real, with_counts(text, windows))
            _parsed(real, with_counts(text, windows, labels))


def _parsed(real: RealPrometheus, text: str) -> dict[str, Any]:
    form = urllib.parse.urlencode({"query": text}).encode()
    with urllib.request.urlopen(f"{real.url}/api/v1/parse_query", data=form, timeout=10) as answer:
        return dict(json.load(answer)["data"])


def _selectors(node: object, ranged: bool = False) -> Iterator[tuple[dict[str, Any], bool, bool]]:
    """Every selector of a syntax tree, whether it is read over a range, whether it reads another time than now."""
    if isinstance(node, list):
        for one in node:
            yield from _selectors(one, ranged)
    if not isinstance(node, dict):
        return
    kind = node.get("type")
    if kind in {"vectorSelector", "matrixSelector"}:
        shifted = bool(node.get("offset") or node.get("timestamp") is not None or node.get("startOrEnd"))
        yield node, ranged or kind == "matrixSelector", shifted
        return
    for key, value in node.items():
        if key not in {"type", "matchers"}:
            yield from _selectors(value, ranged or kind == "subquery")


def _canonical(selector: dict[str, Any]) -> str:
    return json.dumps(sorted((m["name"], m["type"], m["value"]) for m in selector["matchers"]))


class TestOutage:
    async def test_after_it_is_back_every_answer_is_within_its_interval_and_two_seconds(
        self, real: RealPrometheus
    ) -> None:
        interval, queries = 1.0, [f"q{index}" for index in range(10)]
        source = Prometheus(
            [PrometheusServer(name="real", url=real.url, timeout_seconds=5)],
            [
                NamedQuery(name=name, server="real", query=f"vector({at})", scope="Service", interval_seconds=interval)
                for at, name in enumerate(queries)
            ],
            inline_allowed=False,
            on_change=lambda _: None,
            clock=time.time,
            metrics=Metrics(),
        )

        def asked_since(moment: float) -> bool:
            found = [source.named_result(name) for name in queries]
            return all(one is not None and (one.fetched_at or 0) > moment and not one.error for one in found)

        polling = asyncio.create_task(source.run())
        async with asyncio.timeout(10):
            while not asked_since(0):  # noqa: ASYNC110  nobody tells
                await asyncio.sleep(0.01)
        await asyncio.to_thread(real.pause)
        await asyncio.sleep(15)
        await asyncio.to_thread(real.resume)
        back = time.time()
        async with asyncio.timeout(20):
            while not asked_since(back):  # noqa: ASYNC110  nobody tells
                await asyncio.sleep(0.01)
        took = time.time() - back
        polling.cancel()
        await asyncio.gather(polling, return_exceptions=True)
        assert took < interval + 7, "the rule's 2 s, and the time that questions take beside other work"
