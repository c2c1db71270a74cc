"""Sources that freeze, or report zeros for some pods, in closed loop: the count is never below the true need."""

import pytest

from adapter.load.assessment import HeldBy
from tests.simulation.closed_loop import ClosedLoop, assert_never_below_the_truth
from tests.simulation.services import BY_POD, MINUTE, counts, service
from tests.simulation.sources import Kind


def with_zeros(pods: int, *, load: int = 1190, kind: Kind = Kind.RESOURCE) -> ClosedLoop:
    """Ten pods at this load, of which so many are reported as zero after five minutes."""
    loop = service(10, load, kind=kind)
    loop.run(5 * MINUTE)
    loop.source.zeros = {pod.measured.name for pod in loop.living[:pods]}
    return loop


class TestSomePodsReportedAsZero:
    """decision.md §2, row 37."""

    @pytest.mark.parametrize("kind", BY_POD)
    @pytest.mark.parametrize("zeros", [1, 5, 9, 10])
    def test_zeros_of_less_than_five_minutes_change_no_count(self, zeros: int, kind: Kind) -> None:
        loop = with_zeros(zeros, kind=kind)
        loop.run(4 * MINUTE + 40)
        loop.source.zeros = set()
        loop.run(20 * MINUTE)
        assert not loop.steps

    def test_zeros_that_come_and_go_for_an_hour_change_no_count(self) -> None:
        loop = service(10, 1190)
        for minute in range(60):
            loop.source.zeros = {pod.measured.name for pod in loop.living[minute % 3 : 9]} if minute % 4 else set()
            loop.run(MINUTE)
        assert not loop.steps

    def test_a_fall_of_all_others_is_held_while_some_are_reported_as_zero(self) -> None:
        loop = with_zeros(9)
        loop.demand = lambda _: 3000
        loop.run(4 * MINUTE)
        assert not loop.steps
        assert loop.decisions[-1][1].held_by is HeldBy.MISSING
        loop.source.zeros = set()
        loop.run(10 * MINUTE)
        assert counts(loop.steps) == [7]
        assert_never_below_the_truth(loop)


class TestFrozenSources:
    @pytest.mark.parametrize("kind", list(Kind))
    @pytest.mark.parametrize("moves", [False, True])
    @pytest.mark.parametrize("ahead", [0, 8, 45, 3600])
    def test_a_frozen_source_shrinks_a_service_once_at_most(self, kind: Kind, moves: bool, ahead: int) -> None:
        """Its samples are as old as their time, or, if dated in the future, as old as their first arrival."""
        loop = service(20, 300, kind=kind)
        loop.source.ahead, loop.source.moves = ahead, moves
        loop.run(1)
        loop.source.frozen = True
        loop.run(30 * MINUTE)
        assert counts(loop.steps) == [15]
        assert loop.decisions[-1][1].error is not None
        assert_never_below_the_truth(loop)

    @pytest.mark.parametrize("ahead", [0, 8, 45, 3600])
    def test_a_frozen_source_does_not_hide_departed_pods(self, ahead: int) -> None:
        loop = service(20, 500)
        loop.source.ahead = ahead
        loop.run(5 * MINUTE + 1)
        loop.source.frozen = loop.source.moves = True
        loop.events[loop.now + 10] = lambda loop: loop.scale(14)
        loop.run(30 * MINUTE)
        assert counts(loop.steps) == [14]

    @pytest.mark.parametrize("kind", BY_POD)
    @pytest.mark.parametrize("ahead", [8, 45, 3600])
    @pytest.mark.parametrize("window", [0, 15])
    def test_a_source_whose_clock_is_ahead_scales_normally(self, kind: Kind, ahead: int, window: int) -> None:
        loop = service(20, 300, kind=kind, refresh=30, window=window)
        loop.source.ahead = ahead
        loop.run(10 * MINUTE)
        loop.demand = lambda _: 24_500
        loop.run(10 * MINUTE)
        loop.demand = lambda _: 3_700
        loop.run(10 * MINUTE)
        assert counts(loop.steps) == [15, 21, 9]
        assert_never_below_the_truth(loop)
