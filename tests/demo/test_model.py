"""The story in the model: the counts, the reasons and the figures of the real control plane."""

import functools
from dataclasses import replace
from itertools import pairwise

import yaml

from adapter.commands.decide.decision import decision_json
from adapter.commands.decide.reader import read_document
from lab.demo.curve import FULL, Curve
from lab.demo.model import ModelStage
from lab.demo.objects import OURS
from lab.demo.play import Player
from lab.demo.reasons import Reasoner
from lab.demo.timeline import Mark, counts, load
from tests.demo.test_picture import PICTURES
from tests.demo.world import SHORT, played


@functools.cache
def told(curve: Curve) -> tuple[Player, list[str]]:
    return played(curve)


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
    player, lines = told(SHORT)
    assert "checkout: 7 → 9   HPA: New size: 9; reason: external metric desired_replicas(nil) above target" in lines
    assert "cpu needs 7 serving pods, 2 more replace pulled-out ones: proposes 9 (now 7)" in lines
    assert [(rescale.before, rescale.after) for rescale, _ in player.kept] == [(5, 7), (7, 9)]
    assert counts(player.timeline, "stock") == [5, 7]


def test_the_document_of_a_rescale_decides_the_same_again_and_has_nothing_that_a_decision_ignores() -> None:
    player, _ = told(SHORT)
    for rescale, reason in player.kept:
        assert decision_json(read_document(yaml.safe_dump(reason.document)))["desiredReplicas"] == rescale.after
        assert all(
            pod["metadata"].get("annotations", {}).keys() <= {"effective-load.io/pulled-out"}
            for pod in reason.document["pods"]
        )


def test_the_same_number_of_pods_is_pulled_out_of_both_services_and_idles() -> None:
    player, _ = told(SHORT)
    assert player.timeline.marks == (Mark(30, "2 pods pulled out"),)
    before, after = player.timeline.ticks[29], player.timeline.ticks[30]
    for name in ("ours", "stock"):
        assert (getattr(before, name).out, getattr(after, name).out) == (0, 2)
        assert getattr(after, name).serving == getattr(before, name).serving - 2
    assert [tick.demand for tick in player.timeline.ticks] == [5500] * 2 + [7500] * 56


def test_the_model_is_the_same_at_each_run() -> None:
    assert played(SHORT)[0].timeline == told(SHORT)[0].timeline


def test_an_observation_without_samples_or_with_an_unreadable_object_gives_no_count_and_no_error() -> None:
    seen = ModelStage().observe()
    blind = Reasoner("demo").consider(replace(seen, usage=[]))
    assert blind is not None
    assert blind.answer["desiredReplicas"] is None
    del seen.hpas[OURS]["spec"]["scaleTargetRef"]
    assert Reasoner("demo").consider(seen) is None
