"""The server as seen by the aggregator, the HPA and the kubelet."""

import asyncio
import contextlib
import dataclasses
import email.utils
import json
import socket
import ssl
import time

import aiohttp
import pytest
import trustme

from adapter.apiserver.authentication import Authenticator
from adapter.kube.session import Session
from adapter.settings.server import ServerSettings
from tests.apiserver import snapshots
from tests.apiserver.cluster import CONFIG_MAP, REVIEWS, SECRET, Cluster
from tests.apiserver.conftest import HPA, TIMING, Answer, Service, as_user, pem, running
from tests.apiserver.metric_requests import CUSTOM, EXTERNAL, POLICY, TARGET

KCM = {
    "Accept": "application/vnd.kubernetes.protobuf, */*",
    "Accept-Encoding": "gzip",
    "User-Agent": "kube-controller-manager/v1.36.3 (linux/amd64) kubernetes/abc1234",
    "Audit-Id": "3b1b",
    "X-Forwarded-For": "10.0.0.1",
    "X-Remote-Extra-Authentication.kubernetes.io%2fcredential-Id": "JTI=1",
    **as_user(HPA, "system:authenticated"),
}
EFFECTIVE = f"{POLICY}/effective_cpu"


async def hpa(service: Service, target: str, proxy: trustme.LeafCert, **headers: str) -> Answer:
    return await service.ask(target, leaf=proxy, headers={**KCM, **headers})


async def test_the_hpas_request_is_answered_as_json_with_kind_and_version(
    service: Service, proxy: trustme.LeafCert
) -> None:
    answer = await hpa(service, EFFECTIVE, proxy)
    assert answer.status == 200
    assert answer.headers["Content-Type"] == "application/json"
    body = answer.json()
    assert (body["kind"], body["apiVersion"]) == ("MetricValueList", "custom.metrics.k8s.io/v1beta2")
    assert len(body["items"]) == 1


async def test_an_answer_tells_its_length_and_time_and_announces_the_end_that_the_client_asked_for(
    service: Service, proxy: trustme.LeafCert
) -> None:
    kept = await hpa(service, EFFECTIVE, proxy)
    last = await hpa(service, EFFECTIVE, proxy, Connection="close")
    for answer in (kept, last):
        sent = email.utils.parsedate_to_datetime(answer.headers["Date"]).timestamp()
        assert abs(sent - time.time()) < 30
        assert answer.headers["Server"] == "effective-load"
        assert int(answer.headers["Content-Length"]) == len(answer.body)
    assert last.body == kept.body
    assert (kept.headers.get("Connection"), last.headers.get("Connection")) == (None, "close")


async def test_the_external_answer_has_its_content_type_too(service: Service, proxy: trustme.LeafCert) -> None:
    answer = await hpa(service, f"{EXTERNAL}/effective_cpu?labelSelector=policy%3Dcheckout", proxy)
    assert (answer.status, answer.headers["Content-Type"]) == (200, "application/json")
    assert answer.json()["items"][0]["metricLabels"] == {"policy": "checkout", "metric": "cpu"}


async def test_a_star_that_comes_encoded_is_a_star(service: Service, proxy: trustme.LeafCert) -> None:
    view = snapshots.view(at=service.session.now(), pods=[snapshots.reading("p1", cpu=100)])
    service.snapshot_store.swap(snapshots.snapshot(view))
    target = f"{CUSTOM}/pods/%2A/effective_cpu?labelSelector=app%3Dweb%2Ctier+notin+%28b%29"
    answer = await hpa(service, target, proxy)
    assert [item["value"] for item in answer.json()["items"]] == ["100m"]
    assert (await hpa(service, target.replace("%2A", "*"), proxy)).body == answer.body
    assert {body["spec"]["resourceAttributes"]["name"] for path, body in service.cluster.bodies if path == REVIEWS} == {
        "*"
    }


def refused(answer: Answer, code: int, reason: str) -> str:
    """Check every field of a Status; returns its message."""
    body = answer.json()
    assert answer.status == code
    assert answer.headers["Content-Type"] == "application/json"
    assert "Retry-After" not in answer.headers
    assert "retryAfterSeconds" not in json.dumps(body)
    assert (body["kind"], body["apiVersion"], body["status"]) == ("Status", "v1", "Failure")
    assert (body["code"], body["reason"]) == (code, reason)
    assert body["details"]["causes"] == [{"reason": reason, "message": body["message"]}]
    return str(body["message"])


@pytest.mark.parametrize(
    ("target", "code", "reason"),
    [
        (f"{CUSTOM}/watermarkpolicies.effective-load.io/nope/desired_replicas", 404, "NotFound"),
        (f"{POLICY}/nope", 404, "NotFound"),
        (f"{CUSTOM}/foo", 400, "BadRequest"),
        (f"{CUSTOM}/pods/%2A/effective_cpu?labelSelector=a+b", 400, "BadRequest"),
        (f"{CUSTOM}/pods/%2A/effective_cpu?metricLabelSelector=a+b", 400, "BadRequest"),
        (f"{EXTERNAL}/desired_replicas?labelSelector=policy%3Dnope", 404, "NotFound"),
        ("/apis/custom.metrics.k8s.io/v9", 404, "NotFound"),
        ("/apis/other.example", 404, "NotFound"),
        ("/openapi/v2", 404, "NotFound"),
        ("/openapi/v3", 404, "NotFound"),
        ("/metrics", 404, "NotFound"),
        ("/", 404, "NotFound"),
        ("/livez/nope", 404, "NotFound"),
    ],
)
async def test_every_error_is_a_status(
    service: Service, proxy: trustme.LeafCert, target: str, code: int, reason: str
) -> None:
    refused(await hpa(service, target, proxy), code, reason)


async def test_a_decision_in_error_is_a_status_without_retry_after(service: Service, proxy: trustme.LeafCert) -> None:
    service.sentence = "the watch of pods has been silent for 95 s"
    for target in (f"{POLICY}/desired_replicas", f"{TARGET}/desired_replicas", EFFECTIVE):
        assert refused(await hpa(service, target, proxy), 503, "ServiceUnavailable") == service.sentence


async def test_an_internal_error_is_a_status_without_details(
    service: Service, proxy: trustme.LeafCert, monkeypatch: pytest.MonkeyPatch
) -> None:
    service.scales.error = RuntimeError("s3cr3t")
    answer = await hpa(service, f"{TARGET}/desired_replicas", proxy)
    assert "s3cr3t" not in refused(answer, 500, "InternalError")
    monkeypatch.setattr(Authenticator, "identity", lambda *_: 1 / 0)
    assert "zero" not in refused(await hpa(service, EFFECTIVE, proxy), 500, "InternalError")
    assert (await hpa(service, "/version", proxy)).status == 500
    monkeypatch.undo()
    assert (await hpa(service, EFFECTIVE, proxy)).status == 200


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS"])
async def test_other_methods_are_not_allowed(service: Service, proxy: trustme.LeafCert, method: str) -> None:
    answer = await service.ask(EFFECTIVE, leaf=proxy, headers=KCM, method=method)
    assert answer.status == 405
    if method != "HEAD":
        assert method in refused(answer, 405, "MethodNotAllowed")


async def test_an_unread_body_does_not_affect_later_requests(service: Service, proxy: trustme.LeafCert) -> None:
    client = service.client(proxy)
    for _ in range(2):
        async with client.post(service.url + EFFECTIVE, headers=KCM, data=b"x" * 300_000) as response:
            assert response.status == 405
    assert (await hpa(service, EFFECTIVE, proxy)).status == 200


@pytest.mark.parametrize(
    ("accept", "status"),
    [
        ("application/vnd.kubernetes.protobuf, */*", 200),
        ("application/vnd.kubernetes.protobuf,application/json", 200),
        ("application/json;as=Table;v=v1;g=meta.k8s.io,application/json", 200),
        ("application/*", 200),
        ("", 200),
        ("application/vnd.kubernetes.protobuf", 406),
        ("text/html", 406),
    ],
)
async def test_only_a_client_that_takes_no_json_gets_a_406(
    service: Service, proxy: trustme.LeafCert, accept: str, status: int
) -> None:
    answer = await hpa(service, EFFECTIVE, proxy, Accept=accept)
    assert answer.status == status
    if status == 406:
        refused(answer, 406, "NotAcceptable")


async def test_a_probe_without_accept_is_answered(service: Service, proxy: trustme.LeafCert) -> None:
    status = await raw(
        service, proxy, b"GET /apis/custom.metrics.k8s.io/v1beta2 HTTP/1.1\r\nHost: x\r\nX-Remote-User: a"
    )
    assert status.startswith(b"HTTP/1.1 200")


async def raw(service: Service, leaf: trustme.LeafCert | None, request: bytes) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", service.server.port, ssl=service.context(leaf))
    try:
        writer.write(request + b"\r\nConnection: close\r\n\r\n")
        return await reader.read()
    finally:
        writer.close()


async def test_external_metrics_have_values_only_while_enabled_and_the_group_is_always_described(
    cluster: Cluster, session: Session, options: ServerSettings, front_proxy: trustme.CA, proxy: trustme.LeafCert
) -> None:
    cluster.trust(pem(front_proxy))
    service = Service(cluster, session, options.model_copy(update={"external_metrics": False}))
    service.snapshot_store.swap(snapshots.snapshot(snapshots.view(at=session.now())))
    async with running(service):
        await service.ready()
        assert (await hpa(service, EFFECTIVE, proxy)).status == 200
        for enabled in (False, True, False):
            service.server.apply_settings(options.model_copy(update={"external_metrics": enabled}))
            assert (await hpa(service, f"{EXTERNAL}/effective_cpu", proxy)).status == (200 if enabled else 404)
            assert (await hpa(service, "/apis/external.metrics.k8s.io/v1beta1", proxy)).status == 200


# --- discovery


async def test_five_probes_at_once_that_never_read_are_all_answered(service: Service, proxy: trustme.LeafCert) -> None:
    async def probe() -> bytes:
        reader, writer = await asyncio.open_connection("127.0.0.1", service.server.port, ssl=service.context(proxy))
        writer.write(
            b"GET /apis/custom.metrics.k8s.io/v1beta2 HTTP/1.1\r\nHost: x\r\nUser-Agent: Go-http-client/1.1\r\n"
            b"X-Remote-User: system:kube-aggregator\r\nX-Remote-Group: system:masters\r\n\r\n"
        )
        line = await reader.readline()
        writer.transport.abort()
        return line

    for _ in range(3):
        assert await asyncio.gather(*(probe() for _ in range(5))) == [b"HTTP/1.1 200 OK\r\n"] * 5
    assert service.cluster.reviews() == 0


async def test_probes_are_answered_while_the_snapshot_is_empty(service: Service, proxy: trustme.LeafCert) -> None:
    service.snapshot_store.swap(snapshots.snapshot(synced=False))
    for version in (
        "custom.metrics.k8s.io/v1beta1",
        "custom.metrics.k8s.io/v1beta2",
        "external.metrics.k8s.io/v1beta1",
    ):
        answer = await hpa(service, f"/apis/{version}", proxy)
        assert answer.status == 200
        assert answer.json()["resources"]


async def test_the_aggregated_document_is_sent_once_for_its_tag(service: Service, proxy: trustme.LeafCert) -> None:
    accept = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json"
    first = await hpa(service, "/apis", proxy, Accept=accept)
    assert first.headers["Content-Type"] == accept.partition(",")[0]
    assert first.headers["Vary"] == "Accept"
    tag = first.headers["ETag"]
    for known in (tag, f"W/{tag}", f'"other", {tag}'):
        again = await hpa(service, "/apis", proxy, Accept=accept, **{"If-None-Match": known})
        assert (again.status, again.body, again.headers["ETag"]) == (304, b"", tag)
    assert (await hpa(service, "/apis", proxy, Accept=accept, **{"If-None-Match": '"other"'})).status == 200
    legacy = await hpa(service, "/apis", proxy, Accept="application/json", **{"If-None-Match": tag})
    assert legacy.json()["kind"] == "APIGroupList"


async def test_the_version_is_served(service: Service, proxy: trustme.LeafCert) -> None:
    answer = (await hpa(service, "/version", proxy)).json()
    assert answer["gitVersion"].startswith("v")


# --- health


async def test_a_server_that_knows_nothing_yet_is_not_ready(
    cluster: Cluster, session: Session, options: ServerSettings
) -> None:
    cluster.faults[CONFIG_MAP] = cluster.faults[SECRET] = 503
    service = Service(cluster, session, options)
    async with running(service):
        assert service.unready().keys() == {"caches", "certificate", "authentication", "tls"}


async def test_a_missing_right_is_reported_with_its_binding_until_it_is_granted(
    service: Service, proxy: trustme.LeafCert
) -> None:
    service.cluster.faults[REVIEWS] = 403
    sentence = refused(await hpa(service, EFFECTIVE, proxy), 503, "ServiceUnavailable")
    for text in (sentence, str(service.server.warnings["authorization"]())):
        assert "apply ClusterRole and ClusterRoleBinding effective-load-authorization of manifests/base" in text
    assert service.unready() == {}
    service.cluster.faults[REVIEWS] = 503
    assert "ClusterRole" not in refused(await hpa(service, EFFECTIVE, proxy), 503, "ServiceUnavailable")
    del service.cluster.faults[REVIEWS]
    assert (await hpa(service, EFFECTIVE, proxy)).status == 200
    assert service.server.warnings["authorization"]() is None


async def test_readiness_follows_the_caches_and_the_context_in_use(service: Service) -> None:
    service.snapshot_store.swap(snapshots.snapshot(synced=False))
    assert service.unready().keys() == {"caches"}
    in_use, service.server.in_use = service.server.in_use, None
    assert service.unready().keys() == {"caches", "tls"}
    service.server.in_use = in_use


async def test_an_api_server_that_goes_away_makes_nothing_unready(service: Service, proxy: trustme.LeafCert) -> None:
    assert (await hpa(service, EFFECTIVE, proxy)).status == 200
    for path in (CONFIG_MAP, SECRET, REVIEWS):
        service.cluster.faults[path] = 503
    seen = service.cluster.asked[f"GET {SECRET}"]
    await service.cluster.until(lambda: service.cluster.asked[f"GET {SECRET}"] > seen)
    assert service.unready() == {}
    assert (await hpa(service, EFFECTIVE, proxy)).status == 200


# --- connections


async def test_the_certificate_changes_under_standing_connections(service: Service, proxy: trustme.LeafCert) -> None:
    def shown(writer: asyncio.StreamWriter) -> bytes:
        return writer.get_extra_info("ssl_object").getpeercert(binary_form=True)  # type: ignore[no-any-return]

    context = service.context(proxy)
    reader, writer = await asyncio.open_connection("127.0.0.1", service.server.port, ssl=context)
    before = shown(writer)
    del service.cluster.objects[SECRET]
    async with asyncio.timeout(30):
        while True:
            _, other = await asyncio.open_connection("127.0.0.1", service.server.port, ssl=context)
            other.close()
            if shown(other) != before:
                break
            await asyncio.sleep(0.01)
    writer.write(f"GET {EFFECTIVE} HTTP/1.1\r\nHost: x\r\nX-Remote-User: {HPA}\r\n\r\n".encode())
    assert await reader.readline() == b"HTTP/1.1 200 OK\r\n"
    writer.close()


async def test_no_connection_is_lost_while_certificates_change(service: Service, proxy: trustme.LeafCert) -> None:
    lost: list[str] = []

    async def keep_asking(stop: asyncio.Event) -> int:
        count = 0
        while not stop.is_set():
            connector = aiohttp.TCPConnector(ssl=service.context(proxy), force_close=True)
            async with aiohttp.ClientSession(connector=connector) as client:
                try:
                    async with client.get(service.url + EFFECTIVE, headers=KCM) as response:
                        assert response.status == 200
                except aiohttp.ClientError as error:
                    lost.append(repr(error))
            count += 1
        return count

    stop = asyncio.Event()
    asking = [asyncio.create_task(keep_asking(stop)) for _ in range(4)]
    for _ in range(20):
        served = service.server.in_use
        service.cluster.objects.pop(SECRET, None)
        async with asyncio.timeout(30):
            while service.server.in_use == served:  # noqa: ASYNC110
                await asyncio.sleep(0.002)
    stop.set()
    assert sum(await asyncio.gather(*asking)) > 20
    assert lost == []


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
async def test_no_session_outlives_its_context(
    service: Service, proxy: trustme.LeafCert, version: ssl.TLSVersion
) -> None:
    context = service.context(proxy)
    context.maximum_version = context.minimum_version = version
    session, _ = await asyncio.to_thread(connect, service.server.port, context, None)
    served = service.server.in_use
    del service.cluster.objects[SECRET]
    async with asyncio.timeout(30):
        while service.server.in_use == served:  # noqa: ASYNC110
            await asyncio.sleep(0.002)
    _, reused = await asyncio.to_thread(connect, service.server.port, context, session)
    assert not reused


def connect(
    port: int, context: ssl.SSLContext, session: ssl.SSLSession | None
) -> tuple[ssl.SSLSession | None, bool | None]:
    """The TLS session of a connection that offers another one's, and whether it was resumed."""
    with socket.create_connection(("127.0.0.1", port)) as plain, context.wrap_socket(plain, session=session) as tls:
        tls.sendall(b"GET /version HTTP/1.1\r\nHost: x\r\nX-Remote-User: bob\r\n\r\n")
        assert tls.recv(100).startswith(b"HTTP/1.1 200")
        return tls.session, tls.session_reused


async def test_a_request_that_is_not_http_is_answered_with_a_status(service: Service, proxy: trustme.LeafCert) -> None:
    answer = await raw(service, proxy, b"NONSENSE")
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.startswith((b"HTTP/1.1 400", b"HTTP/1.0 400"))
    assert json.loads(body)["kind"] == "Status"


async def test_a_user_of_hundreds_of_groups_with_a_long_selector_is_served(
    service: Service, proxy: trustme.LeafCert
) -> None:
    groups = "\r\n".join(f"X-Remote-Group: group-{number}" for number in range(500))
    values = "%2C".join(f"value-{number}" for number in range(25))
    selector = "%2C".join(f"label-{number}+notin+%28{values}%29" for number in range(32))
    request = f"GET {POLICY}/effective_cpu?labelSelector={selector} HTTP/1.1\r\nHost: x\r\nX-Remote-User: u\r\n{groups}"
    assert (await raw(service, proxy, request.encode())).startswith(b"HTTP/1.1 200")
    [(_, review)] = [found for found in service.cluster.bodies if found[0] == REVIEWS]
    assert len(review["spec"]["groups"]) == 501


async def test_clients_that_leave_early_are_not_logged(
    service: Service, proxy: trustme.LeafCert, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    service.cluster.faults[REVIEWS] = hold = asyncio.Event()
    capsys.readouterr()
    _, writer = await asyncio.open_connection("127.0.0.1", service.server.port, ssl=service.context(proxy))
    writer.write(f"GET {EFFECTIVE} HTTP/1.1\r\nHost: x\r\nX-Remote-User: {HPA}\r\n\r\n".encode())
    await service.cluster.waiting.wait()
    writer.transport.abort()
    hold.set()
    assert (await hpa(service, EFFECTIVE, proxy)).status == 200
    assert "failed" not in capsys.readouterr().out
    assert not [record for record in caplog.records if record.levelname == "ERROR"]


async def test_shutdown_finishes_requests_in_flight_and_accepts_no_new_ones(
    cluster: Cluster, session: Session, options: ServerSettings, front_proxy: trustme.CA, proxy: trustme.LeafCert
) -> None:
    cluster.trust(pem(front_proxy))
    service = Service(cluster, session, options, timing=dataclasses.replace(TIMING, grace=30))
    service.snapshot_store.swap(snapshots.snapshot(snapshots.view(at=session.now())))
    task = asyncio.create_task(service.server.run())
    await service.server.started.wait()
    await service.ready()
    cluster.faults[REVIEWS] = hold = asyncio.Event()
    asking = asyncio.create_task(hpa(service, EFFECTIVE, proxy))
    await cluster.waiting.wait()
    port = service.server.port
    task.cancel()
    async with asyncio.timeout(30):
        while True:
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=service.context())
            except OSError:
                break
            writer.close()
            await asyncio.sleep(0.01)
    hold.set()
    assert (await asking).status == 200
    with contextlib.suppress(asyncio.CancelledError):
        await task
    await service.close()


# --- its own metrics


async def test_requests_are_measured_by_group_kind_and_code(service: Service, proxy: trustme.LeafCert) -> None:
    await hpa(service, EFFECTIVE, proxy)
    await hpa(service, EFFECTIVE, proxy)
    await hpa(service, f"{POLICY}/nope", proxy)
    await hpa(service, f"{EXTERNAL}/nope", proxy)
    await service.ask("/apis/made-up-1", leaf=proxy)

    def count(**labels: str) -> float | None:
        return service.metrics.registry.get_sample_value("effective_load_api_request_duration_seconds_count", labels)

    assert count(group="custom.metrics.k8s.io", resource_kind="policy", code="200") == 2
    assert count(group="custom.metrics.k8s.io", resource_kind="policy", code="404") == 1
    assert count(group="external.metrics.k8s.io", resource_kind="external", code="404") == 1
    assert count(group="", resource_kind="other", code="401") == 1  # without a user the path is not read


async def test_made_up_paths_make_no_new_series(service: Service, proxy: trustme.LeafCert) -> None:
    for number in range(50):
        await hpa(service, f"/apis/made-up-{number}", proxy)
    [family] = list(service.metrics.api_requests.collect())
    groups = {sample.labels["group"] for sample in family.samples}
    assert groups <= {"", "custom.metrics.k8s.io", "external.metrics.k8s.io"}
