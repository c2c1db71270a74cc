"""Against a real Prometheus: what time a value really has, what an outage looks like, what PromQL really is."""

import asyncio
import json
import math
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from structlog.testing import capture_logs

from adapter.load.quantity import NANO
from adapter.load.samples import Point, QuerySamples
from adapter.load.spec import Query
from adapter.settings import PrometheusServer
from adapter.usage.promql import ended_question, parse_inputs, question
from adapter.usage.query_catalog import WorkloadQuery
from lab.harness.prometheus import Exporter
from lab.harness.prometheus import Prometheus as RealPrometheus
from tests.usage.fakes import Source, named
from tests.usage.test_promql import PUBLIC

pytestmark = [pytest.mark.integration, pytest.mark.builds("prometheus")]
ASKED = WorkloadQuery(Query(name="q"), "shop", "web")


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


class World(Source):
    """One query, asked twice a second."""

    def __init__(self, real: RealPrometheus, text: str, max_age: float = 5, **more: Any) -> None:
        server = PrometheusServer(name="main", url=real.url, timeout_seconds=5)
        query = named("q", text, interval_seconds=0.5, max_age_seconds=max_age, **more)
        super().__init__(server, queries=[query], now=time.time)
        self.source.set_queries([ASKED])

    @property
    def samples(self) -> QuerySamples:
        return self.of(ASKED)

    async def until(self, holds: Callable[[QuerySamples], object]) -> QuerySamples:
        """The first samples for which it holds; looked at with all news."""
        await self.news.until(lambda: bool(holds(self.samples)))
        return self.samples


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
        async with World(real, text).running() as world:
            found = await world.until(lambda samples: samples.pods)
            times = await scrape_times(real, 't1{pod="a"}')
        assert found.pods["a"].value == 7 * NANO
        assert any(abs(found.pods["a"].at - at) < 0.0005 for at in times)

    async def test_a_rate_that_outlives_its_target_keeps_the_last_scrapes_time_and_then_goes(
        self, real: RealPrometheus, page: Exporter
    ) -> None:
        page.set(counter("t2", a=7))
        async with World(real, "sum by (namespace, pod) (rate(t2[1m]))", max_age=4).running() as world:
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
        async with World(real, "sum by (namespace, pod) (rate(t3[30s]))", max_age=20).running() as world:
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

    async def test_samples_that_bring_their_own_time_are_as_old_as_they_say_and_not_found_beyond_the_age_given(
        self, real: RealPrometheus, page: Exporter
    ) -> None:
        own = {pod: time.time() - ago for pod, ago in (("old", 30), ("new", 5))}
        page.set_text("".join(f't5{{namespace="shop",pod="{pod}"}} 7 {at * 1000:.0f}\n' for pod, at in own.items()))
        async with World(real, "t5 * 2", max_age=20).running() as world:
            found = await world.until(lambda samples: samples.pods)
        assert list(found.pods) == ["new"]
        assert found.pods["new"].at == pytest.approx(own["new"], abs=0.001)

    async def test_the_past_is_dated_as_the_past(self, real: RealPrometheus, page: Exporter) -> None:
        page.set(counter("t7", a=7))
        async with World(real, "t7 offset 3s", max_age=60).running() as world:
            found = await world.until(lambda samples: samples.pods)
        assert found.fetched_at is not None
        assert 3 <= found.fetched_at - found.pods["a"].at < 15
        assert found.behind == 3


async def test_an_outage_is_not_a_zero(real: RealPrometheus, page: Exporter) -> None:
    page.set({'s2{namespace="shop"}': 3})
    async with World(real, "sum(s2) or vector(0)", scope="Service").running() as world:
        await world.until(lambda samples: samples.total)
        page.failing = True
        found = await world.until(lambda samples: samples.error)
        zero = await asyncio.to_thread(real.query, "sum(s2) or vector(0)")
    assert zero[0]["value"][1] == "0"
    assert found.total is None
    assert found.error == "no series that it reads has a sample in the last 5 s"


@pytest.mark.parametrize(
    ("text", "sentence", "logged"),
    [
        (
            'label_replace(r1, "a", "$1", "b", "(")',
            "HTTP 422: the query is rejected (execution)",
            "invalid regular expression in label_replace",
        ),
        (
            'sum by (namespace, pod) ({__name__=~"r1|r2"})',
            "the times and numbers of its samples cannot be had (name one metric in each selector)",
            "same labelset",
        ),
        (
            "quantile by (namespace, pod) (7, r1)",
            "answers with a warning",
            "quantile value should be between 0 and 1",
        ),
    ],
)
async def test_a_refusal_is_named_and_what_prometheus_says_of_it_is_for_the_log(
    real: RealPrometheus, page: Exporter, text: str, sentence: str, logged: str
) -> None:
    page.set(counter("r1", a=1) | counter("r2", a=1))
    await asyncio.to_thread(real.wait_value, "r1 + r2", 2)
    with capture_logs() as logs:
        async with World(real, text).running() as world:
            found = await world.until(lambda samples: samples.error)
    assert (found.error or "").startswith(f"Prometheus main: {sentence}")
    assert logged in logs[0]["error"]


RATE = "sum by (namespace, pod) (rate({}[12s]))"
FULL = 12
"""Samples in a window without a gap, at a scrape a second."""


def counts(samples: QuerySamples) -> dict[str, int | None]:
    return {pod: point.count for pod, point in samples.pods.items()}


def is_full(samples: QuerySamples) -> bool:
    return bool(samples.pods) and set(counts(samples).values()) == {FULL}


def bound(point: Point) -> float:
    """The most that the load may have been; infinite where so few samples say nothing."""
    held = point.count or 0
    return point.value if held >= FULL else point.value * FULL / (held - 1) if held > 1 else math.inf


class TestWindows:
    """How many samples the windows hold, and what that says of an unchanged load: 100 a second in each series."""

    @staticmethod
    def grow(page: Exporter, *names: str) -> list[str]:
        """Counters that grow; a test may add to them."""
        series = list(names)
        page.set_page(lambda: "".join(f"{name} {100 * time.time():.1f}\n" for name in series))
        return series

    @pytest.mark.parametrize("missed", [1, 5])
    async def test_after_a_gap_the_load_is_between_a_value_and_its_bound(
        self, real: RealPrometheus, page: Exporter, missed: int
    ) -> None:
        self.grow(page, f'gapped{missed}{{namespace="shop",pod="a"}}')
        async with World(real, RATE.format(f"gapped{missed}"), max_age=20).running() as world:
            await world.until(is_full)
            until, read, fetched_at = page.scrapes + missed + FULL, [], 0.0
            while page.scrapes < until:
                page.failing = page.scrapes < until - FULL
                found = await world.until(lambda samples, last=fetched_at: samples.fetched_at > last)  # type: ignore[misc]
                fetched_at = found.fetched_at or 0.0
                read += [found.pods["a"]]
            await world.until(is_full)
        assert min(point.value for point in read) < 96 * NANO, "Prometheus itself answers with less"
        assert all(bound(point) >= 97 * NANO for point in read), read

    async def test_a_series_that_begins_in_a_target_that_is_scraped_shows_no_gap(
        self, real: RealPrometheus, page: Exporter
    ) -> None:
        """As the first error: a pod that says so must not lose its sample."""
        labels = 'namespace="shop",pod="a"'
        names = self.grow(page, f"born{{{labels}}}")
        async with World(real, RATE.format("born"), max_age=20).running() as world:
            await world.until(is_full)
            names.append(f'born{{{labels},code="500"}}')
            await asyncio.to_thread(real.wait_value, 'count_over_time(born{code="500"}[12s]) >= bool 2', 1)
            since = time.time()
            found = await world.until(lambda samples: samples.fetched_at > since)
        assert (counts(found)["a"] or 0) >= FULL - 1, "the new series has no whole window yet"


@pytest.mark.parametrize("text", [each[0] for each in PUBLIC], ids=[each[0][:40] for each in PUBLIC])
def test_the_selectors_are_those_that_prometheus_finds_and_the_questions_are_promql(
    real: RealPrometheus, text: str
) -> None:
    expected = list(_selectors(_parsed(real, text)))
    present = [one for one in expected if not one[2]] or expected
    found = parse_inputs(text).selectors
    read = [_canonical(next(_selectors(_parsed(real, one.base + one.shift)))[0]) for one in found]
    assert set(read) == {_canonical(selector) for selector, _, _ in present}
    for name, one in zip(read, found, strict=True):
        assert one.ranged in {ranged for selector, ranged, _ in present if _canonical(selector) == name}
    inputs, labels = parse_inputs(text), ("namespace", "k8s.pod")
    _parsed(real, question(text, inputs, labels))
    if found:
        _parsed(real, ended_question(inputs, labels, 90, range(len(found))))


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
