"""What the demo imports."""

import importlib.metadata
import re
import subprocess
import sys
from pathlib import Path

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
