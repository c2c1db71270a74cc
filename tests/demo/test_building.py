"""A build in the background: its lines are kept, a failure is an error, and an unfinished one is stopped."""

import subprocess
import sys
import time

import pytest

from demo import building
from harness.binaries import BuildError


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
