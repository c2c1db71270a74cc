"""Pacing: velocity, cooldown, schedules and fallback, in their order."""

from dataclasses import replace
from zoneinfo import ZoneInfo

from hypothesis import given
from hypothesis import strategies as st

from adapter.load.assessment import HeldBy, Limited
from adapter.load.decide import decide, limit_rate
from adapter.load.samples import QuerySamples, Samples
from adapter.load.schedule import ScheduleLimits
from adapter.load.spec import Bounds, Cooldown, Fallback, Schedule, Velocity
from tests.load.kit import BOUNDS, NOW, assess_and_decide, cpu, pod, policy, queue, same, scale, total, usage

BAND = policy(cpu("1200m", "400m"))


@given(st.integers(0, 1000), st.integers(0, 1000), st.integers(0, 1000))
def test_velocity_never_moves_away_from_the_wanted_count_nor_past_it(current: int, wanted: int, percent: int) -> None:
    rule = replace(BAND, velocity=Velocity(up=percent, down=min(percent, 100)))
    desired = limit_rate(Limited(wanted, None), current, rule, ScheduleLimits(), None, NOW).desired
    assert min(current, wanted) <= desired <= max(current, wanted)
    assert (desired == current) is (wanted == current or percent == 0)


LUNCH = Schedule(name="lunch", cron="* * * * *", zone=ZoneInfo("UTC"), duration=3600, minimum=20)
"""A schedule that is open now."""


class TestDecisions:
    def test_a_policy_that_is_held_keeps_the_count_until_then(self) -> None:
        pods, loads = same(5, "2400m")
        for until, expected in ((NOW + 1, (5, HeldBy.MODE)), (NOW, (20, HeldBy.SCHEDULE))):
            rule = replace(BAND, schedules=(LUNCH,), hold_until=until)
            _, decision = assess_and_decide(rule, pods, usage(loads))
            assert (decision.desired, decision.held_by) == expected

    def test_a_scaling_since_the_assessment_counts_for_the_cooldown(self) -> None:
        rule = replace(BAND, cooldown=Cooldown(down=60))
        made, loads = same(5, "200m")
        assessment, before = assess_and_decide(rule, made, usage(loads))
        assert before.desired == 2
        seen = decide(assessment, scale(4), BOUNDS, NOW + 5)
        assert (seen.desired, seen.held_by) == (4, HeldBy.COOLDOWN)
        told = decide(assessment, scale(5), replace(BOUNDS, last_scale=NOW + 1), NOW + 5)
        assert (told.desired, told.held_by) == (5, HeldBy.COOLDOWN)


class TestZero:
    def test_a_service_scaled_to_zero_by_hand_stays_at_zero(self) -> None:
        rule = policy(queue("100"), schedules=(LUNCH,))
        assert assess_and_decide(rule, [], total("50"), current=0, bounds=BOUNDS)[1].desired == 0

    def test_a_failing_source_is_an_error_at_zero_and_the_fallback_wakes(self) -> None:
        rule = replace(policy(cpu("1200m"), queue("100")), fallback=Fallback(after=300, replicas=10))
        bounds = Bounds(minimum=0, maximum=50)
        silent = Samples(queries={"queue": QuerySamples(error="connection refused")})
        assessment, before = assess_and_decide(rule, [], silent, current=0, bounds=bounds)
        assert before.error == "Deployment web is scaled to zero; query queue: connection refused"
        assert decide(assessment, scale(0), bounds, NOW + 300).desired == 10

    def test_a_total_that_answers_at_zero_is_no_error_though_a_pod_that_is_left_does_not_serve(self) -> None:
        rule = replace(policy(queue("100")), fallback=Fallback(after=60, replicas=10))
        bounds = Bounds(minimum=0, maximum=50)
        for left in (pod("new", ready=False, age=5), pod("old", deleting=True)):
            assessment, decision = assess_and_decide(rule, [left], total("5"), current=0, bounds=bounds)
            assert (decision.desired, assessment.memory.error_since) == (1, None)
