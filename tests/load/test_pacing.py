"""Pacing: velocity, cooldown, schedules and fallback, in their order."""

from dataclasses import replace
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter.load.assessment import HeldBy
from adapter.load.decide import decide
from adapter.load.pacing import Paced, pace
from adapter.load.samples import QuerySamples, Samples
from adapter.load.schedule import ScheduleLimits
from adapter.load.spec import Bounds, Cooldown, Fallback, Policy, Schedule, Velocity
from tests.load.kit import BOUNDS, NOW, assess_and_decide, cpu, pod, policy, queue, same, scale, total, usage

BAND = policy(cpu("1200m", "400m"))
NO_LIMITS = ScheduleLimits()


def paced(
    wanted: int, current: int, rule: Policy = BAND, limits: ScheduleLimits = NO_LIMITS, last: float | None = None
) -> tuple[int, HeldBy | None]:
    return pace(Paced(wanted, None), current, rule, limits, last, NOW)


def up(percent: int) -> Policy:
    return replace(BAND, velocity=Velocity(up=percent))


def down(percent: int) -> Policy:
    return replace(BAND, velocity=Velocity(down=percent))


class TestVelocity:
    @pytest.mark.parametrize(
        ("rule", "current", "wanted", "desired"),
        [
            (up(20), 3, 6, 4),
            (down(1), 7, 3, 6),
            (up(100), 5, 20, 10),
            (up(50), 5, 20, 7),
            (down(20), 10, 1, 8),
            (down(100), 10, 1, 1),
            (up(0), 5, 20, 5),
            (down(0), 5, 1, 5),
        ],
    )
    def test_so_many_percent_of_the_current_count_but_a_pod_at_least(
        self, rule: Policy, current: int, wanted: int, desired: int
    ) -> None:
        expected = None if desired == wanted else HeldBy.VELOCITY
        assert paced(wanted, current, rule) == (desired, expected)

    @given(st.integers(0, 1000), st.integers(0, 1000), st.integers(0, 1000))
    def test_it_never_moves_away_from_the_wanted_count_nor_past_it(
        self, current: int, wanted: int, percent: int
    ) -> None:
        desired, _ = paced(wanted, current, replace(BAND, velocity=Velocity(up=percent, down=min(percent, 100))))
        assert min(current, wanted) <= desired <= max(current, wanted)
        assert desired != current or wanted == current or percent == 0


class TestCooldown:
    RULE = replace(BAND, cooldown=Cooldown(up=60, down=300))

    @pytest.mark.parametrize(
        ("wanted", "ago", "desired"), [(8, 59, 5), (8, 60, 8), (2, 299, 5), (2, 300, 2), (8, -500, 5), (5, 1, 5)]
    )
    def test_nothing_moves_in_a_direction_before_its_seconds_are_over(
        self, wanted: int, ago: float, desired: int
    ) -> None:
        expected = None if desired == wanted else HeldBy.COOLDOWN
        assert paced(wanted, 5, self.RULE, last=NOW - ago) == (desired, expected)


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
        seen = decide(assessment, scale(7), BOUNDS, NOW + 5)
        assert (seen.desired, seen.held_by) == (7, HeldBy.COOLDOWN)
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
