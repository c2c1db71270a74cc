"""Server and companion that watch only some namespaces, with rights only in these."""

import copy
from collections.abc import Iterator
from pathlib import Path

import pytest

from lab.harness import objects
from lab.harness.adapter import NAMESPACE, merged
from lab.harness.companion import reset_lease
from lab.harness.control_plane import ControlPlane
from lab.harness.prometheus import Prometheus
from lab.harness.workloads import Workloads, until
from tests.chart import kit
from tests.e2e.conftest import MakeAdapter, MakeCompanion
from tests.e2e.kit import Load, prometheus_settings, status
from tests.manifests.rendering import Object

SERVER, COMPANION = "effective-load", "effective-load-companion"
OF_NAMESPACES = {"effective-load-server", "effective-load-scales", f"{COMPANION}-status", f"{COMPANION}-events"}
"""The roles that docs/api.md says can be bound in namespaces."""
ROLES_FIRST = ("ServiceAccount", "Secret", "Lease", "ClusterRole", "Role", "ClusterRoleBinding", "RoleBinding")


def narrow(item: Object, namespace: str) -> Object:
    """An account or binding of the manifests, with its role bound in one namespace where that is possible."""
    item = copy.deepcopy(item)
    if item["kind"] not in {"ServiceAccount", "ClusterRoleBinding", "RoleBinding"}:
        return item
    item["metadata"]["name"] += f"-{namespace}"
    for subject in item.get("subjects", ()):
        subject["name"] += f"-{namespace}" if subject["name"] in {SERVER, COMPANION} else ""
    if item["kind"] == "ClusterRoleBinding" and item["roleRef"]["name"] in OF_NAMESPACES:
        item |= {"kind": "RoleBinding", "metadata": {**item["metadata"], "namespace": namespace}}
    return item


def by_chart(namespace: str) -> list[Object]:
    """With `rbac.namespaced`, which binds the roles in the namespaces that are watched."""
    values = {"rbac": {"namespaced": True}, "settings": {"kubernetes": {"namespaces": [namespace]}}}
    found = kit.rendered(merged(kit.values_of(kit.DEFAULT), values))
    assert not {one["roleRef"]["name"] for one in found if one["kind"] == "ClusterRoleBinding"} & OF_NAMESPACES
    return found


@pytest.fixture
def accounts(control_plane: ControlPlane, workloads: Workloads) -> Iterator[dict[str, Path]]:
    """Kubeconfigs of a server and a companion with rights only in the test's namespace."""
    control_plane.client.apply(objects.namespace(NAMESPACE))
    reset_lease(control_plane)
    found = [narrow(one, workloads.namespace) for one in by_chart(workloads.namespace)]
    for item in sorted(
        (one for one in found if one["kind"] in ROLES_FIRST), key=lambda o: ROLES_FIRST.index(o["kind"])
    ):
        control_plane.client.apply(item)
    yield {
        name: control_plane.kubeconfig_with_token(control_plane.token(NAMESPACE, account), f"kubeconfig-{account}")
        for name, account in ((one, f"{one}-{workloads.namespace}") for one in (SERVER, COMPANION))
    }
    for item in found:
        if item["kind"] == "ClusterRoleBinding":
            control_plane.client.delete(item)


@pytest.mark.builds("helm")
def test_rights_in_the_namespaces_that_are_watched_suffice(
    make_adapter: MakeAdapter,
    make_companion: MakeCompanion,
    accounts: dict[str, Path],
    workloads: Workloads,
    load: Load,
    shared_prometheus: Prometheus,
) -> None:
    namespaces = {"kubernetes": {"namespaces": [workloads.namespace]}}
    settings = prometheus_settings(shared_prometheus) | namespaces
    make_adapter(settings, external=False, kubeconfig=accounts[SERVER])
    companion = make_companion(settings, kubeconfig=accounts[COMPANION])
    load.serve(5, each=150, marks=("120", "40"))
    workloads.wait_replicas("web", 7, timeout=60)
    until(lambda: "desired" in status(workloads), 30, companion.logs)
    elsewhere = "/apis/custom.metrics.k8s.io/v1beta2/namespaces/default/watermarkpolicies.effective-load.io/web"
    answer = workloads.client.raw(f"{elsewhere}/desired_replicas")
    assert (answer.status, answer.json()["reason"]) == (404, "NotFound")
