"""The outer guard in an HPA's behavior never holds back what the policy's own pace lets through."""

from dataclasses import replace
from datetime import UTC

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter.load.assessment import Limited
from adapter.load.decide import limit_rate
from adapter.load.schedule import ScheduleLimits
from adapter.load.spec import Bounds, Fallback, Policy, Schedule, Velocity
from adapter.policy.behavior import permits, required_behavior
from adapter.policy.hpa import CrossVersionReference, Hpa, ScalingPolicy, ScalingRules
from tests.load.kit import NOW, policy

LARGEST = 500
HPA = Hpa(
    namespace="shop",
    name="web",
    target=CrossVersionReference("apps/v1", "Deployment", "web"),
    bounds=Bounds(minimum=1, maximum=LARGEST),
)


def lunch(minimum: int) -> Schedule:
    return Schedule(name="lunch", cron="0 11 * * *", zone=UTC, duration=3600, minimum=minimum)


def limits(rule: Policy, direction: str) -> list[ScalingPolicy]:
    (found,) = (one for one in required_behavior(rule, HPA, tolerance=True) if one.name == f"{direction}.policies")
    return [ScalingPolicy(one["type"], one["value"], one["periodSeconds"]) for one in found.value]


def hpa_allows(rule: Policy, current: int, desired: int) -> int:
    """How far the stock HPA goes in one sync by these limits, in its own binary numbers."""
    if desired >= current:
        reach = [
            current + one.value if one.kind == "Pods" else -int(-(current * (1 + one.value / 100)) // 1)
            for one in limits(rule, "scaleUp")
        ]
        return min(desired, max(reach))
    reach = [
        current - one.value if one.kind == "Pods" else int(current * (1 - one.value / 100))
        for one in limits(rule, "scaleDown")
    ]
    return max(desired, min(reach))


percents = st.none() | st.integers(0, 300)
counts = st.integers(1, LARGEST)


@given(up=percents, down=st.none() | st.integers(0, 100), current=counts, ideal=counts, floor=st.none() | counts)
def test_it_never_binds_before_the_policys_pace(
    up: int | None, down: int | None, current: int, ideal: int, floor: int | None
) -> None:
    schedules = () if floor is None else (lunch(floor),)
    rule = policy(velocity=Velocity(up=up, down=down), schedules=schedules)
    open_now = ScheduleLimits(floor=floor, floor_of="lunch") if floor is not None else ScheduleLimits()
    desired = limit_rate(Limited(ideal, None), current, rule, open_now, None, NOW).desired
    assert hpa_allows(rule, current, desired) == desired


def test_it_lets_the_fallback_through() -> None:
    rule = policy(velocity=Velocity(up=1), fallback=Fallback(after=60, replicas=40))
    assert hpa_allows(rule, 2, 40) == 40


DEFAULT_UP = (ScalingPolicy("Pods", 4, 15), ScalingPolicy("Percent", 100, 15))
DEFAULT_DOWN = (ScalingPolicy("Percent", 100, 15),)


@pytest.mark.parametrize(
    ("rule", "up", "is_it"),
    [
        (policy(), ScalingRules(select="Max", policies=DEFAULT_UP), False),
        (policy(velocity=Velocity(up=50)), ScalingRules(select="Max", policies=DEFAULT_UP), True),
        (policy(velocity=Velocity(up=50)), ScalingRules(select="Min", policies=DEFAULT_UP), False),
        (policy(velocity=Velocity(up=50)), ScalingRules(policies=(ScalingPolicy("Pods", 4, 60), DEFAULT_UP[1])), False),
        (policy(velocity=Velocity(up=50), schedules=(lunch(9),)), ScalingRules(policies=DEFAULT_UP), False),
    ],
)
def test_the_rules_of_others_are_loose_where_they_let_as_much_through(
    rule: Policy, up: ScalingRules, *, is_it: bool
) -> None:
    assert permits(rule, replace(HPA, scale_up=up), "scaleUp") is is_it
