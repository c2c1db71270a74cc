"""The vectors of the replica calculator in the tests of Kubernetes v1.36.3, and some of what a real one showed."""

from collections.abc import Sequence
from fractions import Fraction

import pytest

from adapter.hpa.calculator import CalculationError, Calculator, Tolerances
from adapter.hpa.pods import ModelPod, ModelSample, milli
from adapter.load.quantity import NANO, approximate_float


def running(count: int, ready: int | None = None) -> tuple[ModelPod, ...]:
    known = count if ready is None else ready
    return tuple(ModelPod(name=f"p{n}", ready="True" if n < known else "False") for n in range(count))


def of(pods: tuple[ModelPod, ...], up: float = 0.1, down: float = 0.1) -> Calculator:
    return Calculator(pods=pods, now=1000.0, tolerances=Tolerances(up, down))


def samples(values: Sequence[int]) -> dict[str, ModelSample]:
    return {f"p{n}": ModelSample(value) for n, value in enumerate(values)}


@pytest.mark.parametrize(
    ("pods", "current", "values", "target", "up", "count"),
    [
        (running(3), 3, (20000, 10000, 30000), 15000, 0.1, 4),
        (running(3, 1), 3, (50000, 15000, 30000), 15000, 0.1, 7),
        (running(5), 5, (12000,) * 5, 20000, 0.1, 3),
        (running(3), 3, (20000, 21000, 21000), 20000, 0.1, 3),
        (running(3), 3, (20000, 21000, 21000), 20000, 0.01, 4),
        (running(5), 5, (20000, 19000, 21000), 20000, 0.1, 5),
        (running(3), 2, (10000, 10000), 17000, 0.1, 2),
    ],
)
def test_pods_metrics(
    pods: tuple[ModelPod, ...], current: int, values: tuple[int, ...], target: int, up: float, count: int
) -> None:
    assert of(pods, up).average(current, target, samples(values)).replicas == count


@pytest.mark.parametrize(
    ("pods", "current", "value", "target", "count"),
    [
        (running(3), 3, 20000, 15000, 4),
        (running(3, 1), 3, 50000, 10000, 5),
        ((), 0, 20000, 15000, 2),
        ((), 0, 1000, 1000, 1),
    ],
)
def test_one_value_of_an_object(pods: tuple[ModelPod, ...], current: int, value: int, target: int, count: int) -> None:
    assert of(pods).value(current, target, [value]).replicas == count


@pytest.mark.parametrize(
    ("status", "value", "target", "up", "count", "shown"),
    [
        (3, 20000, 5000, 0.1, 4, 6667),
        (4, 20166, 5000, 0.1, 4, 5042),
        (4, 20208, 5000, 0.01, 5, 5052),
        (10, -999, 1000, 0.1, 0, None),
    ],
)
def test_an_objects_value_by_pod(
    status: int, value: int, target: int, up: float, count: int, shown: int | None
) -> None:
    proposal = of((), up).share(status, target, [value])
    assert proposal.replicas == count
    assert shown is None or proposal.usage == shown


@pytest.mark.parametrize(
    ("pods", "values", "target", "up", "count"),
    [
        (running(3), (8600,), 6666, 0.1, 4),
        (running(3, 1), (8600,), 4400, 0.1, 2),
        (running(5), (8600,), 14334, 0.1, 3),
        (running(3), (8600,), 8888, 0.1, 3),
        (running(3), (8900,), 8800, 0.01, 4),
    ],
)
def test_an_external_value(
    pods: tuple[ModelPod, ...], values: tuple[int, ...], target: int, up: float, count: int
) -> None:
    assert of(pods, up).value(len(pods), target, values).replicas == count


@pytest.mark.parametrize(
    ("status", "values", "target", "tolerance", "count", "shown"),
    [
        (3, (8600,), 2150, 0.1, 4, 2867),
        (5, (8600,), 2867, 0.1, 3, None),
        (3, (8600,), 2900, 0.1, 3, None),
        (3, (8600,), 2800, 0.01, 4, None),
        (10, (5000, 5500), 1000, 0.0, 11, 1050),
        (0, (4000,), 1000, 0.0, 4, None),
    ],
)
def test_an_external_value_by_pod(
    status: int, values: tuple[int, ...], target: int, tolerance: float, count: int, shown: int | None
) -> None:
    proposal = of((), tolerance, tolerance).share(status, target, values)
    assert proposal.replicas == count
    assert shown is None or proposal.usage == shown


@pytest.mark.parametrize(
    ("percent", "up", "down", "count"),
    [(101, 0.0, 0.0, 4), (109, 0.08, 0.1, 4), (190, 2.0, 0.1, 3), (65, 0.1, 0.36, 3), (65, 0.1, 0.34, 2)],
)
def test_utilization_is_whole_percent_of_requests(percent: int, up: float, down: float, count: int) -> None:
    pods = tuple(ModelPod(name=f"p{n}", containers={"app": {"cpu": 1000}}) for n in range(3))
    settled = Calculator(pods=pods, now=10_000.0, tolerances=Tolerances(up, down))
    assert settled.utilization(3, 100, samples((percent * 10,) * 3), "cpu").replicas == count


def test_a_pod_without_a_request_is_an_error() -> None:
    pods = (ModelPod(name="p0", containers={"app": {"memory": 1}}),)
    with pytest.raises(CalculationError, match="missing request for cpu in container app of Pod p0"):
        of(pods).utilization(1, 50, samples((1,)), "cpu")


def test_a_starting_pods_cpu_counts_once_a_window_passed_since_it_was_ready() -> None:
    pod = ModelPod(name="p0", started=900.0, ready_since=960.0)
    early = Calculator(pods=(pod,), now=1000.0, tolerances=Tolerances())
    with pytest.raises(CalculationError, match="pods might be unready"):
        early.average(1, 1000, {"p0": ModelSample(5000, 970.0, 30.0)}, "cpu")
    assert early.average(1, 1000, {"p0": ModelSample(5000, 990.0, 30.0)}, "cpu").replicas == 5


def test_a_missing_pod_is_filled_against_the_direction() -> None:
    pods = running(2)
    assert of(pods).average(2, 1000, samples((1500,))).replicas == 2
    assert of(pods).average(2, 1000, samples((100,))).replicas == 2
    assert of(pods).average(2, 1000, samples((4100,))).replicas == 5


@pytest.mark.parametrize(
    ("nano", "value"), [(70_000_000, 0.07), (0, 0.0), (100_000_000, 0.1), (1_500_000_000, 1.5), (2 * 10**12, 2000.0)]
)
def test_a_tolerance_is_read_from_its_canonical_form(nano: int, value: float) -> None:
    assert approximate_float(Fraction(nano, NANO)) == value


@pytest.mark.parametrize(("nano", "value"), [(100_000, 1), (1_000_000_100, 1001), (-100_000, -1), (0, 0)])
def test_milli_values_are_rounded_away_from_zero(nano: int, value: int) -> None:
    assert milli(nano) == value
