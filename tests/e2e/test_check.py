"""`effective-load check` on the real control plane, with the rights that the manifests give the adapter."""

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from adapter.runtime.times import format_time
from lab.harness.workloads import Workloads, cpu_watermarks, external_metric, target_metric
from tests.e2e.commands import command
from tests.e2e.registries import Platform, platform

pytestmark = pytest.mark.builds("consul")

SERVICE = "shop.web"


class Check:
    """Runs the command against this cluster, with one registry in the settings."""

    def __init__(self, folder: Path, kubeconfig: Path, entry: dict[str, Any]) -> None:
        self._kubeconfig, self._entry = kubeconfig, entry
        self._settings = folder / "settings.yaml"

    def __call__(self, *arguments: str, **entry: Any) -> tuple[int, dict[str, list[str]]]:
        """The exit status, and the findings of each section; `entry` are further keys of the registry."""
        status, printed = self._run(*arguments, "-o", "json", **entry)
        sections = json.loads(printed)["sections"]
        return status, {
            one["about"]: [f"{finding['verdict']}: {finding['text']}" for finding in one["findings"]]
            for one in sections
        }

    def lines(self, *arguments: str) -> list[str]:
        """The lines of its text output."""
        return self._run(*arguments)[1].splitlines()

    def _run(self, *arguments: str, **entry: Any) -> tuple[int, str]:
        self._settings.write_text(yaml.safe_dump({"registries": [{**self._entry, **entry}]}))
        return command("check", "--settings", self._settings, "--kubeconfig", self._kubeconfig, *arguments)


@pytest.fixture(scope="module")
def consul() -> Iterator[Platform]:
    with platform("consul") as server:
        yield server


@pytest.fixture
def check(tmp_path: Path, adapter_kubeconfig: Path, consul: Platform) -> Check:
    return Check(tmp_path, adapter_kubeconfig, consul.settings)


def is_inactive(hpa: dict[str, Any]) -> bool:
    conditions = hpa.get("status", {}).get("conditions", ())
    return ("ScalingActive", "False") in {(one["type"], one["status"]) for one in conditions}


def policy(workloads: Workloads, name: str = "web", service: str = SERVICE) -> None:
    workloads.policy(name, [cpu_watermarks("1200m", "400m")], registry={"name": "consul", "service": service})


def addresses(workloads: Workloads) -> dict[str, str]:
    return {pod["metadata"]["name"]: pod["status"]["podIP"] for pod in workloads.pods("web")}


def test_matching_pods_are_counted_and_the_others_are_listed_with_the_reason(
    check: Check, workloads: Workloads, consul: Platform
) -> None:
    workloads.deployment("web", 3)
    policy(workloads)
    workloads.hpa("web")
    pods = addresses(workloads)
    out, well, lost = pods
    consul.register(SERVICE, {name: pods[name] for name in (out, well)} | {"gone": "10.99.0.1"})
    consul.pull(SERVICE, out, out=True)
    status, found = check("--policy", f"{workloads.namespace}/web")
    assert found[f"policy {workloads.namespace}/web"] == [
        f"ok: the settings let it name service {SERVICE} of registry consul",
        "ok: 2 of 3 pods of Deployment web match an instance",
        f"note: pod {out} is out: MAINTENANCE",
        f"wrong: pod {lost} matches no instance: no instance is registered at its address ({pods[lost]})",
        "note: instance 10.99.0.1:8080 counts for no pod: its address is no pod's of the target",
    ]
    assert found[f"service {SERVICE} of registry consul"] == ["ok: it is known: 3 instances (2 in, 1 out)"]
    assert status == 1
    consul.pull(SERVICE, out, out=False)
    consul.register("shop.whole", pods)
    policy(workloads, "whole", "shop.whole")
    workloads.hpa("whole", target=("apps/v1", "Deployment", "web"))
    status, found = check("--policy", f"{workloads.namespace}/whole")
    assert found[f"policy {workloads.namespace}/whole"][1:] == ["ok: 3 of 3 pods of Deployment web match an instance"]
    # Once both HPAs have synced, the controller's own complaint (AmbiguousSelector) stands between.
    conflict, shared, *others = found[f"HPA {workloads.namespace}/whole of policy whole"]
    assert conflict.startswith("wrong: Deployment web has other policies as well (web)")
    assert shared.startswith("wrong: Deployment web is scaled by other HPAs as well (web)")
    assert any(one.startswith("note: HPA whole has scaleDown.stabilizationWindowSeconds 0") for one in others)
    assert status == 1


def test_a_policy_that_the_settings_do_not_allow_is_reported_with_the_settings_error(
    check: Check, workloads: Workloads
) -> None:
    policy(workloads)
    allow = [{"namespaces": ["elsewhere"], "services": ["*"]}]
    status, found = check("--policy", f"{workloads.namespace}/web", allow=allow)
    sentence, *_ = found[f"policy {workloads.namespace}/web"]
    assert sentence.startswith(f"wrong: policies in namespace {workloads.namespace} may not name service")
    assert status == 1


def test_each_missing_object_between_a_policy_and_its_pods_is_named(check: Check, workloads: Workloads) -> None:
    where = f"{workloads.namespace}/web"
    assert check("--policy", where)[1]["cluster"] == [
        f"wrong: policies cannot be read: there is no WatermarkPolicy web in namespace {workloads.namespace}"
    ]
    policy(workloads)
    assert (
        "wrong: there is no HorizontalPodAutoscaler web, which the policy names"
        in check("--policy", where)[1][f"policy {where}"]
    )
    workloads.hpa("web")
    assert (
        "wrong: Deployment web, which HorizontalPodAutoscaler web scales, does not exist"
        in check("--policy", where)[1][f"policy {where}"]
    )


def test_without_a_policy_all_are_checked(check: Check, workloads: Workloads) -> None:
    policy(workloads)
    policy(workloads, "cart", "shop.cart")
    workloads.policy("plain", [cpu_watermarks("1200m", "400m")])
    found = check()[1]
    assert {f"policy {workloads.namespace}/{name}" for name in ("web", "cart", "plain")} <= found.keys()
    assert "service shop.cart of registry consul" in found


def test_a_policy_that_names_no_registry_is_checked_with_its_hpa(check: Check, workloads: Workloads) -> None:
    workloads.deployment("web", 3)
    workloads.policy("web", [cpu_watermarks("1200m", "400m")])
    workloads.hpa("web")
    workloads.client.wait_for(workloads.hpa_path("web"), is_inactive, 30, "ScalingActive=False")
    status, found = check("--policy", f"{workloads.namespace}/web")
    assert found[f"policy {workloads.namespace}/web"] == [
        "ok: it names no service registry: Kubernetes itself says which of the 3 pods of Deployment web serve"
    ]
    [hasty] = [line for line in found[f"HPA {workloads.namespace}/web of policy web"] if line.startswith("note: ")]
    assert hasty.startswith("note: HPA web has scaleDown.stabilizationWindowSeconds 0")
    assert status == 1, "no adapter is installed here, so the HPA gets no answer"


def test_hpas_that_name_no_existing_policy_are_listed(check: Check, workloads: Workloads) -> None:
    workloads.deployment("web", 1)
    policy(workloads)
    workloads.hpa("web")
    workloads.hpa("wbe")
    workloads.hpa("labelled", metrics=[external_metric("lost")])
    workloads.hpa("alone", metrics=[target_metric("Deployment", "alone")])
    status, found = check()
    where, ask = workloads.namespace, "wrong: it asks for desired_replicas of"
    assert found[f"HPA {where}/wbe"] == [
        (
            f"{ask} WatermarkPolicy wbe, which does not exist in namespace {where}; create that policy, or name one "
            "that exists (web)"
        )
    ]
    assert found[f"HPA {where}/labelled"][0].startswith(f"{ask} WatermarkPolicy lost, which does not exist")
    assert found[f"HPA {where}/alone"][0].startswith(f"{ask} Deployment alone, which no WatermarkPolicy in namespace")
    assert f"HPA {where}/web" not in found
    assert status == 1


def test_silent_watches_and_old_lines_are_listed_by_the_policies_statuses(check: Check, workloads: Workloads) -> None:
    workloads.deployment("web", 1)
    for name in ("web", "cart"):
        workloads.policy(name, [cpu_watermarks("1200m", "400m")])
        workloads.hpa(name, target=("apps/v1", "Deployment", "web"))
    silence = "the watch of deployments.apps has shown no life since 12:00:00"
    write_status(workloads, "web", time.time(), {"status": "False", "reason": "WatchSilent", "message": silence})
    write_status(workloads, "cart", time.time() - 600, {"status": "True", "reason": "Decided", "message": "well"})
    found = check()[1]
    assert [one for one in found["watches"] if f"{workloads.namespace}/web" in one] == [
        f"wrong: {silence} (reported by the status of {workloads.namespace}/web)"
    ]
    (old,) = [one for one in found["companion"] if one.startswith("wrong: it writes every status within two minutes")]
    assert f"{workloads.namespace}/cart" in old
    well = {"status": "False", "reason": "NoDecision", "message": "no pod serves"}
    write_status(workloads, "web", time.time(), well)
    found = check("--policy", f"{workloads.namespace}/web")[1]
    assert found[f"policy {workloads.namespace}/web"][-1].endswith("(NoDecision): no pod serves")


def write_status(workloads: Workloads, name: str, at: float, ready: dict[str, str]) -> None:
    path = f"/apis/effective-load.io/v1alpha1/namespaces/{workloads.namespace}/watermarkpolicies/{name}"
    told = {"type": "Ready", "lastTransitionTime": format_time(at), **ready}
    workloads.client.patch_status(path, {"status": {"assessedAt": format_time(at), "conditions": [told]}})


def test_text_output_has_no_line_without_faults_and_ends_with_a_summary(check: Check, workloads: Workloads) -> None:
    workloads.deployment("web", 3)
    workloads.policy("web", [cpu_watermarks("1200m", "400m")])
    calm = {way: {"tolerance": "0", "stabilizationWindowSeconds": 60} for way in ("scaleUp", "scaleDown")}
    workloads.hpa("web", behavior=calm)
    write_status(workloads, "web", time.time(), {"status": "True", "reason": "Decided", "message": "well"})
    asked = ("--policy", f"{workloads.namespace}/web")
    for _ in range(2):  # the HPA, before its first sync perhaps, and in error
        well = check.lines(*asked)
        assert f"policy {workloads.namespace}/web" not in well, "no fault and no note, so no line"
        assert well[-1] == f"1 policy, 1 HPA: {counts_of(well)}"
        workloads.client.wait_for(workloads.hpa_path("web"), is_inactive, 30, "ScalingActive=False")
    workloads.client.delete(workloads.hpa_path("web"))
    gone = check.lines(*asked)
    policy_lines = gone.index(f"policy {workloads.namespace}/web")
    assert gone[policy_lines + 1] == "  wrong  there is no HorizontalPodAutoscaler web, which the policy names"
    assert gone[-1] == f"1 policy: {counts_of(gone)}"


def counts_of(lines: list[str]) -> str:
    """The summary's counts as the findings above it give them: what other tests leave in the cluster is found too."""
    levels = [line.split()[0] for line in lines if line.startswith(("  wrong ", "  note ", "  skip "))]
    notes, skipped = levels.count("note"), levels.count("skip")
    more = f", {skipped} not checked" if skipped else ""
    return f"{levels.count('wrong')} wrong, {notes} note{'s' * (notes != 1)}{more}"
