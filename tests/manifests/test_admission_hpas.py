"""The rights to patch HPAs and to update scales are wider than what the companion does with them; admission policies
hold it to that.
"""

import json
import secrets
from collections.abc import Iterator
from typing import Any

import pytest

from lab.harness import binaries
from lab.harness.client import ApiError, Object
from lab.harness.control_plane import ControlPlane
from tests.manifests.confinement import OWN, Confined, confined, deployment, hpa, named
from tests.manifests.test_rights_used import rollouts

pytestmark = [pytest.mark.integration, pytest.mark.versions]


@pytest.fixture(scope="module")
def cluster(api_server: ControlPlane) -> Iterator[Confined]:
    with confined(api_server) as found:
        yield found


@pytest.fixture
def an_hpa(cluster: Confined) -> str:
    """The path of a new HPA."""
    name = f"web-{secrets.token_hex(4)}"
    return cluster.admin.path(cluster.admin.create(hpa(cluster.namespace, name)))


# --- HPAs ---

OWNER = {"apiVersion": "v1", "kind": "Pod", "name": "a", "uid": "b"}
KEPT = "0" if binaries.HPA_TOLERANCE else None
"""The tolerance that the API server keeps of an HPA's 0."""
BEHAVIOR = {
    "scaleUp": {"tolerance": "0", "policies": [{"type": "Pods", "value": 100, "periodSeconds": 1}]},
    "scaleDown": {"tolerance": "0"},
}


def wired(cluster: Confined, path: str, behavior: Object) -> Object:
    """What the companion applies."""
    found = cluster.admin.get(path)["metadata"]
    head = {key: found[key] for key in ("name", "namespace", "uid", "resourceVersion")}
    body = {"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": head}
    return cluster.companion.patch(f"{path}?{OWN}&force=false", {**body, "spec": {"behavior": behavior}}, "apply")


def test_the_companion_sets_the_behavior_of_an_hpa_and_asks_for_a_tolerance(cluster: Confined, an_hpa: str) -> None:
    asked = {"spec": {"behavior": {"scaleUp": {"tolerance": "0"}}}}
    dry = cluster.companion.patch(f"{an_hpa}?dryRun=All&{OWN}", asked)
    assert dry["spec"]["behavior"]["scaleUp"].get("tolerance") == KEPT
    before = cluster.admin.get(an_hpa)["spec"]
    found = wired(cluster, an_hpa, BEHAVIOR)["spec"]
    assert found.pop("behavior")["scaleUp"]["policies"] == BEHAVIOR["scaleUp"]["policies"]
    assert found == before
    up = wired(cluster, an_hpa, {"scaleUp": BEHAVIOR["scaleUp"]})["spec"]["behavior"]["scaleUp"]
    assert up.get("tolerance") == KEPT


REST: list[tuple[str, Any]] = [
    ("spec.minReplicas", {"spec": {"minReplicas": 1}}),
    ("spec.maxReplicas", {"spec": {"maxReplicas": 1000}}),
    ("spec.scaleTargetRef", {"spec": {"scaleTargetRef": {"name": "other"}}}),
    ("metadata.labels", {"metadata": {"labels": {"app": "other"}}}),
    ("metadata.annotations", {"metadata": {"annotations": {"example.com/team": None}}}),
    ("metadata.finalizers", {"metadata": {"finalizers": ["example.com/stay"]}}),
    ("metadata.ownerReferences", {"metadata": {"ownerReferences": [OWNER]}}),
]
REST_OF_V2 = [
    ("spec.metrics", {"spec": {"metrics": None}}),
    ("spec.minReplicas", {"spec": {"behavior": BEHAVIOR, "minReplicas": 1}}),
]


EACH = [*(("v1", *one) for one in REST), *(("v2", *one) for one in REST + REST_OF_V2)]


@pytest.mark.parametrize(("version", "what", "body"), EACH, ids=named)
def test_any_other_patch_of_an_hpa_is_rejected_with_the_field(
    cluster: Confined, an_hpa: str, version: str, what: str, body: Any
) -> None:
    before = cluster.admin.get(an_hpa)
    with pytest.raises(ApiError) as refused:
        cluster.companion.patch(f"{an_hpa.replace('/v2/', f'/{version}/')}?{OWN}", body)
    assert (refused.value.status, refused.value.reason) == (403, "Forbidden")
    start = "effective-load-companion may change spec.behavior of HPAs, and nothing else of them; this changes "
    assert what in refused.value.message.partition(start)[2].split(", ")
    assert cluster.admin.get(an_hpa) == before


def test_metrics_that_an_old_version_carries_in_an_annotation_are_refused(cluster: Confined, an_hpa: str) -> None:
    metric = [{"type": "Resource", "resource": {"name": "memory", "targetAverageUtilization": 1}}]
    notes = {"autoscaling.alpha.kubernetes.io/metrics": json.dumps(metric)}
    said = cluster.refusal(an_hpa.replace("/v2/", "/v1/"), {"metadata": {"annotations": notes}})
    assert "spec.metrics" in said


@pytest.mark.parametrize(
    ("method", "tail", "body", "says"),
    [
        ("DELETE", "", None, "DELETE of horizontalpodautoscalers"),
        ("PATCH", "/status", {"status": {"desiredReplicas": 9}}, "UPDATE of horizontalpodautoscalers/status"),
    ],
)
def test_no_other_request_for_hpas_is_admitted_even_with_every_right(
    cluster: Confined, an_hpa: str, method: str, tail: str, body: Any, says: str
) -> None:
    answer = cluster.ask(method, an_hpa + tail, body)
    assert (answer.status, says in answer.json()["message"]) == (403, True)
    assert cluster.admin.find(an_hpa) is not None
    with pytest.raises(ApiError, match="this is CREATE of horizontalpodautoscalers"):
        cluster.companion.create(hpa(cluster.namespace, "new"))


# --- scales ---

KINDS = {
    "Deployment": "apps/v1",
    "StatefulSet": "apps/v1",
    "ReplicaSet": "apps/v1",
    "ReplicationController": "v1",
    "Rollout": "argoproj.io/v1alpha1",
}


@pytest.fixture(params=KINDS)
def a_scale(cluster: Confined, request: pytest.FixtureRequest) -> str:
    """The path of the scale of a new workload of each kind, which stands at 3."""
    kind: str = request.param
    if kind == "Rollout":
        cluster.admin.apply(rollouts())
        cluster.admin.wait_for("/apis/argoproj.io/v1alpha1")
    item = deployment(cluster.namespace, f"web-{secrets.token_hex(4)}") | {"apiVersion": KINDS[kind], "kind": kind}
    if kind == "ReplicationController":
        item["spec"]["selector"] = item["spec"]["selector"]["matchLabels"]
    return f"{cluster.admin.path(cluster.admin.create(item))}/scale"


def test_the_companion_raises_a_count(cluster: Confined, a_scale: str) -> None:
    scale = cluster.companion.get(a_scale)
    assert cluster.companion.put(a_scale, scale | {"spec": {"replicas": 5}})["spec"] == {"replicas": 5}


@pytest.mark.parametrize("count", [2, 0])
def test_the_companion_never_lowers_a_count(cluster: Confined, a_scale: str, count: int) -> None:
    with pytest.raises(ApiError, match=f"this goes from 3 to {count}") as refused:
        cluster.companion.put(a_scale, cluster.companion.get(a_scale) | {"spec": {"replicas": count}})
    assert refused.value.status == 403
    assert cluster.admin.get(a_scale)["spec"] == {"replicas": 3}


def test_a_target_scaled_to_0_stays_at_0(cluster: Confined, a_scale: str) -> None:
    cluster.admin.patch(a_scale, {"spec": {"replicas": 0}})
    with pytest.raises(ApiError, match="this goes from 0 to 4"):
        cluster.companion.patch(a_scale, {"spec": {"replicas": 4}})


def test_other_users_are_not_restricted(cluster: Confined, an_hpa: str, a_scale: str) -> None:
    cluster.admin.patch(an_hpa, {"spec": {"minReplicas": 1}})
    cluster.admin.patch(a_scale, {"spec": {"replicas": 0}})
    cluster.admin.delete(an_hpa, wait=5)
