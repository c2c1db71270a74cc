"""The rights to patch pods and HPAs, and to update scales, are wider than what the companion does with them; admission
policies hold it to that.
"""

import json
import secrets
from collections.abc import Iterator
from typing import Any

import pytest

from lab.harness import binaries, objects
from lab.harness.client import ApiError, Object
from lab.harness.companion import account_of, companion_kubeconfig
from lab.harness.control_plane import ControlPlane
from lab.harness.workloads import until
from tests.manifests.confinement import FEATURES, OWN, USER, Confined, confined, deployment, hpa, meta, named, pod
from tests.manifests.rendering import MANIFESTS, documents
from tests.manifests.test_rights_used import ROLLOUTS

pytestmark = [pytest.mark.integration, pytest.mark.versions]

COST = "controller.kubernetes.io/pod-deletion-cost"
MARK = "effective-load.io/deletion-cost-set"
LOWEST = "-2147483648"
MARKED = {COST: LOWEST, MARK: "true"}


@pytest.fixture(scope="module")
def cluster(api_server: ControlPlane) -> Iterator[Confined]:
    with confined(api_server) as found:
        yield found


@pytest.fixture
def a_pod(cluster: Confined, request: pytest.FixtureRequest) -> str:
    """The path of a new pod, with the annotations of the test's parameter."""
    name = f"web-{secrets.token_hex(4)}"
    return cluster.admin.path(cluster.admin.create(pod(cluster.namespace, name, **getattr(request, "param", {}))))


def costs(notes: dict[str, str | None]) -> Object:
    return {"metadata": {"annotations": notes}}


def applied(cluster: Confined, path: str, notes: dict[str, str]) -> Object:
    """What the companion applies."""
    head = meta(cluster.namespace, path.rpartition("/")[2], annotations=notes)
    return cluster.companion.patch(f"{path}?{OWN}", {"apiVersion": "v1", "kind": "Pod", "metadata": head}, "apply")


def own(item: Object) -> dict[str, str]:
    return {key: value for key, value in item["metadata"]["annotations"].items() if key in MARKED}


# --- pods ---


def test_the_companion_marks_a_pod_and_removes_its_mark(cluster: Confined, a_pod: str) -> None:
    assert own(applied(cluster, a_pod, MARKED)) == MARKED
    assert own(applied(cluster, a_pod, MARKED)) == MARKED
    found = applied(cluster, a_pod, {})
    assert own(found) == {}
    assert found["metadata"]["annotations"] == {"example.com/team": "shop"}


def test_a_pod_without_any_annotation_is_marked_and_a_cost_changed_by_others_stays(cluster: Confined) -> None:
    item = pod(cluster.namespace, f"bare-{secrets.token_hex(4)}")
    del item["metadata"]["annotations"]
    path = cluster.admin.path(cluster.admin.create(item))
    assert applied(cluster, path, MARKED)["metadata"]["annotations"] == MARKED
    cluster.admin.patch(path, costs({COST: "9"}))
    assert own(applied(cluster, path, {})) == {COST: "9"}


def test_a_pod_of_half_a_megabyte_is_compared_within_the_policys_budget(cluster: Confined) -> None:
    item = pod(cluster.namespace, f"large-{secrets.token_hex(4)}", **{"example.com/large": "x" * 200_000})
    (container,) = item["spec"]["containers"]
    container["env"] = [{"name": f"NAME_{index}", "value": "y" * 300} for index in range(1000)]
    path = cluster.admin.path(cluster.admin.create(item))
    assert own(applied(cluster, path, MARKED)) == MARKED
    assert "metadata.labels" in cluster.refusal(path, {"metadata": {"labels": {"a": "b"}}})


FOREIGN: list[tuple[str, Any, str]] = [
    ("metadata.labels", {"metadata": {"labels": {"app": "other"}}}, "merge"),
    ("metadata.finalizers", {"metadata": {"finalizers": ["example.com/stay"]}}, "merge"),
    ("metadata.ownerReferences", {"metadata": {"ownerReferences": None}}, "merge"),
    ("annotation example.com/other", costs({"example.com/other": "x"}), "merge"),
    ("annotation example.com/team", costs({"example.com/team": "mine"}), "merge"),
    ("annotation example.com/team", {"metadata": {"annotations": None}}, "merge"),
    ("annotation effective-load.io/pulled-out", costs({**MARKED, "effective-load.io/pulled-out": "true"}), "merge"),
    ("spec", [{"op": "replace", "path": "/spec/containers/0/image", "value": "mine:1"}], "json"),
    ("spec, metadata.labels", {"spec": {"activeDeadlineSeconds": 1}, "metadata": {"labels": {"a": "b"}}}, "merge"),
]


@pytest.mark.parametrize(("what", "body", "kind"), FOREIGN, ids=named)
def test_any_other_patch_of_a_pod_is_rejected_with_the_field(
    cluster: Confined, a_pod: str, what: str, body: Any, kind: str
) -> None:
    before = cluster.admin.get(a_pod)
    assert cluster.forbidden(a_pod, body, kind).endswith(
        f"effective-load-companion may change two annotations of pods, and nothing else of them; this changes {what}"
    )
    assert cluster.admin.get(a_pod) == before


@pytest.mark.parametrize(
    ("a_pod", "notes"),
    [
        ({}, {COST: "-5", MARK: "true"}),
        ({}, {COST: LOWEST}),
        ({}, {COST: LOWEST, MARK: "yes"}),
        ({COST: "7"}, MARKED),
        ({COST: "7"}, {COST: None}),
        ({COST: LOWEST}, {COST: None}),
        ({COST: "7", MARK: "true"}, {COST: LOWEST}),
        ({COST: "7", MARK: "true"}, {COST: None, MARK: None}),
    ],
    indirect=["a_pod"],
    ids=str,
)
def test_a_cost_is_set_only_where_there_is_none_and_only_its_own_is_removed(
    cluster: Confined, a_pod: str, notes: dict[str, str | None]
) -> None:
    before = own(cluster.admin.get(a_pod))
    said = cluster.refusal(a_pod, costs(notes))
    assert "where there is none" in said
    assert own(cluster.admin.get(a_pod)) == before


@pytest.mark.parametrize("a_pod", [{COST: "7"}, {COST: LOWEST}, {}], indirect=True, ids=str)
def test_a_pod_with_a_cost_of_others_is_not_marked(cluster: Confined, a_pod: str) -> None:
    assert "only together with the cost" in cluster.refusal(a_pod, costs({MARK: "true"}))


LABELS = {"metadata": {"labels": {"a": "b"}}}
NODE = {"apiVersion": "v1", "kind": "Binding", "target": {"kind": "Node", "name": "node"}}


@pytest.mark.parametrize(
    ("method", "path", "body", "says"),
    [
        ("DELETE", "{pod}", None, "DELETE of pods"),
        ("DELETE", "{pods}", None, "DELETE of pods"),
        ("PATCH", "{pod}/status", {"status": {"phase": "Failed"}}, "UPDATE of pods/status"),
        ("PATCH", "{pod}/ephemeralcontainers", LABELS, "ephemeralcontainers"),
        ("PATCH", "{pod}/resize", LABELS, "UPDATE of pods/resize"),
        ("POST", "{pod}/eviction", {"apiVersion": "policy/v1", "kind": "Eviction"}, "CREATE of pods/eviction"),
        ("POST", "{pod}/binding", NODE, "CREATE of pods/binding"),
        ("POST", "{namespace}/bindings", NODE, "CREATE of bindings"),
        ("GET", "{pod}/exec?command=sh", None, "CONNECT of pods/exec"),
        ("GET", "{pod}/proxy/", None, "CONNECT of pods/proxy"),
        ("POST", "{pods}", pod("", "new"), "CREATE of pods"),
    ],
)
def test_no_other_request_for_pods_is_admitted_even_with_every_right(
    cluster: Confined, a_pod: str, method: str, path: str, body: Any, says: str
) -> None:
    before = cluster.admin.get(a_pod)
    pods, _, name = a_pod.rpartition("/")
    if method == "POST":
        body = body | {"metadata": {"name": name, **body.get("metadata", {}), "namespace": cluster.namespace}}
    answer = cluster.ask(method, path.format(pod=a_pod, pods=pods, namespace=pods.rpartition("/")[0]), body)
    assert answer.status == 403
    message = answer.json()["message"]
    assert "may change two annotations of pods, and nothing else of them; this is" in message
    assert says in message
    assert cluster.admin.get(a_pod) == before


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
    ("spec.metrics", {"spec": {"metrics": None}}),
    ("spec.minReplicas", {"spec": {"behavior": BEHAVIOR, "minReplicas": 1}}),
]
# The API server converts a patch of another version before it asks the policy.
EACH = [("v1", *REST[0]), ("v1", *REST[3]), *(("v2", *one) for one in REST)]


@pytest.mark.parametrize(("version", "what", "body"), EACH, ids=named)
def test_any_other_patch_of_an_hpa_is_rejected_with_the_field(
    cluster: Confined, an_hpa: str, version: str, what: str, body: Any
) -> None:
    before = cluster.admin.get(an_hpa)
    message = cluster.forbidden(an_hpa.replace("/v2/", f"/{version}/"), body)
    start = "effective-load-companion may change spec.behavior of HPAs, and nothing else of them; this changes "
    assert what in message.partition(start)[2].split(", ")
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
        cluster.admin.apply(ROLLOUTS)
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


# --- who is meant ---


def test_other_users_are_not_restricted(cluster: Confined, a_pod: str, an_hpa: str, a_scale: str) -> None:
    cluster.admin.patch(an_hpa, {"spec": {"minReplicas": 1}})
    cluster.admin.patch(a_scale, {"spec": {"replicas": 0}})
    cluster.admin.delete(an_hpa, wait=5)
    cluster.admin.patch(a_pod, {"metadata": {"labels": {"app": "x"}, "annotations": {COST: "3", MARK: "x"}}})
    cluster.admin.delete(a_pod, grace=0, wait=5)


def test_with_the_manifests_rights_the_policy_rejects_labels_and_rbac_the_rest(
    api_server: ControlPlane,
) -> None:
    namespace = f"rights-{secrets.token_hex(3)}"
    api_server.client.apply(objects.namespace(namespace))
    companion_kubeconfig(api_server, ("deletion-cost",))
    client = api_server.client_with_token(api_server.token("effective-load", account_of(("deletion-cost",))))
    cluster = Confined(api_server.client, client, namespace)
    path = cluster.admin.path(cluster.admin.create(pod(namespace, "web")))
    until(lambda: cluster.refusal(path, {"metadata": {"labels": {"a": "b"}}}, dry=True), 30, lambda: "open")
    assert client.patch(path, costs({**MARKED}))["metadata"]["labels"] == {"app": "web"}
    for method, tail in (("DELETE", ""), ("PATCH", "/status"), ("POST", "/eviction")):
        answer = cluster.ask(method, path + tail, {})
        assert (answer.status, "cannot" in answer.text) == (403, True)
    client.close()


@pytest.mark.e2e
def test_kubernetes_type_check_has_no_warnings_about_the_policies(control_plane: ControlPlane) -> None:
    companion_kubeconfig(control_plane, FEATURES)
    for feature in FEATURES:
        name = f"effective-load-companion-{feature}{USER.rpartition('effective-load-companion')[2]}"
        path = f"/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies/{name}"
        found = control_plane.client.wait_for(path, lambda item: "typeChecking" in item.get("status", {}), 30)
        assert found["status"]["typeChecking"].get("expressionWarnings", []) == []


def test_each_policy_names_the_account_of_its_bindings_and_fails_closed() -> None:
    for feature in FEATURES:
        folder = MANIFESTS / "components" / f"companion-{feature}"
        found = {
            item["kind"]: item for item in (*documents(folder / "rbac.yaml"), *documents(folder / "admission.yaml"))
        }
        (subject,) = found["ClusterRoleBinding"]["subjects"]
        policy = found["ValidatingAdmissionPolicy"]
        (condition,) = policy["spec"]["matchConditions"]
        user = "'system:serviceaccount:' + params.metadata.namespace + ':' + params.metadata.name"
        assert condition["expression"] == f"request.userInfo.username == {user}"
        assert policy["spec"]["failurePolicy"] == "Fail"
        account = {"name": subject["name"], "namespace": subject["namespace"], "parameterNotFoundAction": "Allow"}
        expected = {"policyName": policy["metadata"]["name"], "validationActions": ["Deny"], "paramRef": account}
        assert found["ValidatingAdmissionPolicyBinding"]["spec"] == expected
