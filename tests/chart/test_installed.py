"""Chart and manifests on a real control plane: applied without a warning, and removed without a trace."""

import os
import re
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self

import pytest
import yaml

from lab.harness import binaries, objects
from lab.harness.adapter import AdapterProcess, merged
from lab.harness.client import PATCH_TYPES, Object, condition_true
from lab.harness.companion import CompanionProcess
from lab.harness.control_plane import ControlPlane
from lab.harness.definitions import CERT_MANAGER, PROMETHEUS_OPERATOR
from lab.harness.workloads import Workloads, cpu_watermarks, until
from tests.chart import kit
from tests.manifests.rendering import identity
from tools.chart_templates import CHART, ROOT

pytestmark = [pytest.mark.e2e, pytest.mark.builds("helm", "kubectl")]

EVERYTHING = frozenset(kit.SWITCHES)
ORDER = {"CustomResourceDefinition": 0, "Namespace": 1}
LAST = {"APIService": 3}
EXTERNAL = "v1beta1.external.metrics.k8s.io"
SERVED = ("v1beta2.custom.metrics.k8s.io", "v1beta1.custom.metrics.k8s.io", EXTERNAL)
API_SERVICES = "/apis/apiregistration.k8s.io/v1/apiservices"
Name = tuple[str, str, str]


@pytest.fixture(scope="module")
def cluster() -> Iterator[ControlPlane]:
    """A control plane of this module's own that knows the kinds of cert-manager and the Prometheus operator.

    No nodes, and no pods: namespaces with pods take 15 s to go.
    """
    with ControlPlane(
        nodes=0, scheduler=False, kwok=False, metrics_server=False, controllers="*,-deployment-controller"
    ) as cluster:
        for item in (*CERT_MANAGER.load(), *PROMETHEUS_OPERATOR.load()):
            cluster.client.apply(item)
            established = lambda one: condition_true(one, "Established")  # noqa: E731
            cluster.client.wait_for(cluster.client.path(item), established, 30, "CRD established")
        yield cluster


# --- warnings ---


def warnings_of(cluster: ControlPlane, item: Object) -> list[str]:
    """Applies an object on the server's side; returns the API server's warnings."""
    path = f"{cluster.client.path(item)}?fieldManager=tests&force=true"
    answer = cluster.client.raw(
        path, {"Content-Type": PATCH_TYPES["apply"]}, method="PATCH", body=yaml.safe_dump(item).encode()
    )
    assert answer.status < 300, f"{identity(item)}: {answer.text}"
    return [f"{identity(item)}: {value}" for key, value in answer.headers.items() if key.lower() == "warning"]


COMMON = {"commonLabels": {"team": "a"}, "commonAnnotations": {"note": "b"}}
NAMESPACED = {
    "rbac": {"namespaced": True},
    "settings": {"kubernetes": {"namespaces": ["default"]}},
}


@pytest.mark.parametrize(
    ("chosen", "more"),
    [(kit.DEFAULT | {"namespace"}, {}), (EVERYTHING, {}), (EVERYTHING, {**COMMON, **NAMESPACED})],
    ids=["default", "everything", "in-namespaces"],
)
def test_the_api_server_takes_every_object_without_a_warning(
    cluster: ControlPlane, chosen: kit.Combination, more: dict[str, Any]
) -> None:
    # Those of kustomize are equal, by tests/chart/test_equality.py.
    rendered = kit.rendered(merged(kit.values_of(chosen), more))
    rendered = sorted(rendered, key=lambda item: ORDER.get(item["kind"], LAST.get(item["kind"], 2)))
    try:
        assert [said for item in rendered for said in warnings_of(cluster, item)] == []
    finally:
        for item in reversed(rendered):
            if item["kind"] not in ORDER:
                cluster.client.delete(item)


SWITCHED_ON = ("external.metrics.k8s.io", "fastScaleUp", "deletionCost", "hpaConfiguration")
"""Words of the notes; those of an installation with all of it are in the last test."""


def test_notes_say_what_comes_next_and_nothing_of_what_is_off(cluster: ControlPlane) -> None:
    def notes(chosen: kit.Combination) -> str:
        arguments = ("install", "release", CHART, "--dry-run=client", "--take-ownership", "--namespace", "there")
        done = kit.run(*arguments, "--kubeconfig", cluster.kubeconfig, values=kit.values_of(chosen))
        assert done.returncode == 0, done.stderr
        return done.stdout.partition("NOTES:")[2]

    usual, nothing = map(notes, (kit.DEFAULT, frozenset[str]()))
    always = (
        "apiservice/v1beta2.custom.metrics.k8s.io",
        "kubectl -n there exec",
        "kubectl delete customresourcedefinition",
    )
    assert [word for word in always if word not in usual] == []
    assert [word for word in SWITCHED_ON if word in usual] == []
    assert ("There is no companion" in usual, "There is no companion" in nothing) == (False, True)


# --- the documented commands, with server and companion running ---


def commands(heading: str, after: str = "\n") -> str:
    """The commands in a section of docs/install.md: the first block behind a text."""
    text = (ROOT / "docs" / "install.md").read_text(encoding="utf-8")
    section = text.partition(f"\n{heading}\n")[2]
    blocks = re.findall(r"```sh\n(.*?)```", section.partition(after)[2], re.DOTALL)
    return str(blocks[0])


def shell(cluster: ControlPlane, script: str, folder: Path) -> str:
    """Runs documented commands as a person would; fails on any that fails, and on warnings."""
    tools = {kit.helm().parent, binaries.path_of("kubectl").parent}
    path = ":".join([*map(str, tools), os.environ["PATH"]])
    homes = {key: str(folder / key) for key in ("HOME", "HELM_CACHE_HOME", "HELM_CONFIG_HOME", "HELM_DATA_HOME")}
    environment = {**os.environ, **homes, "PATH": path, "KUBECONFIG": str(cluster.kubeconfig)}
    script = script.replace(" values.yaml", f" {folder}/values.yaml")
    done = subprocess.run(
        ["bash", "-euc", script], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"{script}\n{done.stdout}{done.stderr}"
    assert "warning" not in done.stderr.lower(), done.stderr
    return done.stdout


def snapshot(cluster: ControlPlane) -> set[Name]:
    """Every object of every kind that can be listed, but for Events, which end by themselves."""
    found = set()
    for base, resource in _resources(cluster):
        if "list" in resource["verbs"] and resource["resource"] not in {"events", "componentstatuses"}:
            for item in cluster.client.list(f"{base}/{resource['resource']}"):
                metadata = item["metadata"]
                found.add((resource["responseKind"]["kind"], metadata.get("namespace", ""), metadata["name"]))
    return found


def _resources(cluster: ControlPlane) -> Iterator[tuple[str, Any]]:
    accept = {"Accept": "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"}
    for root in ("/api", "/apis"):
        for group in cluster.client.raw(root, accept).json()["items"]:
            name = group["metadata"].get("name", "")
            for version in group["versions"]:
                base = f"{root}/{name}/{version['version']}" if name else f"{root}/{version['version']}"
                yield from ((base, resource) for resource in version["resources"])


RUNNABLE = EVERYTHING - {"certManager", "namespace", "quota"}
"""All but cert-manager, which is not here to make a certificate, and what Helm has no need for."""
FIRST = RUNNABLE - {"external"}
INSTALL = commands("### With Helm", "```yaml").splitlines()[2]
REMOVE = commands("## Remove", "With Helm").splitlines(keepends=True)
DEPLOYMENT = f"/apis/apps/v1/namespaces/{kit.NAMESPACE}/deployments/effective-load"
DEFINITION = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/watermarkpolicies.effective-load.io"
DEPENDENT = {"EndpointSlice", "Endpoints"}
"""Kinds that controllers delete a moment after what they depend on."""


class Running:
    """Server and companion with the settings and the accounts of an installation."""

    def __init__(self, cluster: ControlPlane) -> None:
        self.cluster, self.stack = cluster, ExitStack()

    def __enter__(self) -> Self:
        cluster, settings = self.cluster, self._settings()
        tokens = {name: cluster.token(kit.NAMESPACE, name) for name in ("effective-load", "effective-load-companion")}
        files = {name: cluster.kubeconfig_with_token(token, f"{name}-installed") for name, token in tokens.items()}
        self.adapter = AdapterProcess(cluster, settings, kubeconfig=files["effective-load"], register=False)
        self.lead_to_it()
        self.stack.enter_context(self.adapter)
        self.wait_available()
        self.stack.enter_context(CompanionProcess(cluster, settings, kubeconfig=files["effective-load-companion"]))
        # What is written at run time is written.
        secret = f"/api/v1/namespaces/{kit.NAMESPACE}/secrets/effective-load-tls"
        cluster.client.wait_for(secret, lambda one: "tls.key" in one.get("data", {}), 30, "certificate")
        lease = f"/apis/coordination.k8s.io/v1/namespaces/{kit.NAMESPACE}/leases/effective-load-companion"
        cluster.client.wait_for(lease, lambda one: one.get("spec", {}).get("holderIdentity"), 30, "leader")
        return self

    def __exit__(self, *_: object) -> None:
        self.stack.close()

    def upgrade(self, folder: Path, chosen: kit.Combination) -> str:
        """Upgrades the release; its settings reach the running server, as the kubelet brings it a ConfigMap."""
        self.cluster.client.delete(f"/api/v1/namespaces/{kit.NAMESPACE}/services/effective-load")  # it led elsewhere
        said = helm(self.cluster, "upgrade", chosen, folder)
        self.lead_to_it()
        self.configure()
        self.wait_available()
        return said

    def configure(self, **more: Any) -> None:
        self.adapter.configure(merged(self._settings(), more))

    def _settings(self) -> dict[str, Any]:
        """Those of the ConfigMap, with addresses of this machine."""
        path = f"/api/v1/namespaces/{kit.NAMESPACE}/configmaps/effective-load-settings"
        settings = dict(yaml.safe_load(self.cluster.client.get(path)["data"]["settings.yaml"]))
        settings["server"].pop("port", None)
        return {**settings, "telemetry": {"address": ""}}

    def wait_available(self) -> None:
        for name in self._registered():
            self.cluster.wait_api_service(name)

    def _registered(self) -> list[str]:
        return [name for name in SERVED if self.cluster.client.raw(f"{API_SERVICES}/{name}").status == 200]

    def lead_to_it(self) -> None:
        """There is no network of pods: the Service leads to the process on this machine."""
        port = self.adapter.port
        external = objects.external_service("effective-load", kit.NAMESPACE, port)["spec"]
        path = f"/api/v1/namespaces/{kit.NAMESPACE}/services/effective-load"
        self.cluster.client.patch(path, {"spec": {**external, "selector": None, "clusterIP": None, "clusterIPs": None}})
        for name in self._registered():
            self.cluster.client.patch(f"{API_SERVICES}/{name}", {"spec": {"service": {"port": port}}})


def helm(cluster: ControlPlane, verb: str, chosen: kit.Combination, folder: Path) -> str:
    """Installs or upgrades the release with these switched on, by the documented command; returns what is printed."""
    (folder / "values.yaml").write_text(yaml.safe_dump(kit.values_of(chosen)))
    return shell(cluster, f"{INSTALL.replace('install', verb, 1)} --take-ownership", folder)


def end_a_namespace(cluster: ControlPlane) -> None:
    """A namespace ends only while every registered API describes itself."""
    cluster.client.apply(objects.namespace("ends"))
    cluster.client.delete("/api/v1/namespaces/ends", wait=30)


def write_overlay(folder: Path) -> None:
    """An overlay with what is switched on first."""
    folder.mkdir()
    (item,) = [one for one in kit.overlay(FIRST) if "settings.yaml" in one.get("data", {})]
    (folder / "settings.yaml").write_text(yaml.safe_dump(item))
    there = os.path.relpath(ROOT / "manifests", folder)
    names = [name for switch in sorted(FIRST) for name in kit.SWITCHES[switch].components]
    components = [f"{there}/components/{name}" for name in names]
    overlay = {"resources": [f"{there}/base"], "components": components, "patches": [{"path": "settings.yaml"}]}
    (folder / "kustomization.yaml").write_text(yaml.safe_dump(overlay))


def test_helm_takes_over_what_kustomize_applied_upgrades_it_and_leaves_nothing_behind(
    cluster: ControlPlane, tmp_path: Path
) -> None:
    cluster.client.delete(f"/api/v1/namespaces/{kit.NAMESPACE}", wait=30)  # of the tests before
    cluster.client.delete(DEFINITION, wait=30)
    before = snapshot(cluster)
    write_overlay(tmp_path / "mine")
    shell(cluster, f"kubectl apply -k {tmp_path}/mine", tmp_path)
    first = cluster.client.get(DEPLOYMENT)["metadata"]["uid"]
    assert "effective-load 0.1.0 serves custom.metrics.k8s.io" in helm(cluster, "install", FIRST, tmp_path)
    taken = cluster.client.get(DEPLOYMENT)["metadata"]
    assert (taken["uid"], taken["labels"]["app.kubernetes.io/managed-by"]) == (first, "Helm")

    def left() -> set[Name]:
        return {one for one in snapshot(cluster) - before if one[0] not in DEPENDENT}

    with Running(cluster) as running:
        assert cluster.client.raw(f"{API_SERVICES}/{EXTERNAL}").status == 404
        said = running.upgrade(tmp_path, RUNNABLE)
        assert [word for word in SWITCHED_ON if word not in said] == []
        assert cluster.client.get(f"{API_SERVICES}/{EXTERNAL}")["spec"]["caBundle"]
        end_a_namespace(cluster)
        running.configure(server={"externalMetrics": False})  # its APIService is left, as by kustomize
        taken_settings = 'effective_load_settings_reloads_total{result="taken"}'
        until(lambda: running.adapter.metric(taken_settings) == 2, 30, running.adapter.logs)
        end_a_namespace(cluster)
        cluster.client.apply(objects.namespace("shop"))
        Workloads(cluster, "shop").policy("web", [cpu_watermarks("1200m", "400m")])
        policy = "/apis/effective-load.io/v1alpha1/namespaces/shop/watermarkpolicies/web"
        cluster.client.wait_for(policy, lambda one: one.get("status"), 30, "status")
        shell(cluster, REMOVE[0], tmp_path)
        ours = lambda: {kind for kind, _, name in left() if name.startswith("effective-load")}  # noqa: E731
        # Helm brings no quota, so it removes none; what it owned is collected later.
        until(lambda: ours() == {"Namespace", "ResourceQuota"}, 30, lambda: str(ours()))
        assert cluster.client.find(policy) is not None
    shell(cluster, "".join(REMOVE[1:]), tmp_path)
    cluster.client.delete("/api/v1/namespaces/shop", wait=30)
    until(lambda: not left(), 30, lambda: f"still there: {sorted(left())}")
