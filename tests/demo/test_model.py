"""The story in the model: the counts, the reasons and the figures of the real control plane."""

import functools
from itertools import pairwise

import yaml

from adapter.commands.decide.decision import decision_json
from adapter.commands.decide.reader import read_document
from lab.demo.curve import FULL, Curve
from lab.demo.timeline import Timeline, counts, load
from tests.demo.test_picture import PICTURES
from tests.demo.world import SHORT, played


@functools.cache
def told(curve: Curve) -> Timeline:
    return played(curve).timeline


def test_the_model_tells_the_recorded_story_of_the_real_control_plane_count_by_count() -> None:
    model, real = told(FULL), load((PICTURES / "demo.json").read_text())
    assert counts(model, "ours") == counts(real, "ours") == [5, 6, 7, 9, 7]
    assert counts(model, "stock") == counts(real, "stock") == [5, 7, 5]
    for name in ("ours", "stock"):
        seen = [{getattr(tick, name).seen for tick in timeline.ticks} for timeline in (model, real)]
        assert max(seen[0]) == max(seen[1])
        assert min(seen[0]) >= min(seen[1]) - 14  # a scrape within a fall has an average of its own


def test_every_step_of_ours_is_beyond_the_tolerance_of_hpas_without_one_of_their_own() -> None:
    """So the story is the same before Kubernetes 1.35."""
    assert all(abs(after - before) / before > 0.1 for before, after in pairwise(counts(told(FULL), "ours")))


def test_the_document_of_a_rescale_decides_the_same_again() -> None:
    for rescale, reason in played(SHORT).kept:
        assert decision_json(read_document(yaml.safe_dump(reason.document)))["desiredReplicas"] == rescale.after


def test_the_same_number_of_pods_is_pulled_out_of_both_services_and_idles() -> None:
    before, after = told(SHORT).ticks[29:31]
    for name in ("ours", "stock"):
        assert (getattr(before, name).out, getattr(after, name).out) == (0, 2)
        assert getattr(after, name).serving == getattr(before, name).serving - 2
