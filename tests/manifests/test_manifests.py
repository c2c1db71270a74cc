"""The manifests as files: completeness, hardening and least rights."""

import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from adapter.settings import CompanionFeatures
from lab.harness import binaries
from tests.manifests.rendering import MANIFESTS, Object, documents, identity, render, render_with

BASE = MANIFESTS / "base"
DEFAULT = MANIFESTS / "overlays" / "default"
EXTERNAL = MANIFESTS / "overlays" / "external-metrics"
EXAMPLE = MANIFESTS / "examples" / "overlay"
ALL = sorted((path.name for path in (MANIFESTS / "components").iterdir()), key=lambda name: name == "cert-manager")
EACH = pytest.mark.parametrize("folder", [BASE, DEFAULT, EXTERNAL, EXAMPLE], ids=["base", "default", "external", "own"])
KUBECTL = shutil.which("kubectl") or str(binaries.path_of("kubectl"))
WITH_KUBECTL = pytest.mark.skipif(not Path(KUBECTL).exists(), reason="kubectl, which brings kustomize, is not here")


def found(folder: Path = BASE) -> dict[tuple[str, str, str], Object]:
    return {identity(item): item for item in render(folder)}


def kustomized(folder: Path, **kustomization: Any) -> list[Object]:
    """The objects that the real kustomize makes of a folder, in which this kustomization is written if any."""
    if kustomization:
        (folder / "kustomization.yaml").write_text(yaml.safe_dump(kustomization), encoding="utf-8")
    answer = subprocess.run([KUBECTL, "kustomize", str(folder)], capture_output=True, check=True)
    return [one for one in yaml.load_all(answer.stdout, yaml.CSafeLoader) if one]


def test_every_file_of_the_manifests_is_used() -> None:
    folders = [path.parent for path in MANIFESTS.rglob("kustomization.yaml")]
    assert folders
    for folder in folders:
        kustomization = yaml.load((folder / "kustomization.yaml").read_text(encoding="utf-8"), yaml.CSafeLoader)
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


# --- the pods; what their accounts may do is recorded in tests/recorded/rights.txt ---

SERVER, COMPANION = "effective-load", "effective-load-companion"
BOTH = pytest.mark.parametrize("name", [SERVER, COMPANION])


def of_default(kind: str, name: str) -> dict[str, Any]:
    """The spec of an object of the default overlay."""
    return dict(found(DEFAULT)[kind, "effective-load", name]["spec"])


@BOTH
def test_the_pod_is_hardened(name: str) -> None:
    pod = of_default("Deployment", name)["template"]["spec"]
    (container,) = pod["containers"]
    assert pod["serviceAccountName"] == name
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


@BOTH
def test_a_drain_leaves_one_replica(name: str) -> None:
    spec, budget = of_default("Deployment", name), of_default("PodDisruptionBudget", name)
    assert spec["replicas"] == 2
    assert (budget["maxUnavailable"], budget["selector"]) == (1, spec["selector"])
    if name == SERVER:
        assert spec["strategy"]["rollingUpdate"]["maxUnavailable"] == 0


def test_the_default_brings_the_companion_with_the_rights_that_default_features_need() -> None:
    named = yaml.load((DEFAULT / "kustomization.yaml").read_text(encoding="utf-8"), yaml.CSafeLoader)["components"]
    on = [name for name, field in CompanionFeatures.model_fields.items() if field.default is True]
    with_rights = {f"companion-{name.replace('_', '-')}" for name in on} & {*ALL}
    assert {Path(one).name for one in named} == {"companion", *with_rights}


def test_applying_the_files_again_leaves_what_is_written_at_run_time() -> None:
    objects = {identity(one)[::2]: one for one in render(DEFAULT)}
    assert objects["Secret", "effective-load-tls"].keys().isdisjoint({"data", "stringData"})
    assert "spec" not in objects["Lease", COMPANION]


def test_the_token_for_adapters_behind_this_one_is_where_the_documents_say() -> None:
    name = "effective-load-upstreams"
    objects = {identity(one)[::2]: one for one in render_with(BASE, ["upstreams"])}
    assert objects["ServiceAccount", name]["automountServiceAccountToken"] is False
    secret = objects["Secret", name]
    assert secret["type"] == "kubernetes.io/service-account-token"
    assert secret["metadata"]["annotations"] == {"kubernetes.io/service-account.name": name}
    pod = objects["Deployment", "effective-load"]["spec"]["template"]["spec"]
    [volume] = [one for one in pod["volumes"] if one.get("secret", {}).get("secretName") == name]
    assert volume["secret"]["optional"] is True  # without the component there is none
    [mount] = [one for one in pod["containers"][0]["volumeMounts"] if one["name"] == volume["name"]]
    assert mount["readOnly"] is True
    documented = (MANIFESTS.parent / "docs" / "upstreams.md").read_text(encoding="utf-8")
    assert f"bearerTokenFile: {mount['mountPath']}/token" in documented


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
