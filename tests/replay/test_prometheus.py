"""Histories from Prometheus: derived queries, gaps, repeated attempts, errors that name the query, and `--all`."""

import argparse
import json
import threading
import time
import urllib.parse
from collections.abc import Callable, Iterator, Mapping
from fractions import Fraction
from http.server import BaseHTTPRequestHandler
from typing import Any

import pytest

from adapter.commands.replay import fleet
from adapter.commands.replay.history_queries import Overrides, RangeSeries, choose_servers, derive_queries
from adapter.commands.replay.inputs import Workload
from adapter.commands.replay.prometheus_history import MOST_POINTS, HistoryUnavailable, Source, Span, read_history
from adapter.load.spec import Metric, Policy, Query, ResourceMetric
from adapter.policy.hpa import CrossVersionReference
from adapter.runtime.faults import FaultyDocument
from adapter.settings import parse_settings
from lab.harness.prometheus import Exporter, Prometheus, QuietServer
from tests.replay.kit import policy as watermarks
from tests.replay.kit import stock

WEB = CrossVersionReference("apps/v1", "Deployment", "web")
OVERRIDES = Overrides(loads={"cpu": "load"}, pulled_out="out")
SETTINGS = """
prometheus:
  servers: [{name: main, url: "http://main:9090"}, {name: other, url: "http://other:9090"}]
  queries:
  - {name: rps, server: other, query: 'sum by (namespace, pod) (rate(requests_total[1m]))'}
  - {name: queue, server: main, query: 'sum(queue{app="$workload"})', scope: Service}
"""


def named(query: str) -> Metric:
    return Metric(name=query, query=Query(name=query), high=Fraction(10**9))


CPU = Metric(name="cpu", resource=ResourceMetric(name="cpu"), high=Fraction(10**9))


def policy(*metrics: Metric) -> Policy:
    return Policy(namespace="shop", name="web", hpa="web", metrics=metrics or (CPU,))


Answer = Callable[[str, range], Mapping[int, str] | None]


class FakePrometheus:
    """Answers range queries with one series, of the values that `answer` gives (None: the server fails)."""

    def __init__(self) -> None:
        self.answer: Answer = lambda _, moments: dict.fromkeys(moments, "1")
        self.asked: list[range] = []
        self.respond = self._respond
        fake = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                form = urllib.parse.parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
                status, answer = fake.respond(form)
                body = json.dumps(answer).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name of the base class
                """Drops the access log."""

        self.server = QuietServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"

    def _respond(self, form: Mapping[str, list[str]]) -> tuple[int, dict[str, Any]]:
        start, end, step = (round(float(form[key][0]) * 1000) for key in ("start", "end", "step"))
        moments = range(start, end + 1, step)
        if form["query"] == ["load"]:
            self.asked.append(moments)
        values = self.answer(form["query"][0], moments)
        if values is None:
            return 503, {"status": "error", "errorType": "unavailable", "error": "the store is loading"}
        points = [[at / 1000, value] for at, value in values.items()]
        result = [{"metric": {}, "values": points}] if points else []
        return 200, {"status": "success", "data": {"resultType": "matrix", "result": result}}


@pytest.fixture
def fake() -> Iterator[FakePrometheus]:
    made = FakePrometheus()
    thread = threading.Thread(target=made.server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    yield made
    made.server.shutdown()
    made.server.server_close()
    thread.join(5)


def read(fake: FakePrometheus, span: Span) -> list[Any]:
    queries = derive_queries(policy(), WEB, choose_servers(None, fake.url), OVERRIDES)
    return read_history(queries, span, pauses=(0.0, 0.0))


MINUTE = Span(0, 60_000, 15_000)


def test_gap_is_a_tick_without_the_metric_and_no_zero(fake: FakePrometheus) -> None:
    fake.answer = lambda text, moments: {
        at: {"load": "NaN" if at == 30_000 else "0.25", "out": "2"}.get(text, "7")
        for at in moments
        if not (text == "load" and at == 60_000) and not (text != "load" and at == 45_000)
    }
    ticks = read(fake, MINUTE)
    assert [tick.at for tick in ticks] == [0, 15, 30, 45]  # without the gap at the end
    assert [dict(tick.load) for tick in ticks] == [{"cpu": 250_000_000}] * 2 + [{}] + [{"cpu": 250_000_000}]
    assert [tick.pulled_out for tick in ticks] == [2, 2, 2, 2]
    assert [tick.replicas for tick in ticks] == [7, 7, 7, None]


def test_history_is_read_in_parts_that_prometheus_answers(fake: FakePrometheus) -> None:
    span = Span(86_397_000, 110_400_000, 1_000)
    assert len(read(fake, span)) == len(span)
    assert all(len(moments) <= MOST_POINTS for moments in fake.asked)
    assert [at for moments in fake.asked for at in moments] == [*span.moments()]


def test_failing_server_is_asked_again(fake: FakePrometheus) -> None:
    failures = iter([None, None])
    fake.answer = lambda _, moments: next(failures, dict.fromkeys(moments, "1"))
    assert len(read(fake, MINUTE)) == 5
    fake.answer = lambda _, __: None
    with pytest.raises(HistoryUnavailable, match="3 attempts failed"):
        read(fake, MINUTE)


def test_error_names_the_query_the_time_and_the_answer(fake: FakePrometheus) -> None:
    fake.respond = lambda _: (422, {"status": "error", "errorType": "execution", "error": "too many samples"})
    found = r"(cpu|pulled-out pods|replicas), 1970-01-01T00:00:00Z to .*too many samples.*is (load|out|max)"
    with pytest.raises(HistoryUnavailable, match=found):
        read(fake, MINUTE)


def test_load_without_any_value_is_an_error(fake: FakePrometheus) -> None:
    fake.answer = lambda text, moments: dict.fromkeys(moments, "1") if text == "load" else {}
    assert {(tick.pulled_out, tick.replicas) for tick in read(fake, MINUTE)} == {(0, None)}
    fake.answer = lambda _, __: {}
    with pytest.raises(HistoryUnavailable, match=r"no value of it.*--query cpu='PROMQL'"):
        read(fake, MINUTE)


def test_cpu_comes_from_the_kubelets_series_of_the_targets_pods() -> None:
    servers = choose_servers(None, "http://plain:9090")
    assert derive_queries(policy(), WEB, servers).loads["cpu"].text == (
        'sum(rate(container_cpu_usage_seconds_total{namespace="shop", '
        'pod=~"web-[bcdfghjklmnpqrstvwxz2456789]{1,10}-[bcdfghjklmnpqrstvwxz2456789]{5}", '
        'container!="", container!="POD"}[2m]))'
    )
    stateful = CrossVersionReference("apps/v1", "StatefulSet", "my.web")
    assert r'pod=~"my\\.web-[0-9]+"' in derive_queries(policy(), stateful, servers).loads["cpu"].text


def test_query_of_the_settings_goes_to_its_server_unless_one_is_given() -> None:
    settings = parse_settings(SETTINGS)
    made = derive_queries(policy(named("rps"), CPU), WEB, choose_servers(settings, ""))
    assert {query.server.name for query in made} == {"other"}
    given = derive_queries(policy(named("rps")), WEB, choose_servers(settings, "http://thanos:9090"))
    assert given.loads["rps"].server.url == "http://thanos:9090"
    with pytest.raises(FaultyDocument, match="name one with --prometheus URL: the settings have main, other"):
        derive_queries(policy(CPU), WEB, choose_servers(settings, ""))


def test_number_for_the_service_counts_for_its_own_namespace() -> None:
    made = derive_queries(policy(named("queue")), WEB, choose_servers(parse_settings(SETTINGS), ""))
    load = made.loads["queue"]
    assert (load.text, made.totals) == ('sum(queue{app="web"})', {"queue"})
    ours, theirs = RangeSeries({"namespace": "shop"}, []), RangeSeries({"namespace": "else"}, [])
    assert load.chosen([theirs, ours]) is ours
    with pytest.raises(ValueError, match="2 series"):
        load.chosen([ours, RangeSeries({}, [])])


@pytest.mark.parametrize(
    ("metric", "given", "words"),
    [
        (named("rps"), {}, "--query rps='PROMQL'"),
        (named("rps"), {"rsp": "1"}, "did you mean rps?"),
    ],
)
def test_query_that_cannot_be_derived_is_named(metric: Metric, given: dict[str, str], words: str) -> None:
    with pytest.raises(FaultyDocument, match=words.replace("?", r"\?")):
        derive_queries(policy(metric), WEB, choose_servers(None, "http://plain:9090"), Overrides(loads=given))


def test_fleet_has_a_row_for_each_service_and_its_error(fake: FakePrometheus) -> None:
    fake.answer = lambda text, moments: {at: "8" if at < 900_000 else "14" for at in moments} if text == "load" else {}
    arguments = {"pod_startup": "30s", "sample_age": "5s", "window": "15s", "price": None, "settings": None}
    parsed = argparse.Namespace(**arguments, capacity=["cpu=1500m", "memory=1Gi"], request=[], limit=[])
    source = Source(choose_servers(None, fake.url), OVERRIDES, Span(0, 1_800_000, 15_000))
    workload = Workload(requests={}, limits={})
    good = fleet.FleetService(name="shop/web", policy=watermarks(), hpa=stock(), workload=workload)
    rows = [fleet.replay_one(parsed, one, source) for one in (good, fleet.FleetService(name="a/b", error="no HPA"))]
    assert [row.error for row in rows] == ["", "no HPA"]
    assert rows[0].stock is not None
    text = "\n".join(fleet.lines(rows, Fraction(1)))
    assert "1 services replayed, " in text
    assert "a/b: no HPA" in text
    assert [row["name"] for row in fleet.data(rows, None)["services"]] == ["shop/web", "a/b"]


@pytest.mark.integration
def test_real_prometheus_sums_the_pods_of_the_target_and_keeps_gaps() -> None:
    step, count = 15, 240
    began = (int(time.time()) - 2 * count * step) // step * step
    moments = [began + number * step for number in range(count)]
    known = [at for at in moments if not 100 <= (at - began) // step < 150]  # no scrape for 12 minutes
    pods = ("web-5d4f8c7b9d-x7xk2", "web-5d4f8c7b9d-b4bcd", "web-api-5d4f8c7b9d-x7xk2")
    lines = [f'rps{{namespace="shop",pod="{pod}"}} 2.5 {at * 1000}\n' for at in known for pod in pods]
    lines += [f"last 1 {moments[-1] * 1000}\n"]
    settings = "prometheus: {{servers: [{{name: m, url: '{}'}}], queries: [{{name: rps, server: m, query: '{}'}}]}}"
    with Exporter() as exporter, Prometheus([exporter]) as prometheus:
        exporter.set_text("".join(lines))
        prometheus.wait_value(f"last @ {moments[-1]}", 1)
        servers = choose_servers(parse_settings(settings.format(prometheus.url, "sum by (namespace, pod) (rps)")), "")
        queries = derive_queries(policy(named("rps")), WEB, servers)
        ticks = read_history(queries, Span(began * 1000, moments[-1] * 1000, step * 1000))
    assert {tick.load.get("rps") for tick in ticks} == {5e9, None}
    gap = [number for number, tick in enumerate(ticks) if not tick.load]
    assert gap == [*range(gap[0], 150)]  # the lookback of five minutes fills the rest
