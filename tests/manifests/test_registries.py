"""Credentials of registries in the pod, and the check that documents name existing tests."""

import re
from pathlib import Path

import pytest

from tests.manifests.rendering import MANIFESTS, documents, identity, render
from tools import checks

EXAMPLE = MANIFESTS / "examples" / "registries-settings.yaml"


def test_files_that_the_example_names_come_from_the_secret_which_need_not_exist() -> None:
    found = {identity(item): item for item in render(MANIFESTS / "base")}
    pod = found["Deployment", "effective-load", "effective-load"]["spec"]["template"]["spec"]
    [container] = pod["containers"]
    volumes = {volume["name"]: volume for volume in pod["volumes"]}
    [mount] = [one for one in container["volumeMounts"] if one["name"] == "registries"]
    secret = volumes[mount["name"]]["secret"]
    assert (secret["secretName"], secret["optional"], mount["readOnly"]) == ("effective-load-registries", True, True)
    [settings] = documents(EXAMPLE)
    files = re.findall(r"File: (\S+)", settings["data"]["settings.yaml"])
    assert files
    assert all(file.startswith(f"{mount['mountPath']}/") for file in files)


def test_a_test_that_a_document_names_has_to_exist(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    document = tmp_path / "some.md"
    document.write_text("`manifests/test_registries.py::test_no_such` and `manifests/none.py::test_a`")
    monkeypatch.setattr(checks, "ROOT", tmp_path)
    here = tmp_path / "tests" / "manifests" / "test_registries.py"
    here.parent.mkdir(parents=True)
    here.write_text("def test_such(): ...")
    assert list(checks.named_tests()) == [
        "some.md names manifests/test_registries.py::test_no_such, which does not exist",
        "some.md names manifests/none.py::test_a, which does not exist",
    ]


def test_a_row_without_a_test_is_found() -> None:
    table = "| registry | tests |\n|---|---|\n| Consul | `registries/test_manager.py::test_x` |\n| Eureka | soon |\n"
    assert list(checks.rows_without_test(table)) == ["| Eureka | soon |"]
    assert list(checks.rows_without_test("| age | what |\n|---|---|\n| old | none |\n")) == []
