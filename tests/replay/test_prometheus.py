"""Histories from Prometheus: derived queries, gaps, attempts, errors that name the query, and several policies."""

import json
import time
from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Any

import pytest

from adapter.commands.replay.history import Tick
from adapter.commands.replay.prometheus import (
    MOST_POINTS,
    HistoryUnavailable,
    Source,
    derive_queries,
    read_history,
    read_source,
)
from adapter.load.spec import Metric, Policy, Query
from adapter.runtime.decoding import Decoder
from adapter.runtime.faults import FaultyDocument
from adapter.runtime.source_errors import QueryRejected, SourceError, SourceFailing
from adapter.settings import parse_settings
from lab.harness.prometheus import Exporter, Prometheus

OWN = {"cpu": "load", "pulled_out": "out"}
MINUTE = range(0, 60_001, 15_000)
SETTINGS = """
prometheus:
  servers: [{name: main, url: "http://main:9090"}, {name: other, url: "http://other:9090"}]
  queries:
  - {name: rps, server: other, query: 'sum by (namespace, pod) (rate(requests_total[1m]))'}
  - {name: queue, server: main, query: 'sum(queue{app="$workload"})', scope: Service}
"""


def named(query: str) -> Metric:
    return Metric(name=query, query=Query(name=query), high=Fraction(10**9))


CPU = Metric(name="cpu", resource="cpu", high=Fraction(10**9))


def policy(*metrics: Metric) -> Policy:
    return Policy(namespace="shop", name="web", hpa="web", metrics=metrics or (CPU,))


Answer = Callable[[str, range], Mapping[int, str] | SourceError]
DOWN = SourceFailing("the store is loading")


class FakePrometheus:
    """In the place of the client: answers range queries with one series, of the values that `answer` gives."""

    url = "http://fake:9090"

    def __init__(self) -> None:
        self.answer: Answer = lambda _, moments: dict.fromkeys(moments, "1")
        self.asked: list[range] = []

    async def result(self, form: Mapping[str, str], _kind: str, decoder: Decoder[Any]) -> Any:
        start, end, step = (round(float(form[key]) * 1000) for key in ("start", "end", "step"))
        moments, what = range(start, end + 1, step), "load" if "load" in form["query"] else "out"
        self.asked += [moments] if what == "load" else []
        values = self.answer(what, moments)
        if isinstance(values, SourceError):
            raise values
        points = [[at / 1000, value] for at, value in values.items()]
        return decoder.decode(json.dumps([{"metric": {}, "values": points}] if points else []).encode())

    async def close(self) -> None:
        """Nothing is open."""


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> FakePrometheus:
    made = FakePrometheus()
    monkeypatch.setattr("adapter.commands.replay.prometheus.ApiClient", lambda *_: made)
    return made


def source(settings: str = "", url: str = "", own: Mapping[str, str] | None = None, moments: range = MINUTE) -> Source:
    return read_source(parse_settings(settings) if settings else None, url, own or {}, moments)


def derived(metric: Metric, read_from: Source) -> str:
    return derive_queries(policy(metric), "web", read_from)[metric.name]


def read(fake: FakePrometheus, moments: range = MINUTE) -> list[Tick]:
    return read_history(policy(), "web", source(url=fake.url, own=OWN, moments=moments), pauses=(0.0, 0.0))


def test_gap_is_a_tick_without_the_metric_and_no_zero(fake: FakePrometheus) -> None:
    fake.answer = lambda text, moments: {
        at: {"load": "NaN" if at == 30_000 else "0.25", "out": "2"}[text]
        for at in moments
        if not (text == "load" and at == 60_000) and not (text != "load" and at == 45_000)
    }
    ticks = read(fake)
    assert [tick.at for tick in ticks] == [0, 15, 30, 45]  # without the gap at the end
    assert [dict(tick.load) for tick in ticks] == [{"cpu": 250_000_000}] * 2 + [{}] + [{"cpu": 250_000_000}]
    assert [tick.pulled_out for tick in ticks] == [2, 2, 2, 2]


def test_history_is_read_in_parts_that_prometheus_answers(fake: FakePrometheus) -> None:
    moments = range(86_397_000, 110_400_001, 1_000)
    assert len(read(fake, moments)) == len(moments)
    assert all(len(part) <= MOST_POINTS for part in fake.asked)
    assert [at for part in fake.asked for at in part] == [*moments]


def test_failing_server_is_asked_again_and_an_error_names_the_query_and_the_time(fake: FakePrometheus) -> None:
    failures = iter([DOWN, DOWN])
    fake.answer = lambda _, moments: next(failures, dict.fromkeys(moments, "1"))
    assert len(read(fake)) == 5
    for error in (DOWN, QueryRejected("too many samples", public="")):
        fake.answer = lambda _, __, error=error: error
        with pytest.raises(HistoryUnavailable, match=rf"1970-01-01T00:00:00Z to .*{error}.*is sum"):
            read(fake)


def test_load_without_any_value_is_an_error(fake: FakePrometheus) -> None:
    fake.answer = lambda text, moments: dict.fromkeys(moments, "1") if text == "load" else {}
    assert {tick.pulled_out for tick in read(fake)} == {0}
    fake.answer = lambda _, __: {}
    with pytest.raises(HistoryUnavailable, match=r"no value of it.*--query cpu='PROMQL'"):
        read(fake)


def test_cpu_comes_from_the_kubelets_series_of_the_workloads_pods() -> None:
    assert derived(CPU, source(url="http://plain:9090")).startswith(
        'sum(rate(container_cpu_usage_seconds_total{namespace="shop", pod=~"web((-'
    )
    dotted = derive_queries(policy(), "my.web", source(url="http://plain:9090"))["cpu"]
    assert r'pod=~"my\\.web(' in dotted


def test_server_is_an_address_or_one_of_the_settings() -> None:
    assert source(SETTINGS, "other").server.url == "http://other:9090"
    assert source(SETTINGS, "http://thanos:9090").server.url == "http://thanos:9090"
    with pytest.raises(FaultyDocument, match=r"by its address.* --settings FILE, one of its main, other"):
        source(SETTINGS)


@pytest.mark.parametrize(
    ("metric", "own", "words"),
    [
        (named("rps"), {}, "--query rps='PROMQL'"),
        (named("rps"), {"rsp": "1"}, "did you mean rps?"),
    ],
)
def test_query_that_cannot_be_derived_is_named(metric: Metric, own: dict[str, str], words: str) -> None:
    with pytest.raises(FaultyDocument, match=words.replace("?", r"\?")):
        derived(metric, source(url="http://plain:9090", own=own))


@pytest.mark.integration
def test_real_prometheus_sums_what_belongs_to_the_service_and_keeps_gaps() -> None:
    step, count = 15, 240
    began = (int(time.time()) - 2 * count * step) // step * step
    moments = [began + number * step for number in range(count)]
    known = [at for at in moments if not 100 <= (at - began) // step < 150]  # no scrape for 12 minutes
    pods = ("web-5d4f8c7b9d-x7xk2", "web-0", "web-api-5d4f8c7b9d-x7xk2", "web-api-0")
    lines = [f'rps{{namespace="shop",pod="{pod}"}} 2.5 {at * 1000}\n' for at in known for pod in pods]
    lines += [f'queue{{namespace="{one}"}} 7 {at * 1000}\n' for at in known for one in ("shop", "else")]
    lines += [f"last 1 {moments[-1] * 1000}\n"]
    queries = """queries:
  - {name: rps, server: m, query: "sum by (namespace, pod) (rps)"}
  - {name: queue, server: m, query: queue, scope: Service}"""
    with Exporter() as exporter, Prometheus([exporter]) as prometheus:
        exporter.set_text("".join(lines))
        prometheus.wait_value(f"last @ {moments[-1]}", 1)
        span = range(began * 1000, moments[-1] * 1000 + 1, step * 1000)
        settings = f"prometheus:\n  servers: [{{name: m, url: '{prometheus.url}'}}]\n  {queries}"
        read_from = source(settings, own={"own": "rps{namespace='$namespace'}"}, moments=span)
        ticks = read_history(policy(named("rps"), named("queue"), named("own")), "web", read_from)
    assert {tick.load.get("rps") for tick in ticks} == {5e9, None}  # two of four pods are those of web
    assert {tick.load.get("queue") for tick in ticks} == {7e9, None}  # that of the other namespace does not count
    assert {tick.load.get("own") for tick in ticks} == {1e10, None}  # one's own query is summed
    gap = [number for number, tick in enumerate(ticks) if not tick.load]
    assert gap == [*range(gap[0], 150)]  # the lookback of five minutes fills the rest
