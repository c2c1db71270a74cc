"""`effective-load check` without settings on the real control plane: causes come first; few rights are no crash."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from lab.harness import binaries
from lab.harness.adapter import NAMESPACE, AdapterProcess
from lab.harness.control_plane import ControlPlane
from lab.harness.workloads import Workloads, cpu_watermarks, until
from tests.e2e.commands import command
from tests.manifests.rendering import MANIFESTS, documents

pytestmark = [pytest.mark.e2e, pytest.mark.versions]

API_SERVICES = "/apis/apiregistration.k8s.io/v1/apiservices"
Report = dict[str, list[dict[str, Any]]]


def check(kubeconfig: Path, *arguments: str) -> tuple[int, Report]:
    """The exit status and the findings of each section."""
    status, printed = command("check", "--kubeconfig", kubeconfig, "-o", "json", *arguments)
    sections: Report = {}
    for one in json.loads(printed)["sections"]:
        sections.setdefault(one["about"], []).extend(one["findings"])
    return status, sections


def wrong(found: Report) -> list[tuple[str, str]]:
    """The sections and sentences of what is wrong."""
    return [(about, one["text"]) for about, all_ in found.items() for one in all_ if one["verdict"] == "wrong"]


@pytest.fixture
def scaled(workloads: Workloads) -> Workloads:
    workloads.deployment("web", 2)
    # As much as an HPA has that cannot set its own: else `check` names the steps that it suppresses, rightly.
    workloads.policy("web", [cpu_watermarks("1200m", "400m")], tolerance="10%")
    workloads.hpa("web")
    return workloads


@pytest.fixture
def installed(control_plane: ControlPlane, adapter: AdapterProcess) -> None:
    """The ConfigMap of the installation, with the settings of the shared adapter."""
    (config,) = documents(MANIFESTS / "base" / "settings.yaml")
    settings = yaml.safe_load(adapter.settings_file.read_text())
    config["data"]["settings.yaml"] = yaml.safe_dump(
        {"server": {"externalMetrics": settings["server"]["externalMetrics"]}}
    )
    control_plane.client.apply(config)


def test_the_installed_settings_are_read_and_the_cause_of_an_hpas_error_is_named_once(
    control_plane: ControlPlane, adapter: AdapterProcess, scaled: Workloads, installed: None
) -> None:
    hpa = f"HPA {scaled.namespace}/web of policy web"
    found = check(control_plane.kubeconfig)[1]
    assert found["settings"] == [
        {"verdict": "ok", "text": f"they are those of ConfigMap {NAMESPACE}/effective-load-settings"}
    ]
    assert not [one for one in wrong(found) if one[0].startswith("APIService")]
    has = "have a" if binaries.HPA_TOLERANCE else "have no"
    assert f"it is Kubernetes v{binaries.KUBERNETES}, whose HPAs {has} tolerance of their own" in str(
        found["API server"]
    )
    assert {one["verdict"] for one in found["certificates"]} == {"ok"}
    services = [control_plane.client.get(f"{API_SERVICES}/{name}") for name in adapter.api_services]
    adapter.unregister()
    try:
        until(lambda: "no custom metrics API" in str(scaled.hpa_status("web")), 30, adapter.logs)
        status, found = check(control_plane.kubeconfig)
        status_of_one, of_one = check(control_plane.kubeconfig, "--policy", f"{scaled.namespace}/web")
    finally:
        for one in services:  # with the caBundle, which the server would write again a minute later
            control_plane.client.apply({**one, "metadata": {"name": one["metadata"]["name"]}, "status": {}})
        adapter.wait_available()
    (missing,) = found["APIService v1beta2.custom.metrics.k8s.io"]
    assert missing["text"].startswith("it does not exist, so no HPA is answered")
    assert hpa in dict(wrong(found))
    assert status == 1
    assert (status_of_one, of_one["APIService v1beta2.custom.metrics.k8s.io"]) == (1, [missing])


def test_one_missing_role_is_one_finding(
    control_plane: ControlPlane, adapter_kubeconfig: Path, installed: None
) -> None:
    (binding,) = [
        one
        for one in documents(MANIFESTS / "base" / "rbac.yaml")
        if (one["kind"], one["metadata"]["name"]) == ("ClusterRoleBinding", "effective-load-scales")
    ]
    control_plane.client.delete(binding)
    try:
        found = check(adapter_kubeconfig, "--settings", str(settings_file(adapter_kubeconfig)))[1]
    finally:
        control_plane.client.apply(binding)
    (lack,) = found[f"rights of service account {NAMESPACE}/{NAMESPACE}"]
    assert lack["text"].startswith("it may not get deployments/scale.apps; get statefulsets/scale.apps; ")
    assert lack["text"].endswith("apply effective-load-scales and its binding (manifests/base/rbac.yaml)")


def settings_file(beside: Path) -> Path:
    """A settings file with every default."""
    file = beside.parent / "default-settings.yaml"
    file.write_text("{}\n")
    return file


def test_an_account_without_rights_gets_a_report_of_what_it_may_not_see(control_plane: ControlPlane) -> None:
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "nobody", "namespace": "default"}}
    control_plane.client.apply(account)
    nobody = control_plane.kubeconfig_with_token(control_plane.token("default", "nobody"), "kubeconfig-nobody")
    status, found = check(nobody)
    assert status == 0
    skipped = [one["text"] for all_ in found.values() for one in all_ if one["verdict"] == "skip"]
    assert "not checked: HPAs, for this account may not list horizontalpodautoscalers.autoscaling" in skipped
    assert len(skipped) == len(set(skipped))
