"""A moment whose load nobody recorded is not judged, and is no load of 0."""

import pytest

from adapter.commands.replay.autoscalers import HpaAutoscaler, PolicyAutoscaler
from adapter.commands.replay.hpas import judge_of, stock_hpa_for
from adapter.commands.replay.service import Run, Setup, Tick
from adapter.commands.replay.simulation import simulate, with_gaps
from tests.replay.history.kit import policy
from tests.replay.services import POD, START, hpa

BEGIN, END, COUNT = 100, 200, 400
"""The gap, and the history, in ticks of 15 s."""


def ticks(*, silent: bool) -> list[Tick]:
    """A constant load with a gap in the middle: of ticks without a load, or (`silent`) of none at all."""
    made = [Tick(START + 15 * number, {"cpu": 7 * POD}) for number in range(COUNT)]
    for number in range(BEGIN + 2, END):
        made[number] = made[number]._replace(load={})
    return [*made[:BEGIN], *made[END:]] if silent else made


def runs(setup: Setup, *, silent: bool = False) -> list[Run]:
    """The policy and the stock HPA over the history with the gap."""
    autoscalers = [PolicyAutoscaler(policy(), hpa()), HpaAutoscaler(stock_hpa_for(policy(), hpa(), setup))]
    return simulate(ticks(silent=silent), setup, autoscalers, judge_of(policy(), setup))


@pytest.mark.parametrize("delay", [0.0, 40.0])
def test_a_gap_of_empty_ticks_is_unknown_time(delay: float) -> None:
    for run in runs(Setup(replicas=10, delay=delay)):
        assert run.summary.unknown == (END - BEGIN - 2) * 15
        assert run.summary.overshoot == 3
        assert run.summary.seconds == COUNT * 15


def test_a_gap_of_empty_ticks_is_as_one_without_ticks_that_nothing_bridges() -> None:
    setup = Setup(replicas=10, lasts=45.0)
    assert runs(setup) == runs(setup, silent=True)


def held(*steps: float) -> list[float]:
    """Where gaps begin, in seconds from the first tick, in a history with these distances."""
    at = [START + sum(steps[:index]) for index in range(len(steps) + 1)]
    return [tick.at - START for tick in with_gaps([Tick(one, {"cpu": 1}) for one in at], 90.0) if not tick.load]


def test_the_step_that_bridges_is_that_of_its_own_part_of_a_history() -> None:
    quick, slow = [15.0] * 10, [300.0] * 10
    assert held(*quick, *slow) == held(*slow, *quick) == held(*slow) == held(300.0) == []
    assert held(*slow, *quick, 600.0, *quick) == [10 * 300 + 150 + 90]
    assert held(*quick, *slow, 600.0, *slow, 900.0, *slow) == [150 + 3000 + 600 + 3000 + 750]


def test_a_lone_tick_between_two_gaps_bridges_neither() -> None:
    assert held(15.0, 15.0, 600.0, 600.0, 15.0, 15.0) == [30 + 90, 630 + 90]
