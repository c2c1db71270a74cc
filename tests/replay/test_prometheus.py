"""Histories from Prometheus: derived queries, gaps, attempts, errors that name the query, and several policies."""

import json
import threading
import time
import urllib.parse
from collections.abc import Callable, Iterator, Mapping
from fractions import Fraction
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest

from adapter.cli import main
from adapter.commands.replay.history import Tick
from adapter.commands.replay.prometheus import (
    MOST_POINTS,
    HistoryUnavailable,
    RangeQuery,
    Series,
    Source,
    chosen,
    derive_queries,
    read_history,
    read_source,
    server_of,
)
from adapter.load.spec import Metric, Policy, Query
from adapter.policy.hpa import CrossVersionReference
from adapter.runtime.faults import FaultyDocument
from adapter.settings import parse_settings
from lab.harness.prometheus import Exporter, Prometheus, QuietServer
from tests.replay.kit import HPA, POLICY

WEB = CrossVersionReference("apps/v1", "Deployment", "web")
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


def source(settings: str = "", url: str = "", own: Mapping[str, str] | None = None, moments: range = MINUTE) -> Source:
    return read_source(parse_settings(settings) if settings else None, url, own or {}, moments)


def derived(metric: Metric, read_from: Source) -> RangeQuery:
    return derive_queries(policy(metric), WEB, read_from)[metric.name]


def read(fake: FakePrometheus, moments: range = MINUTE) -> list[Tick]:
    return read_history(policy(), WEB, source(url=fake.url, own=OWN, moments=moments), pauses=(0.0, 0.0))


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


def test_failing_server_is_asked_again(fake: FakePrometheus) -> None:
    failures = iter([None, None])
    fake.answer = lambda _, moments: next(failures, dict.fromkeys(moments, "1"))
    assert len(read(fake)) == 5
    fake.answer = lambda _, __: None
    with pytest.raises(HistoryUnavailable, match="3 attempts failed"):
        read(fake)


def test_error_names_the_query_the_time_and_the_answer(fake: FakePrometheus) -> None:
    fake.respond = lambda _: (422, {"status": "error", "errorType": "execution", "error": "too many samples"})
    found = r"(cpu|pulled_out), 1970-01-01T00:00:00Z to .*too many samples.*is (load|out)"
    with pytest.raises(HistoryUnavailable, match=found):
        read(fake)


def test_load_without_any_value_is_an_error(fake: FakePrometheus) -> None:
    fake.answer = lambda text, moments: dict.fromkeys(moments, "1") if text == "load" else {}
    assert {tick.pulled_out for tick in read(fake)} == {0}
    fake.answer = lambda _, __: {}
    with pytest.raises(HistoryUnavailable, match=r"no value of it.*--query cpu='PROMQL'"):
        read(fake)


def test_cpu_comes_from_the_kubelets_series_of_the_targets_pods() -> None:
    assert derived(CPU, source(url="http://plain:9090")).text == (
        'sum(rate(container_cpu_usage_seconds_total{namespace="shop", '
        'pod=~"web-[bcdfghjklmnpqrstvwxz2456789]{1,10}-[bcdfghjklmnpqrstvwxz2456789]{5}", '
        'container!="", container!="POD"}[2m]))'
    )
    stateful = CrossVersionReference("apps/v1", "StatefulSet", "my.web")
    query = derive_queries(policy(), stateful, source(url="http://plain:9090"))["cpu"]
    assert r'pod=~"my\\.web-[0-9]+"' in query.text


def test_queries_go_to_the_server_that_they_name_unless_one_is_given() -> None:
    assert server_of(policy(named("rps"), CPU), source(SETTINGS)).name == "other"
    assert server_of(policy(named("rps")), source(SETTINGS, "http://thanos:9090")).url == "http://thanos:9090"
    with pytest.raises(FaultyDocument, match="name one with --prometheus URL: the settings have main, other"):
        server_of(policy(CPU), source(SETTINGS))


def test_number_for_the_service_counts_for_its_own_namespace() -> None:
    load = derived(named("queue"), source(SETTINGS))
    assert load.text == 'sum(queue{app="web"})'
    ours, theirs = Series({"namespace": "shop"}, []), Series({"namespace": "else"}, [])
    assert chosen(load, "shop", [theirs, ours]) is ours
    with pytest.raises(ValueError, match="2 series"):
        chosen(load, "shop", [ours, Series({}, [])])


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


def test_several_policies_have_a_row_each_ranked_by_what_they_save(
    fake: FakePrometheus, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fake.answer = lambda _, moments: {at: "8" if at < moments[-1] - 900_000 else "14" for at in moments}
    file, share = tmp_path / "all.yaml", "name: cpu, relativeTo: Limit}, highWatermark: 80%"
    faulty = POLICY.replace("name: cpu}, highWatermark: 1000m, lowWatermark: 600m", share)
    file.write_text(f"{POLICY}---\n{HPA}---\n{faulty.replace('name: checkout', 'name: cart')}")
    arguments = ["replay", str(file), "--prometheus", fake.url, "--from", "30m", "--capacity", "memory=1Gi"]
    queries = ["--query", "cpu=load", "--query", "pulled_out=0 * load"]
    assert main([*arguments, *queries]) == 0
    text = capsys.readouterr().out
    assert text.startswith("1 services replayed, ")
    assert "shop/cart: metric cpu: is a share of the pods' limit of cpu" in text
    assert main([*arguments, *queries, "-o", "json"]) == 0
    good, bad = json.loads(capsys.readouterr().out)["services"]
    assert (good["name"], bad["name"]) == ("shop/checkout", "shop/cart")
    assert good["savedPodHours"] == good["stock"]["podHours"] - good["policy"]["podHours"]


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
        span = range(began * 1000, moments[-1] * 1000 + 1, step * 1000)
        read_from = source(settings.format(prometheus.url, "sum by (namespace, pod) (rps)"), moments=span)
        ticks = read_history(policy(named("rps")), WEB, read_from)
    assert {tick.load.get("rps") for tick in ticks} == {5e9, None}
    gap = [number for number, tick in enumerate(ticks) if not tick.load]
    assert gap == [*range(gap[0], 150)]  # the lookback of five minutes fills the rest
