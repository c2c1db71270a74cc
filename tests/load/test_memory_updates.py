"""The memory that one assessment leaves to the next."""

from dataclasses import replace

import pytest

from adapter.load.assessment import PodAssessment
from adapter.load.memory import Memory, PodMemory, Replacement
from adapter.load.pods import Pod, PodState
from adapter.load.remembering import (
    after_replacement_request,
    after_replacing_step,
    after_rollout,
    after_roster,
    after_scale,
    last_scaled,
    replacement_ineffective,
    rolling_out,
    since_first_step,
)
from adapter.load.samples import Samples
from adapter.load.spec import Registry, Target
from tests.load.kit import (
    BOUNDS,
    NOW,
    REGISTRY,
    TARGET,
    assess_and_decide,
    cpu,
    out,
    pod,
    policy,
    queue,
    roster,
    same,
    scale,
    total,
    usage,
)

REGISTERED = policy(registry=REGISTRY)
PODS = [pod("a", ip="10.0.0.1"), pod("b", ip="10.0.0.2")]
A, B = "uid-a", "uid-b"


def hear(memory: Memory, *ips: str, at: float = NOW - 1, pods: list[Pod] | None = None, **changes: object) -> Memory:
    return after_roster(memory, REGISTERED, pods or PODS, roster(*ips, at=at, **changes), NOW)  # type: ignore[arg-type]


class TestRosters:
    def test_what_the_latest_roster_says_of_a_pod_is_remembered(self) -> None:
        memory = hear(Memory(), "10.0.0.1", "10.0.0.2", at=NOW - 40)
        assert [memory.pods[uid].listing for uid in (A, B)] == ["In", "In"]
        out = roster("10.0.0.1", "10.0.0.2", at=NOW - 30)
        out = replace(out, instances=(replace(out.instances[0], enabled=False), out.instances[1]))
        memory = after_roster(memory, REGISTERED, PODS, out, NOW)
        assert [memory.pods[uid].listing for uid in (A, B)] == ["Out", "In"]
        memory = hear(memory, "10.0.0.1", at=NOW - 20)
        assert [memory.pods[uid].listing for uid in (A, B)] == ["In", "Absent"]

    def test_a_roster_counts_once(self) -> None:
        memory = hear(Memory(), "10.0.0.1", at=NOW - 20)
        once = hear(memory, at=NOW - 10)
        assert hear(once, at=NOW - 10) is once
        assert hear(once, "10.0.0.1", at=NOW - 15) is once
        assert (once.rosters, once.rosters_since, once.roster_at) == (2, NOW - 20, NOW - 10)

    def test_where_the_clock_was_put_back_the_next_roster_counts_and_once(self) -> None:
        ahead = hear(Memory(), "10.0.0.1", "10.0.0.2", at=NOW + 3600)
        memory = hear(ahead, "10.0.0.2", at=NOW - 1)
        assert (memory.roster_at, memory.pods[A].absent_count) == (NOW - 1, 1)
        assert hear(memory, "10.0.0.2", at=NOW - 1) == memory
        assert hear(ahead, "10.0.0.1", "10.0.0.2", at=NOW + 3600) == ahead

    def test_an_invalid_or_missing_roster_changes_nothing(self) -> None:
        memory = hear(Memory(), "10.0.0.1", at=NOW - 20)
        assert hear(memory, at=NOW - 10, valid=False, registry_total=0, reconnected_at=NOW) is memory
        assert after_roster(memory, REGISTERED, PODS, None, NOW) is memory

    @pytest.mark.parametrize("rule", [policy(), policy(registry=Registry(name="kubernetes"))])
    def test_without_a_registry_there_is_nothing_to_remember(self, rule: object) -> None:
        assert after_roster(Memory(), rule, PODS, roster("10.0.0.1"), NOW) == Memory()  # type: ignore[arg-type]

    def test_another_life_of_the_same_name_begins_unseen(self) -> None:
        memory = hear(Memory(), "10.0.0.1", at=NOW - 20)
        again = replace(PODS[0], uid="uid-again")
        memory = hear(memory, at=NOW - 10, pods=[again, PODS[1]])
        assert memory.pods["uid-again"] == PodMemory()
        assert A not in memory.pods
        assert memory.ever_in_roster

    def test_an_unknown_registry_total_is_not_a_loss(self) -> None:
        memory = hear(Memory(), "10.0.0.1", at=NOW - 20, registry_total=1000)
        memory = hear(memory, "10.0.0.1", at=NOW - 10)
        assert (memory.hold_until, memory.roster_total) == (None, 1000)

    def test_a_reconnect_holds_for_90_s_and_the_longer_hold_stays(self) -> None:
        memory = hear(Memory(), "10.0.0.1", at=NOW - 20, reconnected_at=NOW - 30)
        assert (memory.reconnected_at, memory.hold_until) == (NOW - 30, NOW + 60)
        later = hear(memory, "10.0.0.1", at=NOW - 10, reconnected_at=NOW - 50)
        assert later.hold_until == NOW + 60


class TestStates:
    def test_a_pod_that_is_gone_is_forgotten(self) -> None:
        first, _ = assess_and_decide(policy(), PODS, usage({"a": "1", "b": "1"}))
        then, _ = assess_and_decide(policy(), [PODS[0]], usage({"a": "1"}), memory=first.memory)
        assert set(then.memory.pods) == {A}


class TestScale:
    def test_a_change_that_a_take_over_finds_is_of_then_on_the_way_down_and_the_hpas_on_the_way_up(self) -> None:
        memory = after_scale(Memory(last_replicas=4, last_scale=NOW - 90, observing_since=NOW), scale(3), NOW)
        bounds = replace(BOUNDS, last_scale=NOW - 20)
        assert last_scaled(memory, bounds, NOW) == NOW
        assert last_scaled(memory, bounds, NOW, earliest=True) == NOW - 20
        memory = after_scale(memory, scale(4), NOW + 9)
        assert last_scaled(memory, bounds, NOW + 9, earliest=True) == NOW + 9, "it saw that itself"

    @pytest.mark.parametrize(
        ("memory", "by_hpa", "expected"),
        [
            pytest.param(Memory(), None, None, id="none"),
            pytest.param(Memory(), NOW - 30, NOW - 30, id="the HPA's"),
            pytest.param(Memory(last_scale=NOW - 10), NOW - 30, NOW - 10, id="the remembered one is later"),
            pytest.param(Memory(last_scale=NOW - 60), NOW - 30, NOW - 30, id="the HPA's is later"),
            pytest.param(Memory(), NOW + 10**9, NOW, id="one in the future is of now"),
            # The HPA keeps that time until it scales, which the cooldown forbids.
            pytest.param(Memory(observing_since=NOW - 60), NOW + 3600, NOW - 60, id="or of when it was first seen"),
            pytest.param(
                Memory(observing_since=NOW - 60, last_scale=NOW - 20), NOW + 3600, NOW - 20, id="or of a later change"
            ),
        ],
    )
    def test_the_later_of_the_hpas_and_the_remembered_scaling_counts(
        self, memory: Memory, by_hpa: float | None, expected: float | None
    ) -> None:
        assert last_scaled(memory, replace(BOUNDS, last_scale=by_hpa), NOW) == expected

    def test_a_scaling_in_the_future_counts_until_it_is_corrected(self) -> None:
        ahead = replace(BOUNDS, last_scale=NOW + 10**9)
        first, _ = assess_and_decide(policy(), PODS, usage({"a": "1", "b": "1"}), bounds=ahead)
        assert last_scaled(first.memory, replace(BOUNDS, last_scale=NOW - 500), NOW + 1) == NOW - 500

    def test_a_remembered_time_in_the_future_is_now_at_the_next_assessment(self) -> None:
        wrong = Memory(last_replicas=2, last_scale=NOW + 10**9, hold_until=NOW + 10**9)
        then, _ = assess_and_decide(policy(), PODS, usage({"a": "1", "b": "1"}), memory=wrong)
        assert (then.memory.last_scale, then.memory.hold_until) == (NOW, NOW + 90)
        later, _ = assess_and_decide(policy(), PODS, usage({"a": "1", "b": "1"}), memory=then.memory, now=NOW + 5)
        assert (later.memory.last_scale, later.memory.hold_until) == (NOW, NOW + 90)


class TestRollouts:
    ROLLING = replace(TARGET, progressing="ReplicaSetUpdated")

    def test_it_lasts_from_when_it_is_first_seen_for_600_s(self) -> None:
        memory = after_rollout(Memory(), self.ROLLING, NOW)
        memory = after_rollout(memory, self.ROLLING, NOW + 500)
        assert rolling_out(memory, NOW + 600)
        assert not rolling_out(memory, NOW + 600.5)

    def test_in_a_file_it_began_with_the_conditions_last_update(self) -> None:
        stuck = replace(self.ROLLING, progressing_since=NOW - 700)
        assert not rolling_out(after_rollout(Memory(), stuck, NOW), NOW)

    @pytest.mark.parametrize("target", [None, TARGET, replace(TARGET, progressing="NewReplicaSetAvailable")])
    def test_it_is_over_once_the_new_replica_set_is_available(self, target: Target | None) -> None:
        memory = after_rollout(after_rollout(Memory(), self.ROLLING, NOW), target, NOW + 5)
        assert memory.rollout_since is None


def test_asking_for_more_because_of_pods_that_are_out_is_noted_once_per_count() -> None:
    memory = after_replacement_request(Memory(), 4, 1, 5, NOW)
    assert memory.replacement == Replacement(noted_at=NOW, noted_current=4)
    assert after_replacement_request(memory, 4, 1, 6, NOW + 5).replacement.noted_at == NOW
    later = after_replacement_request(memory, 5, 2, 7, NOW + 5).replacement
    assert later == Replacement(noted_at=NOW + 5, noted_current=5)


def test_a_count_above_the_noted_one_is_a_replacing_step_dated_at_the_note_of_the_first() -> None:
    memory = after_replacement_request(Memory(), 4, 1, 5, NOW)
    assert after_replacing_step(memory, scale(4), is_away=True).replacement.first_step is None
    memory = after_replacing_step(memory, scale(5), is_away=True)
    assert memory.replacement == Replacement(first_step=NOW)
    again = after_replacement_request(memory, 5, 1, 6, NOW + 60)
    assert after_replacing_step(again, scale(6), is_away=True).replacement.first_step == NOW
    assert after_replacing_step(again, scale(6), is_away=False).replacement == Replacement()


def test_pods_are_dated_by_the_whole_second_of_the_first_replacing_step() -> None:
    memory = Memory(replacement=Replacement(first_step=NOW + 0.9))
    assert since_first_step(memory, pod(age=0))
    assert not since_first_step(memory, pod(age=1))
    assert not since_first_step(Memory(), pod(age=0))


@pytest.mark.parametrize(
    ("created", "away", "ineffective"), [(1, 1, False), (2, 1, False), (2, 2, True), (4, 2, True), (5, 2, False)]
)
def test_replacing_is_ineffective_while_two_and_half_of_the_newcomers_are_away(
    created: int, away: int, ineffective: bool
) -> None:
    memory = Memory(replacement=Replacement(first_step=NOW - 50))
    states = [PodState.PULLED_OUT, PodState.DOUBTFUL] * 5
    states[away:] = [PodState.SERVING] * (created - away)
    found = [PodAssessment(pod(f"new-{n}", age=40), state, "") for n, state in enumerate(states)]
    found += [PodAssessment(pod(f"old-{n}"), PodState.PULLED_OUT, "") for n in range(2)]
    assert replacement_ineffective(memory, found) is ineffective


class TestErrors:
    def test_one_metric_that_answers_is_enough(self) -> None:
        pods, loads = same(2, "1")
        both = policy(cpu(), queue("85"))
        assert assess_and_decide(both, pods, usage(loads))[0].memory.error_since is None
        assert assess_and_decide(both, pods, Samples())[0].memory.error_since == NOW
        assert assess_and_decide(policy(queue("85")), pods, total("3"))[0].memory.error_since is None


def test_a_request_does_not_change_the_memory() -> None:
    pods, loads = same(3, "1600m")
    assessment, decision = assess_and_decide(policy(), [*pods, out("out")], usage(loads))
    again, _ = assess_and_decide(policy(), [*pods, out("out")], usage(loads), memory=assessment.memory)
    assert again.memory == assessment.memory
    assert decision.desired == 5
    assert assessment.memory.replacement == Replacement(noted_at=NOW, noted_current=4)


def test_metrics_that_a_policy_no_longer_has_leave_nothing_behind() -> None:
    memory, pods = Memory(), [pod("a"), pod("b")]
    for number in range(20):
        rule = policy(replace(cpu("1200m", "400m"), name=f"edit-{number}"))
        memory = assess_and_decide(rule, pods, usage({"a": "500m", "b": "500m"}), memory=memory)[0].memory
        assert set(memory.samples) == {f"edit-{number}"}
