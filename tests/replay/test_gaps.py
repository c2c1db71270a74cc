"""A moment whose load nobody recorded is not judged, and is no load of 0."""

import pytest

from adapter.replay.autoscalers import HpaAutoscaler, PolicyAutoscaler
from adapter.replay.hpas import judge_of, stock_hpa_for
from adapter.replay.service import Setup, Tick
from adapter.replay.simulation import simulate
from tests.replay.history.kit import policy
from tests.replay.services import POD, START, hpa

BEGIN, END, COUNT = 100, 200, 400
"""The gap, and the history, in ticks of 15 s."""


def ticks(*, silent: bool) -> list[Tick]:
    """A constant load with a gap in the middle: of ticks without a load, or (`silent`) of none at all."""
    made = [Tick(START + 15 * number, {"cpu": 7 * POD}) for number in range(COUNT)]
    for number in range(BEGIN, END):
        made[number] = made[number]._replace(load={})
    return [tick for tick in made if tick.load or not silent]


@pytest.mark.parametrize("delay", [0.0, 40.0])
def test_a_gap_of_empty_ticks_is_unknown_time(delay: float) -> None:
    setup = Setup(replicas=10, delay=delay)
    autoscalers = [PolicyAutoscaler(policy(), hpa()), HpaAutoscaler(stock_hpa_for(policy(), hpa(), setup))]
    runs = simulate(ticks(silent=False), setup, autoscalers, judge_of(policy(), setup))
    for run in runs:
        assert run.summary.unknown == (END - BEGIN) * 15
        assert run.summary.overshoot == 3
        assert run.summary.seconds == COUNT * 15


def test_a_gap_of_empty_ticks_is_as_one_without_ticks_that_nothing_bridges() -> None:
    setup = Setup(replicas=10, lasts=15.0)
    found = []
    for silent in (False, True):
        autoscalers = [PolicyAutoscaler(policy(), hpa()), HpaAutoscaler(stock_hpa_for(policy(), hpa(), setup))]
        found.append(simulate(ticks(silent=silent), setup, autoscalers, judge_of(policy(), setup)))
    assert found[0] == found[1]
