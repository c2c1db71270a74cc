"""`explain` on the real control plane, with a person's rights to read, and as a plugin of the real kubectl."""

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from adapter.commands.decide.reader import decision_json, read_document
from lab.harness import binaries
from lab.harness.adapter import AdapterProcess
from lab.harness.control_plane import ControlPlane
from lab.harness.workloads import Workloads, until
from tests.e2e.commands import command
from tests.e2e.kit import Load

pytestmark = [pytest.mark.builds("kubectl"), pytest.mark.versions]

RBAC = "rbac.authorization.k8s.io"


@pytest.fixture
def reader(control_plane: ControlPlane, workloads: Workloads) -> Path:
    """The kubeconfig of a person who may view the namespace, whose context names it."""
    subject = {"kind": "User", "name": "amy", "apiGroup": RBAC}
    role = {"kind": "ClusterRole", "name": "view", "apiGroup": RBAC}
    metadata = {"name": "amy-views", "namespace": workloads.namespace}
    binding = {"apiVersion": f"{RBAC}/v1", "kind": "RoleBinding", "metadata": metadata, "subjects": [subject]}
    control_plane.client.create({**binding, "roleRef": role})
    return control_plane.kubeconfig_for("amy")


@pytest.fixture
def scaled(adapter: AdapterProcess, workloads: Workloads, load: Load) -> None:
    """A service of four pods, one of which is pulled out, that its HPA scales."""
    load.serve(
        4,
        each=1.5,
        marks=("1200m", "400m"),
        hpa={"maximum": 6},
        cooldown={"scaleDownSeconds": 60},
        velocity={"scaleUpPercent": 50},
        pulledOut={"replace": False},  # else the count changes a minute later, which may be between the two answers
    )
    out, *_ = (pod["metadata"]["name"] for pod in workloads.pods("web"))
    workloads.annotate(out, {"effective-load.io/pulled-out": "true"})
    workloads.wait_condition("web", "ScalingActive")


@pytest.mark.usefixtures("scaled")
def test_a_reader_sees_what_the_hpa_gets_and_saves_what_decides_the_same(
    adapter: AdapterProcess, workloads: Workloads, reader: Path, tmp_path: Path
) -> None:
    explain = ("explain", f"{workloads.namespace}/web", "--kubeconfig", reader)

    def decision() -> dict[str, Any]:
        status, text = command(*explain, "--save", "-")
        assert status == 0, text
        return decision_json(read_document(text))

    until(lambda: decision()["counts"].get("pulledOut") == 1, 60, adapter.logs)
    _, page = command(*explain)
    assert "What is missing" not in page
    assert f"served as {workloads.asked('web')}" in page
    assert ("tolerance: 0, so it sets every count exactly" in page) is binaries.HPA_TOLERANCE
    assert "ScalingActive True" in page
    file = tmp_path / "web.json"
    kubectl = binaries.path_of("kubectl")
    plugin = (kubectl, "effective-load", "explain", "web", "-n", workloads.namespace, "--save", file)
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    environment = {**os.environ, "KUBECONFIG": str(reader), "PATH": path}

    def decides_the_same() -> bool:  # between two looks there may be new samples
        seen = decision()
        subprocess.run(plugin, env=environment, capture_output=True, check=True, timeout=60)
        again = decision_json(read_document(file.read_text()))
        loads = re.compile(r"\b[0-9]+m\b")
        said, saved = (loads.sub("…", "\n".join(one["explanation"])) for one in (seen, again))
        return (said, seen["desiredReplicas"]) == (saved, again["desiredReplicas"])

    until(decides_the_same, 60, file.read_text)
