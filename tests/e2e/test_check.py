"""`check` names the one cause first, and `explain` agrees, on the real control plane with each thing away in turn."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from lab.harness import binaries
from lab.harness.adapter import NAMESPACE, AdapterProcess
from lab.harness.control_plane import ControlPlane
from lab.harness.workloads import Workloads, cpu_watermarks, resource_metric, until
from tests.e2e.commands import command
from tests.e2e.conftest import MakeAdapter
from tests.e2e.kit import FAST, policy_path
from tests.e2e.registries import OnConsul
from tests.manifests.rendering import MANIFESTS, documents

pytestmark = [pytest.mark.versions, pytest.mark.builds("consul")]

SERVICE = "shop.web"
CALM = {way: {"tolerance": "0", "stabilizationWindowSeconds": 60} for way in ("scaleUp", "scaleDown")}


class Check:
    """Runs `check` and `explain` about policy web of a namespace, with these settings."""

    def __init__(self, folder: Path, cluster: ControlPlane, namespace: str) -> None:
        self._settings, self.kubeconfig, self._policy = folder / "settings.yaml", cluster.kubeconfig, f"{namespace}/web"

    def __call__(self, **settings: Any) -> dict[str, list[str]]:
        """The findings of each section that are not ok."""
        self._settings.write_text(yaml.safe_dump({"server": {"externalMetrics": True}, **settings}))
        asked = ("--settings", self._settings, "--kubeconfig", self.kubeconfig, "--policy", self._policy)
        status, printed = command("check", *asked, "-o", "json")
        report = json.loads(printed[printed.index("{\n") :])  # log lines of sources that fail may stand before it
        assert (status == 0) is report["ok"]
        return {
            one["about"]: [
                f"{found['level']}: {found['text']}{'; ' * ('remedy' in found)}{found.get('remedy', '')}"
                for found in one["findings"]
                if found["level"] != "ok"
            ]
            for one in report["sections"]
        }

    def errors(self, **settings: Any) -> list[str]:
        """The errors, the first of which names the cause."""
        return [line for found in self(**settings).values() for line in found if line.startswith("error: ")]

    def explain(self) -> str:
        """The page of `explain`."""
        return command("explain", self._policy, "--kubeconfig", self.kubeconfig)[1]


@pytest.fixture
def check(tmp_path: Path, control_plane: ControlPlane, workloads: Workloads) -> Check:
    return Check(tmp_path, control_plane, workloads.namespace)


def serve(workloads: Workloads, *, pods: int = 2, **policy: Any) -> None:
    """A service that its HPA scales on cpu."""
    exact = binaries.HPA_TOLERANCE  # else as much as an HPA has that cannot set its own
    workloads.deployment("web", pods)
    workloads.policy("web", [cpu_watermarks("1200m", "400m")], tolerance="0" if exact else "10%", **policy)
    workloads.hpa("web", **({"behavior": CALM} if exact else {}))


def test_a_missing_role_a_wrong_hpa_and_a_stopped_adapter_are_the_one_error_in_turn(
    adapter: AdapterProcess, control_plane: ControlPlane, workloads: Workloads, check: Check
) -> None:
    serve(workloads)
    workloads.wait_condition("web", "ScalingActive")
    assert check.errors() == []
    assert "Freshness" in check.explain()
    [binding] = [
        one
        for one in documents(MANIFESTS / "base" / "rbac.yaml")
        if (one["kind"], one["metadata"]["name"]) == ("ClusterRoleBinding", "effective-load-scales")
    ]
    control_plane.client.delete(binding)
    try:
        until(lambda: bool(check.errors()), 30, adapter.logs)
        found = check()
    finally:
        control_plane.client.apply(binding)
    (lack,) = found[f"rights of service account {NAMESPACE}/{NAMESPACE}"]
    assert lack.startswith("error: it may not get deployments/scale.apps, get statefulsets/scale.apps, ")
    assert lack.endswith("apply effective-load-scales and its binding (manifests/base/rbac.yaml)")
    assert "rights" not in found["not checked yet"][0].partition(";")[0]

    until(lambda: not check.errors(), 30, adapter.logs)
    workloads.client.patch(workloads.hpa_path("web"), {"spec": {"metrics": [resource_metric("cpu", average="1")]}})
    until(lambda: "it does not ask for this policy's count" in check.explain(), 60, adapter.logs)
    first, *_ = check.errors()
    assert first == "error: HPA web does not ask for desired_replicas of policy web"

    adapter.stop()
    until(lambda: any("is not available" in one for one in check.errors()), 60, adapter.logs)
    found = check()
    failing = {about.split()[0] for about, lines in found.items() if any("error:" in one for one in lines)}
    assert failing == {"APIService"}
    skipped = "skipped: sources, registries, policies and HPAs; fix the errors of installation first"
    assert found["not checked yet"] == [skipped]
    assert "`effective-load check` finds the cause" in check.explain()


def test_a_wrong_service_name_and_unmatched_pods_are_the_errors(
    make_adapter: MakeAdapter, workloads: Workloads, check: Check, tmp_path: Path
) -> None:
    with OnConsul.run(tmp_path) as consul:
        consul.service, registries = SERVICE, [consul.settings]
        adapter = make_adapter({**FAST, "registries": registries})
        serve(workloads, registry={"name": "consul", "service": "shop.wbe"}, pods=3)
        until(lambda: "0 instances" in check.explain(), 60, adapter.logs)
        error, *others = check.errors(registries=registries)
        assert not others
        assert "service shop.wbe of registry consul" in error
        assert "no instance is registered under this name; check service, namespace and group" in error
        pods = {pod["metadata"]["name"]: pod["status"]["podIP"] for pod in workloads.pods("web")}
        out, well, lost = pods
        consul.register({name: pods[name] for name in (out, well)} | {"gone": "10.99.0.1"}, out)
        workloads.client.patch(policy_path(workloads), {"spec": {"registry": {"service": SERVICE}}})
        wanted = {
            f"warning: pod {out} is out: MAINTENANCE",
            f"error: pod {lost} matches no instance: no instance is registered at its address ({pods[lost]})",
            "warning: instance 10.99.0.1:8080 counts for no pod: no pod of the target has its address",
        }
        about = f"policy {workloads.namespace}/web"
        until(lambda: wanted <= {*check(registries=registries).get(about, ())}, 60, adapter.logs)


def test_an_account_without_rights_gets_a_report_of_what_it_may_not_see(control_plane: ControlPlane) -> None:
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "nobody", "namespace": "default"}}
    control_plane.client.apply(account)
    nobody = control_plane.kubeconfig_with_token(control_plane.token("default", "nobody"), "kubeconfig-nobody")
    status, printed = command("check", "--kubeconfig", nobody)
    assert status == 0
    lines = [line for line in printed.splitlines() if line.startswith("  skipped")]
    assert any("watermarkpolicies, for watermarkpolicies.effective-load.io is forbidden" in line for line in lines)
