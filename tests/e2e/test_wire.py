"""The adapter's answers through the real aggregator, and authentication."""

import http.client
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

import pytest
from kubernetes.utils.quantity import parse_quantity

from lab.harness.adapter import AdapterProcess
from lab.harness.client import Client, Object, query, tls_context
from lab.harness.control_plane import ControlPlane
from lab.harness.workloads import Workloads, cpu_watermarks, until
from tests.e2e.kit import PULLED_OUT

pytestmark = pytest.mark.versions

NAMESPACE = "wire"
POLICY, DEPLOYMENT = "watermarkpolicies.effective-load.io", "deployments.apps"
HPA_USER = "system:serviceaccount:kube-system:horizontal-pod-autoscaler"
GROUP, EXTERNAL = "/apis/custom.metrics.k8s.io", "/apis/external.metrics.k8s.io/v1beta1"


@pytest.fixture(scope="module")
def service(control_plane: ControlPlane, _adapter: AdapterProcess) -> Iterator[Workloads]:
    """Four pods at 1500m, one of them pulled out, under a policy; shared by the tests of this module."""
    made = Workloads(control_plane, NAMESPACE)
    made.make_namespace()
    if not _adapter.component.running:
        _adapter.start()
    made.deployment("web", 4, usage_cpu="1500m")
    made.annotate(made.pod_names("web")[0], {PULLED_OUT: "true"})
    made.policy("web", [cpu_watermarks("1200m", "400m")], pulledOut={"replaceAfterSeconds": 0, "minAgeSeconds": 0})
    made.hpa("web", minimum=4, maximum=4)
    made.wait_usage("web", cpu="1500m")
    made.wait_condition("web", "ScalingActive")
    decision = f"{GROUP}/v1beta2/namespaces/{NAMESPACE}/{POLICY}/web/decision"

    def valued() -> int:
        answer = control_plane.client.raw(decision)
        return sum("cpu" in pod["usage"] for pod in answer.json()["decision"]["pods"]) if answer.status == 200 else 0

    until(lambda: valued() == 4, 60, lambda: f"{valued()} of 4 pods have a value")  # some may have no sample yet
    yield made
    control_plane.client.delete(f"/api/v1/namespaces/{NAMESPACE}")


@pytest.mark.parametrize("version", ["v1beta1", "v1beta2"])
def test_both_versions_are_discovered_through_the_aggregator(
    control_plane: ControlPlane, adapter: AdapterProcess, version: str
) -> None:
    """It needs no service: the start of the control plane is its own set-up, and not also that of the others."""
    found = control_plane.client.get(f"{GROUP}/{version}")
    assert (found["kind"], found["groupVersion"]) == ("APIResourceList", f"custom.metrics.k8s.io/{version}")
    names = {resource["name"] for resource in found["resources"]}
    assert "watermarkpolicies.effective-load.io/desired_replicas" in names
    group = control_plane.client.get(GROUP)
    assert {served["version"] for served in group["versions"]} == {"v1beta1", "v1beta2"}


def values(client: Client, path: str, version: str = "v1beta2", **selectors: str) -> list[Object]:
    """The items of a list of custom metrics of this namespace."""
    asked = f"?{query(selectors)}" if selectors else ""
    return list(client.get(f"{GROUP}/{version}/namespaces/{NAMESPACE}/{path}{asked}")["items"])


def milli(item: Object) -> int:
    return int(parse_quantity(item["value"]) * 1000)


@pytest.mark.parametrize("version", ["v1beta2", "v1beta1"])
@pytest.mark.parametrize("kind", [POLICY, DEPLOYMENT])
def test_the_count_reads_the_same_in_every_version_and_on_either_object(
    service: Workloads, version: str, kind: str
) -> None:
    [item] = values(service.client, f"{kind}/web/desired_replicas", version)
    assert milli(item) == 4000  # bounds: 3 x 1500 / 1200 = 4, and one to replace, but at most 4


def test_the_sample_time_is_the_samples_own(service: Workloads) -> None:
    def is_that_of_a_sample() -> bool:
        """Samples that are 4 s old are of no time that a server would take from its own clock or its last poll."""
        pods = service.client.get(f"/apis/metrics.k8s.io/v1beta1/namespaces/{NAMESPACE}/pods")["items"]
        reported = {pod["timestamp"] for pod in pods}
        [item] = values(service.client, f"{POLICY}/web/effective_cpu")
        assert 1_350 <= milli(item) <= 1_650
        are_old = datetime.now(UTC) - datetime.fromisoformat(max(reported)) > timedelta(seconds=4)
        return are_old and item["timestamp"] in reported

    until(is_that_of_a_sample, 60, lambda: "effective_cpu never had the time of a sample of metrics.k8s.io")


def test_a_metric_selector_chooses_the_series(service: Workloads) -> None:
    path = f"{POLICY}/web/desired_replicas"
    [item] = values(service.client, path, metricLabelSelector="policy=web")
    assert milli(item) == 4000
    asked = query({"metricLabelSelector": "policy notin (web)"})
    assert service.client.raw(f"{GROUP}/v1beta2/namespaces/{NAMESPACE}/{path}?{asked}").status == 404


def test_a_user_without_rights_is_forbidden_by_the_adapter_itself(
    service: Workloads, control_plane: ControlPlane, adapter: AdapterProcess
) -> None:
    nobody = control_plane.as_aggregator(adapter.port, "nobody", "system:authenticated")
    path = f"{GROUP}/v1beta2/namespaces/{NAMESPACE}/watermarkpolicies.effective-load.io/web/desired_replicas"
    answer = nobody.raw(path)
    assert answer.status == 403
    assert answer.json()["reason"] == "Forbidden"
    assert "Retry-After" not in answer.headers
    assert control_plane.as_aggregator(adapter.port, HPA_USER, "system:authenticated").raw(path).status == 200


def test_nobody_but_the_front_proxy_is_answered(
    service: Workloads, control_plane: ControlPlane, adapter: AdapterProcess
) -> None:
    path = f"{GROUP}/v1beta2/namespaces/{NAMESPACE}/watermarkpolicies.effective-load.io/web/desired_replicas"
    user = control_plane.pki.cluster.issue("front-proxy-client")
    for client in (
        control_plane.anonymous(adapter.port),
        control_plane.anonymous(adapter.port, tls_context(None, user.cert_file, user.key_file)),
    ):
        with pytest.raises((OSError, http.client.HTTPException)):
            client.raw(path, {"X-Remote-User": "admin", "X-Remote-Group": "system:masters"})
    other = control_plane.as_aggregator(adapter.port, "admin", "system:masters", name="somebody-else")
    try:
        status = other.raw(path).status
    except (OSError, http.client.HTTPException):
        status = 0  # cut off
    assert status in {0, 401}


def test_selectors_of_external_metrics_and_encoded_stars_and_pluses_arrive_as_they_were_meant(
    service: Workloads, control_plane: ControlPlane, adapter: AdapterProcess
) -> None:
    hpa = control_plane.as_aggregator(adapter.port, HPA_USER, "system:authenticated")
    for selector in ("policy=web", "policy in (web),policy!=other", "policy, policy notin (x, y)"):
        asked = query({"labelSelector": selector}).replace("%20", "+")
        [item] = hpa.get(f"{EXTERNAL}/namespaces/{NAMESPACE}/desired_replicas?{asked}")["items"]
        assert milli(item) == 4000
    for star in ("%2A", "*"):
        answer = hpa.raw(f"{GROUP}/v1beta2/namespaces/{NAMESPACE}/pods/{star}/absent")
        assert (answer.status, "absent has no value on pods" in answer.text) == (404, True)


def test_the_clusters_openapi_has_the_policy_and_stays_whole_beside_a_server_without_one(
    service: Workloads, control_plane: ControlPlane
) -> None:
    definitions = control_plane.client.get("/openapi/v2")["definitions"]
    assert "io.effective-load.v1alpha1.WatermarkPolicy" in definitions
    assert "io.k8s.api.autoscaling.v2.HorizontalPodAutoscaler" in definitions
    schemas = control_plane.client.get("/openapi/v3/apis/effective-load.io/v1alpha1")["components"]["schemas"]
    spec = schemas["io.effective-load.v1alpha1.WatermarkPolicy"]["properties"]["spec"]
    assert "highWatermark" in json.dumps(spec)


def test_five_parallel_probes_are_answered_at_once(control_plane: ControlPlane, adapter: AdapterProcess) -> None:
    clients = [control_plane.as_aggregator(adapter.port, "system:kube-aggregator", "system:masters") for _ in range(5)]
    with ThreadPoolExecutor(5) as pool:
        answers = list(pool.map(lambda client: client.raw(f"{GROUP}/v1beta1"), clients))
    assert [answer.status for answer in answers] == [200] * 5
    assert all(json.loads(answer.body)["resources"] for answer in answers)
