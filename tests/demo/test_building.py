"""A build in the background: its lines are kept, a failure is an error, and an unfinished one is stopped."""

import importlib.metadata
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

from lab.demo import building
from lab.harness import binaries
from lab.harness.binaries import BuildError

ROOT = Path(building.__file__).parents[2]


def started(monkeypatch: pytest.MonkeyPatch, script: str, stdin: int = subprocess.DEVNULL) -> None:
    real, command = subprocess.Popen, [sys.executable, "-c", script]
    monkeypatch.setattr(subprocess, "Popen", lambda _, **more: real(command, stdin=stdin, cwd=ROOT, **more))


@pytest.fixture(autouse=True)
def _empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EFFECTIVE_LOAD_CACHE", str(tmp_path))


BUILDER = """
import sys
from lab.harness.binaries import path_of
for name in ("etcd", "kwok"):
    print("building", name, "once", file=sys.stderr, flush=True)
    path_of(name).parent.mkdir(parents=True)
    path_of(name).touch()
    print("  built", name, file=sys.stderr, flush=True)
    if name == "etcd":
        sys.stdin.read(1)
"""
"""Builds etcd, and kwok when it is told to."""


def test_the_lines_of_a_build_are_kept_until_the_story_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    started(monkeypatch, BUILDER)
    lines: list[str] = []
    with building.building(["etcd", "kwok"], lines.append) as wait:
        assert lines == []
        wait()
        wait()
    assert lines[-4:] == ["building etcd once", "  built etcd", "building kwok once", "  built kwok"]
    assert sum("Each is started as soon as it is built." in line for line in lines) == 1


def test_a_program_is_waited_for_no_longer_than_it_is_built(monkeypatch: pytest.MonkeyPatch) -> None:
    reading, writing = os.pipe()
    started(monkeypatch, BUILDER, stdin=reading)
    lines: list[str] = []
    with building.building(["etcd", "kwok"], lines.append) as wait:
        wait("etcd")
        assert "building kwok once" not in lines
        os.write(writing, b"!")
        wait("etcd", "kwok")
    assert binaries.missing(["etcd", "kwok"]) == []


def test_a_failed_build_raises_its_last_words(monkeypatch: pytest.MonkeyPatch) -> None:
    started(monkeypatch, "import sys; sys.exit('go build failed:\\nno space left')")
    with building.building(["etcd"], print) as wait, pytest.raises(BuildError, match="no space left"):
        wait("etcd")


def test_a_build_that_is_not_waited_for_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    started(monkeypatch, "import time; time.sleep(600)")
    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt), building.building(["etcd"], print):
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
    modules = sorted(
        f"lab.demo.{file.stem}" for file in (ROOT / "lab" / "demo").glob("*.py") if file.stem != "__main__"
    )
    script = (
        f"import sys; sys.modules.update(dict.fromkeys({absent!r}))\nimport lab.harness.build, {', '.join(modules)}"
    )
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
