"""The objects that the stage makes on a cluster, and what the demo imports."""

import importlib.metadata
import re
import subprocess
import sys
from pathlib import Path

import pytest

from lab.demo.objects import OURS, STOCK, scaling, workloads
from lab.harness.adapter import install_crds
from lab.harness.control_plane import ControlPlane


def test_both_services_differ_only_in_their_names_and_in_their_hpas_metric_and_tolerance() -> None:
    ours, stock = workloads("shop")
    assert str(ours).replace(OURS, STOCK) == str(stock)
    _, ours, stock = ({**item["spec"], "metrics": []} for item in scaling("shop"))
    assert {ours["behavior"][way].pop("tolerance") for way in ("scaleUp", "scaleDown")} == {"0"}
    assert str(ours).replace(OURS, STOCK) == str(stock)


@pytest.mark.integration
def test_the_api_server_accepts_all_objects(api_server: ControlPlane, api_namespace: str) -> None:
    install_crds(api_server)
    for item in workloads(api_namespace) + scaling(api_namespace):
        api_server.client.apply(item, dry_run=True)


ROOT = Path(__file__).parents[2]


def test_the_demo_and_its_build_import_only_what_the_demos_lock_installs() -> None:
    demo, everything = (
        set(re.findall(r"^([a-z0-9._-]+)==", (ROOT / "requirements" / name).read_text(), re.MULTILINE))
        for name in ("demo.lock", "dev.lock")
    )
    missing = everything - demo
    absent = sorted(
        module
        for module, packages in importlib.metadata.packages_distributions().items()
        if {package.lower().replace("_", "-") for package in packages} <= missing
    )
    assert "kazoo" in absent
    modules = sorted(
        f"lab.demo.{file.stem}" for file in (ROOT / "lab" / "demo").glob("*.py") if file.stem != "__main__"
    )
    script = (
        f"import sys; sys.modules.update(dict.fromkeys({absent!r}))\nimport lab.harness.build, {', '.join(modules)}"
    )
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
