"""Isolation of faults: the loss of one kind of target, or of one right, affects only the policies that need it.

The targets of a custom kind have scale paths of their own.
"""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lab.harness import objects
from lab.harness.adapter import NAMESPACE, established, manifests
from lab.harness.control_plane import ControlPlane
from lab.harness.prometheus import Exporter, Page, Prometheus
from lab.harness.workloads import Workloads, until
from tests.e2e.conftest import Laws, MakeAdapter, MakeCompanion
from tests.e2e.kit import (
    CALM,
    Load,
    condition,
    prometheus_settings,
    query_watermarks,
    status,
    wait_asked,
    wait_desired,
    wait_finding,
)
from tests.kinds import scalable

ACCOUNT = "apart"
"""A service account with a separate role for the right to see pods."""
PODS = {"apiGroups": [""], "resources": ["pods"], "verbs": ["list", "watch"]}
"""The right to a watch that all policies share."""

pytestmark = pytest.mark.timeout(900)


class Widgets:
    """A custom kind with scale paths of its own, and the right to see its objects."""

    def __init__(self, workloads: Workloads) -> None:
        self.workloads, self.client = workloads, workloads.client
        self.group = f"{workloads.namespace}.example.com"
        self.resource = f"widgets.{self.group}"
        self.thing = f"/apis/{self.group}/v1/namespaces/{workloads.namespace}/widgets/thing"
        paths = {"spec": ".spec.size.wanted", "status": ".status.size.seen", "selector": ".status.podsBy"}
        self.definition = scalable(self.group, "Widget", **paths)

    def grant(self) -> None:
        rules = [
            {"apiGroups": [self.group], "resources": ["widgets"], "verbs": ["get", "list", "watch"]},
            {"apiGroups": [self.group], "resources": ["widgets/scale"], "verbs": ["get"]},
        ]
        grant(self.workloads.cluster, self.resource, rules)

    def revoke(self) -> None:
        revoke(self.workloads.cluster, self.resource)

    def create(self) -> None:
        """Creates `thing` with a policy and an HPA; its pods are those of a Deployment of that name."""
        version = f"{self.group}/v1"
        self.client.create(self.workloads.item(version, "Widget", "thing", {"size": {"wanted": 5}}))
        self.client.patch_status(self.thing, {"size": {"seen": 5}, "podsBy": "app=thing"})
        self.workloads.policy("thing", [query_watermarks("load", "100", "40")])
        self.workloads.hpa("thing", target=(version, "Widget", "thing"), behavior=CALM)


def grant(cluster: ControlPlane, name: str, rules: list[dict[str, Any]], namespace: str = "") -> None:
    """Grants these rules to all accounts of the adapter's namespace: everywhere, or in one namespace."""
    api = "rbac.authorization.k8s.io"
    kind = "Role" if namespace else "ClusterRole"
    head = {"apiVersion": f"{api}/v1", "metadata": {"name": name} | ({"namespace": namespace} if namespace else {})}
    cluster.client.apply({**head, "kind": kind, "rules": rules})
    subject = {"apiGroup": api, "kind": "Group", "name": f"system:serviceaccounts:{NAMESPACE}"}
    role = {"apiGroup": api, "kind": kind, "name": name}
    cluster.client.apply({**head, "kind": f"{kind}Binding", "roleRef": role, "subjects": [subject]})


def revoke(cluster: ControlPlane, name: str, namespace: str = "") -> None:
    """Revokes that right."""
    where, kind = (f"namespaces/{namespace}/", "role") if namespace else ("", "clusterrole")
    for plural in (f"{kind}bindings", f"{kind}s"):
        cluster.client.delete(f"/apis/rbac.authorization.k8s.io/v1/{where}{plural}/{name}")


class Scene:
    """The services of a namespace, and the adapter's answers about them."""

    def __init__(self, workloads: Workloads, load: Load) -> None:
        self.workloads, self.load, self.asked = workloads, load, workloads.asked

    def web(self) -> None:
        """Creates a Deployment of five pods that needs eight, with an HPA that does not scale."""
        self.load.serve(5, each=150, hpa={"behavior": CALM})

    def wait(self, name: str, answer: str) -> str:
        return wait_asked(self.workloads, name, answer)


@pytest.fixture
def scene(workloads: Workloads, load: Load) -> Scene:
    return Scene(workloads, load)


@pytest.fixture
def other(control_plane: ControlPlane, namespace: str, shared_exporter: Exporter) -> Iterator[Scene]:
    """A scene in a second namespace."""
    page, elsewhere = Page(), Workloads(control_plane, f"{namespace}-elsewhere")
    elsewhere.make_namespace()
    shared_exporter.parts.append(page)
    yield Scene(elsewhere, Load(page, elsewhere))
    shared_exporter.parts.remove(page)
    elsewhere.remove_namespace()


@pytest.fixture
def widgets(other: Scene) -> Iterator[Widgets]:
    made = Widgets(other.workloads)
    established(other.workloads.cluster, made.definition)
    made.grant()
    yield made
    made.revoke()
    made.client.delete(made.definition)


@pytest.fixture
def apart(control_plane: ControlPlane) -> Iterator[Path]:
    """A kubeconfig for server and companion, whose right to see pods has a role of its own, `apart-pods`."""
    control_plane.client.apply(objects.namespace(NAMESPACE))
    kubeconfig = control_plane.kubeconfig_with_token(control_plane.token(NAMESPACE, ACCOUNT), "kubeconfig-apart")
    folders = ("base", *(f"components/companion{part}" for part in ("", "-status", "-events")))
    rules = [rule for role in manifests("ClusterRole", "Role", folders=folders) for rule in role["rules"]]
    for rule in rules:
        rule.pop("resourceNames", None)
    rest = [rule for rule in rules if rule != PODS]
    assert len(rest) == len(rules) - 1
    maps = {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "list", "watch"]}
    reviews = [
        {"apiGroups": ["authentication.k8s.io"], "resources": ["tokenreviews"], "verbs": ["create"]},
        {"apiGroups": ["authorization.k8s.io"], "resources": ["subjectaccessreviews"], "verbs": ["create"]},
    ]
    grant(control_plane, "apart-rest", [*rest, maps, *reviews])
    grant(control_plane, "apart-pods", [PODS])
    yield kubeconfig
    for name in ("rest", "pods"):
        revoke(control_plane, f"apart-{name}")


def test_revoked_rights_are_errors_only_of_the_policies_that_need_them(
    make_adapter: MakeAdapter,
    make_companion: MakeCompanion,
    scene: Scene,
    other: Scene,
    widgets: Widgets,
    shared_prometheus: Prometheus,
    apart: Path,
    laws: Laws,
) -> None:
    """The pods of one namespace, and a kind of target in the other, cannot be watched any more."""
    cluster, here, elsewhere = scene.workloads.cluster, scene.workloads.namespace, other.workloads
    revoke(cluster, "apart-pods")
    for namespace in (here, elsewhere.namespace):
        grant(cluster, "apart-pods", [PODS], namespace)
    namespaces = {"kubernetes": {"namespaces": [here, elsewhere.namespace]}}
    settings = laws.over(prometheus_settings(shared_prometheus) | namespaces)
    adapter = make_adapter(settings, command=laws.run("serve"), kubeconfig=apart, external=False)
    make_companion(settings, command=laws.run("companion"), kubeconfig=apart)
    scene.web()
    other.web()
    elsewhere.deployment("thing", 5)
    other.load.each("thing", 150)
    widgets.create()
    for one, name in ((scene, "web"), (other, "web"), (other, "thing")):
        one.wait(name, "8")
    for name in ("web", "thing"):
        wait_finding(elsewhere, "Ready", "Decided", name=name)
    revoke(cluster, "apart-pods", here)
    widgets.revoke()
    pods = f"the watch of pods in namespace {here} has shown no life since"
    kind = f'resource "widgets" in API group "{widgets.group}"'
    silent = laws.watch + laws.confirmed + 30  # the right does not end a running watch, which is not renewed
    deadline = time.monotonic() + silent
    while time.monotonic() < deadline and not (pods in scene.asked("web") and kind in other.asked("thing")):
        assert other.asked("web") == "8"
        time.sleep(0.2)
    scene.wait("web", pods)
    assert "has shown no life since" in other.wait("thing", kind)
    scene.workloads.wait_condition("web", "ScalingActive", status="False", contains=pods)
    elsewhere.wait_condition("thing", "ScalingActive", status="False", contains=kind)
    told = wait_finding(elsewhere, "InputsFresh", "WatchSilent", name="thing", seconds=silent)
    assert kind in told["message"]
    assert condition(elsewhere, "Ready", "thing")["reason"] == "WatchSilent"
    said = status(elsewhere, "thing")
    assert (said["verdict"], said.get("desired"), said.get("current")) == ("Error", None, None)
    other.load.each("web", 100)
    other.wait("web", "5")
    wait_desired(elsewhere, 5)
    assert condition(elsewhere, "Ready", "web")["reason"] == "Decided"
    elsewhere.scale("web", 7)
    elsewhere.wait_ready("web", 7)
    other.load.each("web", 150)
    other.wait("web", "11")
    assert adapter.get("/readyz").status == 200
    for resource, watches in {"pods": 1, widgets.resource: 2}.items():  # a watch for each namespace
        assert adapter.metric(f'effective_load_watch_stale{{resource="{resource}"}}') == watches
    grant(cluster, "apart-pods", [PODS], here)
    widgets.grant()
    scene.wait("web", "8")
    other.wait("thing", "8")
    wait_finding(elsewhere, "InputsFresh", "SamplesFresh", name="thing")
    elsewhere.client.patch(elsewhere.hpa_path("thing"), {"spec": {"behavior": {"scaleUp": {"selectPolicy": "Max"}}}})
    elsewhere.client.wait_for(widgets.thing, lambda item: item["spec"]["size"]["wanted"] == 8, 30, "the widget at 8")


def test_processes_that_start_without_a_right_name_it_until_granted(
    make_adapter: MakeAdapter,
    make_companion: MakeCompanion,
    scene: Scene,
    apart: Path,
    shared_prometheus: Prometheus,
    laws: Laws,
) -> None:
    settings = laws.over(prometheus_settings(shared_prometheus))
    adapter = make_adapter(settings, command=laws.run("serve"), kubeconfig=apart)
    scene.web()
    scene.wait("web", "8")
    revoke(scene.workloads.cluster, "apart-pods")
    adapter.component.stop()
    adapter.component.start()
    companion = make_companion(settings, command=laws.run("companion"), kubeconfig=apart)
    says = "pods have not been listed yet: pods is forbidden"
    assert 'resource "pods" in API group "" at the cluster scope' in scene.wait("web", says)
    assert says in adapter.get("/readyz?verbose").text
    until(lambda: says in status(scene.workloads, "web").get("decision", ""), 60, companion.logs)
    grant(scene.workloads.cluster, "apart-pods", [PODS])
    scene.wait("web", "8")
    wait_finding(scene.workloads, "InputsFresh", "SamplesFresh")
    until(lambda: adapter.get("/readyz").status == 200, 30, adapter.logs)
