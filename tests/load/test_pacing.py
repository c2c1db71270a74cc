"""Pacing: velocity, cooldown, schedules and fallback, in their order."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from adapter.load.assessment import HeldBy, Limited
from adapter.load.decide import decide, limit_rate
from adapter.load.schedule import ScheduleLimits
from adapter.load.spec import Seconds, Velocity
from tests.load.kit import BOUNDS, NOW, assess_and_decide, cpu, policy, same, scale, usage

BAND = policy(cpu("1200m", "400m"))


@given(st.integers(0, 1000), st.integers(0, 1000), st.integers(0, 1000))
def test_velocity_never_moves_away_from_the_wanted_count_nor_past_it(current: int, wanted: int, percent: int) -> None:
    rule = replace(BAND, velocity=Velocity(up=percent, down=min(percent, 100)))
    desired = limit_rate(Limited(wanted, None), current, rule, ScheduleLimits(), None, NOW).desired
    assert min(current, wanted) <= desired <= max(current, wanted)
    assert (desired == current) is (wanted == current or percent == 0)


def test_a_scaling_since_the_assessment_counts_for_the_cooldown() -> None:
    rule = replace(BAND, cooldown=Seconds(down=60))
    made, loads = same(5, "200m")
    assessment, before = assess_and_decide(rule, made, usage(loads))
    assert before.desired == 2
    seen = decide(assessment, scale(4), BOUNDS, NOW + 5)
    assert (seen.desired, seen.held_by) == (4, HeldBy.COOLDOWN)
    told = decide(assessment, scale(5), replace(BOUNDS, last_scale=NOW + 1), NOW + 5)
    assert (told.desired, told.held_by) == (5, HeldBy.COOLDOWN)
