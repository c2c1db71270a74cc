"""The right to patch pods is wider than what the companion writes; an admission policy restricts it."""

import secrets
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from lab.harness import objects
from lab.harness.client import ApiError, Object
from lab.harness.companion import account_of, companion_kubeconfig
from lab.harness.control_plane import ControlPlane
from lab.harness.workloads import until
from tests.manifests.confinement import FEATURES, OWN, USER, Confined, confined, meta, named, pod
from tests.manifests.rendering import MANIFESTS, documents

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


def test_a_pod_without_any_annotation_is_marked_too(cluster: Confined) -> None:
    item = pod(cluster.namespace, f"bare-{secrets.token_hex(4)}")
    del item["metadata"]["annotations"]
    path = cluster.admin.path(cluster.admin.create(item))
    assert applied(cluster, path, MARKED)["metadata"]["annotations"] == MARKED
    assert "annotations" not in applied(cluster, path, {})["metadata"]


def test_a_mark_is_removed_and_a_cost_changed_by_others_stays(cluster: Confined, a_pod: str) -> None:
    applied(cluster, a_pod, MARKED)
    cluster.admin.patch(a_pod, costs({COST: "9"}))
    assert own(applied(cluster, a_pod, {})) == {COST: "9"}


def test_a_pod_of_half_a_megabyte_is_compared_within_the_policys_budget(cluster: Confined) -> None:
    item = pod(cluster.namespace, f"large-{secrets.token_hex(4)}", **{"example.com/large": "x" * 200_000})
    (container,) = item["spec"]["containers"]
    container["env"] = [{"name": f"NAME_{index}", "value": "y" * 300} for index in range(1000)]
    path = cluster.admin.path(cluster.admin.create(item))
    assert own(applied(cluster, path, MARKED)) == MARKED
    assert "metadata.labels" in cluster.refusal(path, {"metadata": {"labels": {"a": "b"}}})


FOREIGN: list[tuple[str, Any, str]] = [
    ("metadata.labels", {"metadata": {"labels": {"app": "other"}}}, "merge"),
    ("metadata.labels", {"metadata": {"labels": None}}, "merge"),
    ("metadata.finalizers", {"metadata": {"finalizers": ["example.com/stay"]}}, "merge"),
    ("metadata.ownerReferences", {"metadata": {"ownerReferences": None}}, "merge"),
    ("annotation example.com/other", costs({"example.com/other": "x"}), "merge"),
    ("annotation example.com/team", costs({"example.com/team": "mine"}), "merge"),
    ("annotation example.com/team", costs({"example.com/team": None}), "merge"),
    ("annotation example.com/team", {"metadata": {"annotations": None}}, "merge"),
    ("annotation effective-load.io/pulled-out", costs({**MARKED, "effective-load.io/pulled-out": "true"}), "merge"),
    ("spec", [{"op": "replace", "path": "/spec/containers/0/image", "value": "mine:1"}], "json"),
    ("spec", {"spec": {"activeDeadlineSeconds": 1}}, "merge"),
    ("spec", [{"op": "add", "path": "/spec/tolerations/-", "value": {"operator": "Exists"}}], "json"),
    ("spec, metadata.labels", {"spec": {"activeDeadlineSeconds": 1}, "metadata": {"labels": {"a": "b"}}}, "merge"),
]


@pytest.mark.parametrize(("what", "body", "kind"), FOREIGN, ids=named)
def test_any_other_patch_of_a_pod_is_rejected_with_the_field(
    cluster: Confined, a_pod: str, what: str, body: Any, kind: str
) -> None:
    before = cluster.admin.get(a_pod)
    with pytest.raises(ApiError) as refused:
        cluster.companion.patch(f"{a_pod}?{OWN}", body, kind)
    assert (refused.value.status, refused.value.reason) == (403, "Forbidden")
    assert refused.value.message.endswith(
        f"effective-load-companion may change two annotations of pods, and nothing else of them; this changes {what}"
    )
    assert cluster.admin.get(a_pod) == before


@pytest.mark.parametrize(
    ("a_pod", "notes"),
    [
        ({}, {COST: "-5", MARK: "true"}),
        ({}, {COST: "2147483647", MARK: "true"}),
        ({}, {COST: LOWEST}),
        ({}, {COST: LOWEST, MARK: "yes"}),
        ({COST: "7"}, MARKED),
        ({COST: "7"}, {COST: None}),
        ({COST: "7"}, {COST: LOWEST}),
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


@pytest.mark.parametrize(
    ("request_of", "says"),
    [
        (lambda path: ("DELETE", path, None), "DELETE of pods"),
        (lambda path: ("DELETE", path.rpartition("/")[0], None), "DELETE of pods"),
        (lambda path: ("PATCH", f"{path}/status", {"status": {"phase": "Failed"}}), "UPDATE of pods/status"),
        (
            lambda path: ("PATCH", f"{path}/ephemeralcontainers", {"metadata": {"labels": {"a": "b"}}}),
            "ephemeralcontainers",
        ),
        (lambda path: ("PATCH", f"{path}/resize", {"metadata": {"labels": {"a": "b"}}}), "UPDATE of pods/resize"),
        (lambda path: ("POST", f"{path}/eviction", eviction(path)), "CREATE of pods/eviction"),
        (lambda path: ("POST", f"{path}/binding", bound(path)), "CREATE of pods/binding"),
        (lambda path: ("POST", f"{path.rsplit('/', 2)[0]}/bindings", bound(path)), "CREATE of bindings"),
        (lambda path: ("GET", f"{path}/exec?command=sh", None), "CONNECT of pods/exec"),
        (lambda path: ("GET", f"{path}/proxy/", None), "CONNECT of pods/proxy"),
        (lambda path: ("POST", path.rpartition("/")[0], pod(path.split("/")[4], "new")), "CREATE of pods"),
    ],
)
def test_no_other_request_for_pods_is_admitted_even_with_every_right(
    cluster: Confined, a_pod: str, request_of: Callable[[str], tuple[str, str, Any]], says: str
) -> None:
    before = cluster.admin.get(a_pod)
    answer = cluster.ask(*request_of(a_pod))
    assert answer.status == 403
    message = answer.json()["message"]
    assert "may change two annotations of pods, and nothing else of them; this is" in message
    assert says in message
    assert cluster.admin.get(a_pod) == before


def eviction(path: str) -> Object:
    return {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": meta(path.split("/")[4], path.split("/")[6])}


def bound(path: str) -> Object:
    head = meta(path.split("/")[4], path.split("/")[6])
    return {"apiVersion": "v1", "kind": "Binding", "metadata": head, "target": {"kind": "Node", "name": "node"}}


# --- who is meant ---


def test_other_users_are_not_restricted(cluster: Confined, a_pod: str) -> None:
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
