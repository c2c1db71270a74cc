"""The history of a count: what every replica observes, and what the leader makes of it."""

from dataclasses import replace

from adapter.companion.replica_history import LEFT_BEHIND_SECONDS, observe_count, unattributed
from adapter.companion.state import LastRaise, ReplicaHistory, Scaling
from adapter.load.spec import Bounds
from adapter.policy.behavior import ReplicaChange
from adapter.snapshot import PolicyView
from tests.companion.kit import RULE, Leader, context
from tests.load.kit import NOW, TARGET, scale


def by_hpa(at: float) -> Bounds:
    return Bounds(minimum=1, maximum=100, last_scale=at)


def last(leader: Leader) -> Scaling | None:
    return leader.state.history.last


def test_the_first_look_is_no_scaling() -> None:
    leader = Leader()
    leader.look(context())
    assert last(leader) is None


def test_a_scaling_is_attributed_to_the_hpa_that_claims_it_and_to_the_policys_reason() -> None:
    leader = Leader()
    leader.look(context("2400m"))
    leader.look(context(current=8, now=NOW + 2, bounds=by_hpa(NOW + 1)))
    step = last(leader)
    assert step is not None
    assert (step.number, step.before, step.after, step.by) == (1, 4, 8, "the HPA")
    assert step.why.startswith("cpu: 4 pods use 2400m on average, above the high watermark 1200m")


def test_a_scaling_on_samples_that_come_with_the_next_poll_has_their_reason() -> None:
    leader = Leader()
    leader.look(context())
    leader.look(context(pods=4, current=8, now=NOW + 1, bounds=by_hpa(NOW + 1)))
    assert last(leader) is None
    leader.look(context("2400m", pods=4, current=8, now=NOW + 12, bounds=by_hpa(NOW + 1)))
    step = last(leader)
    assert step is not None
    assert (step.at, step.before, step.after, step.by) == (NOW + 1, 4, 8, "the HPA")
    assert step.why.startswith("cpu: 4 pods use 2400m on average, above the high watermark 1200m")


def test_a_scaling_of_the_hpa_without_a_reason_is_told_after_a_poll() -> None:
    leader = Leader()
    leader.look(context())
    for after, expected in ((1, None), (20, None), (21, Scaling(1, NOW + 1, 4, 8, "", "the HPA"))):
        leader.look(context(current=8, now=NOW + after, bounds=by_hpa(NOW + 1)))
        assert last(leader) == expected


def test_a_change_ends_the_wait_of_the_one_before_it() -> None:
    leader = Leader()
    leader.look(context())
    leader.look(context(current=6, now=NOW + 1, bounds=by_hpa(NOW + 1)))
    leader.look(context(current=9, now=NOW + 2, bounds=by_hpa(NOW + 2)))
    assert last(leader) == Scaling(1, NOW + 1, 4, 6, "", "the HPA")
    leader.look(context(current=9, now=NOW + 22, bounds=by_hpa(NOW + 2)))
    assert last(leader) == Scaling(2, NOW + 2, 6, 9, "", "the HPA")


def test_a_scaling_waits_three_seconds_for_the_hpa_to_claim_it() -> None:
    leader = Leader()
    leader.look(context())
    leader.look(context(current=6, now=NOW + 2))
    assert last(leader) is None
    leader.look(context(current=6, now=NOW + 5))
    assert last(leader) == Scaling(1, NOW + 2, 4, 6, "", "")


def test_one_scaling_of_the_hpa_is_attributed_to_it_once() -> None:
    leader = Leader()
    leader.look(context())
    leader.look(context(current=6, now=NOW + 2, bounds=by_hpa(NOW + 1)))
    for at in (3, 7):
        leader.look(context(current=9, now=NOW + at, bounds=by_hpa(NOW + 1)))
    step = last(leader)
    assert step is not None
    assert (step.before, step.after, step.by) == (6, 9, "")


def test_a_raise_of_the_companion_is_attributed_to_it() -> None:
    leader = Leader()
    leader.look(context("2400m"))
    leader.state = replace(leader.state, raised=LastRaise(at=NOW + 1, to=8))
    leader.look(context(current=8, now=NOW + 1))
    step = last(leader)
    assert step is not None
    assert (step.after, step.by) == (8, "the companion")


def test_the_reason_of_a_count_on_the_way_to_the_desired_one_says_so() -> None:
    leader = Leader()
    leader.look(context("2400m"))
    leader.look(context(current=6, now=NOW + 2, bounds=by_hpa(NOW + 1)))
    step = last(leader)
    assert step is not None
    assert step.why.startswith("on the way to 8: cpu")


def test_a_count_that_nobody_asked_for_has_no_reason() -> None:
    leader = Leader()
    leader.look(context("2400m"))
    for after in (2, 22):
        leader.look(context(current=2, now=NOW + after, bounds=by_hpa(NOW + 1)))
    assert last(leader) == Scaling(1, NOW + 2, 4, 2, "", "the HPA")


def test_a_count_that_returns_before_it_is_attributed_is_no_scaling() -> None:
    leader = Leader()
    for at, count in ((0, 4), (1, 6), (2, 4), (9, 4)):
        leader.look(context(current=count, now=NOW + at))
    assert last(leader) is None


def test_another_target_is_no_scaling() -> None:
    leader = Leader()
    leader.look(context())
    other = replace(TARGET, uid="another")
    for at in (2, 9):
        leader.look(context(current=9, now=NOW + at, target=other))
    assert last(leader) is None


def test_a_new_leader_goes_on_from_the_count_that_the_status_shows() -> None:
    leader = Leader({"current": 4}, at=NOW - 20)
    for at in (0, 5):
        leader.look(context(current=6, now=NOW + at))
    step = last(leader)
    assert step is not None
    assert (step.before, step.after) == (4, 6)


def test_an_old_status_is_no_base_for_a_scaling() -> None:
    leader = Leader({"current": 4}, at=NOW - LEFT_BEHIND_SECONDS - 1)
    for at in (0, 5):
        leader.look(context(current=6, now=NOW + at))
    assert last(leader) is None


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
    leader.look(context("2400m"))
    leader.look(context(current=8, now=NOW + 2, bounds=by_hpa(NOW + 1)))
    history = leader.state.history
    assert unattributed(history) == ReplicaHistory(
        target=history.target, since=NOW, scaled_before=None, replicas=8, rises=(ReplicaChange(NOW + 2, 4),)
    )
