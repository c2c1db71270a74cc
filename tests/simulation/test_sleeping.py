"""Services at zero replicas, or without any pod (decision.md §6, rows 33 and 34)."""

import pytest

from adapter.load.spec import Bounds, Fallback
from tests.simulation.closed_loop import ClosedLoop, assert_never_below_the_truth, rule_of
from tests.simulation.services import HIGH, LOW, MINUTE, counts, service
from tests.simulation.sources import Kind


@pytest.fixture
def asleep() -> ClosedLoop:
    """A service at zero, with one number for all its load."""
    loop = service(0, 0, kind=Kind.TOTAL, sync=15)
    loop.hpa.bounds = Bounds(minimum=0, maximum=50)
    return loop


def test_it_sleeps_wakes_follows_its_load_and_sleeps_again(asleep: ClosedLoop) -> None:
    asleep.run(10 * MINUTE)
    assert asleep.replicas == 0
    asleep.demand = lambda _: 6_000
    asleep.run(10 * MINUTE)
    assert counts(asleep.steps) == [1, 5]
    asleep.demand = lambda _: 0
    asleep.run(10 * MINUTE)
    assert counts(asleep.steps) == [1, 5, 0]
    assert_never_below_the_truth(asleep)


@pytest.mark.parametrize("load", [1, 399, 401])
def test_any_load_keeps_it_awake(asleep: ClosedLoop, load: int) -> None:
    asleep.demand = lambda _: load
    asleep.run(30 * MINUTE)
    assert counts(asleep.steps) == [1]


@pytest.mark.parametrize("kind", list(Kind))
def test_a_service_whose_pods_cannot_be_created_gets_its_fallback(kind: Kind) -> None:
    rule = rule_of(kind, HIGH, LOW, fallback=Fallback(after=300, replicas=7))
    loop = service(3, 0, kind=kind, sync=15, rule=rule)
    loop.quota = 0
    for each in loop.living:
        loop.delete(each)
    loop.run(4 * MINUTE)
    assert loop.replicas == 3
    loop.run(10 * MINUTE)
    assert loop.replicas == 7
