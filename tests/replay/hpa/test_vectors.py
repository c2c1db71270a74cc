"""What random HPAs on the real controller seldom meet: vectors of Kubernetes v1.36.3, and syncs in a row."""

from fractions import Fraction
from typing import Any

import pytest

from adapter.hpa.behavior import DEFAULT_DOWN, DEFAULT_UP, History, ScaleEvent, _Recommendation, rules
from adapter.hpa.calculator import CalculationError, Calculator, Tolerances
from adapter.hpa.controller import Controller, Flags
from adapter.hpa.pods import ModelPod, ModelSample, milli
from adapter.load.quantity import NANO, approximate_float
from adapter.policy.hpa import ScalingPolicy, parse_hpa

NOW = 10_000.0
AT_ONCE = {"scaleDown": {"stabilizationWindowSeconds": 0}}
WITH_GATE = Flags(scale_to_zero=True)
UP, DOWN = rules(DEFAULT_UP, DEFAULT_UP, 0), rules(DEFAULT_DOWN, DEFAULT_DOWN, 0)


def policies(text: str) -> tuple[ScalingPolicy, ...]:
    """`20p/60 1%/60`: pods or percent, and the period in seconds."""
    parts = [one.split("/") for one in text.split()]
    return tuple(
        ScalingPolicy("Pods" if amount.endswith("p") else "Percent", int(amount[:-1]), int(period))
        for amount, period in parts
    )


def events(changes: tuple[int, ...], period: int) -> list[ScaleEvent]:
    """Changes spread over the middles of equal parts of the period."""
    part = period / max(1, len(changes))
    return [ScaleEvent(change, NOW - part * (index + 0.5)) for index, change in enumerate(changes)]


@pytest.mark.parametrize(
    ("current", "desired", "least", "most", "up", "down", "ups", "downs", "count", "reason"),
    [
        (3, 1, 2, 8, "", "", (), (), 2, "TooFewReplicas"),
        (20, 1000, 1, 10, "", "", (), (), 10, "TooManyReplicas"),
        (3, 1000, 1, 2000, "1%/60", "", (), (), 4, "ScaleUpLimit"),
        (10, 50, 1, 1000, "", "", (), (), 20, "ScaleUpLimit"),
        (10, 500, 1, 1000, "100p/60 100%/60", "", (), (), 110, "ScaleUpLimit"),
        (100, 2, 1, 1000, "", "2p/60 1%/60", (), (), 98, "ScaleDownLimit"),
        (100, 500, 1, 1000, "5p/120", "", (1, 5, 9), (), 100, "ScaleUpLimit"),
        (100, 500, 1, 1000, "200%/120", "", (1, 5, 9), (), 255, "ScaleUpLimit"),
        (6, 24, 1, 1000, "300%/300", "", (4,), (2,), 16, "ScaleUpLimit"),
        (100, 0, 1, 1000, "", "50%/120", (), (2, 4, 6), 56, "ScaleDownLimit"),
        (10, 1, 1, 1000, "", "50%/180", (2,), (4,), 6, "ScaleDownLimit"),
        (100, 0, 1, 1000, "", "10%/120", (), (10, 10, 10), 100, "ScaleDownLimit"),
        (10, 5, 1, 1000, "", "1000%/120", (), (10, 10, 10), 5, "DesiredWithinRange"),
        (90, 10_000, 1, 10_000, "10%/60", "", (), (), 100, "ScaleUpLimit"),  # 10 % is a binary fraction
        (100, 10_000, 1, 10_000, "10%/60", "", (), (), 111, "ScaleUpLimit"),
        (90, 0, 0, 10_000, "", "30%/60", (), (), 62, "ScaleDownLimit"),
    ],
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
    ("known", "current", "desired", "up", "down", "count"),
    [
        (((4, 2), (5, 1)), 100, 3, 0, 180, 5),
        (((4, 2), (5, 1)), 1, 7, 300, 0, 4),
        (((10, 10), (4, 1), (5, 2), (9, 9)), 100, 3, 0, 180, 5),
        (((2, 100), (3, 3)), 2, 1, 300, 300, 2),
    ],
)
def test_recommendations_are_stabilized_as_by_the_controller(
    known: tuple[tuple[int, int], ...], current: int, desired: int, up: int, down: int, count: int
) -> None:
    history = History([_Recommendation(replicas, NOW - 60 * minutes) for replicas, minutes in known])
    limited = history.limited(current, desired, 0, 10_000, UP._replace(window=up), DOWN._replace(window=down), NOW)
    assert limited.stabilized == count


def test_changes_are_remembered_for_the_longest_period() -> None:
    history = History(ups=[ScaleEvent(change, NOW - ago) for change, ago in ((8, 29), (6, 59), (7, 61))])
    history.changed(10, 15, UP._replace(policies=policies("1p/30 1p/60")), DOWN, NOW)
    assert [event.change for event in history.ups] == [8, 6, 5]


def calculator(pods: int) -> Calculator:
    """A calculator for pods that request 1000m and have been ready for long."""
    made = (ModelPod(name=f"p{n}", containers={"app": {"cpu": 1000}}) for n in range(pods))
    return Calculator(pods=tuple(made), now=NOW, tolerances=Tolerances())


def samples(*values: int) -> dict[str, ModelSample]:
    return {f"p{n}": ModelSample(value) for n, value in enumerate(values)}


def test_missing_pod_is_filled_against_the_direction() -> None:
    assert [calculator(2).average(2, 1000, samples(value)).replicas for value in (1500, 100, 4100)] == [2, 2, 5]


def test_starting_pods_cpu_counts_once_a_window_passed_since_it_was_ready() -> None:
    pod = ModelPod(name="p0", started=900.0, ready_since=960.0)
    early = Calculator(pods=(pod,), now=1000.0, tolerances=Tolerances())
    with pytest.raises(CalculationError, match="pods might be unready"):
        early.average(1, 1000, {"p0": ModelSample(5000, 970.0, 30.0)}, "cpu")
    assert early.average(1, 1000, {"p0": ModelSample(5000, 990.0, 30.0)}, "cpu").replicas == 5


def test_pod_without_a_request_is_an_error() -> None:
    with pytest.raises(CalculationError, match="missing request for memory in container app of Pod p0"):
        calculator(1).utilization(1, 50, samples(1), "memory")


def test_quantities_are_read_as_the_controller_reads_them() -> None:
    assert [approximate_float(Fraction(nano, NANO)) for nano in (70_000_000, 2 * 10**12)] == [0.07, 2000.0]
    assert [milli(nano) for nano in (100_000, 1_000_000_100, -100_000)] == [1, 1001, -1]


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
