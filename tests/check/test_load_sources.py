"""Whether metrics-server and Prometheus answer, for which pods, and how old their samples are."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Iterable
from datetime import UTC, datetime
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from adapter.commands.check.load_sources import Scaled, check_metrics_server, check_prometheus
from adapter.commands.check.report import FindingLevel, ReportSection
from adapter.kube.session import Session
from adapter.load.pods import Pod, PodCondition
from adapter.policy.watermark_policy import parse_policy
from adapter.settings import Settings, parse_settings
from tests.kube.fake import FakeApi, status, text
from tests.usage import fakes as usage_fakes

USAGE = "/apis/metrics.k8s.io/v1beta1/namespaces/shop/pods"


def pod(name: str, ready: bool = True, since: float = 1000.0) -> Pod:
    at = time.time() - since
    return Pod(namespace="shop", name=name, uid=name, created_at=at, ready=PodCondition(ready, at))


def scaled(*pods: Pod, **metric: Any) -> Scaled:
    """A policy of one metric, on plain CPU unless another is given, with these pods."""
    given = metric or {"resource": {"name": "cpu"}}
    policy = {
        "apiVersion": "effective-load.io/v1alpha1",
        "kind": "WatermarkPolicy",
        "metadata": {"name": "web", "namespace": "shop"},
        "spec": {"metrics": [{"name": "load", "highWatermark": "1", **given}]},
    }
    return Scaled(parse_policy(policy), pods or (pod("web-1"), pod("web-2")), "web")


def lines(sections: Iterable[ReportSection]) -> list[str]:
    """Each finding with its section."""
    return [f"{one.about}: {found.verdict.value}: {found.text}" for one in sections for found in one.findings]


# --- metrics-server ---


def usage(*names: str, age: float = 10.0) -> Any:
    at = datetime.fromtimestamp(time.time() - age, UTC).isoformat().replace("+00:00", "Z")
    containers = [{"name": "app", "usage": {"cpu": "1"}}]
    items = [{"metadata": {"name": name}, "timestamp": at, "window": "15s", "containers": containers} for name in names]
    return text(json.dumps({"items": items}))


async def metrics_server(answer: Any, *policies: Scaled) -> list[str]:
    policies = policies or (scaled(),)
    async with FakeApi() as api, Session(api.load) as session:
        api.answers[USAGE] = answer
        sections = await check_metrics_server(session, Settings(), policies)
    return lines([*sections, *(policy.section for policy in policies)])


async def test_an_answer_that_covers_every_ready_pod_is_in_order() -> None:
    first, second = await metrics_server(usage("web-1", "web-2", "other"))
    assert first.startswith("metrics.k8s.io: ok: it answers for namespace shop: 3 pods, the newest sample 1")
    assert second == "policy: ok: metrics.k8s.io has samples of all 2 Ready pods"


async def test_ready_pods_without_a_sample_are_named_unless_they_are_young() -> None:
    pods = (pod("web-1"), pod("web-2"), pod("young", since=30), pod("unready", ready=False))
    found = await metrics_server(usage("web-1"), scaled(*pods))
    assert found[1].startswith("policy: wrong: metrics.k8s.io has no sample of 1 of 2 Ready pods (web-2): kubectl")


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        ({"age": 200.0}, "metrics.k8s.io: wrong: its newest sample of namespace shop is 20"),
        ({"age": -60.0}, "metrics.k8s.io: wrong: its newest sample of namespace shop is dated"),
        (usage(), "metrics.k8s.io: wrong: it has no sample of any pod of namespace shop"),
        (status(503, "ServiceUnavailable"), "metrics.k8s.io: wrong: it does not answer, so policies on cpu and memory"),
        (status(403, "Forbidden", "no"), "metrics.k8s.io: skip: not checked: the usage of pods, for "),
    ],
)
async def test_what_is_wrong_with_metrics_server_is_one_finding(answer: Any, says: str) -> None:
    # Ages count from when the test runs, not from when it was collected.
    answer = usage("web-1", **answer) if isinstance(answer, dict) else answer
    found = [line for line in await metrics_server(answer) if line.startswith("metrics.k8s.io")]
    assert len(found) == 1
    assert found[0].startswith(says)


async def test_without_policies_on_cpu_or_memory_it_is_not_asked() -> None:
    assert await metrics_server(status(503, "Unavailable"), scaled(query={"name": "rps"})) == []


# --- Prometheus ---


class FakePrometheus:
    """Answers every query with these series; `age` of their samples, `ahead` of its clock, in seconds."""

    def __init__(self) -> None:
        self.series: list[dict[str, str]] = [{"namespace": "shop", "pod": name} for name in ("web-1", "web-2")]
        self.age, self.ahead = 5.0, 0.0
        self.asked = 0
        self.query_seconds = 0.0
        """How long every query takes but the one that only asks whether the server is there."""
        self.refusal: tuple[int, str] | None = None

    async def answer(self, request: web.Request) -> web.StreamResponse:
        query = (await request.post())["query"] if request.method == "POST" else request.query["query"]
        at = time.time() + self.ahead
        self.asked += 1
        if query != "vector(1)":
            await asyncio.sleep(self.query_seconds)
        if self.refusal is not None:
            return web.Response(status=self.refusal[0], text=self.refusal[1])
        if query == "vector(1)":
            return usage_fakes.vector(({}, "1"), at=at)
        inputs = usage_fakes.inputs_of(str(query), self.series, at - self.age)
        return usage_fakes.vector(*((labels, "0.5") for labels in self.series), *inputs, at=at)


@pytest.fixture
async def prometheus() -> AsyncIterator[tuple[FakePrometheus, Settings]]:
    fake, app = FakePrometheus(), web.Application()
    app.router.add_route("*", "/api/v1/query", fake.answer)
    server = TestServer(app)
    await server.start_server()
    query = {"name": "rps", "server": "main", "query": "sum by (namespace, pod) (requests)"}
    servers = [{"name": "main", "url": str(server.make_url("")).rstrip("/"), "timeoutSeconds": 1}]
    yield fake, parse_settings(json.dumps({"prometheus": {"servers": servers, "queries": [query]}}))
    await server.close()


Prometheus = tuple[FakePrometheus, Settings]
RPS = {"query": {"name": "rps"}}


async def asked(settings: Settings, policy: Scaled, *, may_contact_sources: bool = True) -> list[str]:
    sections = await check_prometheus(settings, [policy], time.time, may_contact_sources=may_contact_sources)
    return lines([*sections, policy.section])


async def test_a_query_that_answers_for_the_targets_pods_is_in_order(prometheus: Prometheus) -> None:
    first, second = await asked(prometheus[1], scaled(**RPS))
    assert first.endswith(" answers")
    assert second.startswith("policy: ok: metric load: its query answers 2 of 2 pods, from samples that are ")


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        pytest.param(
            {"series": [{"namespace": "shop", "pod": "10.0.0.1"}]}, "label pod has to be the pod's name", id="others"
        ),
        pytest.param(
            {"series": [{"namespace": "shop", "pod": "web-1"}]},
            "its query has no series of 1 of 2 Ready pods (web-2)",
            id="one pod without a series",
        ),
        pytest.param({"age": 120}, "90 s is the most that counts", id="old samples"),
        pytest.param({"ahead": 30}, " s ahead of the API server's", id="another clock"),
    ],
)
async def test_what_is_wrong_with_the_answer_to_a_query_is_said(
    prometheus: Prometheus, changes: dict[str, Any], says: str
) -> None:
    vars(prometheus[0]).update(changes)
    assert [line for line in await asked(prometheus[1], scaled(**RPS)) if ": wrong: " in line and says in line]


@pytest.mark.parametrize(
    "series", [{}, {"namespace": "shop"}, {"pod": "web-1"}, {"namespace": "elsewhere", "pod": "web-1"}], ids=str
)
async def test_a_query_without_the_labels_of_its_pods_is_one_finding_with_them(
    prometheus: Prometheus, series: dict[str, str]
) -> None:
    prometheus[0].series = [series]
    policy = scaled(**RPS)
    sections = await check_prometheus(prometheus[1], [policy], time.time, may_contact_sources=True)
    found = [one for section in [*sections, policy.section] for one in section.findings]
    (fault,) = [one for one in found if one.verdict is FindingLevel.WRONG]
    assert "by (namespace, pod)" in fault.text


@pytest.mark.parametrize(
    ("status", "body", "advice"),
    [
        (401, "Unauthorized", "give the server username and passwordFile, or bearerTokenFile, that it accepts"),
        (403, "Forbidden", "give the server username and passwordFile, or bearerTokenFile, that it accepts"),
        (404, "404 page not found", "url needs the path under which its API is"),
        (302, "", "url leads to something else, such as a page to log in"),
        (200, "<html>Grafana</html>", "url leads to something else, such as a page to log in"),
    ],
)
async def test_what_a_server_refuses_is_said_with_what_to_do(
    prometheus: Prometheus, status: int, body: str, advice: str
) -> None:
    prometheus[0].refusal = (status, body)
    (line,) = [one for one in await asked(prometheus[1], scaled(**RPS)) if one.startswith("Prometheus main: wrong: h")]
    assert advice in line


@pytest.mark.parametrize(
    ("url", "advice"),
    [
        ("http://127.0.0.1:1", "nothing listens there: compare url with kubectl get services"),
        ("http://prometheus.nowhere.invalid:9090", "correct the name in url"),
    ],
)
async def test_a_server_that_cannot_be_reached_is_said_with_what_to_do(url: str, advice: str) -> None:
    settings = parse_settings(json.dumps({"prometheus": {"servers": [{"name": "main", "url": url}]}}))
    (line,) = await asked(settings, scaled(resource={"name": "cpu"}))
    assert advice in line


@pytest.mark.parametrize(
    ("query", "says"),
    [
        ("pod:requests:rate1m", "reads the recording rule pod:requests:rate1m: samples that were missing in its"),
        ("avg_over_time(requests[10m])", "reads 600 s back: new pods and changes of the load count in full only after"),
        ("rate(requests[1m:15s])", "has windows whose samples cannot be counted (it has subqueries): after a start"),
        ("rate(requests[1m]) / rate(requests[5m])", "cannot be counted (it has windows of different lengths)"),
    ],
)
async def test_what_is_worth_knowing_of_a_querys_windows_is_a_note(query: str, says: str) -> None:
    async with usage_fakes.FakePrometheus() as fake:
        text = f"sum by (namespace, pod) ({query})"
        fake.rows = {text: [({"namespace": "shop", "pod": name}, "1") for name in ("web-1", "web-2")]}
        server = {"name": "main", "url": fake.url}
        named = {"name": "rps", "server": "main", "query": text}
        settings = parse_settings(json.dumps({"prometheus": {"servers": [server], "queries": [named]}}))
        found = await asked(settings, scaled(**RPS))
    assert [line for line in found if line.startswith("policy: note: metric load: its query ") and says in line]


@pytest.mark.parametrize("seconds", [0.0, 0.2])
async def test_a_server_that_fails_is_wrong_with_its_queries_even_slow_ones(
    prometheus: Prometheus, seconds: float
) -> None:
    prometheus[0].refusal, prometheus[0].query_seconds = (500, "the disk is full"), seconds
    unused = scaled(resource={"name": "cpu"})
    sections = await check_prometheus(prometheus[1], [unused], time.time, may_contact_sources=True)
    server, query = sections[0].findings
    assert "cannot be asked: Prometheus main: " in server.text
    assert query.text.startswith("query rps: ")


async def test_a_server_that_the_clusters_settings_name_is_not_asked_may_contact_sources(
    prometheus: Prometheus,
) -> None:
    (line,) = await asked(prometheus[1], scaled(**RPS), may_contact_sources=False)
    assert line.startswith("Prometheus main: skip: not checked: http://")
    assert prometheus[0].asked == 0


@pytest.mark.parametrize("may_contact_sources", [True, False])
async def test_a_query_that_the_settings_lack_is_wrong(prometheus: Prometheus, may_contact_sources: bool) -> None:
    found = await asked(prometheus[1], scaled(query={"name": "qps"}), may_contact_sources=may_contact_sources)
    assert found[-1] == "policy: wrong: metric load: the settings define no such query (they have rps)"
    found = await asked(Settings(), scaled(**RPS), may_contact_sources=may_contact_sources)
    assert found[0].endswith("(they have none yet)")
