"""The history of a count: what every replica observes, and what the leader makes of it."""

from dataclasses import replace
from typing import Any

import pytest

from adapter.companion.replica_history import observe_count, unattributed
from adapter.companion.state import Context, LastRaise, ReplicaHistory, Scaling
from adapter.load.spec import Bounds
from adapter.policy.behavior import ReplicaChange
from adapter.snapshot import PolicyView
from tests.companion.kit import RULE, Leader, context
from tests.load.kit import NOW, TARGET, scale


def at(seconds: float, count: int, claimed: float | None = None, load: str = "800m", **changes: Any) -> Context:
    """A look at a count, which the HPA claims to have set at that second."""
    bounds = Bounds(minimum=1, maximum=100, last_scale=None if claimed is None else NOW + claimed)
    return context(load, pods=4, current=count, now=NOW + seconds, bounds=bounds, **changes)


def last(*looks: Context, status: dict[str, Any] | None = None, written: float = 0) -> Scaling | None:
    """The last scaling after these looks, by a leader that found this status."""
    leader = Leader(status, at=NOW + written)
    for look in looks:
        leader.look(look)
    return leader.state.history.last


FOUR = at(0, 4)
OTHER = replace(TARGET, uid="another")


@pytest.mark.parametrize(
    ("looks", "expected"),
    [
        pytest.param([FOUR], None, id="the first look is none"),
        pytest.param([FOUR, at(2, 6)], None, id="it waits for the HPA to claim it"),
        pytest.param([FOUR, at(2, 6), at(5, 6)], Scaling(1, NOW + 2, 4, 6, "", ""), id="for three seconds"),
        pytest.param([FOUR, at(1, 8, 1), at(20, 8, 1)], None, id="one of the HPA waits for a reason"),
        pytest.param(
            [FOUR, at(1, 8, 1), at(20, 8, 1), at(21, 8, 1)], Scaling(1, NOW + 1, 4, 8, "", "the HPA"), id="for a poll"
        ),
        pytest.param(
            [FOUR, at(1, 6, 1), at(2, 9, 2)], Scaling(1, NOW + 1, 4, 6, "", "the HPA"), id="or until the next change"
        ),
        pytest.param(
            [FOUR, at(1, 6, 1), at(2, 9, 2), at(22, 9, 2)],
            Scaling(2, NOW + 2, 6, 9, "", "the HPA"),
            id="which then has its own",
        ),
        pytest.param(
            [FOUR, at(2, 6, 1), at(3, 9, 1), at(7, 9, 1)], Scaling(2, NOW + 3, 6, 9, "", ""), id="a claim is for one"
        ),
        pytest.param(
            [at(0, 4, load="2400m"), at(2, 2, 1, "2400m"), at(22, 2, 1, "2400m")],
            Scaling(1, NOW + 2, 4, 2, "", "the HPA"),
            id="a count that nobody asked for has no reason",
        ),
        pytest.param([FOUR, at(1, 6), at(2, 4), at(9, 4)], None, id="a count that returns at once is none"),
        pytest.param([FOUR, at(2, 9, target=OTHER), at(9, 9, target=OTHER)], None, id="nor is another target"),
    ],
)
def test_a_change_of_the_count_is_a_scaling(looks: list[Context], expected: Scaling | None) -> None:
    assert last(*looks) == expected


@pytest.mark.parametrize(
    ("looks", "begun", "count", "why"),
    [
        pytest.param(
            [at(0, 4, load="2400m"), at(2, 8, 1)],
            2,
            8,
            "cpu: 4 pods use 2400m on average, above",
            id="that was decided",
        ),
        pytest.param(
            [FOUR, at(1, 8, 1), at(12, 8, 1, "2400m")],
            1,
            8,
            "cpu: 4 pods use 2400m on average, above",
            id="that the next poll brings",
        ),
        pytest.param([at(0, 4, load="2400m"), at(2, 6, 1)], 2, 6, "on the way to 8: cpu", id="for more than that"),
    ],
)
def test_a_scaling_of_the_hpa_has_the_policys_reason(looks: list[Context], begun: float, count: int, why: str) -> None:
    step = last(*looks)
    assert step is not None
    assert (step.number, step.at, step.before, step.after, step.by) == (1, NOW + begun, 4, count, "the HPA")
    assert step.why.startswith(why)


def test_a_raise_of_the_companion_is_attributed_to_it() -> None:
    leader = Leader()
    leader.look(at(0, 4, load="2400m"))
    leader.state = replace(leader.state, raised=LastRaise(at=NOW + 1, to=8))
    leader.look(at(1, 8))
    step = leader.state.history.last
    assert step is not None
    assert (step.after, step.by) == (8, "the companion")


def test_a_new_leader_goes_on_from_the_count_of_the_status() -> None:
    looks, status = (at(0, 6), at(5, 6)), {"current": 4}
    assert last(*looks, status=status, written=-20) == Scaling(1, NOW, 4, 6, "", "")


# --- what every replica observes


def view(replicas: int, *, last_scale: float | None = None, uid: str = "target") -> PolicyView:
    bounds = Bounds(minimum=1, maximum=100, last_scale=last_scale)
    return PolicyView(policy=RULE, target=replace(TARGET, uid=uid), scale=scale(replicas), bounds=bounds)


def test_a_count_is_watched_from_the_first_look_on() -> None:
    known = observe_count(ReplicaHistory(), view(3, last_scale=NOW - 5), NOW)
    assert known == ReplicaHistory(target="target", since=NOW, scaled_before=NOW - 5, replicas=3)


def test_rises_are_dated_and_falls_are_not_kept() -> None:
    known = observe_count(ReplicaHistory(), view(3), NOW)
    for after, replicas in enumerate((3, 5, 4, 9, 9), start=1):
        known = observe_count(known, view(replicas, last_scale=NOW), NOW + after)
    assert known == ReplicaHistory(
        target="target",
        since=NOW,
        scaled_before=None,
        replicas=9,
        rises=(ReplicaChange(NOW + 2, 2), ReplicaChange(NOW + 4, 5)),
    )


def test_rises_are_kept_for_as_long_as_a_period_may_be() -> None:
    known = observe_count(observe_count(ReplicaHistory(), view(3), NOW), view(5), NOW + 1)
    kept = observe_count(known, view(6), NOW + 1800.9)
    gone = observe_count(known, view(6), NOW + 1801)
    assert [rise.by for rise in kept.rises] == [2, 1]
    assert [rise.by for rise in gone.rises] == [1]


def test_another_target_of_the_same_policy_begins_a_new_history() -> None:
    known = observe_count(observe_count(ReplicaHistory(), view(3), NOW), view(5), NOW + 1)
    assert observe_count(known, view(7, uid="other"), NOW + 2) == ReplicaHistory(
        target="other", since=NOW + 2, scaled_before=None, replicas=7
    )


def test_a_target_that_is_unknown_for_a_while_keeps_its_history() -> None:
    known = observe_count(ReplicaHistory(), view(3), NOW)
    assert observe_count(known, PolicyView(policy=RULE), NOW + 1) is known


def test_a_new_term_as_leader_keeps_what_was_observed_and_attributes_anew() -> None:
    leader = Leader()
    leader.look(at(0, 4, load="2400m"))
    leader.look(at(2, 8, 1))
    history = leader.state.history
    assert unattributed(history) == ReplicaHistory(
        target=history.target, since=NOW, scaled_before=None, replicas=8, rises=(ReplicaChange(NOW + 2, 4),)
    )
