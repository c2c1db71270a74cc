"""A companion that raises the count between two syncs, beside a server whose samples are older, in closed loop."""

from dataclasses import replace

import pytest

from tests.simulation.closed_loop import ClosedLoop, Habits, assert_never_below_the_truth, rule_of
from tests.simulation.services import HIGH, LOW, MINUTE, service
from tests.simulation.sources import Kind


def raised(load: int, *, kind: Kind, window: int = 10, down_window: int = 0) -> ClosedLoop:
    """Ten pods at this load (milli); the companion has each sample 25 s before the server. Pods start quickly, so that
    starting pods cause no hold.
    """
    rule = rule_of(kind, HIGH, LOW, fast_scale_up=True)
    loop = service(10, load, kind=kind, window=window, delay=25, sync=15, rule=rule, habits=Habits(starts=2))
    loop.hpa.down_window = down_window
    loop.companion = replace(loop.source, delay=0, _coming=[])
    return loop


@pytest.mark.parametrize("kind", list(Kind))
@pytest.mark.parametrize("window", [0, 10, 60])
def test_a_raised_count_is_not_reverted_by_older_samples(kind: Kind, window: int) -> None:
    """The server still has samples of the dip before the rise."""
    loop = raised(1000, kind=kind, window=window)
    loop.run(5 * MINUTE + 7)
    loop.demand = lambda _: 3_000
    loop.run(20)
    loop.demand = lambda _: 23_900
    loop.run(20 * MINUTE)
    counts = [step.after for step in loop.steps]
    assert counts == sorted(counts)
    assert loop.replicas == 20


@pytest.mark.parametrize("kind", list(Kind))
def test_a_spike_between_two_syncs_is_stabilized(kind: Kind) -> None:
    loop = raised(1000, kind=kind, down_window=2 * MINUTE)
    loop.run(5 * MINUTE)
    loop.demand = lambda _: 3_000
    loop.run(MINUTE + 7)
    loop.demand = lambda now: 24_000 if now < 6 * MINUTE + 22 else 6_000
    loop.run(10 * MINUTE)
    rises = [step for step in loop.steps if step.after > step.before]
    falls = [step for step in loop.steps if step.after < step.before]
    assert rises
    assert falls
    assert falls[0].at - rises[-1].at >= 2 * MINUTE
    assert_never_below_the_truth(loop)
