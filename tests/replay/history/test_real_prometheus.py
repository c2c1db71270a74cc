"""The derived queries on a real Prometheus, which holds hours of the past."""

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from adapter import cli
from adapter.commands.replay.history.prometheus import HistoryUnavailable, PrometheusHistory
from adapter.commands.replay.history.queries import Overrides, choose_sources, derive_queries
from adapter.commands.replay.history.span import Span
from adapter.settings import parse_settings
from lab.harness.prometheus import Exporter, Prometheus
from tests.replay.history.kit import WEB, cpu, exposition, named, policy

pytestmark = pytest.mark.integration
STEP = 15
COUNT = 400
"""Moments of the past."""
POD = "web-5d4f8c7b9d-x7xk2"
POLICY = 'namespace="shop",policy="web"'


@pytest.fixture(scope="module")
def began() -> int:
    return (int(time.time()) - 2 * COUNT * STEP) // STEP * STEP


@pytest.fixture(scope="module")
def server(began: int) -> Iterator[Prometheus]:
    moments = [began + number * STEP for number in range(COUNT)]
    usual = [(at, 2.5) for at in moments if not 100 <= (at - began) // STEP < 150]  # no scrape for 12 minutes
    pages = [
        exposition(f'rps{{namespace="shop",pod="{POD}"}}', usual),
        exposition('rps{namespace="shop",pod="web-5d4f8c7b9d-b4bcd"}', usual),
        exposition('rps{namespace="shop",pod="web-api-5d4f8c7b9d-x7xk2"}', usual),  # another service
        exposition(f'rps{{namespace="else",pod="{POD}"}}', usual),
        exposition('queue{app="web"}', [(at, 70 + 0.1 * number) for number, at in enumerate(moments)]),
        exposition(
            f'container_cpu_usage_seconds_total{{namespace="shop",pod="{POD}",container="app"}}',
            [(at, 1.5 * (at - began)) for at in moments],
        ),
        exposition(f'effective_load_policy_pods{{{POLICY},state="pulledOut"}}', [(at, 3) for at in moments]),
        exposition(f"effective_load_policy_current_replicas{{{POLICY}}}", [(at, 12) for at in moments[:200]]),
        exposition('kube_deployment_spec_replicas{namespace="shop",deployment="web"}', [(at, 14) for at in moments]),
    ]
    by_time = sorted("".join(pages).splitlines(keepends=True), key=lambda line: int(line.split()[-1]))
    with Exporter() as exporter, Prometheus([exporter]) as prometheus:
        exporter.set_text("".join(by_time))
        end = f"queue{{app='web'}} @ {moments[-1]}"
        prometheus.wait_value(end, 70 + 0.1 * (COUNT - 1))
        yield prometheus


def ticks(server: Prometheus, began: int, *metrics, overrides: Overrides | None = None):
    settings = parse_settings(f"""
prometheus:
  servers: [{{name: main, url: "{server.url}"}}]
  queries:
  - {{name: rps, server: main, query: 'sum by (namespace, pod) (rps) # all'}}
  - {{name: queue, server: main, query: 'queue{{app="$workload"}}', scope: Service}}
""")
    queries = derive_queries(policy(*metrics), WEB, choose_sources(settings, ""), overrides)
    span = Span(began * 1000, (began + (COUNT - 1) * STEP) * 1000, STEP * 1000)
    return list(PrometheusHistory(queries=queries, span=span))


def test_a_query_by_pod_becomes_the_load_of_the_policys_pods_alone(
    server: Prometheus, began: int, tmp_path: Path
) -> None:
    history = ticks(server, began, named("rps"))
    assert len(history) == COUNT
    assert {dict(tick.load).get("rps") for tick in history} == {5 * 10**9, None}
    gap = [number for number, tick in enumerate(history) if not tick.load]
    assert gap == [*range(gap[0], 150)]  # the lookback of five minutes fills the rest
    assert {tick.pulled_out for tick in history} == {3}
    assert [history[0].replicas, history[-1].replicas] == [12, 14]


def test_a_number_for_the_service_is_read_exactly(server: Prometheus, began: int, tmp_path: Path) -> None:
    history = ticks(server, began, named("queue"))
    assert history[0].load == {"queue": 70 * 10**9}
    assert history[1].load == {"queue": 70_100_000_000}


def test_cpu_is_the_rate_of_the_kubelets_counters(server: Prometheus, began: int, tmp_path: Path) -> None:
    history = ticks(server, began, cpu())
    assert {tick.load["cpu"] for tick in history[20:]} == {1_500_000_000}


def write_policy(folder: Path) -> str:
    cpu = {"name": "cpu", "resource": {"name": "cpu"}, "highWatermark": "500m"}
    metadata = {"namespace": "shop", "name": "web"}
    version = "effective-load.io/v1alpha1"
    file = folder / "web.json"
    file.write_text(
        json.dumps({"apiVersion": version, "kind": "WatermarkPolicy", "metadata": metadata, "spec": {"metrics": [cpu]}})
    )
    return str(file)


def test_the_command_replays_a_policy_from_prometheus(
    server: Prometheus, began: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    span = ["--from", str(began), "--to", str(began + (COUNT - 1) * STEP)]
    arguments = ["replay", write_policy(tmp_path), "--prometheus", server.url, *span, "-o", "json"]
    assert cli.main(arguments) == cli.OK
    report = json.loads(capsys.readouterr().out)
    assert report["policy"] == {"namespace": "shop", "name": "web"}
    assert 350 < report["ticks"] <= COUNT  # the first rate needs two scrapes
    assert report["runs"][2]["replicas"]["final"] == 12  # as recorded: without a low watermark nothing shrinks


def test_promql_that_prometheus_refuses_is_an_error_with_its_words(
    server: Prometheus, began: int, tmp_path: Path
) -> None:
    with pytest.raises(HistoryUnavailable, match=r"cpu, .*HTTP 400.*parse error.*the query is sum\("):
        ticks(server, began, cpu(), overrides=Overrides(loads={"cpu": "sum("}))
