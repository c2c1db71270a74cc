"""Syncs of the controller's model in a row: tolerance, failing metrics, bounds, zero, windows and rate limits."""

from typing import Any

import pytest

from adapter.hpa.controller import Controller, Flags
from adapter.policy.hpa import parse_hpa

AT_ONCE = {"scaleDown": {"stabilizationWindowSeconds": 0}}
WITH_GATE = Flags(scale_to_zero=True)


def counts(
    *syncs: tuple[float, int | None],
    replicas: int = 10,
    minimum: int = 1,
    behavior: dict[str, Any] | None = None,
    flags: Flags | None = None,
    fails: bool = False,
) -> list[int]:
    """The counts after syncs at these times, of an HPA on a queue (milli-units; None: an error). `fails`: a second
    metric is an error all the time.
    """
    names = ["queue", "rate"] if fails else ["queue"]
    target = {"type": "AverageValue", "averageValue": "1"}
    spec = {
        "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
        "minReplicas": minimum,
        "maxReplicas": 100,
        "metrics": [{"type": "External", "external": {"metric": {"name": name}, "target": target}} for name in names],
        **({"behavior": behavior} if behavior else {}),
    }
    controller = Controller(parse_hpa({"metadata": {"name": "web", "namespace": "shop"}, "spec": spec}), flags)
    found = []
    for at, value in syncs:
        answers = ["no answer" if value is None else [value], *["no answer"] * fails]
        replicas = controller.sync(at, replicas, answers, ()).replicas
        found.append(replicas)
    return found


def test_one_to_thirteen_with_900_percent_in_300_seconds_is_ten_at_once_and_thirteen_after_300_seconds() -> None:
    behavior = {"scaleUp": {"policies": [{"type": "Percent", "value": 900, "periodSeconds": 300}]}}
    syncs = [(float(at), 13_000) for at in range(0, 316, 15)]
    assert counts(*syncs, replicas=1, behavior=behavior) == [10] * 20 + [13] * 2


def test_thirteen_to_one_waits_for_its_window_and_then_falls_by_one_pod_each_ten_seconds() -> None:
    down = {"stabilizationWindowSeconds": 60, "policies": [{"type": "Pods", "value": 1, "periodSeconds": 10}]}
    syncs = [(0.0, 13_000), *((float(at), 1000) for at in range(10, 200, 10))]
    assert counts(*syncs, replicas=13, behavior={"scaleDown": down}) == [13] * 6 + list(range(12, 0, -1)) + [1, 1]


def test_the_controllers_tolerance_is_parsed_as_a_float_and_that_of_behavior_as_a_quantity() -> None:
    """118 × 0.001 is the float next to 0.118, and the edge of the tolerance is just there."""
    assert counts((0, 1118), replicas=1, flags=Flags(tolerance=0.118)) == [2]
    assert counts((0, 1118), replicas=1, behavior={"scaleUp": {"tolerance": "0.118"}}) == [1]


@pytest.mark.parametrize(
    ("value", "fails", "count"), [(15_000, True, 15), (5000, True, 10), (None, False, 10), (-999_000, False, 20)]
)
def test_a_failing_metric_blocks_the_way_down_alone_and_a_value_may_be_negative(
    value: int | None, fails: bool, count: int
) -> None:
    assert counts((0, value), fails=fails) == [count]


@pytest.mark.parametrize(("replicas", "count"), [(200, 100), (1, 3)])
def test_a_count_outside_the_bounds_is_set_to_them_without_a_look_at_the_metrics(replicas: int, count: int) -> None:
    assert counts((0, None), replicas=replicas, minimum=3) == [count]


@pytest.mark.parametrize(
    ("replicas", "flags", "found"), [(1, WITH_GATE, [0, 3]), (0, WITH_GATE, [0, 0]), (0, None, [0, 0])]
)
def test_a_count_of_zero_is_left_alone_unless_the_hpa_itself_scaled_to_it(
    replicas: int, flags: Flags | None, found: list[int]
) -> None:
    assert counts((0, 0), (15, 3000), replicas=replicas, minimum=0, behavior=AT_ONCE, flags=flags) == found
