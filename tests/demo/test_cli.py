"""The demo's command line: errors of one sentence, Ctrl-C, and the written results."""

import contextlib
import dataclasses
import shutil
import signal
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml

from adapter.commands.decide.decision import decision_json
from adapter.commands.decide.reader import read_document
from lab.demo import cli
from lab.demo.curve import QUICK, Curve
from lab.demo.objects import OURS, STOCK
from lab.demo.observe import DemoError
from lab.demo.play import LEVELS, Player
from lab.demo.reasons import Reasoner
from lab.demo.stage import Place
from lab.demo.story import Narrator, Rescale, comparison
from lab.demo.timeline import Timeline, counts, dump, load
from lab.harness import binaries
from lab.harness.binaries import BuildError
from tests.demo.test_play import FakeStage
from tests.demo.test_stage import kubeconfig
from tests.demo.world import observation, pods, pulled_out_story


def test_a_missing_kubeconfig_is_reported_in_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["--kubeconfig", str(tmp_path / "none"), "--out", str(tmp_path)]) == 1
    printed = capsys.readouterr().out.splitlines()
    assert printed[-1] == f"demo: {tmp_path / 'none'} is no file: give --kubeconfig the kubeconfig of a cluster"


def test_an_unreachable_cluster_is_reported_in_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as held:  # bound and not listening: every connection is refused
        held.bind(("127.0.0.1", 0))
        path = kubeconfig(tmp_path, f"https://127.0.0.1:{held.getsockname()[1]}", {})
        assert cli.main(["--kubeconfig", str(path)]) == 1
    printed = capsys.readouterr().out.splitlines()
    assert printed[-1].startswith(f"demo: the cluster of {path} cannot be reached")


def broken(error: BaseException) -> contextlib.AbstractContextManager[Place]:
    @contextlib.contextmanager
    def place() -> Iterator[Place]:
        raise error
        yield

    return place()


@pytest.fixture
def built(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(binaries, "missing", lambda names: [])
    monkeypatch.setattr(cli, "tell", lambda curve, out: pulled_out_story())


class FakeBuild:
    """A build that is done at once."""

    def wait(self, *names: str, announce: Callable[[str], None]) -> None:
        announce(f"building {', '.join(names)} once")


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The programs that the demo wanted to be built, and "told" when it told the story."""
    order: list[str] = []

    @contextlib.contextmanager
    def building(names: list[str]) -> Iterator[FakeBuild]:
        order.extend(names)
        yield FakeBuild()

    def tell(_curve: Curve, _out: Path) -> Timeline:
        order.append("told")
        return pulled_out_story()

    monkeypatch.setattr(binaries, "missing", list)
    monkeypatch.setattr(cli, "building", building)
    monkeypatch.setattr(cli, "tell", tell)

    @contextlib.contextmanager
    def place(_announce: object, built: Callable[..., None]) -> Iterator[Place]:
        built("etcd")
        built("kwok")
        raise DemoError("enough")
        yield

    monkeypatch.setattr(cli, "own_place", place)
    return order


@pytest.mark.usefixtures("built")
def test_ctrl_c_is_no_failure_and_has_its_own_exit_code(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(cli, "own_place", lambda announce, built: broken(KeyboardInterrupt()))
    assert cli.main([]) == 130
    assert "the demo has removed everything it started" in capsys.readouterr().out


@pytest.mark.usefixtures("built")
def test_sigterm_acts_as_ctrl_c_and_the_handler_is_restored(monkeypatch: pytest.MonkeyPatch) -> None:
    @contextlib.contextmanager
    def place() -> Iterator[Place]:
        signal.raise_signal(signal.SIGTERM)
        yield Place(None, Path(), own=True)  # type: ignore[arg-type]

    monkeypatch.setattr(cli, "own_place", lambda announce, built: place())
    before = signal.getsignal(signal.SIGTERM)
    assert cli.main([]) == 130
    assert signal.getsignal(signal.SIGTERM) is before


@pytest.mark.usefixtures("built")
def test_a_failed_build_is_one_sentence_with_the_full_message_in_a_file(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    failure = BuildError("go build failed:\nline one\nline two")
    monkeypatch.setattr(cli, "own_place", lambda announce, built: broken(failure))
    assert cli.main(["--out", str(tmp_path)]) == 1
    printed = capsys.readouterr().out.splitlines()
    assert printed[-1] == f"demo: go build failed; the full message is in {tmp_path / 'failure.log'}"
    assert "line two" in (tmp_path / "failure.log").read_text()


def test_the_story_is_told_in_the_model_while_a_missing_control_plane_is_built(
    asked: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    cli.main([])
    assert asked == [*binaries.CONTROL_PLANE, "told"]
    printed = capsys.readouterr().out
    assert printed.index("real control plane") < printed.index("etcd once") < printed.index("kwok once")
    assert printed.count("Each is started as soon as it is built.") == 1


@pytest.mark.parametrize(("found", "extra"), [(None, ["kubectl"]), ("/usr/bin/kubectl", [])])
def test_kubectl_is_built_only_for_keep_and_if_it_is_missing(
    monkeypatch: pytest.MonkeyPatch, asked: list[str], found: str | None, extra: list[str]
) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: found)
    cli.main(["--keep"])
    assert asked == [*binaries.CONTROL_PLANE, *extra, "told"]


@pytest.mark.usefixtures("built")
@pytest.mark.parametrize(("count", "status"), [(9, 0), (8, 1)])
def test_other_counts_than_the_models_are_a_failure(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], count: int, status: int
) -> None:
    story = pulled_out_story()
    last = dataclasses.replace(story.ticks[-1], ours=dataclasses.replace(story.ticks[-1].ours, replicas=count))
    played = finished()
    played.timeline = dataclasses.replace(story, ticks=(*story.ticks[:-1], last))

    def run(*_: object, model: Timeline, **__: object) -> Player:
        print("\n".join(comparison(model, played.timeline)))
        return played

    monkeypatch.setattr(cli, "own_place", lambda announce, built: None)
    monkeypatch.setattr(cli, "run", run)
    assert cli.main([]) == status
    assert ("agree, count by count" in capsys.readouterr().out) is (status == 0)


def test_the_story_is_told_and_drawn_in_the_model(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    timeline = cli.tell(QUICK, tmp_path)
    assert counts(timeline, "ours") == [5, 7, 9]
    assert "checkout: 7 → 9   HPA: New size: 9" in capsys.readouterr().out
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model.png", "model.svg"]


def test_a_timeline_is_drawn_again(tmp_path: Path) -> None:
    (tmp_path / "timeline.json").write_text(dump(pulled_out_story()))
    assert cli.main(["--redraw", str(tmp_path / "timeline.json"), "--out", str(tmp_path)]) == 0
    assert (tmp_path / "demo.svg").is_file()
    assert (tmp_path / "demo.png").is_file()


@pytest.mark.parametrize("text", ["{}", "no json", '{"ticks": [], "marks": [], "high": 1, "low": 1, "target": 1}'])
def test_a_file_that_is_no_timeline_is_reported_in_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str
) -> None:
    path = tmp_path / "timeline.json"
    path.write_text(text)
    assert cli.main(["--redraw", str(path), "--out", str(tmp_path)]) == 1
    (printed,) = capsys.readouterr().out.splitlines()
    assert printed.startswith(f"demo: {path} ")


def finished() -> Player:
    """A player at the end of its story, with one decision."""
    player = Player(FakeStage(), QUICK, Narrator(LEVELS), print)
    usage = {f"{OURS}-{index}": 1500 for index in range(5)}
    reason = Reasoner("demo").consider(observation(pods(OURS, 5), pods(STOCK, 5), usage=usage))
    assert reason is not None
    player.kept.append((Rescale(OURS, 5, 7, "New size: 7"), reason))
    player.timeline = pulled_out_story()
    return player


def test_the_results_are_pictures_the_timeline_and_the_decisions(tmp_path: Path) -> None:
    (tmp_path / "decision-9-from-1-to-2.yaml").write_text("from an earlier run")
    cli.leave(finished(), tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "decision-1-from-5-to-7.yaml",
        "demo.png",
        "demo.svg",
        "timeline.json",
    ]
    assert load((tmp_path / "timeline.json").read_text()) == pulled_out_story()


def test_a_written_decision_is_valid_input_of_decide(tmp_path: Path) -> None:
    cli.leave(finished(), tmp_path)
    text = (tmp_path / "decision-1-from-5-to-7.yaml").read_text()
    assert text.startswith("# cpu: 5 pods use 1500m on average, above the high watermark")
    assert decision_json(read_document(text))["desiredReplicas"] == 7
    assert yaml.safe_load(text)["policy"]["metadata"]["name"] == OURS


def test_the_hints_name_the_kubeconfig_and_the_metric() -> None:
    place = Place(None, Path("/somewhere/kubeconfig"), own=True)  # type: ignore[arg-type]
    text = "\n".join(cli.hints(place, "demo", "/apis/custom/desired_replicas", "kubectl"))
    assert "export KUBECONFIG=/somewhere/kubeconfig" in text
    assert "effective-load explain checkout -n demo" in text
    assert "kubectl get --raw /apis/custom/desired_replicas" in text
    assert "kubectl -n demo annotate pods -l app=checkout effective-load.io/pulled-out-" in text
    assert "/somewhere/adapter.log" in text
    assert "adapter.log" not in "\n".join(cli.hints(Place(None, place.kubeconfig, own=False), "x", "/y", "k"))  # type: ignore[arg-type]
