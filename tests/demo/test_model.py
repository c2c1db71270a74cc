"""The story in the model: the counts, the reasons and the figures of the real control plane."""

import functools

import yaml

from adapter.commands.decide.reader import decision_json, read_document
from lab.demo.play import Player
from tests.demo.world import SHORT, played


@functools.cache
def player() -> Player:
    return played(SHORT)


def test_the_document_of_a_rescale_decides_the_same_again() -> None:
    for rescale, reason in player().kept:
        assert decision_json(read_document(yaml.safe_dump(reason.document)))["desiredReplicas"] == rescale.after


def test_the_same_number_of_pods_is_pulled_out_of_both_services_and_idles() -> None:
    before, after = player().timeline.ticks[29:31]
    for name in ("ours", "stock"):
        assert (getattr(before, name).out, getattr(after, name).out) == (0, 2)
        assert getattr(after, name).serving == getattr(before, name).serving - 2
