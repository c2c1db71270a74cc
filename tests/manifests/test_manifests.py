"""The manifests as files: completeness, hardening and least rights."""

import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from lab.harness import binaries
from tests.manifests.rendering import MANIFESTS, Object, documents, identity, render, render_with, rules_of

BASE = MANIFESTS / "base"
DEFAULT = MANIFESTS / "overlays" / "default"
EXTERNAL = MANIFESTS / "overlays" / "external-metrics"
EXAMPLE = MANIFESTS / "examples" / "overlay"
ALL = sorted((path.name for path in (MANIFESTS / "components").iterdir()), key=lambda name: name == "cert-manager")
EACH = pytest.mark.parametrize("folder", [BASE, DEFAULT, EXTERNAL, EXAMPLE], ids=["base", "default", "external", "own"])
KUBECTL = shutil.which("kubectl") or str(binaries.path_of("kubectl"))
WITH_KUBECTL = pytest.mark.skipif(not Path(KUBECTL).exists(), reason="kubectl, which brings kustomize, is not here")
WRITES = {"create", "update", "patch", "delete", "deletecollection", "*"}


def found(folder: Path = BASE) -> dict[tuple[str, str, str], Object]:
    return {identity(item): item for item in render(folder)}


def kustomized(folder: Path, **kustomization: Any) -> list[Object]:
    """The objects that the real kustomize makes of a folder, in which this kustomization is written if any."""
    if kustomization:
        (folder / "kustomization.yaml").write_text(yaml.safe_dump(kustomization), encoding="utf-8")
    answer = subprocess.run([KUBECTL, "kustomize", str(folder)], capture_output=True, check=True)
    return [one for one in yaml.safe_load_all(answer.stdout) if one]


def server_rules(folder: Path) -> list[dict[str, Any]]:
    """The rules of all roles bound to the server's account."""
    return list(rules_of("effective-load", render(folder)))


def test_every_file_of_the_manifests_is_used() -> None:
    folders = [path.parent for path in MANIFESTS.rglob("kustomization.yaml")]
    assert folders
    for folder in folders:
        kustomization = yaml.safe_load((folder / "kustomization.yaml").read_text(encoding="utf-8"))
        named = {*kustomization.get("resources", ()), *(patch["path"] for patch in kustomization.get("patches", ()))}
        named.update(kustomization.get("configurations", ()))
        assert {file.name for file in folder.glob("*.yaml")} - {"kustomization.yaml"} == {
            n for n in named if "/" not in n
        }


@EACH
@WITH_KUBECTL
def test_the_rendering_is_that_of_kustomize(folder: Path) -> None:
    theirs = kustomized(folder)
    assert sorted(map(identity, theirs)) == sorted(map(identity, render(folder)))
    assert {identity(item): item for item in theirs} == found(folder)


@WITH_KUBECTL
def test_changed_settings_of_the_example_replace_the_pods_of_both(tmp_path: Path) -> None:
    def templates(settings: str) -> dict[str, Any]:
        config = {"apiVersion": "v1", "kind": "ConfigMap", "data": {"settings.yaml": settings}}
        metadata = {"name": "effective-load-settings", "namespace": "effective-load"}
        (tmp_path / "settings.yaml").write_text(yaml.safe_dump({**config, "metadata": metadata}), encoding="utf-8")
        deployments = [one for one in kustomized(tmp_path) if one["kind"] == "Deployment"]
        return {one["metadata"]["name"]: one["spec"]["template"] for one in deployments}

    there = os.path.relpath(MANIFESTS, tmp_path)
    for name in ("kustomization.yaml", "control-plane.yaml", "network-policies.yaml"):
        text = (EXAMPLE / name).read_text(encoding="utf-8").replace("../../", f"{there}/")
        (tmp_path / name).write_text(text, encoding="utf-8")
    before, same, after = map(templates, ("server: {port: 6443}", "server: {port: 6443}", "server: {port: 7443}"))
    assert before == same
    assert len(before) == 2
    assert all(before[name] != after[name] for name in before)


def everything(folder: Path, *components: str) -> dict[str, list[str]]:
    """The base with these components, as a kustomization in this folder names them."""
    named = (MANIFESTS / "components" / name for name in components)
    return {"resources": [os.path.relpath(BASE, folder)], "components": [os.path.relpath(one, folder) for one in named]}


@WITH_KUBECTL
def test_admission_policies_confine_the_accounts_that_an_overlay_renames_and_moves(tmp_path: Path) -> None:
    without_issuer = everything(tmp_path, *(name for name in ALL if name != "cert-manager"))
    rendered = kustomized(tmp_path, **without_issuer, namePrefix="a-", nameSuffix="-z", namespace="metrics")
    policies = {item["metadata"]["name"] for item in rendered if item["kind"] == "ValidatingAdmissionPolicy"}
    bindings = [item["spec"] for item in rendered if item["kind"] == "ValidatingAdmissionPolicyBinding"]
    accounts = {(binding["paramRef"]["namespace"], binding["paramRef"]["name"]) for binding in bindings}
    assert accounts == {("metrics", "a-effective-load-z"), ("metrics", "a-effective-load-companion-z")}
    assert {binding["policyName"] for binding in bindings} == policies
    assert len(policies) == 4


@WITH_KUBECTL
def test_the_rendering_of_all_components_together_is_that_of_kustomize(tmp_path: Path) -> None:
    theirs = {identity(item): item for item in kustomized(tmp_path, **everything(tmp_path, *ALL))}
    assert theirs == {identity(item): item for item in render_with(BASE, ALL)}


# --- rights ---


@EACH
def test_the_server_writes_its_own_secret_and_apiservices_by_name_and_nothing_else(folder: Path) -> None:
    rules = [rule for rule in server_rules(folder) if rule.get("resources") != ["subjectaccessreviews"]]  # a question
    writing = [rule for rule in rules if WRITES & set(rule["verbs"])]
    assert {resource for rule in writing for resource in rule.get("resources", ())} == {"secrets", "apiservices"}
    assert all(rule.get("resourceNames") for rule in writing)
    assert all(set(rule["verbs"]) == {"get", "patch"} for rule in writing)


def test_no_right_is_a_wildcard_and_secrets_are_read_by_name_only() -> None:
    rules = server_rules(EXTERNAL)
    assert any("secrets" in rule.get("resources", ()) for rule in rules)
    for rule in rules:
        assert "*" not in {*rule["verbs"], *rule.get("apiGroups", ()), *rule.get("resources", ())}
        if "secrets" in rule.get("resources", ()):
            assert rule["resourceNames"] == ["effective-load-tls"]


# --- the pod ---


def pod_of_server() -> dict[str, Any]:
    return dict(found()["Deployment", "effective-load", "effective-load"]["spec"]["template"]["spec"])


def test_the_pod_is_hardened() -> None:
    pod = pod_of_server()
    (container,) = pod["containers"]
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["runAsUser"] == 65534
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert not any(pod.get(key) for key in ("hostNetwork", "hostPID", "hostIPC"))
    assert container["resources"]["requests"].keys() == {"cpu", "memory"}
    assert "memory" in container["resources"]["limits"]


def test_a_rollout_and_a_drain_leave_one_replica_serving() -> None:
    objects = found()
    spec = objects["Deployment", "effective-load", "effective-load"]["spec"]
    assert spec["replicas"] == 2
    assert spec["strategy"]["rollingUpdate"]["maxUnavailable"] == 0
    budget = objects["PodDisruptionBudget", "effective-load", "effective-load"]["spec"]
    assert budget["maxUnavailable"] == 1
    assert budget["selector"] == spec["selector"]


# --- the schema ---


def _fields(schema: dict[str, Any], path: str) -> list[tuple[str, dict[str, Any]]]:
    inner = [(f"{path}.{name}", one) for name, one in schema.get("properties", {}).items()]
    items = [(f"{path}[]", schema["items"])] if isinstance(schema.get("items"), dict) else []
    return inner + [deeper for where, one in inner + items for deeper in _fields(one, where)]


def _schema() -> dict[str, Any]:
    (crd,) = documents(MANIFESTS / "crd" / "watermarkpolicies.yaml")
    return dict(crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"])


def test_every_field_of_a_policy_is_explained() -> None:
    unexplained = [path for path, one in _fields(_schema(), "") if "description" not in one]
    assert unexplained == [".metadata"]


def test_every_text_and_list_of_the_spec_is_bounded() -> None:
    fields = list(_fields(_schema()["properties"]["spec"], "spec"))
    assert {"string", "array", "integer"} <= {one.get("type") for _, one in fields}
    for path, one in fields:
        if one.get("type") == "string":
            assert "maxLength" in one or "enum" in one, path
        if one.get("type") == "array":
            assert "maxItems" in one, path
        if one.get("type") == "integer":
            assert {"minimum", "maximum"} <= one.keys(), path


def test_printer_columns_point_at_fields_that_exist() -> None:
    (crd,) = documents(MANIFESTS / "crd" / "watermarkpolicies.yaml")
    paths = {path for path, _ in _fields(_schema(), "")}
    columns = crd["spec"]["versions"][0]["additionalPrinterColumns"]
    assert columns
    for column in columns:
        field = column["jsonPath"].replace('[?(@.type=="Ready")]', "[]")
        assert field in paths | {".metadata.creationTimestamp"}
