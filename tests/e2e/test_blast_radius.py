"""Isolation of faults: the loss of one kind of target, or of one right, affects only the policies that need it."""

import copy
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from lab.harness import objects
from lab.harness.adapter import MANIFESTS, NAMESPACE
from lab.harness.client import condition_true
from lab.harness.control_plane import ControlPlane
from lab.harness.prometheus import Exporter, Page, Prometheus
from lab.harness.workloads import Workloads, until
from tests.e2e.conftest import Laws, MakeAdapter, MakeCompanion
from tests.e2e.kit import CALM, Load, condition, prometheus_settings, query_watermarks, status, wait_finding

SCALE = {
    "specReplicasPath": ".spec.replicas",
    "statusReplicasPath": ".status.replicas",
    "labelSelectorPath": ".status.podsBy",
}
ACCOUNT = "apart"
"""A service account with a separate role for the right to see pods."""
PODS = {"apiGroups": [""], "resources": ["pods"], "verbs": ["list", "watch"]}
"""The right to a watch that all policies share."""

pytestmark = pytest.mark.timeout(900)


def silent_seconds(laws: Laws) -> float:
    """A revoked right does not end a running watch, which is not renewed, and counts as silent some time later."""
    return laws.watch + laws.confirmed + 30


class Kind:
    """A custom kind with a scale subresource, and the right to see its objects."""

    def __init__(self, workloads: Workloads, plural: str) -> None:
        self.workloads, self.client, self.plural = workloads, workloads.client, plural
        self.group = f"{workloads.namespace}.example.com"
        self.kind = plural.removesuffix("s").capitalize()
        self.resource = f"{plural}.{self.group}"
        self.definition = f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{self.resource}"

    def define(self) -> None:
        schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
        version = {
            "name": "v1",
            "served": True,
            "storage": True,
            "schema": {"openAPIV3Schema": schema},
            "subresources": {"status": {}, "scale": SCALE},
        }
        spec = {
            "group": self.group,
            "scope": "Namespaced",
            "names": {"kind": self.kind, "plural": self.plural, "singular": self.plural.removesuffix("s")},
            "versions": [version],
        }
        head = {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition"}
        self.client.apply({**head, "metadata": {"name": self.resource}, "spec": spec})
        self.client.wait_for(self.definition, lambda item: condition_true(item, "Established"), 30, "established")

    def remove(self) -> None:
        self.client.delete(self.definition)
        self.client.wait_gone(self.definition, 60)

    def grant(self) -> None:
        rules = [
            {"apiGroups": [self.group], "resources": [self.plural], "verbs": ["get", "list", "watch"]},
            {"apiGroups": [self.group], "resources": [f"{self.plural}/scale"], "verbs": ["get"]},
        ]
        grant(self.workloads.cluster, self.resource, rules)

    def revoke(self) -> None:
        revoke(self.workloads.cluster, self.resource)

    def service(self, name: str) -> None:
        """Creates an object of this kind with a policy and an HPA; its pods are those of a Deployment of that name."""
        self.workloads.client.create(self.workloads.item(f"{self.group}/v1", self.kind, name, {"replicas": 5}))
        path = f"/apis/{self.group}/v1/namespaces/{self.workloads.namespace}/{self.plural}/{name}"
        self.client.patch_status(path, {"replicas": 5, "podsBy": f"app={name}"})
        self.workloads.policy(name, [query_watermarks("load", "100", "40")])
        self.workloads.hpa(name, target=(f"{self.group}/v1", self.kind, name), behavior=CALM)


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
    """The adapter's answers, and the policies' statuses."""

    def __init__(self, workloads: Workloads, load: Load) -> None:
        self.workloads, self.load, self.client = workloads, load, workloads.client
        self.asked = workloads.asked

    def web(self, **policy: Any) -> None:
        """Creates a Deployment of five pods that needs eight, with an HPA that does not scale."""
        self.workloads.deployment("web", 5)
        self.load.each("web", 150)
        self.workloads.policy("web", [query_watermarks("load", "100", "40")], **policy)
        self.workloads.hpa("web", behavior=CALM)

    def wait_asked(self, name: str, contains: str, seconds: float = 60) -> str:
        until(lambda: contains in self.asked(name), seconds, lambda: f"{name} is answered {self.asked(name)}")
        return self.asked(name)

    def wait_count(self, name: str, count: str, seconds: float = 60) -> None:
        until(lambda: self.asked(name) == count, seconds, lambda: f"{name} is answered {self.asked(name)}")

    def hold(self, name: str, answer: str, seconds: float, done: Callable[[], bool] = lambda: False) -> None:
        """Asserts that a policy's answer stays the same for `seconds` or until `done`."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline and not done():
            assert self.asked(name) == answer
            time.sleep(0.2)


@pytest.fixture
def scene(workloads: Workloads, load: Load) -> Scene:
    return Scene(workloads, load)


@pytest.fixture
def kind(workloads: Workloads) -> Iterator[Kind]:
    kind = Kind(workloads, "widgets")
    kind.define()
    kind.grant()
    yield kind
    kind.revoke()
    kind.client.delete(kind.definition)


def test_a_revoked_right_on_one_kind_is_named_only_to_its_own_policies(
    make_adapter: MakeAdapter,
    make_companion: MakeCompanion,
    scene: Scene,
    kind: Kind,
    shared_prometheus: Prometheus,
    laws: Laws,
) -> None:
    adapter = make_adapter(laws.over(prometheus_settings(shared_prometheus)), command=laws.run("serve"))
    companion = make_companion(laws.over(prometheus_settings(shared_prometheus)), command=laws.run("companion"))
    scene.web()
    scene.workloads.deployment("thing", 5)
    scene.load.each("thing", 150)
    kind.service("thing")
    scene.wait_count("web", "8")
    scene.wait_count("thing", "8")
    for name in ("web", "thing"):
        wait_finding(scene.workloads, "Ready", "Decided", name=name)
    kind.revoke()
    says = f'resource "widgets" in API group "{kind.group}"'
    scene.hold("web", "8", silent_seconds(laws), lambda: says in scene.asked("thing"))
    assert "has shown no life since" in scene.wait_asked("thing", says)
    scene.workloads.wait_condition("thing", "ScalingActive", status="False", contains=says)
    told = wait_finding(scene.workloads, "InputsFresh", "WatchSilent", name="thing", seconds=silent_seconds(laws))
    assert says in told["message"]
    assert condition(scene.workloads, "Ready", "thing")["reason"] == "WatchSilent"
    said = status(scene.workloads, "thing")
    assert (said["verdict"], said.get("desired"), said.get("current")) == ("Error", None, None)
    scene.load.each("web", 100)
    scene.wait_count("web", "5")
    until(lambda: status(scene.workloads, "web").get("desired") == 5, 60, companion.logs)
    assert condition(scene.workloads, "Ready", "web")["reason"] == "Decided"
    assert adapter.get("/readyz").status == 200
    assert adapter.metric(f'effective_load_watch_stale{{resource="{kind.resource}"}}') == 1
    kind.grant()
    scene.wait_count("thing", "8")
    wait_finding(scene.workloads, "InputsFresh", "SamplesFresh", name="thing")


@pytest.fixture
def apart(control_plane: ControlPlane) -> Iterator[Path]:
    """A kubeconfig for server and companion, whose right to see pods has a role of its own, `apart-pods`."""
    control_plane.client.apply(objects.namespace(NAMESPACE))
    kubeconfig = control_plane.kubeconfig_with_token(control_plane.token(NAMESPACE, ACCOUNT), "kubeconfig-apart")
    rules: list[dict[str, Any]] = []
    for path in sorted(MANIFESTS.rglob("*rbac.yaml")):
        if {"base", "companion", "companion-status", "companion-events"} & set(path.parts):
            for item in yaml.safe_load_all(path.read_text()):
                rules += copy.deepcopy(item.get("rules", [])) if item["kind"] in {"ClusterRole", "Role"} else []
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


@pytest.fixture
def elsewhere(control_plane: ControlPlane, namespace: str) -> Iterator[Workloads]:
    """Workloads in a second namespace."""
    made = Workloads(control_plane, f"{namespace}-elsewhere")
    made.make_namespace()
    yield made
    made.remove_namespace()


def test_a_watch_that_one_namespace_refuses_is_an_error_only_there(
    make_adapter: MakeAdapter,
    scene: Scene,
    elsewhere: Workloads,
    shared_exporter: Exporter,
    shared_prometheus: Prometheus,
    apart: Path,
    laws: Laws,
) -> None:
    resource = "pods"
    cluster, right, here = scene.workloads.cluster, f"apart-{resource}", scene.workloads.namespace
    revoke(cluster, right)
    for namespace in (here, elsewhere.namespace):
        grant(cluster, right, [PODS], namespace)
    namespaces = {"kubernetes": {"namespaces": [here, elsewhere.namespace]}}
    settings = prometheus_settings(shared_prometheus) | namespaces
    adapter = make_adapter(laws.over(settings), command=laws.run("serve"), kubeconfig=apart, external=False)
    page = Page()
    shared_exporter.parts.append(page)
    other = Scene(elsewhere, Load(page, elsewhere))
    for one in (scene, other):
        one.web()
    for one in (scene, other):
        one.wait_count("web", "8")
    revoke(cluster, right, here)
    says = f"the watch of {resource} in namespace {here} has shown no life since"
    other.hold("web", "8", silent_seconds(laws), lambda: says in scene.asked("web"))
    scene.wait_asked("web", says)
    scene.workloads.wait_condition("web", "ScalingActive", status="False", contains=says)
    other.load.each("web", 100)
    other.wait_count("web", "5")
    other.workloads.scale("web", 7)
    other.workloads.wait_ready("web", 7)
    other.load.each("web", 150)
    other.wait_count("web", "11")
    assert adapter.get("/readyz").status == 200
    assert adapter.metric(f'effective_load_watch_stale{{resource="{resource}"}}') == 1
    grant(cluster, right, [PODS], here)
    scene.wait_count("web", "8")
    shared_exporter.parts.remove(page)


def test_processes_that_start_without_a_right_name_it_until_granted(
    make_adapter: MakeAdapter,
    make_companion: MakeCompanion,
    scene: Scene,
    apart: Path,
    shared_prometheus: Prometheus,
    laws: Laws,
) -> None:
    adapter = make_adapter(
        laws.over(prometheus_settings(shared_prometheus)), command=laws.run("serve"), kubeconfig=apart
    )
    scene.web()
    scene.wait_count("web", "8")
    revoke(scene.workloads.cluster, "apart-pods")
    adapter.component.stop()
    adapter.component.start()
    companion = make_companion(
        laws.over(prometheus_settings(shared_prometheus)), command=laws.run("companion"), kubeconfig=apart
    )
    says = "pods have not been listed yet: pods is forbidden"
    until(lambda: says in _readyz(adapter), 60, adapter.logs)
    assert 'resource "pods" in API group "" at the cluster scope' in scene.wait_asked("web", says)
    until(lambda: says in status(scene.workloads, "web").get("decision", ""), 60, companion.logs)
    grant(scene.workloads.cluster, "apart-pods", [PODS])
    scene.wait_count("web", "8")
    wait_finding(scene.workloads, "InputsFresh", "SamplesFresh")
    until(lambda: adapter.get("/readyz").status == 200, 30, adapter.logs)


def _readyz(adapter: Any) -> str:
    try:
        return str(adapter.get("/readyz?verbose").text)
    except OSError:
        return ""
