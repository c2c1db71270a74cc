"""The model of an HPA's scale-up budget against figures of the stock controller."""

from collections.abc import Sequence

import pytest

from adapter.policy.behavior import ReplicaChange, highest_allowed
from adapter.policy.hpa import ScalingPolicy, ScalingRules

NOW = 10_000.0

DEFAULT = (ScalingPolicy("Pods", 4, 15), ScalingPolicy("Percent", 100, 15))
"""What the API server fills in where `behavior` is there but says nothing of scaling up."""


def pods(value: int, period: int) -> ScalingPolicy:
    return ScalingPolicy("Pods", value, period)


def percent(value: int, period: int) -> ScalingPolicy:
    return ScalingPolicy("Percent", value, period)


def over(period: int, *sizes: int, sign: int = 1) -> list[ReplicaChange]:
    """Changes in the middles of equal parts of the last so many seconds."""
    part = period / max(1, len(sizes))
    return [ReplicaChange(NOW - period + part * (index + 0.5), sign * size) for index, size in enumerate(sizes)]


def test_without_any_behavior_the_count_may_double_and_four_are_always_allowed_whatever_was_done_before() -> None:
    assert [highest_allowed(n, ScalingRules(), [], NOW) for n in (0, 1, 2, 3, 500)] == [4, 4, 4, 6, 1000]
    assert highest_allowed(8, ScalingRules(), [ReplicaChange(NOW - 1, 4)], NOW) == 16


def test_disabled_allows_nothing() -> None:
    assert highest_allowed(3, ScalingRules(select="Disabled", policies=DEFAULT), [], NOW) == 3


@pytest.mark.parametrize(
    ("current", "policies", "changes", "expected"),
    [
        (3, [percent(1, 60)], [], 4),
        (10, DEFAULT, [], 20),
        (1, DEFAULT, [], 5),
        (10, [pods(100, 60), percent(100, 60)], [], 110),
        (10, [pods(2, 60), percent(100, 60)], [], 20),
        (10, [pods(30, 60)], [], 40),
        (10, [percent(200, 60)], [], 30),
        (100, [pods(300, 60)], over(120, 1, 5, 9), 391),
        (100, [pods(5, 120)], over(120, 1, 5, 9), 100),
        (100, [pods(150, 120)], over(120, 1, 5, 9), 235),
        (100, [percent(200, 120)], over(120, 1, 5, 9), 255),
        (6, [percent(300, 300)], [*over(300, 4), *over(300, 2, sign=-1)], 16),
        pytest.param(10, [pods(5, 60)], [ReplicaChange(NOW - 60, 5)], 15, id="as old as the period: counts no more"),
        pytest.param(10, [pods(5, 60)], [ReplicaChange(NOW - 59.9, 5)], 10, id="a little younger"),
        pytest.param(10, [pods(1, 60)], [ReplicaChange(NOW - 1, 8)], 10, id="never below the current count"),
    ],
)
def test_the_policy_that_allows_most_decides(
    current: int, policies: Sequence[ScalingPolicy], changes: list[ReplicaChange], expected: int
) -> None:
    assert highest_allowed(current, ScalingRules(select="Max", policies=tuple(policies)), changes, NOW) == expected


def test_the_policy_that_allows_least_decides_where_min_is_selected() -> None:
    assert highest_allowed(1, ScalingRules(select="Min", policies=(pods(2, 60), percent(50, 60))), [], NOW) == 2


@pytest.mark.parametrize(
    ("value", "current", "expected"),
    [(10, 50, 56), (10, 90, 100), (10, 100, 111), (10, 110, 122), (10, 1000, 1100), (900, 1, 10), (50, 45, 68)],
)
def test_percentages_round_as_the_controller_does(value: int, current: int, expected: int) -> None:
    assert highest_allowed(current, ScalingRules(policies=(percent(value, 60),)), [], NOW) == expected


@pytest.mark.parametrize(("value", "surprises"), [(1, 0), (5, 0), (10, 54), (20, 0), (25, 0), (50, 0), (100, 0)])
def test_binary_fractions_add_a_pod_exactly_where_they_do_in_the_controller(value: int, surprises: int) -> None:
    pace = ScalingRules(policies=(percent(value, 60),))
    exact = {n: -(-n * (100 + value) // 100) for n in range(1, 1001)}
    assert sum(highest_allowed(n, pace, [], NOW) != exact[n] for n in exact) == surprises


def course(pace: ScalingRules, start: int, wanted: int, *, sync: float = 15.0) -> list[tuple[float, int]]:
    """When (seconds) an HPA that syncs so often changes the count to what."""
    current, at, changes, seen = start, 0.0, list[ReplicaChange](), list[tuple[float, int]]()
    while current < wanted:
        reached = min(wanted, highest_allowed(current, pace, changes, at))
        if reached != current:
            changes.append(ReplicaChange(at, reached - current))
            seen.append((at, reached))
            current = reached
        at += sync
    return seen


@pytest.mark.parametrize(
    ("pace", "start", "wanted", "sync", "steps"),
    [
        ([percent(50, 90)], 20, 100, 15, [(0, 30), (90, 45), (180, 68), (270, 100)]),
        ([percent(900, 300)], 1, 13, 15, [(0, 10), (300, 13)]),
        pytest.param([pods(1, 6)], 1, 3, 5, [(0, 2), (10, 3)], id="at the first sync after the period"),
    ],
)
def test_one_policy_steps_once_in_its_period(
    pace: list[ScalingPolicy], start: int, wanted: int, sync: float, steps: list[tuple[float, int]]
) -> None:
    assert course(ScalingRules(policies=tuple(pace)), start, wanted, sync=sync) == steps


def test_the_smaller_of_four_pods_and_a_tenth() -> None:
    pace = ScalingRules(select="Min", policies=(pods(4, 60), percent(10, 60)))
    steps = course(pace, 20, 60)[:10]
    assert steps == list(zip(range(0, 600, 60), [22, 25, 28, 31, 35, 39, 43, 47, 51, 55], strict=True))


def test_a_thousand_from_one_with_the_defaults_and_without_any_behavior() -> None:
    filled = [count for _, count in course(ScalingRules(select="Max", policies=DEFAULT), 1, 1000)]
    assert filled == [5, 10, 20, 40, 80, 160, 320, 640, 1000]
    assert [count for _, count in course(ScalingRules(), 1, 1000)] == [4, 8, 16, 32, 64, 128, 256, 512, 1000]
