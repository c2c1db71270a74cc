"""The story in the model: the counts, the reasons and the figures of the real control plane."""

import functools
from itertools import pairwise

from lab.demo.curve import FULL, QUICK, Curve
from lab.demo.model import ModelStage
from lab.demo.play import LEVELS, Player
from lab.demo.story import Narrator
from lab.demo.timeline import counts, load
from tests.demo.test_picture import PICTURES


@functools.cache
def told(curve: Curve) -> tuple[Player, list[str]]:
    stage, lines = ModelStage(), []
    player = Player(stage, curve, Narrator(LEVELS), lines.extend, clock=stage.clock, sleep=stage.sleep)
    player.play()
    return player, [line.strip() for line in lines]


def test_the_model_tells_the_recorded_story_of_the_real_control_plane_count_by_count() -> None:
    player, _ = told(FULL)
    real = load((PICTURES / "demo.json").read_text())
    assert counts(player.timeline, "ours") == counts(real, "ours") == [5, 6, 7, 9, 7]
    assert counts(player.timeline, "stock") == counts(real, "stock") == [5, 7, 5]


def test_every_step_of_ours_is_beyond_the_tolerance_of_hpas_without_one_of_their_own() -> None:
    """So the story is the same before Kubernetes 1.35."""
    made = counts(told(FULL)[0].timeline, "ours")
    assert all(abs(after - before) / before > 0.1 for before, after in pairwise(made))


def test_the_averages_of_the_model_are_those_of_the_recorded_story() -> None:
    player, _ = told(FULL)
    real = load((PICTURES / "demo.json").read_text())
    for name in ("ours", "stock"):
        seen = [{getattr(tick, name).seen for tick in timeline.ticks} for timeline in (player.timeline, real)]
        assert max(seen[0]) == max(seen[1])
        assert min(seen[0]) >= min(seen[1]) - 14  # a scrape within a fall has an average of its own


def test_the_model_tells_each_rescale_with_its_reasons() -> None:
    player, lines = told(QUICK)
    assert "checkout: 7 → 9   HPA: New size: 9; reason: external metric desired_replicas(nil) above target" in lines
    assert "cpu needs 7 serving pods, 2 more replace pulled-out ones: proposes 9 (now 7)" in lines
    assert [(rescale.before, rescale.after) for rescale, _ in player.kept] == [(5, 7), (7, 9)]
    assert counts(player.timeline, "stock") == [5, 7]


def test_the_model_is_the_same_at_each_run() -> None:
    assert told.__wrapped__(QUICK)[0].timeline == told(QUICK)[0].timeline
