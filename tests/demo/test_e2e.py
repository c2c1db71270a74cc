"""The demo on the real control plane: a short pull-out."""

import secrets
from pathlib import Path

import pytest

from lab.demo import cli
from lab.demo.curve import Chapter, Curve
from lab.demo.objects import OURS, STOCK
from lab.demo.stage import SETTINGS, Stage
from lab.demo.timeline import load
from lab.harness.adapter import AdapterProcess
from lab.harness.control_plane import ControlPlane

pytestmark = [pytest.mark.e2e, pytest.mark.versions]

SHORT = Curve(
    (
        Chapter(0, "Calm: 1100m for each of 5 pods.", 5500),
        Chapter(1, "Two pods of each service are pulled out.", 5500, pull_out=2),
    ),
    end=24,
)
"""3 pods at 1833m need 5, and 2 more replace the pulled-out ones; the raw average is 1108m, so the stock HPA stays."""


def test_a_pull_out_is_replaced_narrated_and_drawn(
    control_plane: ControlPlane, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    namespace = f"demo-{secrets.token_hex(3)}"
    try:
        with AdapterProcess(control_plane, SETTINGS, name="adapter-demo") as adapter:
            player = cli.run(Stage(control_plane, namespace), SHORT, tmp_path)
    finally:
        control_plane.client.delete(f"/api/v1/namespaces/{namespace}", wait=90)
    control_plane.watched.remove(adapter.component)

    ((rescale, reason),) = player.kept
    assert (rescale.service, rescale.before, rescale.after) == (OURS, 5, 7)
    assert rescale.message.startswith("New size: 7")
    assert "cpu needs 5 serving pods, 2 more replace pulled-out ones: proposes 7 (now 5)" in reason.sentences
    last = player.timeline.ticks[-1]
    assert (last.ours.replicas, last.ours.serving, last.ours.out) == (7, 5, 2)
    assert (last.stock.replicas, last.stock.serving, last.stock.out) == (5, 3, 2)

    printed = capfd.readouterr().out
    assert f"{OURS}: 5 → 7   HPA: New size: 7" in printed
    assert f"{STOCK}: stays at 5" in printed
    assert load((tmp_path / "timeline.json").read_text()) == player.timeline
    assert (tmp_path / "demo.svg").is_file()
