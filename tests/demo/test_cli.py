"""The demo's command line: its exit code, errors of one sentence, Ctrl-C, and the written results."""

import contextlib
import shutil
import signal
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml

from lab.demo import cli
from lab.demo.timeline import Timeline, counts, load
from lab.harness import binaries
from lab.harness.binaries import BuildError
from tests.demo.world import SHORT, played, pulled_out_story


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The programs that the demo wanted to be built, and "told" when it told the story; nothing is started."""
    steps: list[str] = []

    @contextlib.contextmanager
    def building(names: list[str], say: Callable[[str], None]) -> Iterator[Callable[..., None]]:
        steps.extend(names)
        yield lambda *built: say(f"built {', '.join(built)}")

    def tell(*_: object) -> Timeline:
        steps.append("told")
        return pulled_out_story()

    monkeypatch.setattr(cli, "building", building)
    monkeypatch.setattr(cli, "tell", tell)
    monkeypatch.setattr(cli, "Stage", lambda _: None)
    return steps


def starting(monkeypatch: pytest.MonkeyPatch, act: Callable[[Callable[..., None]], object]) -> None:
    """What the start of the control plane does instead."""

    @contextlib.contextmanager
    def started(_say: object, built: Callable[..., None]) -> Iterator[None]:
        act(built)
        yield

    monkeypatch.setattr(cli, "started", started)


@pytest.mark.usefixtures("steps")
@pytest.mark.parametrize(("count", "status"), [(9, 0), (8, 1)])
def test_other_counts_than_the_models_are_a_failure(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str], count: int, status: int
) -> None:
    story = pulled_out_story()
    last = replace(story.ticks[-1], ours=replace(story.ticks[-1].ours, replicas=count))
    timeline = replace(story, ticks=(*story.ticks[:-1], last))
    starting(monkeypatch, lambda _: None)
    monkeypatch.setattr(cli, "run", lambda *_, **__: SimpleNamespace(timeline=timeline))
    assert cli.main(["--out", str(tmp_path)]) == status
    assert ("agree, count by count" in capsys.readouterr().out) is (status == 0)


@pytest.mark.usefixtures("steps")
@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_is_no_failure_and_has_its_own_exit_code(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str], number: int, status: int
) -> None:
    starting(monkeypatch, lambda _: signal.raise_signal(number))
    assert cli.main(["--out", str(tmp_path)]) == status
    assert "the demo has removed everything it started" in capsys.readouterr().out


@pytest.mark.usefixtures("steps")
def test_a_failed_build_is_one_sentence_with_the_full_message_in_a_file(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(_built: object) -> None:
        raise BuildError("go build failed:\nline one\nline two")

    starting(monkeypatch, fail)
    assert cli.main(["--out", str(tmp_path)]) == 1
    printed = capsys.readouterr().out.splitlines()
    assert printed[-1] == f"demo: go build failed; the full message is in {tmp_path / 'failure.log'}"
    assert "line two" in (tmp_path / "failure.log").read_text()


@pytest.mark.parametrize(
    ("keeps", "found", "extra"), [(True, None, ["kubectl"]), (True, "/bin/x", []), (False, None, [])]
)
def test_the_story_is_told_while_what_is_missing_is_built_and_kubectl_is_wanted_to_look_around(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, steps: list[str], keeps: bool, found: str | None, extra: list[str]
) -> None:
    def start(built: Callable[..., None]) -> None:
        assert steps == [*binaries.CONTROL_PLANE, *extra, "told"]
        built("etcd")
        raise OSError("enough")

    starting(monkeypatch, start)
    monkeypatch.setattr(shutil, "which", lambda _: found)
    assert cli.main(["--out", str(tmp_path), *(["--keep"] if keeps else [])]) == 1
    assert steps[-1] == "told"


def test_the_story_is_told_and_drawn_in_the_model(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    timeline = cli.tell(SHORT, tmp_path)
    assert counts(timeline, "ours") == [5, 7, 9]
    assert "checkout: 7 → 9   HPA: New size: 9" in capsys.readouterr().out
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model.png", "model.svg"]


def test_the_results_are_pictures_the_timeline_and_the_decisions(tmp_path: Path) -> None:
    (tmp_path / "decision-9-from-1-to-2.yaml").write_text("from an earlier run")
    player, _ = played(replace(SHORT, end=20))
    cli.leave(player, tmp_path)
    names = ["decision-1-from-5-to-7.yaml", "demo.png", "demo.svg", "timeline.json"]
    assert sorted(path.name for path in tmp_path.iterdir()) == names
    assert load((tmp_path / "timeline.json").read_text()) == player.timeline
    decision = (tmp_path / names[0]).read_text()
    assert decision.startswith("# cpu: 5 pods use 1500m on average, above the high watermark")
    assert yaml.safe_load(decision) == player.kept[0][1].document
