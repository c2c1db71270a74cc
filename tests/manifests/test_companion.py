"""The companion's manifests: each right to write belongs to one feature, and without features it only reads."""

import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from adapter.settings import CompanionFeatures
from lab.harness.client import ApiError, Client
from lab.harness.companion import LEASE_PATH, account_of, companion_kubeconfig, reset_lease
from lab.harness.control_plane import ControlPlane
from tests.manifests.rendering import MANIFESTS, Object, documents, render, rules_of

DEFAULT = MANIFESTS / "overlays" / "default"
COMPONENTS = sorted(path for path in (MANIFESTS / "components").glob("companion-*"))
READS = {"get", "list", "watch"}
LEASE = {"resources": ["leases"], "resourceNames": ["effective-load-companion"], "verbs": ["get", "update"]}


def deployment(name: str) -> Object:
    (found,) = [one for one in render(DEFAULT) if one["kind"] == "Deployment" and one["metadata"]["name"] == name]
    return found


def rules(objects: list[Object]) -> Iterator[dict[str, Any]]:
    """The rules of all roles bound to the companion's account."""
    return rules_of("effective-load-companion", objects, render(MANIFESTS / "base"))


def of_component(folder: Path) -> list[Object]:
    return [item for file in sorted(folder.glob("*.yaml")) for item in documents(file) if "metadata" in item]


def test_without_features_it_reads_and_writes_its_lease_by_name() -> None:
    found = list(rules(of_component(MANIFESTS / "components" / "companion")))
    writing = [rule for rule in found if set(rule["verbs"]) - READS]
    assert [{key: rule[key] for key in LEASE} for rule in writing] == [LEASE]
    assert {"pods", "horizontalpodautoscalers", "watermarkpolicies"} <= {
        one for rule in found for one in rule.get("resources", ())
    }


def test_nobody_but_the_companion_may_write_policies_statuses_and_it_may_nothing_else_with_them() -> None:
    (rule,) = rules(of_component(MANIFESTS / "components" / "companion-status"))
    assert rule == {"apiGroups": ["effective-load.io"], "resources": ["watermarkpolicies/status"], "verbs": ["patch"]}


@pytest.mark.parametrize("folder", COMPONENTS, ids=lambda folder: folder.name)
def test_each_right_belongs_to_a_feature_that_can_be_switched_off(folder: Path) -> None:
    words = folder.name.removeprefix("companion-").replace("-", "_")
    reads = all(set(rule["verbs"]) <= READS for rule in rules(of_component(folder)))
    assert reads or words in CompanionFeatures.model_fields
    kustomization = yaml.safe_load((folder / "kustomization.yaml").read_text(encoding="utf-8"))
    assert kustomization["kind"] == "Component"
    confining = {"ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"}
    for item in of_component(folder):
        assert item["kind"] in {"ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding", *confining}
        assert item["metadata"]["name"].startswith("effective-load-companion-")
    for rule in rules(of_component(folder)):
        assert "*" not in {*rule["verbs"], *rule.get("apiGroups", ()), *rule.get("resources", ())}


def test_every_right_to_write_is_in_one_component_and_every_feature_that_can_be_switched_off_has_one() -> None:
    folders = [MANIFESTS / "components" / "companion", *COMPONENTS]
    writes = {
        folder.name.removeprefix("companion-").replace("-", "_"): [
            (group, resource, verb)
            for rule in rules(of_component(folder))
            for group in rule.get("apiGroups", ())
            for resource in rule.get("resources", ())
            for verb in set(rule["verbs"]) - READS
        ]
        for folder in folders
    }
    everything = [right for rights in writes.values() for right in rights]
    assert len(everything) == len(set(everything))
    assert {name for name, rights in writes.items() if rights} == {"companion", *CompanionFeatures.model_fields}


def test_the_default_brings_the_companion_with_the_rights_that_default_features_need() -> None:
    named = yaml.safe_load((DEFAULT / "kustomization.yaml").read_text(encoding="utf-8"))["components"]
    on = [name for name, field in CompanionFeatures.model_fields.items() if field.default is True]
    with_rights = {f"companion-{name.replace('_', '-')}" for name in on} & {folder.name for folder in COMPONENTS}
    assert {Path(one).name for one in named} == {"companion", *with_rights}


def test_its_pod_is_hardened_like_the_servers() -> None:
    server, companion = (
        copy.deepcopy(deployment(name)["spec"]["template"]["spec"])
        for name in ("effective-load", "effective-load-companion")
    )
    assert companion["serviceAccountName"] == "effective-load-companion"
    for key in ("securityContext", "priorityClassName", "nodeSelector", "enableServiceLinks"):
        assert companion[key] == server[key]
    (theirs,), (ours,) = server["containers"], companion["containers"]
    for key in ("image", "securityContext", "resources", "env"):
        assert ours[key] == theirs[key]
    assert ours["args"] == ["companion", "--settings=/etc/effective-load/settings.yaml"]


def test_one_can_be_drained_while_another_one_is_ready_to_lead() -> None:
    spec = deployment("effective-load-companion")["spec"]
    assert spec["replicas"] == 2
    (budget,) = [
        item["spec"]
        for item in render(DEFAULT)
        if item["kind"] == "PodDisruptionBudget" and item["metadata"]["name"] == "effective-load-companion"
    ]
    assert (budget["maxUnavailable"], budget["selector"]) == (1, spec["selector"])


# --- on the real API server ---


@pytest.fixture(scope="module")
def with_crds(api_server: ControlPlane) -> ControlPlane:
    for item in render(MANIFESTS / "crd"):
        api_server.client.apply(item)
    reset_lease(api_server)
    return api_server


def client_of(cluster: ControlPlane, *features: str) -> Client:
    companion_kubeconfig(cluster, features)
    return cluster.client_with_token(cluster.token("effective-load", account_of(features)))


@pytest.fixture(scope="module")
def reader(with_crds: ControlPlane) -> Iterator[Client]:
    client = client_of(with_crds)
    yield client
    client.close()


@pytest.mark.integration
def test_applying_the_manifests_again_leaves_who_leads(with_crds: ControlPlane, reader: Client) -> None:
    lease = reader.get(LEASE_PATH)
    reader.put(LEASE_PATH, lease | {"spec": {"holderIdentity": "one", "leaseDurationSeconds": 10}})
    (item,) = documents(MANIFESTS / "components" / "companion" / "lease.yaml")
    with_crds.client.apply(item)
    assert reader.get(LEASE_PATH)["spec"]["holderIdentity"] == "one"


@pytest.mark.integration
@pytest.mark.parametrize("verb", ["create", "update", "patch", "delete"])
@pytest.mark.parametrize(
    ("group", "resource", "subresource"),
    [
        ("effective-load.io", "watermarkpolicies", ""),
        ("effective-load.io", "watermarkpolicies", "status"),
        ("autoscaling", "horizontalpodautoscalers", ""),
        ("apps", "deployments", "scale"),
        ("apps", "statefulsets", "scale"),
        ("", "pods", ""),
        ("", "events", ""),
        ("events.k8s.io", "events", ""),
        ("", "secrets", ""),
        ("coordination.k8s.io", "leases", ""),
    ],
)
def test_with_all_features_off_it_may_write_nothing(
    with_crds: ControlPlane, reader: Client, group: str, resource: str, subresource: str, verb: str
) -> None:
    attributes = {"group": group, "resource": resource, "subresource": subresource, "verb": verb, "namespace": "shop"}
    review = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview"}
    user = f"system:serviceaccount:effective-load:{account_of(())}"
    spec = {"user": user, "groups": ["system:serviceaccounts"], "resourceAttributes": attributes}
    answer = with_crds.client.post("/apis/authorization.k8s.io/v1/subjectaccessreviews", {**review, "spec": spec})
    assert answer["status"].get("allowed", False) is False


@pytest.mark.integration
def test_it_renews_its_lease_and_touches_no_other(reader: Client) -> None:
    lease = reader.get(LEASE_PATH)
    assert reader.put(LEASE_PATH, lease)["metadata"]["name"] == "effective-load-companion"
    for path in (f"{LEASE_PATH}-2", LEASE_PATH.replace("namespaces/effective-load/", "namespaces/kube-system/")):
        assert reader.raw(path).status == 403
    with pytest.raises(ApiError, match="cannot create"):
        reader.post(LEASE_PATH.rpartition("/")[0], {"metadata": {"name": "mine"}})


@pytest.mark.integration
def test_with_its_component_it_patches_a_status_and_no_spec(with_crds: ControlPlane) -> None:
    admin, client = with_crds.client, client_of(with_crds, "status")
    metrics = [{"name": "cpu", "resource": {"name": "cpu"}, "highWatermark": "1"}]
    policy = {
        "apiVersion": "effective-load.io/v1alpha1",
        "kind": "WatermarkPolicy",
        "metadata": {"name": "rights", "namespace": "default"},
        "spec": {"metrics": metrics},
    }
    path = admin.path(policy)
    admin.apply(policy)
    assert client.patch_status(path, {"verdict": "Above"})["status"] == {"verdict": "Above"}
    with pytest.raises(ApiError) as refused:
        client.patch(path, {"spec": {"mode": "Paused"}})
    assert refused.value.status == 403
    client.close()
    admin.delete(policy)
