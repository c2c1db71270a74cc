"""The vectors of Kubernetes' own tests for rate limits, stabilization and remembered changes (v1.36.3)."""

import pytest

from adapter.hpa.behavior import DEFAULT_DOWN, DEFAULT_UP, History, ScaleEvent, _Recommendation, rules
from adapter.policy.hpa import ScalingPolicy, ScalingRules

NOW = 10_000.0
UP, DOWN = rules(DEFAULT_UP, DEFAULT_UP, 0), rules(DEFAULT_DOWN, DEFAULT_DOWN, 0)


def policies(text: str) -> tuple[ScalingPolicy, ...]:
    """`20p/60 1%/60`: pods or percent, and the period in seconds."""
    found = []
    for one in text.split():
        amount, period = one.split("/")
        found.append(ScalingPolicy("Pods" if amount.endswith("p") else "Percent", int(amount[:-1]), int(period)))
    return tuple(found)


def events(changes: tuple[int, ...], period: int) -> list[ScaleEvent]:
    """Changes spread over the middles of equal parts of the period."""
    part = period / max(1, len(changes))
    return [ScaleEvent(change, NOW - part * (index + 0.5)) for index, change in enumerate(changes)]


RATES = [
    ("default", 5, 7, 3, 8, "", "", (), (), 7, "DesiredWithinRange"),
    ("default down", 3, 1, 2, 8, "", "", (), (), 2, "TooFewReplicas"),
    ("default to zero", 1, 0, 0, 10, "", "", (), (), 0, "DesiredWithinRange"),
    ("default to max from above", 20, 1000, 1, 10, "", "", (), (), 10, "TooManyReplicas"),
    ("default to max", 100, 1000, 100, 150, "", "", (), (), 150, "TooManyReplicas"),
    ("one percent", 3, 1000, 1, 2000, "1%/60", "", (), (), 4, "ScaleUpLimit"),
    ("pods down", 1000, 3, 3, 2000, "", "20p/60", (), (), 980, "ScaleDownLimit"),
    ("default doubles", 10, 50, 1, 1000, "", "", (), (), 20, "ScaleUpLimit"),
    ("the larger of pods and percent", 10, 500, 1, 1000, "100p/60 100%/60", "", (), (), 110, "ScaleUpLimit"),
    ("the larger of percent and pods", 10, 500, 1, 1000, "2p/60 100%/60", "", (), (), 20, "ScaleUpLimit"),
    ("pods up", 10, 50, 1, 1000, "30p/60", "", (), (), 40, "ScaleUpLimit"),
    ("percent up", 10, 50, 1, 1000, "200%/60", "", (), (), 30, "ScaleUpLimit"),
    ("the larger down is pods", 100, 2, 1, 1000, "", "20p/60 1%/60", (), (), 80, "ScaleDownLimit"),
    ("the larger down", 100, 2, 1, 1000, "", "2p/60 1%/60", (), (), 98, "ScaleDownLimit"),
    ("to the minimum", 10, 0, 1, 1000, "", "100p/60", (), (), 1, "TooFewReplicas"),
    ("five pods down", 10, 2, 1, 1000, "", "5p/60", (), (), 5, "ScaleDownLimit"),
    ("earlier ups count", 100, 500, 1, 200, "300p/60", "", (1, 5, 9), (), 200, "TooManyReplicas"),
    ("frozen by earlier ups", 100, 500, 1, 1000, "5p/120", "", (1, 5, 9), (), 100, "ScaleUpLimit"),
    ("the rest of the period", 100, 500, 1, 1000, "150p/120", "", (1, 5, 9), (), 235, "ScaleUpLimit"),
    ("percent of the period's start", 100, 500, 1, 1000, "200%/120", "", (1, 5, 9), (), 255, "ScaleUpLimit"),
    ("both kinds of events", 6, 24, 1, 1000, "300%/300", "", (4,), (2,), 16, "ScaleUpLimit"),
    ("frozen by earlier downs", 100, 2, 1, 1000, "", "5p/120", (), (1, 5, 9), 100, "ScaleDownLimit"),
    ("half of the period's start", 100, 0, 1, 1000, "", "50%/120", (), (2, 4, 6), 56, "ScaleDownLimit"),
    ("both kinds of events down", 10, 1, 1, 1000, "", "50%/180", (2,), (4,), 6, "ScaleDownLimit"),
    ("never turned round", 100, 0, 1, 1000, "", "10%/120", (), (10, 10, 10), 100, "ScaleDownLimit"),
    ("more than everything", 10, 5, 1, 1000, "", "1000%/120", (), (10, 10, 10), 5, "DesiredWithinRange"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("current", "desired", "least", "most", "up", "down", "ups", "downs", "count", "reason"),
    [case[1:] for case in RATES],
    ids=[case[0] for case in RATES],
)
def test_rate_limits_are_those_of_the_controller(
    current: int, desired: int, least: int, most: int, up: str, down: str,
    ups: tuple[int, ...], downs: tuple[int, ...], count: int, reason: str,
) -> None:  # fmt: skip
    up_rules = UP._replace(policies=policies(up) or UP.policies)
    down_rules = DOWN._replace(policies=policies(down) or DOWN.policies)
    longest = max(policy.period for policy in (up_rules if desired > current else down_rules).policies)
    history = History(ups=events(ups, longest), downs=events(downs, longest))
    limited = history.limited(current, desired, least, most, up_rules, down_rules, NOW)
    assert (limited.replicas, limited.limit) == (count, reason)


@pytest.mark.parametrize(
    ("pace", "current", "desired", "count"),
    [
        (ScalingRules(select="Min", policies=policies("2p/60 50%/60")), 1, 1000, 2),
        (ScalingRules(select="Disabled", policies=policies("2p/60")), 5, 1000, 5),
    ],
)
def test_the_smallest_change_or_none_is_chosen_where_the_hpa_says_so(
    pace: ScalingRules, current: int, desired: int, count: int
) -> None:
    limited = History().limited(current, desired, 1, 1000, rules(pace, DEFAULT_UP, 0), DOWN, NOW)
    assert limited.replicas == count


def test_the_smallest_change_downwards_is_the_highest_count() -> None:
    pace = ScalingRules(select="Min", policies=policies("2p/60 50%/60"))
    assert History().limited(5, 1, 1, 1000, UP, rules(pace, DEFAULT_DOWN, 0), NOW).replicas == 3


STABLE = [
    ((), 100, 5, 0, 0, 5),
    (((4, 2), (5, 1)), 100, 3, 0, 180, 5),
    (((4, 2), (5, 1)), 1, 7, 300, 0, 4),
    (((1, 2), (2, 1)), 100, 3, 300, 0, 3),
    (((4, 2), (5, 1)), 1, 3, 0, 300, 3),
    (((10, 10), (9, 9)), 100, 3, 0, 0, 3),
    (((10, 10), (4, 1), (5, 2), (9, 9)), 100, 3, 0, 180, 5),
    (((10, 100), (6, 1), (5, 2), (9, 3)), 1, 100, 300, 0, 5),
    (((2, 100), (3, 3)), 2, 1, 300, 300, 2),
    (((2, 100), (1, 3)), 2, 3, 300, 300, 2),
]


@pytest.mark.parametrize(("known", "current", "desired", "up", "down", "count"), STABLE)
def test_recommendations_are_stabilized_as_by_the_controller(
    known: tuple[tuple[int, int], ...],
    current: int,
    desired: int,
    up: int,
    down: int,
    count: int,
) -> None:
    history = History([_Recommendation(replicas, NOW - 60 * minutes) for replicas, minutes in known])
    limited = history.limited(current, desired, 0, 10_000, UP._replace(window=up), DOWN._replace(window=down), NOW)
    assert limited.stabilized == count


@pytest.mark.parametrize(
    ("known", "count"),
    [
        (((4, 2), (5, 1)), 5),
        (((1, 2), (2, 1)), 3),
        (((10, 10), (9, 9)), 3),
        (((10, 10), (4, 1), (5, 2), (9, 9)), 5),
    ],
)
def test_without_behavior_the_largest_of_the_window_counts(known: tuple[tuple[int, int], ...], count: int) -> None:
    history = History([_Recommendation(replicas, NOW - 60 * minutes) for replicas, minutes in known])
    assert history.legacy(100, 3, 0, 1000, 300, NOW).stabilized == count


def test_changes_are_remembered_for_the_longest_period() -> None:
    history = History(ups=[ScaleEvent(change, NOW - ago) for change, ago in ((8, 29), (6, 59), (7, 61))])
    up = UP._replace(policies=(ScalingPolicy("Pods", 1, 30), ScalingPolicy("Pods", 1, 60)))
    history.changed(10, 15, up, DOWN, NOW)
    assert [event.change for event in history.ups] == [8, 6, 5]


@pytest.mark.parametrize(("count", "reach"), [(50, 56), (90, 100), (100, 111), (110, 122), (1000, 1100)])
def test_ten_percent_up_is_a_binary_fraction(count: int, reach: int) -> None:
    up = UP._replace(policies=policies("10%/60"))
    assert History().limited(count, 10_000, 1, 10_000, up, DOWN, NOW).replicas == reach


@pytest.mark.parametrize(
    ("count", "percent", "reach"), [(10, 90, 0), (5, 80, 0), (90, 30, 62), (10, 80, 1), (100, 10, 90)]
)
def test_percent_down_is_truncated_as_a_binary_fraction(count: int, percent: int, reach: int) -> None:
    down = DOWN._replace(policies=policies(f"{percent}%/60"))
    assert History().limited(count, 0, 0, 10_000, UP, down, NOW).replicas == reach
