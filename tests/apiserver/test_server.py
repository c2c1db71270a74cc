"""The server as seen by the aggregator, the HPA and the kubelet."""

import asyncio
import contextlib

import pytest
import trustme

from adapter.apiserver.authentication import Authenticator
from adapter.kube.session import Session
from adapter.settings.server import ServerSettings
from tests.apiserver.cluster import REVIEWS, Cluster
from tests.apiserver.conftest import HPA, TIMING, Answer, Ask, Service, as_user, made, pem, refused
from tests.apiserver.metric_requests import CUSTOM, EXTERNAL, POLICY, TARGET
from tests.apiserver.raw import as_proxy, connected, drop, head, opened, statuses

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


@pytest.fixture
def hpa(ask: Ask) -> Ask:
    """Asks as kube-controller-manager through the aggregator."""

    async def asked(target: str, method: str = "GET", **headers: str) -> Answer:
        return await ask(target, method=method, **{**KCM, **headers})

    return asked


@pytest.mark.parametrize(
    ("target", "code", "reason"),
    [
        (f"{CUSTOM}/watermarkpolicies.effective-load.io/nope/desired_replicas", 404, "NotFound"),
        (f"{CUSTOM}/foo", 400, "BadRequest"),
        ("/apis/custom.metrics.k8s.io/v9", 404, "NotFound"),
        ("/openapi/v3", 404, "NotFound"),
    ],
)
async def test_every_error_is_a_status(hpa: Ask, target: str, code: int, reason: str) -> None:
    refused(await hpa(target), code, reason)


async def test_an_internal_error_is_a_status_without_details(
    service: Service, hpa: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    service.scales.error = RuntimeError("s3cr3t")
    answer = await hpa(f"{TARGET}/desired_replicas")
    assert "s3cr3t" not in refused(answer, 500, "InternalError")
    monkeypatch.setattr(Authenticator, "identity", lambda *_: 1 / 0)
    assert "zero" not in refused(await hpa(EFFECTIVE), 500, "InternalError")
    assert (await hpa("/apis")).status == 500
    monkeypatch.undo()
    assert (await hpa(EFFECTIVE)).status == 200


@pytest.mark.parametrize("method", ["POST", "DELETE", "HEAD"])
async def test_other_methods_are_not_allowed(hpa: Ask, method: str) -> None:
    answer = await hpa(EFFECTIVE, method)
    assert answer.status == 405
    if method != "HEAD":
        assert method in refused(answer, 405, "MethodNotAllowed")


async def test_external_metrics_have_values_only_while_enabled_and_the_group_is_always_described(
    service: Service, hpa: Ask
) -> None:
    for enabled in (False, True, False):
        service.server.apply_settings(service.settings.model_copy(update={"external_metrics": enabled}))
        assert (await hpa(f"{EXTERNAL}/effective_cpu")).status == (200 if enabled else 404)
        assert (await hpa("/apis/external.metrics.k8s.io/v1beta1")).status == 200
        assert (await hpa(EFFECTIVE)).status == 200


async def test_a_user_of_hundreds_of_groups_with_a_long_selector_is_served(
    service: Service, proxy: trustme.LeafCert
) -> None:
    groups = (f"X-Remote-Group: group-{number}" for number in range(500))
    values = "%2C".join(f"value-{number}" for number in range(25))
    selector = "%2C".join(f"label-{number}+notin+%28{values}%29" for number in range(32))
    request = head(f"{EFFECTIVE}?labelSelector={selector}", *as_proxy("Connection: close", *groups))
    assert await statuses(service, proxy, request) == [200]
    [review] = [body for path, body in service.cluster.bodies if path == REVIEWS]
    assert len(review["spec"]["groups"]) == 501


async def test_clients_that_leave_early_are_not_logged(
    service: Service,
    hpa: Ask,
    proxy: trustme.LeafCert,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    service.cluster.faults[REVIEWS] = hold = asyncio.Event()
    capsys.readouterr()
    wire = await opened(service, proxy)
    wire[1].write(head(EFFECTIVE, *as_proxy()))
    await service.cluster.waiting.wait()
    drop(wire)
    hold.set()
    assert (await hpa(EFFECTIVE)).status == 200
    assert "failed" not in capsys.readouterr().out
    assert not [record for record in caplog.records if record.levelname == "ERROR"]


async def test_shutdown_finishes_requests_in_flight_and_accepts_no_new_ones(
    cluster: Cluster, session: Session, options: ServerSettings, front_proxy: trustme.CA, proxy: trustme.LeafCert
) -> None:
    cluster.trust(pem(front_proxy))
    service = made(cluster, session, options, timing=TIMING | {"grace_seconds": 30})
    task = asyncio.create_task(service.server.run())
    await service.ready()
    cluster.faults[REVIEWS] = hold = asyncio.Event()
    asking = asyncio.create_task(service.ask(EFFECTIVE, leaf=proxy, headers=KCM))
    await cluster.waiting.wait()
    port = service.server.door.port
    task.cancel()
    async with asyncio.timeout(30):
        with contextlib.suppress(OSError):
            while True:
                drop(await connected(port, service.context()))
    await asyncio.sleep(0.1)  # of its grace
    hold.set()
    assert (await asking).status == 200
    with contextlib.suppress(asyncio.CancelledError):
        await task
    await service.close()


async def test_made_up_paths_make_no_new_series(service: Service, hpa: Ask, proxy: trustme.LeafCert) -> None:
    made_up = [f"/apis/made-up-{number}" for number in range(20)]
    for target in (EFFECTIVE, EFFECTIVE, f"{POLICY}/nope", f"{EXTERNAL}/nope", *made_up):
        await hpa(target)
    await service.ask(made_up[0], leaf=proxy)  # without a user the path is not read
    [family] = list(service.metrics.api_requests.collect())
    counts = {tuple(one.labels.values()): one.value for one in family.samples if one.name.endswith("_count")}
    custom, external = "custom.metrics.k8s.io", "external.metrics.k8s.io"
    assert counts == {
        (custom, "policy", "200"): 2,
        (custom, "policy", "404"): 1,
        (external, "external", "404"): 1,
        ("", "other", "404"): 20,
        ("", "other", "401"): 1,
    }


async def test_a_missing_right_is_reported_with_its_binding_until_it_is_granted(service: Service, hpa: Ask) -> None:
    service.cluster.faults[REVIEWS] = 403
    sentence = refused(await hpa(EFFECTIVE), 503, "ServiceUnavailable")
    for text in (sentence, str(service.server.warnings["authorization"]())):
        assert "apply ClusterRole and ClusterRoleBinding effective-load-authorization of manifests/base" in text
    assert service.unready() == {}
    service.cluster.faults[REVIEWS] = 503
    assert "ClusterRole" not in refused(await hpa(EFFECTIVE), 503, "ServiceUnavailable")
    del service.cluster.faults[REVIEWS]
    assert (await hpa(EFFECTIVE)).status == 200
    assert service.server.warnings["authorization"]() is None


PODS = f"{CUSTOM}/pods/%2A/requests"


def many(number: int) -> str:
    """A selector of so many characters."""
    return ",".join(f"label-{index}" for index in range(number))[:number]


@pytest.mark.parametrize(
    ("target", "code", "says"),
    [
        (f"{PODS}?labelSelector={many(40_000)}", 414, "at most 32768 are read: select by less"),
        (f"{PODS}?labelSelector={many(20_000)}", 400, "at most 16384"),
        (f"{PODS}?labelSelector={','.join(f'l{number}' for number in range(33))}", 400, "more than 32 requirements"),
        (f"{PODS}?{'&'.join(f'a{number}=b' for number in range(33))}", 400, "too many parameters"),
    ],
)
async def test_authorized_request_beyond_a_limit_is_answered_with_the_limit(
    hpa: Ask, target: str, code: int, says: str
) -> None:
    answer = await hpa(target)
    assert (answer.status, says in answer.message) == (code, True)
