"""Each change of a count is a scaling of its own, with its author and cause."""

from dataclasses import replace
from typing import Any

import pytest

from adapter.companion.changes import ReplicaHistory, Told, observe_count, unattributed
from adapter.companion.state import Context
from adapter.load.spec import Bounds
from adapter.policy.hpa import LastStep
from adapter.snapshot import PolicyView
from tests.companion.kit import RULE, Leader, context
from tests.companion.test_fast_scale_up import hpa
from tests.load.kit import NOW, TARGET, scale

CONTROLLER = "kube-controller-manager"
OTHER = replace(TARGET, uid="another")


def at(
    seconds: float,
    count: int,
    claimed: float | None = None,
    load: str = "800m",
    *,
    step: tuple[int, int] | None = None,
    minimum: int = 1,
    **changes: Any,
) -> Context:
    """A look at a count. The HPA claims to have scaled at second `claimed`, by that step."""
    bounds = Bounds(minimum=minimum, maximum=100, last_scale=None if claimed is None else NOW + claimed)
    follows = hpa(bounds=bounds, last_step=LastStep(*step) if step is not None else None)
    return context(load, pods=4, current=count, now=NOW + seconds, bounds=bounds, hpa=follows, **changes)


def scalings(*looks: Context, status: dict[str, Any] | None = None) -> list[str]:
    """The scalings after these looks, by a leader that found this status."""
    leader, found = Leader(status, at=NOW - 20), list[str]()
    for look in looks:
        leader.look(look)
        found += [change.text for change in leader.state.of(Told).news if change.reason == "Scaled"]
    return found


FOUR = at(0, 4)


@pytest.mark.parametrize(
    ("looks", "expected"),
    [
        pytest.param([FOUR], [], id="the first look is no scaling"),
        pytest.param([FOUR, at(2, 6)], [], id="the HPA may still claim it"),
        pytest.param([FOUR, at(2, 6), at(5, 6)], ["from 4 to 6 by another client"], id="nobody is known"),
        pytest.param([FOUR, at(2, 6, manager="kubectl")], ["from 4 to 6 by hand (kubectl)"], id="by hand"),
        pytest.param([FOUR, at(2, 6, manager="argocd")], ["from 4 to 6 by argocd"], id="by another manager"),
        pytest.param(
            [FOUR, at(2, 6, manager="effective-load-companion"), at(23, 6)], ["from 4 to 6 by the companion"],
            id="by a fast scale-up",
        ),
        pytest.param(
            [FOUR, at(2, 6, manager=CONTROLLER), at(5, 6, manager=CONTROLLER)], ["from 4 to 6 by another HPA"],
            id="by another HPA",
        ),
        pytest.param([FOUR, at(1, 8, 1), at(20, 8, 1)], [], id="one of the HPA waits for its cause"),
        pytest.param([FOUR, at(1, 8, 1), at(21, 8, 1)], ["from 4 to 8 by the HPA"], id="for a poll"),
        pytest.param(
            [FOUR, at(2, 2, manager="argocd"), at(9, 4, 9, step=(2, 4), minimum=4)],
            ["from 4 to 2 by argocd", "from 2 to 4 by the HPA"],
            id="a tool sets it back and the HPA answers",
        ),
        pytest.param(
            [at(0, 6), at(2, 4, 2, step=(2, 4), minimum=4)],
            ["from 6 to 2 by another client", "from 2 to 4 by the HPA"],
            id="two changes lie between two looks",
        ),
        pytest.param(
            [at(0, 6, 0, step=(5, 6)), *(at(second, 3, 0, step=(5, 6), manager=CONTROLLER) for second in (2, 6))],
            ["from 6 to 3 by another HPA"],
            id="the HPA's earlier claim is for its own step",
        ),
        pytest.param(
            [FOUR, at(2, 9, target=OTHER), at(9, 9, target=OTHER)], [], id="another target's count is no scaling"
        ),
    ],
)  # fmt: skip
def test_each_change_of_the_count_has_its_author_and_step(looks: list[Context], expected: list[str]) -> None:
    assert [one.partition(": cpu")[0] for one in scalings(*looks)] == expected


@pytest.mark.parametrize(
    ("looks", "cause"),
    [
        pytest.param([at(0, 4, load="2400m"), at(2, 8, 1)], "cpu: 4 pods use 2400m on average, above", id="decided"),
        pytest.param([FOUR, at(1, 8, 1), at(12, 8, 1, "2400m")], "cpu: 4 pods use 2400m", id="the next poll brings it"),
        pytest.param([at(0, 4, load="2400m"), at(2, 6, 1)], "on the way to 8: cpu", id="a part of it"),
    ],
)
def test_scaling_of_the_hpa_has_the_policys_cause(looks: list[Context], cause: str) -> None:
    (found,) = scalings(*looks)
    assert f" by the HPA: {cause}" in found


def test_same_counts_by_another_author_have_no_former_cause() -> None:
    by_hpa = [at(0, 4, load="2400m"), at(2, 8, 1, "2400m", step=(4, 8))]
    by_hand = [at(40, 4, 1, step=(8, 8), manager="kubectl"), at(60, 8, 1, step=(4, 4), manager="kubectl")]
    told = scalings(*by_hpa, *by_hand)
    assert told[0].startswith("from 4 to 8 by the HPA: cpu: 4 pods use 2400m")
    assert told[1:] == ["from 8 to 4 by hand (kubectl)", "from 4 to 8 by hand (kubectl)"]


def test_new_leader_goes_on_from_the_count_of_the_status() -> None:
    assert scalings(at(0, 6), at(5, 6), status={"current": 4}) == ["from 4 to 6 by another client"]


# --- what every replica observes


def view(replicas: int, uid: str = "target") -> PolicyView:
    return PolicyView(policy=RULE, target=replace(TARGET, uid=uid), scale=scale(replicas))


def test_count_is_dated_by_its_last_rise_whoever_made_it() -> None:
    known = observe_count(ReplicaHistory(), view(3), NOW)
    assert (known.since, known.replicas) == (NOW, 3)
    for after, replicas in enumerate((3, 5, 4, 4), start=1):
        known = observe_count(known, view(replicas), NOW + after)
    assert (known.since, known.replicas) == (NOW + 2, 4)
    assert observe_count(known, PolicyView(policy=RULE), NOW + 9) is known, "an unknown target keeps its history"
    assert observe_count(known, view(9, "another"), NOW + 9).since == NOW + 9


def test_new_term_as_leader_keeps_what_was_observed() -> None:
    leader = Leader()
    leader.look(at(0, 4, load="2400m"))
    leader.look(at(2, 8, 1))
    history = unattributed(leader.state.of(ReplicaHistory))
    assert (history.since, history.replicas, history.pending) == (NOW + 2, 8, None)
