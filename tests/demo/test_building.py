"""A build in the background: its lines are kept, a failure is an error, and an unfinished one is stopped."""

import importlib.metadata
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

from demo import building
from harness.binaries import BuildError

ROOT = Path(building.__file__).parents[1]


def started(monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    real = subprocess.Popen
    monkeypatch.setattr(subprocess, "Popen", lambda _, **more: real([sys.executable, "-c", script], **more))


def test_the_lines_of_a_build_are_kept_until_the_story_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    started(monkeypatch, "import sys; print('building etcd once', file=sys.stderr); print('etcd /path')")
    lines: list[str] = []
    with building.building(["etcd"]) as build:
        assert lines == []
        build.finish(lines.append)
    assert lines == ["building etcd once"]


def test_a_failed_build_raises_its_last_words(monkeypatch: pytest.MonkeyPatch) -> None:
    started(monkeypatch, "import sys; sys.exit('go build failed:\\nno space left')")
    with building.building(["etcd"]) as build, pytest.raises(BuildError, match="no space left"):
        build.finish(lambda _: None)


def test_a_build_that_is_not_waited_for_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    started(monkeypatch, "import time; time.sleep(600)")
    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt), building.building(["etcd"]):
        raise KeyboardInterrupt
    assert time.monotonic() - began < 60


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
    modules = sorted(f"demo.{file.stem}" for file in (ROOT / "demo").glob("*.py") if file.stem != "__main__")
    script = f"import sys; sys.modules.update(dict.fromkeys({absent!r}))\nimport harness.build, {', '.join(modules)}"
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
