"""Whether Prometheus answers, for which pods, and how old its samples are."""

import json
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from adapter.commands.check.report import Section
from adapter.commands.check.sources import add_samples, check_sources
from adapter.commands.check.world import Read, Workload, World
from adapter.load.pods import Pod, PodCondition
from adapter.policy.hpa import parse_hpa
from adapter.policy.watermark_policy import parse_policy
from adapter.settings import Settings, parse_settings
from tests.usage import fakes


class FakePrometheus:
    """Answers every query with these series; `age` of their samples, `ahead` of its clock, in seconds."""

    def __init__(self) -> None:
        self.series: list[dict[str, str]] = [{"namespace": "shop", "pod": name} for name in ("web-1", "web-2")]
        self.age, self.ahead = 5.0, 0.0
        self.refusal: tuple[int, str] | None = None

    async def answer(self, request: web.Request) -> web.StreamResponse:
        query = (await request.post())["query"] if request.method == "POST" else request.query["query"]
        at = time.time() + self.ahead
        if self.refusal is not None:
            return web.Response(status=self.refusal[0], text=self.refusal[1])
        if query == "vector(1)":
            return fakes.vector(({}, "1"), at=at)
        inputs = fakes.inputs_of(str(query), self.series, at - self.age)
        return fakes.vector(*((labels, "0.5") for labels in self.series), *inputs, at=at)


@pytest.fixture
async def prometheus() -> AsyncIterator[tuple[FakePrometheus, Settings]]:
    fake, app = FakePrometheus(), web.Application()
    app.router.add_route("*", "/api/v1/query", fake.answer)
    server = TestServer(app)
    await server.start_server()
    queries = [
        {"name": "rps", "server": "main", "query": "sum by (namespace, pod) (requests)"},
        {"name": "short", "server": "main", "query": "sum by (namespace, pod) (rate(requests[5s]))"},
    ]
    servers = [{"name": "main", "url": str(server.make_url("")).rstrip("/"), "timeoutSeconds": 1}]
    yield fake, parse_settings(json.dumps({"prometheus": {"servers": servers, "queries": queries}}))
    await server.close()


Prometheus = tuple[FakePrometheus, Settings]


async def asked(settings: Settings, query: str = "rps", *, may_contact: bool = True) -> list[str]:
    """The findings about the server, then those about a policy with this query and two settled pods."""
    at = time.time() - 1000
    pods = tuple(
        Pod(namespace="shop", name=name, uid=name, created_at=at, ready=PodCondition(True, at), host_ip="10.0.0.1")
        for name in ("web-1", "web-2")
    )
    metrics = [{"name": "load", "highWatermark": "1", "query": {"name": query}}]
    head: dict[str, Any] = {"metadata": {"name": "web", "namespace": "shop"}}
    api_version = {"apiVersion": "effective-load.io/v1alpha1", "kind": "WatermarkPolicy"}
    policy = parse_policy({**api_version, **head, "spec": {"metrics": metrics}})
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}
    hpa = parse_hpa({**head, "spec": {"maxReplicas": 5, "scaleTargetRef": target}})
    world = World(is_live=True, policies={("shop", "web"): Read(policy)}, hpas={("shop", "web"): Read(hpa)})
    world.workloads["shop", hpa.target.identity] = Workload(reference=hpa.target, pods=pods, replicas=2)
    sections, answers = await check_sources(None, settings, world, time.time, may_contact=may_contact)
    section = Section("policy")
    add_samples(section, policy, world, answers, time.time())
    return [f"{one.level.value}: {one.text}" for part in (*sections, section) for one in part.findings]


async def test_a_query_that_answers_for_the_targets_pods_is_ok(prometheus: Prometheus) -> None:
    first, second = await asked(prometheus[1])
    assert first.startswith("ok: http://")
    assert second.startswith("ok: metric load: its query answers from samples that are 5 s old")


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (
            {"refusal": (401, "no")},
            "policies with its queries hold their counts: give the server username and passwordFi",
        ),
        ({"refusal": (404, "no")}, "policies with its queries hold their counts: url needs the path under which"),
        ({"ahead": 60.0}, "error: its clock is 60 s ahead of the API server's"),
        ({"age": 300.0}, "most"),
        ({"series": []}, "error: metric load: its query answers no series for namespace shop: run it in Prometheus"),
        (
            {"series": [{"namespace": "shop", "pod": "web-1"}]},
            "error: metric load: its query has no series of 1 of 2 Ready pods (web-2)",
        ),
        (
            {"series": [{"namespace": "shop", "pod": "other"}]},
            "none of them a pod of the target: label pod has to be the pod's name",
        ),
    ],
)
async def test_what_is_wrong_with_a_source_is_an_error(
    prometheus: Prometheus, change: dict[str, Any], says: str
) -> None:
    for name, value in change.items():
        setattr(prometheus[0], name, value)
    found = await asked(prometheus[1])
    assert [line for line in found if says in line and line.startswith("error")], found


async def test_a_range_of_less_than_two_scrapes_is_named(prometheus: Prometheus) -> None:
    prometheus[0].series = []
    assert [line for line in await asked(prometheus[1], "short") if "a range of 5 s may hold fewer than two" in line]


async def test_servers_of_the_clusters_settings_are_not_asked_from_here(prometheus: Prometheus) -> None:
    (line,) = await asked(prometheus[1], may_contact=False)
    assert line.startswith("skipped: http://")
