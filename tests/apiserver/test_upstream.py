"""Pass-through: what arrives at the adapter behind this one, and what comes back."""

import asyncio
import gzip
import json
from collections.abc import AsyncIterator

import pytest
import trustme

from adapter.apiserver import upstream as upstream_module
from adapter.apiserver.request_info import parse_target
from adapter.apiserver.upstream import is_ours, upstreams
from adapter.kube.session import Session
from adapter.settings.server import ServerSettings
from adapter.telemetry.metrics import Metrics
from tests.apiserver import snapshots
from tests.apiserver.cluster import Cluster
from tests.apiserver.conftest import Ask, Service, as_user, made, pem, refused, running
from tests.apiserver.upstream import CUSTOM, DEEP, EXTERNAL, SHOP, FakeUpstream, item, listing, names
from tests.waiting import eventually

RPS = f"{SHOP}/services/web/rps"
OWN = f"{SHOP}/watermarkpolicies.effective-load.io/checkout/effective_cpu"


@pytest.fixture
async def service(
    cluster: Cluster,
    session: Session,
    options: ServerSettings,
    front_proxy: trustme.CA,
    upstream: FakeUpstream,
) -> AsyncIterator[Service]:
    """A ready server with the policy `shop/checkout` in front of `upstream`."""
    cluster.trust(pem(front_proxy))
    async with running(made(cluster, session, options, upstreams=upstream.settings())) as service:
        await service.ready()
        yield service


@pytest.mark.parametrize(
    ("asked", "arrives"),
    [
        (
            f"{SHOP}/pods/%2A/rps?labelSelector=app%3Dweb%2Ctier+in+%28b%2Ca%29&metricLabelSelector=zone%3Da",
            f"{SHOP}/pods/%2A/rps?labelSelector=app%3Dweb%2Ctier+in+%28a%2Cb%29&metricLabelSelector=zone%3Da",
        ),
        (f"{SHOP}/metrics/depth", f"{SHOP}/metrics/depth"),
        (f"/apis/{CUSTOM}/v1beta1/nodes/n1/rps", f"/apis/{CUSTOM}/v1beta1/nodes/n1/rps"),
        (f"{DEEP}/s0-kafka%7Cl3?labelSelector=x%3Dy", f"{DEEP}/s0-kafka%7Cl3?labelSelector=x%3Dy"),
        (f"{SHOP}/pods/*/shop:rps:sum/", f"{SHOP}/pods/%2A/shop:rps:sum"),
        (f"{RPS}?labelSelector=&limit=5&resourceVersion=0&pretty=1", RPS),
        (f"{RPS}?metricLabelSelector=a%3Db%26labelSelector%3Dc", None),
        (f"{RPS}?labelSelector=a%3Db&labelSelector=c%3Dd", None),
        (f"{RPS}?watch=1", None),
    ],
)
async def test_the_path_and_the_query_are_built_anew_from_what_was_authorized(
    ask: Ask, upstream: FakeUpstream, asked: str, arrives: str | None
) -> None:
    await ask(asked)
    assert [one.target for one in upstream.metrics_seen] == ([arrives] if arrives else [])


@pytest.mark.parametrize(
    "name",
    [
        *("..%2f..%2fapi", "%2e%2e", "..", "..%5c..", "%2e%2e%2f", "%252e%252e%252f", "%25%32%66", "%c0%af", "%2", "*"),
        *("a%00b", "a%3Fx=1", "a%23b", "a;b", "a%0d%0aHost:%20x", "a%20b", "%F0%9F%98%80"),
        *("@evil", "http:%2f%2fevil", ":80"),
    ],
)
async def test_nothing_that_a_tenant_writes_becomes_a_path(ask: Ask, upstream: FakeUpstream, name: str) -> None:
    for target in (f"{SHOP}/services/{name}/rps", f"{SHOP}/services/web/{name}", f"{DEEP}/{name}"):
        upstream.seen.clear()
        await ask(target)
        for seen in upstream.metrics_seen:
            assert seen.target.count("/") == target.count("/")
            assert seen.target.startswith((f"{SHOP}/services/", f"{DEEP}/"))
            assert not set(seen.target) & set("?#\\ \r\n*")
            assert "/../" not in f"{seen.target}/".replace("%2e", ".").replace("%2E", ".")
            assert seen.headers["host"] == f"localhost:{upstream.port}"


async def test_no_header_of_a_client_arrives_there(ask: Ask, upstream: FakeUpstream) -> None:
    forged = {
        "Authorization": "Bearer stolen", "X-Remote-Uid": "1", "X-Remote-Extra-Scopes": "all", "Cookie": "session=1",
        "X-Forwarded-For": "10.0.0.1", "Impersonate-User": "admin", "Connection": "keep-alive, X-Odd", "X-Odd": "1",
        "Trailer": "Expires", "Proxy-Authorization": "Basic eA==", "Upgrade": "websocket", "If-None-Match": '"x"',
        "Range": "bytes=0-1", "Traceparent": "00-1-1-01", "Audit-Id": "1",
    }  # fmt: skip
    assert (await ask(RPS, **forged)).status == 200
    sent = upstream.metrics_seen[0].headers
    assert sent["authorization"] == "Bearer low-privilege"
    assert sent["via"] == "1.1 effective-load"
    assert sent.keys() <= {"host", "authorization", "via", "accept", "accept-encoding", "user-agent"}


async def test_no_header_of_the_upstream_comes_back(ask: Ask, upstream: FakeUpstream) -> None:
    """The list itself does, byte for byte."""
    odd = {"Retry-After": "9", "Set-Cookie": "a=b", "Warning": "299 - x", "Audit-Id": "1", "X-Remote-User": "admin"}
    body = listing(item("1500m", timestamp="2026-11-21T01:38:17Z", unknown={"more": [1]}))
    upstream.answering(body, **odd)
    answer = await ask(RPS)
    assert (answer.status, answer.body) == (200, body)
    assert {name.lower() for name in answer.headers} == {"content-type", "content-length", "date", "server"}
    assert (answer.headers["Content-Type"], answer.headers["Server"]) == ("application/json", "effective-load")


async def test_nothing_arrives_there_for_a_stranger(
    service: Service, cluster: Cluster, proxy: trustme.LeafCert, upstream: FakeUpstream
) -> None:
    cluster.may = lambda _: False
    for headers, code in (({}, 401), (as_user("eve"), 403), ({"Authorization": "Bearer x"}, 401)):
        assert (await service.ask(RPS, leaf=proxy, headers=headers)).status == code
    assert upstream.metrics_seen == []


@pytest.mark.parametrize(
    "target",
    [
        OWN,
        f"{SHOP}/watermarkpolicies.effective-load.io/absent/rps",
        f"{SHOP}/deployments.apps/absent/desired_replicas",
        f"{SHOP}/services/web/effective_latency",
        f"{SHOP}/pods/%2A/effective_absent",
        f"{SHOP}/pods/%2A/raw_cpu",
        f"{DEEP}/desired_replicas?labelSelector=policy%3Dabsent",
        f"{DEEP}/pulled_out_pods",
    ],
)
async def test_a_metric_of_ours_is_never_asked_from_the_upstream(
    service: Service, ask: Ask, upstream: FakeUpstream, target: str
) -> None:
    await ask(target)
    service.sentence = "no watch of pods has answered for 95 s"
    assert (await ask(target)).status in {404, 503}
    assert upstream.metrics_seen == []


@pytest.mark.parametrize(("status", "reason"), [(404, "NotFound"), (429, "TooManyRequests"), (500, "InternalError")])
async def test_an_error_of_the_upstream_comes_back_as_a_status_without_retry_after(
    ask: Ask, upstream: FakeUpstream, status: int, reason: str
) -> None:
    body = {"kind": "Status", "code": 999, "reason": "Made-Up", "message": "no metric rps", "status": "Failure"}
    upstream.answering(
        json.dumps({**body, "details": {"retryAfterSeconds": 9}}).encode(), status, **{"Retry-After": "9"}
    )
    answer = await ask(RPS)
    assert refused(answer, status, reason) == "upstream adapter: no metric rps"


GOOD = listing(item())


@pytest.mark.parametrize(
    ("body", "status", "headers", "says"),
    [
        (b"<html>no</html>", 200, {"Content-Type": "text/html"}, "the answer is not a readable MetricValueList"),
        (b"<html>bad gateway</html>", 502, {"Content-Type": "text/html"}, "HTTP 502, and no Kubernetes Status"),
        (b"404 page not found", 404, {}, "HTTP 404, and no Kubernetes Status"),
        (GOOD[:-3], 200, {}, "the answer is not a readable MetricValueList"),
        (b"", 200, {}, "the answer is not a readable MetricValueList"),
        (b"[" * 100_000, 200, {}, "the answer is not a readable MetricValueList"),
        (listing(item(), group=EXTERNAL, version="v1beta1"), 200, {}, "the answer is not a readable MetricValueList"),
        (listing(item(), version="v1beta1"), 200, {}, "the answer is not a readable MetricValueList"),
        (listing(item(None)), 200, {}, "the answer is not a readable MetricValueList"),
        (listing({"describedObject": {}}), 200, {}, "the answer is not a readable MetricValueList"),
        (listing(item(), item(namespace="shop-2")), 200, {}, "items of another namespace"),
        (b" " * (5 << 20), 200, {}, "the answer is larger than its limit"),
        (gzip.compress(b" " * (8 << 20)), 200, {"Content-Encoding": "gzip"}, "the answer is larger than its limit"),
        (b"\xff\xfe", 200, {"Content-Encoding": "gzip"}, "the upstream adapter for"),
        (GOOD, 302, {"Location": "/elsewhere"}, "HTTP 302, and no Kubernetes Status"),
        (GOOD, 206, {}, "HTTP 206"),
        (b"who are you", 401, {}, "does not accept the adapter's credentials"),
        (b"no", 403, {}, "does not let the adapter read"),
        (b'{"kind": "Status", "message": "odd"}', 418, {}, "HTTP 418, and no Kubernetes Status"),
    ],
)  # fmt: skip
async def test_what_is_no_answer_becomes_an_error_with_its_cause(
    ask: Ask, upstream: FakeUpstream, body: bytes, status: int, headers: dict[str, str], says: str
) -> None:
    upstream.answering(body, status, **headers)
    message = refused(await ask(RPS), 503)
    assert says in message
    assert "localhost" not in message
    assert len(upstream.metrics_seen) == 1
    upstream.answering(GOOD)
    assert (await ask(RPS)).status == 200


async def test_a_hung_upstream_delays_none_of_ours_and_is_asked_by_a_few_at_a_time(
    ask: Ask, upstream: FakeUpstream
) -> None:
    hold = upstream.hold()
    hung = [asyncio.create_task(ask(f"{SHOP}/services/s{number}/rps")) for number in range(30)]
    await upstream.arrived.wait()
    for path in (OWN, f"/apis/{CUSTOM}/v1beta2") * 5:
        assert (await ask(path)).status == 200
    assert not any(task.done() for task in hung)
    assert len(upstream.metrics_seen) <= upstream_module.AT_ONCE
    for answer in await asyncio.gather(*hung):
        refused(answer, 504)
    hold.set()
    assert (await ask(RPS)).status == 200


async def test_a_request_that_passed_through_here_before_is_a_loop(ask: Ask, upstream: FakeUpstream) -> None:
    refused(await ask(RPS, Via="1.1 gateway, 1.1 effective-load"), 508, "LoopDetected")
    assert upstream.metrics_seen == []
    assert (await ask(RPS, Via="1.1 gateway")).status == 200


def test_metrics_of_named_queries_are_ours_where_they_are_served() -> None:
    queries = {"requests": snapshots.query("requests"), "depth": snapshots.query("depth", by_pod=False)}
    ours = (f"{SHOP}/pods/%2A/requests", f"{DEEP}/requests", f"{DEEP}/depth")
    others = (f"{SHOP}/services/web/requests", f"{SHOP}/pods/%2A/depth", f"{DEEP}/rps")
    assert [is_ours(parse_target(one), queries) for one in (*ours, *others)] == [True] * 3 + [False] * 3


async def test_until_our_caches_are_filled_no_name_is_taken_for_the_upstreams(
    service: Service, ask: Ask, upstream: FakeUpstream
) -> None:
    """The named queries may not be known yet."""
    service.snapshot_store.swap(snapshots.snapshot(synced=False))
    assert (await ask(RPS)).status == 503
    assert upstream.metrics_seen == []


async def test_an_upstream_that_does_not_answer_is_a_warning_before_anybody_asks(upstream: FakeUpstream) -> None:
    metrics = Metrics()
    custom = upstreams(upstream.settings("custom"), metrics, seconds=0.05)[CUSTOM]
    running = asyncio.create_task(custom.run())
    await eventually(lambda: "custom.metrics.k8s.io does not answer discovery" in (custom.fault or ""))
    upstream.documents = {f"{CUSTOM}/v1beta1": names(CUSTOM, "v1beta1", "pods/rps")}
    await eventually(lambda: custom.fault is None)
    assert metrics.registry.get_sample_value("effective_load_upstream_up", {"group": CUSTOM}) == 1
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
