"""Isolation of faults: the loss of one kind of target, or of one right, affects only the policies that need it."""

import copy
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from harness import objects
from harness.adapter import MANIFESTS, NAMESPACE
from harness.client import condition_true
from harness.control_plane import ControlPlane
from harness.prometheus import Exporter, Prometheus
from harness.workloads import Workloads, until
from tests.e2e.conftest import MakeAdapter, MakeCompanion
from tests.e2e.kit import Load, prometheus_settings, query_watermarks

CONFIRMED_SECONDS = 90
"""A watch without a sign of life for this many seconds counts as silent (`adapter.kube.reflector`)."""
SILENT_SECONDS = 60 + CONFIRMED_SECONDS + 30
"""A revoked right does not end a running watch, which lasts up to a minute and is not renewed."""
CALM = {way: {"selectPolicy": "Disabled", "tolerance": "0"} for way in ("scaleUp", "scaleDown")}
SCALE = {
    "specReplicasPath": ".spec.replicas",
    "statusReplicasPath": ".status.replicas",
    "labelSelectorPath": ".status.podsBy",
}
ACCOUNT = "apart"
"""A service account with a separate role for each right."""

pytestmark = pytest.mark.timeout(900)


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


def grant(cluster: ControlPlane, name: str, rules: list[dict[str, Any]]) -> None:
    """Grants these rules to all accounts of the adapter's namespace."""
    api = "rbac.authorization.k8s.io"
    head = {"apiVersion": f"{api}/v1", "metadata": {"name": name}}
    cluster.client.apply({**head, "kind": "ClusterRole", "rules": rules})
    subject = {"apiGroup": api, "kind": "Group", "name": f"system:serviceaccounts:{NAMESPACE}"}
    role = {"apiGroup": api, "kind": "ClusterRole", "name": name}
    cluster.client.apply({**head, "kind": "ClusterRoleBinding", "roleRef": role, "subjects": [subject]})


def revoke(cluster: ControlPlane, name: str) -> None:
    """Revokes that right."""
    for kind in ("clusterrolebindings", "clusterroles"):
        cluster.client.delete(f"/apis/rbac.authorization.k8s.io/v1/{kind}/{name}")


class Scene:
    """The adapter's answers, and the policies' statuses."""

    def __init__(self, workloads: Workloads, load: Load) -> None:
        self.workloads, self.load, self.client = workloads, load, workloads.client
        self.asked = workloads.asked

    def web(self) -> None:
        """Creates a Deployment of five pods that needs eight, with an HPA that does not scale."""
        self.workloads.deployment("web", 5)
        self.load.each("web", 150)
        self.workloads.policy("web", [query_watermarks("load", "100", "40")])
        self.workloads.hpa("web", behavior=CALM)

    def wait_asked(self, name: str, contains: str, seconds: float = 60) -> str:
        until(lambda: contains in self.asked(name), seconds, lambda: f"{name} is answered {self.asked(name)}")
        return self.asked(name)

    def wait_count(self, name: str, count: str, seconds: float = 60) -> None:
        until(lambda: self.asked(name) == count, seconds, lambda: f"{name} is answered {self.asked(name)}")

    def status(self, name: str) -> dict[str, Any]:
        path = f"/apis/effective-load.io/v1alpha1/namespaces/{self.workloads.namespace}/watermarkpolicies/{name}"
        return dict(self.client.get(path).get("status") or {})

    def condition(self, name: str, kind: str) -> dict[str, Any]:
        found = (one for one in self.status(name).get("conditions", ()) if one["type"] == kind)
        return dict(next(found, {}))

    def wait_condition(self, name: str, kind: str, reason: str, seconds: float = 60) -> dict[str, Any]:
        until(
            lambda: self.condition(name, kind).get("reason") == reason,
            seconds,
            lambda: f"the status of {name} says {self.status(name)}",
        )
        return self.condition(name, kind)

    def hold(self, name: str, answer: str, seconds: float, done: Callable[[], bool] = lambda: False) -> None:
        """Asserts that a policy's answer stays the same for `seconds` or until `done`."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline and not done():
            assert self.asked(name) == answer
            time.sleep(0.2)


@pytest.fixture
def scene(workloads: Workloads, exporter: Exporter) -> Scene:
    return Scene(workloads, Load(exporter, workloads))


@pytest.fixture
def kind(workloads: Workloads, crds: None) -> Iterator[Kind]:
    kind = Kind(workloads, "widgets")
    kind.define()
    kind.grant()
    yield kind
    kind.revoke()
    kind.client.delete(kind.definition)


def test_a_kind_without_policies_is_no_longer_watched_and_its_removal_affects_no_policy(
    make_adapter: MakeAdapter, scene: Scene, kind: Kind, prometheus: Prometheus
) -> None:
    adapter = make_adapter(prometheus_settings(prometheus))
    scene.web()
    scene.workloads.deployment("thing", 5)
    scene.load.each("thing", 150)
    kind.service("thing")
    scene.wait_count("web", "8")
    scene.wait_count("thing", "8")
    objects_of = f'effective_load_watch_objects{{resource="{kind.resource}"}}'
    assert adapter.metric(objects_of) == 1
    hpa, policy = scene.workloads.hpa_path("thing"), "apis/effective-load.io/v1alpha1"
    scene.client.delete(hpa)
    scene.client.delete(f"/{policy}/namespaces/{scene.workloads.namespace}/watermarkpolicies/thing")
    kind.remove()
    scene.hold("web", "8", CONFIRMED_SECONDS + 10)
    assert kind.resource not in adapter.metrics()
    assert adapter.get("/readyz").status == 200
    kind.define()
    kind.service("thing")
    scene.wait_count("thing", "8")


def test_a_kind_that_is_removed_and_returns_affects_only_its_own_policies(
    make_adapter: MakeAdapter, scene: Scene, kind: Kind, prometheus: Prometheus
) -> None:
    make_adapter(prometheus_settings(prometheus))
    scene.web()
    scene.workloads.deployment("thing", 5)
    scene.load.each("thing", 150)
    kind.service("thing")
    scene.wait_count("web", "8")
    scene.wait_count("thing", "8")
    scene.client.delete(f"/apis/{kind.group}/v1/namespaces/{scene.workloads.namespace}/widgets/thing")
    kind.remove()
    assert kind.group in scene.wait_asked("thing", "the API server serves no")
    scene.hold("web", "8", 10)
    kind.define()
    path = f"/apis/{kind.group}/v1/namespaces/{scene.workloads.namespace}/widgets/thing"
    scene.client.create(scene.workloads.item(f"{kind.group}/v1", kind.kind, "thing", {"replicas": 5}))
    scene.client.patch_status(path, {"replicas": 5, "podsBy": "app=thing"})
    scene.wait_count("thing", "8", 90)


def test_a_revoked_right_on_one_kind_is_named_only_to_its_own_policies(
    make_adapter: MakeAdapter, make_companion: MakeCompanion, scene: Scene, kind: Kind, prometheus: Prometheus
) -> None:
    adapter = make_adapter(prometheus_settings(prometheus))
    companion = make_companion(prometheus_settings(prometheus))
    scene.web()
    scene.workloads.deployment("thing", 5)
    scene.load.each("thing", 150)
    kind.service("thing")
    scene.wait_count("web", "8")
    scene.wait_count("thing", "8")
    for name in ("web", "thing"):
        scene.wait_condition(name, "Ready", "Decided")
    kind.revoke()
    says = f'resource "widgets" in API group "{kind.group}"'
    scene.hold("web", "8", SILENT_SECONDS, lambda: says in scene.asked("thing"))
    assert "has shown no life since" in scene.wait_asked("thing", says)
    scene.workloads.wait_condition("thing", "ScalingActive", status="False", contains=says)
    told = scene.wait_condition("thing", "InputsFresh", "WatchSilent", SILENT_SECONDS)
    assert says in told["message"]
    assert scene.condition("thing", "Ready")["reason"] == "WatchSilent"
    status = scene.status("thing")
    assert (status["verdict"], status.get("desired"), status.get("current")) == ("Error", None, None)
    scene.load.each("web", 100)
    scene.wait_count("web", "5")
    until(lambda: scene.status("web").get("desired") == 5, 60, companion.logs)
    assert scene.condition("web", "Ready")["reason"] == "Decided"
    assert adapter.get("/readyz").status == 200
    assert adapter.metric(f'effective_load_watch_silent{{resource="{kind.resource}"}}') == 1
    kind.grant()
    scene.wait_count("thing", "8")
    scene.wait_condition("thing", "InputsFresh", "SamplesFresh")


@pytest.fixture
def apart(control_plane: ControlPlane, crds: None) -> Iterator[Path]:
    """A kubeconfig for server and companion, whose rights on pods have a role of their own (`apart-pods`)."""
    control_plane.client.apply(objects.namespace(NAMESPACE))
    kubeconfig = control_plane.kubeconfig_with_token(control_plane.token(NAMESPACE, ACCOUNT), "kubeconfig-apart")
    rest: list[dict[str, Any]] = []
    for path in sorted(MANIFESTS.rglob("*rbac.yaml")):
        if {"base", "companion", "companion-status", "companion-events"} & set(path.parts):
            for item in yaml.safe_load_all(path.read_text()):
                rest += copy.deepcopy(item.get("rules", [])) if item["kind"] in {"ClusterRole", "Role"} else []
    for rule in rest:
        rule.pop("resourceNames", None)
    pods = {"apiGroups": [""], "resources": ["pods"], "verbs": ["list", "watch"]}
    maps = {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "list", "watch"]}
    reviews = [
        {"apiGroups": ["authentication.k8s.io"], "resources": ["tokenreviews"], "verbs": ["create"]},
        {"apiGroups": ["authorization.k8s.io"], "resources": ["subjectaccessreviews"], "verbs": ["create"]},
    ]
    assert pods in rest
    grant(control_plane, "apart-rest", [*(rule for rule in rest if rule != pods), maps, *reviews])
    grant(control_plane, "apart-pods", [pods])
    yield kubeconfig
    for name in ("apart-rest", "apart-pods"):
        revoke(control_plane, name)


def test_a_revoked_right_that_all_policies_need_is_named_to_all_by_server_and_companion(
    make_adapter: MakeAdapter, make_companion: MakeCompanion, scene: Scene, apart: Path, prometheus: Prometheus
) -> None:
    adapter = make_adapter(prometheus_settings(prometheus), kubeconfig=apart)
    companion = make_companion(prometheus_settings(prometheus), kubeconfig=apart)
    scene.web()
    scene.wait_count("web", "8")
    scene.wait_condition("web", "Ready", "Decided")
    revoke(scene.workloads.cluster, "apart-pods")
    says = 'resource "pods" in API group "" at the cluster scope'
    scene.wait_asked("web", says, SILENT_SECONDS)
    scene.workloads.wait_condition("web", "ScalingActive", status="False", contains=says)
    assert says in scene.wait_condition("web", "InputsFresh", "WatchSilent", SILENT_SECONDS)["message"]
    assert says in scene.status("web")["decision"]
    ready = adapter.readiness()
    assert (ready.status, says in ready.text) == (200, True)
    for process in (adapter, companion):
        assert process.metric('effective_load_watch_silent{resource="pods"}') == 1
    # Started without the right, server and companion report the same.
    adapter.component.stop()
    adapter.component.start()
    companion.restart()
    never = "pods have not been listed yet: pods is forbidden"
    until(lambda: never in _readyz(adapter), 60, adapter.logs)
    assert says in scene.wait_asked("web", never)
    until(lambda: never in scene.status("web")["decision"], 60, companion.logs)
    grant(
        scene.workloads.cluster,
        "apart-pods",
        [{"apiGroups": [""], "resources": ["pods"], "verbs": ["list", "watch"]}],
    )
    scene.wait_count("web", "8")
    scene.wait_condition("web", "InputsFresh", "SamplesFresh")
    until(lambda: adapter.get("/readyz").status == 200, 30, adapter.logs)


def _readyz(adapter: Any) -> str:
    try:
        return str(adapter.readiness().text)
    except OSError:
        return ""
