"""Asks a running server, over TLS and as the aggregator does, and notes what a client can depend on.

The names of policies, pods and metrics are this module's own: `shop/checkout`, `cpu`, `requests`, `depth`.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import trustme
from aiohttp import web
from aiohttp.test_utils import TestServer
from prometheus_client.parser import text_string_to_metric_families
from structlog.testing import capture_logs

from adapter.apiserver import status
from adapter.kube.credentials import ClusterAccess
from adapter.kube.session import Session
from adapter.settings.server import ServerSettings, Tls
from adapter.snapshot import Snapshot
from adapter.telemetry import server as telemetry
from adapter.telemetry.health import Health
from adapter.telemetry.metrics import Metrics
from tests.apiserver import snapshots
from tests.apiserver.cluster import REVIEWS, Cluster
from tests.apiserver.conftest import Answer, Service, as_user, pem, running
from tests.manifests.rendering import MANIFESTS, documents
from tests.recorded.shapes import shape

_CUSTOM = "/apis/custom.metrics.k8s.io"
_EXTERNAL = "/apis/external.metrics.k8s.io"
_POLICY = "watermarkpolicies.effective-load.io/checkout"
_IN = "namespaces/shop"
_METRICS = ("desired_replicas", "effective_cpu", "raw_cpu", "effective_pods", "pulled_out_pods")
_AGGREGATED = "application/json;g=apidiscovery.k8s.io;v={};as=APIGroupDiscoveryList"
_READ = (
    "/version",
    "/apis",
    _CUSTOM,
    _EXTERNAL,
    f"{_CUSTOM}/v1beta1",
    f"{_CUSTOM}/v1beta2",
    f"{_EXTERNAL}/v1beta1",
    *(f"{_CUSTOM}/v1beta2/{_IN}/{_POLICY}/{metric}" for metric in _METRICS),
    f"{_CUSTOM}/v1beta1/{_IN}/{_POLICY}/desired_replicas",
    f"{_CUSTOM}/v1beta1/{_IN}/{_POLICY}/effective_cpu",
    f"{_CUSTOM}/v1beta2/{_IN}/watermarkpolicies.effective-load.io/%2A/effective_cpu?labelSelector=team%3Dred",
    f"{_CUSTOM}/v1beta2/{_IN}/deployments.apps/web/desired_replicas",
    f"{_CUSTOM}/v1beta2/{_IN}/deployments.apps/web/effective_cpu?metricLabelSelector=policy%3Dcheckout",
    f"{_CUSTOM}/v1beta2/{_IN}/pods/%2A/effective_cpu",
    f"{_CUSTOM}/v1beta1/{_IN}/pods/%2A/requests",
    *(f"{_EXTERNAL}/v1beta1/{_IN}/{metric}?labelSelector=policy%3Dcheckout" for metric in _METRICS),
    f"{_EXTERNAL}/v1beta1/{_IN}/depth?labelSelector=queue%3Dx",
    # What is refused.
    "/openapi/v2",
    "/nowhere",
    "/apis/apps",
    f"{_CUSTOM}/v1",
    f"{_CUSTOM}/v1beta2/{_IN}/{_POLICY}/nothing",
    f"{_CUSTOM}/v1beta2/{_IN}/watermarkpolicies.effective-load.io/nobody/desired_replicas",
    f"{_CUSTOM}/v1beta2/{_IN}/metrics/any",
    f"{_CUSTOM}/v1beta2/{_IN}/{_POLICY}/desired_replicas?watch=true",
    f"{_CUSTOM}/v1beta2/{_IN}/{_POLICY}/desired_replicas?labelSelector=%28",
    f"{_EXTERNAL}/v1beta1/{_IN}/nothing",
)
_HEALTH = ("/livez", "/readyz", "/healthz", "/livez/ping", "/readyz/caches", "/readyz/nothing")
ANY_NAME = "any"
"""The name in a kustomize patch whose targets stand elsewhere."""
_HEADERS = ("Content-Type", "Vary", "Server", "X-Content-Type-Options")
_SEEN = ("api_request_duration_seconds", "authentication_total", "authorization_reviews_total", "errors_total")


def lines() -> Iterator[str]:
    """Everything there is to note of the server, of its telemetry port and of the objects that lead to it."""
    yield from asyncio.run(_served())
    yield from asyncio.run(_telemetry())
    yield from _status_reasons()
    for path in sorted(MANIFESTS.rglob("*.yaml")):
        for item in documents(path):
            name = item.get("metadata", {}).get("name")
            if name and name != ANY_NAME and "examples" not in path.parts:
                yield f"object {item['apiVersion']} {item['kind']} {name}"


async def _served() -> list[str]:
    authority = trustme.CA()
    proxy = authority.issue_cert("front-proxy.test", common_name="front-proxy-client")
    with capture_logs():
        return await _asked(authority, proxy)


async def _asked(authority: trustme.CA, proxy: trustme.LeafCert) -> list[str]:
    async with _service(authority) as service:
        found = [line async for line in _answers(service, proxy)]
        found += [f"ready {name}" for name in service.server.ready]
        found += [f"warning {name}" for name in service.server.warnings]
        found += [line async for line in _aggregated(service, proxy)]
        found += await _labels(service.metrics)
    return found


@asynccontextmanager
async def _service(authority: trustme.CA) -> AsyncIterator[Service]:
    """A server as the tests of its own room have it, with both groups."""
    cluster = Cluster()
    cluster.trust(pem(authority))
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", cluster.answer)
    options = ServerSettings(tls=Tls(namespace="adapter"), address="127.0.0.1", port=0, external_metrics=True)
    async with TestServer(app) as server:
        access = ClusterAccess(server=str(server.make_url("")).rstrip("/"))

        async def load() -> ClusterAccess:
            return access

        async with Session(load) as session:
            service = Service(cluster, session, options)
            service.snapshot_store.swap(_picture(session.now()))
            async with running(service):
                await service.ready()
                yield service


def _picture(now: float) -> Snapshot:
    sampled = {"sampled_at": now - 5}
    view = snapshots.view(
        at=now,
        labels={"team": "red"},
        assessments=[snapshots.measured(**sampled)],
        pods=[snapshots.reading("p1", cpu=1500)],
    )
    queries = [
        snapshots.query("requests", snapshots.series(100, pod="p1", at=now - 5), fetched_at=now),
        snapshots.query("depth", snapshots.series(2500, queue="x", at=now - 5), by_pod=False, fetched_at=now),
    ]
    return snapshots.snapshot(view, queries=queries, pods=[snapshots.pod("p1")])


async def _answers(service: Service, proxy: trustme.LeafCert) -> AsyncIterator[str]:
    for path in _READ:
        before = len(service.cluster.bodies)
        answer = await service.ask(path, leaf=proxy, headers=as_user("alice", "users"))
        for line in _described(f"GET {path}", answer):
            yield line
        for line in _rights(service, before):
            yield f"GET {path} right {line}"
    for line in _described("GET without a user", await service.ask("/apis", leaf=proxy)):
        yield line
    posted = await service.ask("/apis", method="POST", leaf=proxy, headers=as_user())
    for line in _described("POST /apis", posted):
        yield line
    service.cluster.may = lambda _: False
    for line in _described("GET without the right", await service.ask("/apis", leaf=proxy, headers=as_user("mallory"))):
        yield line
    service.cluster.may = lambda _: True


async def _aggregated(service: Service, proxy: trustme.LeafCert) -> AsyncIterator[str]:
    for version in ("v2", "v2beta1"):
        headers = as_user("alice", "users") | {"Accept": _AGGREGATED.format(version)}
        for line in _described(f"GET /apis as {version}", await service.ask("/apis", leaf=proxy, headers=headers)):
            yield line


def _described(asked: str, answer: Answer) -> Iterator[str]:
    """The status, the headers that say what it is, the key paths by kind, and the names in it that are no data."""
    kept = (f"{name}={answer.headers[name]}" for name in _HEADERS if name in answer.headers)
    body = answer.json()
    kind = " ".join(body[key] for key in ("kind", "apiVersion") if key in body) or asked
    yield f"{asked} {answer.status} {kind} {body.get('reason', '')} {' '.join(kept)}"
    yield from (f"{kind} {line}" for line in shape(body))
    for item in body.get("items", ()):
        if "versions" in item:
            yield from (f"{asked} serves {item['metadata']['name']} {line}" for line in _resources(item))
        else:
            named = item.get("metricName") or item["metric"]["name"]
            of = item.get("describedObject") or item.get("metricLabels")
            yield f"{asked} item {named} {json.dumps(of, sort_keys=True)}"
    for one in (*body.get("resources", ()), *body.get("groups", [body] if "preferredVersion" in body else [])):
        yield f"{asked} serves {json.dumps(one, sort_keys=True)}"


def _resources(group: Mapping[str, Any]) -> Iterator[str]:
    """The resources of an aggregated group, each with its version and without its subresources, then these."""
    for version in group["versions"]:
        for resource in version["resources"]:
            below = resource.get("subresources", ())
            alone = {key: value for key, value in resource.items() if key != "subresources"}
            yield f"{version['version']} {json.dumps(alone, sort_keys=True)}"
            for one in below:
                yield f"{version['version']} {resource['resource']} {json.dumps(one, sort_keys=True)}"


def _rights(service: Service, before: int) -> Iterator[str]:
    """What rights were asked for since there were so many requests; a decision that is kept is not asked for again."""
    for path, body in service.cluster.bodies[before:]:
        if path == REVIEWS:
            asked = body["spec"].get("resourceAttributes") or body["spec"]["nonResourceAttributes"]
            yield json.dumps(asked, sort_keys=True)


async def _labels(metrics: Metrics) -> list[str]:
    """Values of labels of the server's metrics, of which there are few."""
    text = (await metrics.exposition()).decode()
    return [
        f"label {name} {json.dumps({k: v for k, v in sample.labels.items() if k != 'le'}, sort_keys=True)}"
        for family in text_string_to_metric_families(text)
        for name in _SEEN
        for sample in family.samples
        if sample.name.removeprefix("effective_load_").removesuffix("_count") == name
    ]


async def _telemetry() -> list[str]:
    """The paths of the telemetry port."""
    found = []
    health = Health({"ping": lambda: None}, {"caches": lambda: None})
    async with telemetry.listen(Metrics(), health, "127.0.0.1", 0) as port, aiohttp.ClientSession() as client:
        for path in ("/metrics", "/nowhere", *_HEALTH):
            async with client.get(f"http://127.0.0.1:{port}{path}") as answer:
                found.append(f"telemetry GET {path} {answer.status} {answer.headers['Content-Type']}")
    return found


def _status_reasons() -> Iterator[str]:
    """Codes and reasons of the Status bodies, and their shape."""
    for code in status.REASONS:
        error = status.StatusError(code, "any")
        yield f"Status {int(error.code)} {error.reason}"
        yield from (f"Status {line}" for line in shape(json.loads(status.encode_status(error))))
