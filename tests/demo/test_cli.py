"""The demo fails where the cluster's counts are not those of its model."""

import contextlib
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from lab.demo import cli
from tests.demo.world import pulled_out_story


@pytest.mark.parametrize(("count", "status"), [(9, 0), (8, 1)])
def test_other_counts_than_the_models_are_a_failure(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str], count: int, status: int
) -> None:
    story = pulled_out_story()
    last = replace(story.ticks[-1], ours=replace(story.ticks[-1].ours, replicas=count))
    timeline = replace(story, ticks=(*story.ticks[:-1], last))
    monkeypatch.setattr(cli, "building", lambda *_: contextlib.nullcontext())
    monkeypatch.setattr(cli, "started", lambda *_: contextlib.nullcontext())
    monkeypatch.setattr(cli, "Stage", lambda _: None)
    monkeypatch.setattr(cli, "tell", lambda *_: story)
    monkeypatch.setattr(cli, "run", lambda *_, **__: SimpleNamespace(timeline=timeline))
    assert cli.main(["--out", str(tmp_path)]) == status
    assert ("agree, count by count" in capsys.readouterr().out) is (status == 0)
