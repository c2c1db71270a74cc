"""Sources that lag, freeze or lie about some pods, in closed loop: no count below what the truth asks for, ever."""

import json
from itertools import pairwise

import pytest

from adapter.load.assessment import HeldBy
from adapter.load.spec import Average, Bounds, Converge, Policy
from adapter.policy import travelling
from tests.load.world import NOW, REGISTRY
from tests.simulation.closed_loop import (
    ClosedLoop,
    Habits,
    Step,
    assert_never_below_the_truth,
    down_to_the_truth,
    rule_of,
)
from tests.simulation.sources import Kind, Source
from tests.simulation.stock_hpa import PODS, RatePolicy, StockHpa

HIGH, LOW = 1200, 400
MINUTE = 60
STEADY = Habits()
BY_POD = [Kind.RESOURCE, Kind.QUERY]


def service(
    replicas: int,
    load: int,
    *,
    kind: Kind = Kind.RESOURCE,
    refresh: int = 15,
    window: int = 15,
    delay: int = 0,
    sync: int = 3,
    rule: Policy | None = None,
    habits: Habits = STEADY,
) -> ClosedLoop:
    """So many pods at this load each (milli), an HPA without stabilization on the way down, and a quick sync."""
    return ClosedLoop(
        replicas,
        lambda _: replicas * load,
        rule if rule is not None else rule_of(kind, HIGH, LOW),
        Source(kind, refresh=refresh, window=window, delay=delay),
        StockHpa(bounds=Bounds(minimum=1, maximum=200), sync=sync, down_window=0),
        habits,
    )


def counts(steps: list[Step]) -> list[int]:
    return [step.after for step in steps]


def restart(loop: ClosedLoop) -> None:
    """The adapter is another process, that knows what the policy's status says."""
    loop.memory = travelling.load(json.loads(json.dumps(travelling.dump(loop.memory))))
    loop.assess_anew()


class TestSomePodsReportedAsZero:
    """decision.md §2, row 37."""

    @pytest.mark.parametrize("kind", BY_POD)
    @pytest.mark.parametrize("zeros", [1, 5, 9, 10])
    def test_zeros_of_less_than_five_minutes_change_no_count(self, zeros: int, kind: Kind) -> None:
        loop = service(10, 1190, kind=kind)
        loop.run(5 * MINUTE)
        loop.source.zeros = {pod.measured.name for pod in loop.living[:zeros]}
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
        loop = service(10, 1190)
        loop.run(5 * MINUTE)
        loop.source.zeros = {pod.measured.name for pod in loop.living[:9]}
        loop.demand = lambda _: 3000
        loop.run(4 * MINUTE)
        assert not loop.steps
        assert loop.decisions[-1][1].held_by is HeldBy.MISSING
        loop.source.zeros = set()
        loop.run(10 * MINUTE)
        assert counts(loop.steps) == [7]
        assert_never_below_the_truth(loop)

    def test_more_load_is_met_once_the_zeros_end(self) -> None:
        loop = service(10, 1000)
        loop.run(5 * MINUTE)
        loop.source.zeros = {pod.measured.name for pod in loop.living[:5]}
        loop.demand = lambda _: 15_000
        loop.run(2 * MINUTE)
        assert not loop.steps
        loop.source.zeros = set()
        loop.run(10 * MINUTE)
        assert counts(loop.steps) == [13]

    def test_zeros_of_more_than_five_minutes_are_believed(self) -> None:
        loop = service(10, 1190)
        loop.run(5 * MINUTE)
        names = [pod.measured.name for pod in loop.living]
        loop.source.zeros = set(names[1:])
        for pod in loop.living[1:]:
            pod.measured.weight = 0  # and they are true
        loop.demand = lambda _: 1190
        loop.touch()
        loop.run(4 * MINUTE + 30)
        assert not loop.steps
        loop.run(MINUTE)
        assert counts(loop.steps) == [2]
        assert_never_below_the_truth(loop)

    def test_a_policy_that_tolerates_zeros_believes_them_at_once(self) -> None:
        loop = service(10, 1190, rule=rule_of(Kind.RESOURCE, HIGH, LOW, tolerate_zero=True))
        loop.run(5 * MINUTE)
        for pod in loop.living[1:]:
            pod.measured.weight = 0
        loop.demand = lambda _: 1190
        loop.touch()
        loop.run(MINUTE)
        assert counts(loop.steps) == [2]
        assert_never_below_the_truth(loop)

    def test_pods_that_always_were_idle_count_at_once(self) -> None:
        loop = service(10, 119, habits=Habits(weights=(1, *[0] * 9)))
        loop.run(MINUTE)
        assert counts(loop.steps) == [2]
        assert_never_below_the_truth(loop)


class TestSlowSources:
    """decision.md §2, departed load, row 38: without stabilization the same samples are seen ten times and more."""

    @pytest.mark.parametrize("delay", [0, 10])
    @pytest.mark.parametrize(("refresh", "window"), [(30, 30), (60, 60), (60, 15), (60, 0), (15, 120)])
    @pytest.mark.parametrize("kind", BY_POD)
    def test_a_service_shrinks_once_to_what_it_needs(self, kind: Kind, refresh: int, window: int, delay: int) -> None:
        loop = service(20, 300, kind=kind, refresh=refresh, window=window, delay=delay)
        loop.run(20 * MINUTE)
        assert counts(loop.steps) == [15]
        assert_never_below_the_truth(loop)

    @pytest.mark.parametrize("refresh", [30, 60])
    def test_a_service_total_shrinks_once_to_what_it_needs(self, refresh: int) -> None:
        loop = service(20, 300, kind=Kind.TOTAL, refresh=refresh, window=refresh)
        loop.run(20 * MINUTE)
        assert counts(loop.steps) == [15]

    def test_what_holds_is_said(self) -> None:
        loop = service(20, 300, refresh=60, window=60)
        loop.run(2 * MINUTE)
        assert counts(loop.steps) == [15]
        assert HeldBy.DEPARTED in {decision.held_by for _, decision in loop.decisions}

    @pytest.mark.parametrize("taken", [1, 4, 5])
    def test_what_a_person_takes_away_is_not_taken_away_again(self, taken: int) -> None:
        loop = service(20, 300, refresh=60, window=60, sync=15)
        loop.events[61] = lambda loop: loop.scale(20 - taken)
        loop.run(20 * MINUTE)
        assert loop.replicas == 15
        assert_never_below_the_truth(loop)

    def test_pods_that_are_evicted_are_not_taken_for_less_load(self) -> None:
        loop = service(20, 440, refresh=60, window=60)
        loop.run(5 * MINUTE)
        loop.quota = 12
        for pod in loop.living[:8]:
            loop.delete(pod)
        loop.run(30)
        loop.demand = lambda _: 20 * 380
        loop.quota = 100
        loop.touch()
        loop.run(20 * MINUTE)
        assert counts(loop.steps) == [19]
        assert_never_below_the_truth(loop)

    @pytest.mark.parametrize("seconds", [4, 20])
    def test_an_adapter_that_starts_anew_after_a_step_takes_nothing_away_again(self, seconds: int) -> None:
        loop = service(20, 300, refresh=60, window=60)
        loop.run(2)
        while not loop.steps:
            loop.run(1)
        loop.run(seconds)
        restart(loop)
        loop.run(20 * MINUTE)
        assert counts(loop.steps) == [15]

    @pytest.mark.parametrize("seconds", [20, 100, 250])
    def test_an_adapter_that_starts_anew_while_some_pods_are_reported_as_zero_shrinks_nothing(
        self, seconds: int
    ) -> None:
        loop = service(10, 1190)
        loop.run(5 * MINUTE)
        loop.source.zeros = {pod.measured.name for pod in loop.living[:9]}
        loop.run(seconds)
        restart(loop)
        loop.run(280 - seconds)
        assert not loop.steps

    @pytest.mark.parametrize(("refresh", "window"), [(15, 15), (60, 60), (60, 120)])
    def test_one_pod_a_period_keeps_its_pace(self, refresh: int, window: int) -> None:
        loop = service(13, 1000, refresh=refresh, window=window, sync=10)
        loop.hpa = StockHpa(
            bounds=Bounds(minimum=1, maximum=20), sync=10, down_window=60, down=(RatePolicy(PODS, 1, 10),)
        )
        loop.run(5 * MINUTE)
        loop.demand = lambda _: 300
        loop.run(20 * MINUTE)
        assert counts(loop.steps) == list(range(12, 0, -1))
        assert {after.at - before.at for before, after in pairwise(loop.steps)} == {10}
        assert_never_below_the_truth(loop)


class TestTotals:
    """A watermark for the whole service feeds back on itself, and yet the same samples lead to one count only."""

    @pytest.mark.parametrize("kind", list(Kind))
    @pytest.mark.parametrize(("refresh", "window"), [(30, 30), (60, 0), (15, 60)])
    def test_the_same_samples_shrink_it_once(self, kind: Kind, refresh: int, window: int) -> None:
        rule = rule_of(kind, 24_000, 8_000, average=Average.TOTAL)
        loop = service(20, 300, kind=kind, refresh=refresh, window=window, rule=rule)
        loop.run(20 * MINUTE)
        assert counts(loop.steps)[:3] == [15, 11, 8]
        assert all(after.at - before.at >= max(refresh, window) for before, after in pairwise(loop.steps))

    @pytest.mark.parametrize("kind", BY_POD)
    def test_one_pod_a_period_leads_to_the_same_count(self, kind: Kind) -> None:
        rule = rule_of(kind, 24_000, 8_000, average=Average.TOTAL)
        loop = service(20, 300, kind=kind, refresh=60, window=60, rule=rule)
        loop.hpa.down = (RatePolicy(PODS, 1, 3),)
        loop.run(1)
        loop.source.frozen = True
        loop.run(MINUTE)
        assert counts(loop.steps) == [19, 18, 17, 16, 15]

    @pytest.mark.parametrize(("towards", "expected"), [(Converge.HIGH, 7), (Converge.LOW, 20)])
    def test_a_service_total_by_pod_that_converges_arrives_and_stays(self, towards: Converge, expected: int) -> None:
        loop = service(10, 800, kind=Kind.TOTAL, rule=rule_of(Kind.TOTAL, HIGH, LOW, converge_towards=towards))
        loop.run(30 * MINUTE)
        assert loop.replicas == expected


class TestFrozenSources:
    @pytest.mark.parametrize("kind", BY_POD)
    @pytest.mark.parametrize("moves", [False, True])
    @pytest.mark.parametrize("ahead", [0, 8, 45, 3600])
    def test_a_frozen_source_shrinks_a_service_once_at_most(self, kind: Kind, moves: bool, ahead: int) -> None:
        """Its samples are as old as they say; or, dated in the future, as they were first seen."""
        loop = service(20, 300, kind=kind)
        loop.source.ahead, loop.source.moves = ahead, moves
        loop.run(1)
        loop.source.frozen = True
        loop.run(30 * MINUTE)
        assert counts(loop.steps) == [15]
        assert loop.decisions[-1][1].error is not None
        assert_never_below_the_truth(loop)

    @pytest.mark.parametrize("ahead", [0, 8, 45, 3600])
    def test_a_source_that_freezes_does_not_hide_that_pods_left(self, ahead: int) -> None:
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
    def test_a_source_whose_clock_is_ahead_scales_as_any_other(self, kind: Kind, ahead: int, window: int) -> None:
        loop = service(20, 300, kind=kind, refresh=30, window=window)
        loop.source.ahead = ahead
        loop.run(10 * MINUTE)
        loop.demand = lambda _: 24_500
        loop.run(10 * MINUTE)
        loop.demand = lambda _: 3_700
        loop.run(10 * MINUTE)
        assert counts(loop.steps) == [15, 21, 9]
        assert_never_below_the_truth(loop)

    def test_a_service_total_that_is_frozen_in_the_future_is_an_error_in_the_end(self) -> None:
        loop = service(20, 300, kind=Kind.TOTAL)
        loop.source.ahead = 3600
        loop.run(1)
        loop.source.frozen = loop.source.moves = True
        loop.run(5 * MINUTE)
        assert loop.decisions[-1][1].error is not None

    def test_a_source_that_thaws_is_followed_again(self) -> None:
        loop = service(20, 300)
        loop.run(1)
        loop.source.frozen = True
        loop.run(10 * MINUTE)
        loop.source.frozen = False
        loop.demand = lambda _: 24_500
        loop.run(10 * MINUTE)
        assert counts(loop.steps)[0] == 15
        assert loop.replicas == max(counts(loop.steps)) == 21
        assert_never_below_the_truth(loop)


class TestRollingUpdates:
    def roll(self, loop: ClosedLoop, surge: int) -> None:
        """Replace every pod, `surge` at a time."""
        loop.run(3 * MINUTE)
        loop.surge = surge
        while old := [pod for pod in loop.living if pod.measured.created < 3 * MINUTE]:
            loop.touch()
            loop.run(loop.habits.starts + loop.habits.registers + 10)
            for pod in old[:surge]:
                loop.delete(pod)
            loop.run(1)
        loop.surge = 0
        loop.touch()
        loop.run(30 * MINUTE)

    @pytest.mark.parametrize("refresh", [15, 60])
    @pytest.mark.parametrize("surge", [1, 5])
    @pytest.mark.parametrize("load", [450, 800, 1150])
    def test_a_rolling_update_inside_the_band_changes_no_count(self, load: int, surge: int, refresh: int) -> None:
        loop = service(10, load, refresh=refresh, window=refresh)
        self.roll(loop, surge)
        assert not loop.steps

    @pytest.mark.parametrize("kind", BY_POD)
    @pytest.mark.parametrize("surge", [1, 5])
    def test_a_service_that_shrinks_meanwhile_is_never_below_its_need(self, kind: Kind, surge: int) -> None:
        loop = service(20, 500, kind=kind, refresh=60, window=60)
        loop.events[4 * MINUTE] = lambda loop: setattr(loop, "demand", lambda _: 5_000)
        self.roll(loop, surge)
        assert loop.replicas == 12
        assert_never_below_the_truth(loop)
        assert down_to_the_truth(loop)


class TestSilentRegistries:
    """decision.md §0, row 32."""

    def grows(self, *, refresh: int = 15, registers: int = 60) -> ClosedLoop:
        """Ten pods that have just become fifteen; the five are Ready, and not registered yet."""
        loop = service(
            10,
            1000,
            refresh=refresh,
            window=refresh,
            rule=rule_of(Kind.RESOURCE, HIGH, LOW, registry=REGISTRY),
            habits=Habits(starts=20, registers=registers),
        )
        loop.run(5 * MINUTE)
        loop.demand = lambda _: 17_900
        while loop.replicas == 10:
            loop.run(1)
        while not all(pod.ready(loop.now) for pod in loop.living):
            loop.run(1)
        return loop

    @pytest.mark.parametrize("silent", [False, True])
    @pytest.mark.parametrize("refresh", [15, 60])
    def test_a_dip_while_new_pods_are_not_registered_yet_shrinks_nothing(self, silent: bool, refresh: int) -> None:
        loop = self.grows(refresh=refresh)
        assert loop.replicas == 15
        loop.registry_silent = silent
        loop.demand = lambda _: 1_000
        loop.run(55)
        loop.demand = lambda _: 17_900
        loop.registry_silent = False
        loop.run(20 * MINUTE)
        assert counts(loop.steps) == [15]

    @pytest.mark.parametrize("refresh", [15, 60])
    @pytest.mark.parametrize("silence", [40, 4 * MINUTE, 31 * MINUTE])
    def test_a_registry_silent_during_a_scale_up_takes_nothing_away(self, silence: int, refresh: int) -> None:
        loop = self.grows(refresh=refresh, registers=10)
        loop.registry_silent = True
        loop.run(silence)
        loop.registry_silent = False
        loop.run(20 * MINUTE)
        assert_never_below_the_truth(loop)
        assert loop.replicas == max(counts(loop.steps))

    @pytest.mark.parametrize("refresh", [30, 60])
    @pytest.mark.parametrize("silence", [40, 10 * MINUTE])
    def test_less_load_while_the_registry_is_silent_is_never_followed_too_far(self, silence: int, refresh: int) -> None:
        loop = self.grows(refresh=refresh)
        loop.registry_silent = True
        loop.demand = lambda _: 5_000
        loop.run(silence)
        loop.registry_silent = False
        loop.run(30 * MINUTE)
        assert_never_below_the_truth(loop)
        assert down_to_the_truth(loop)


def test_the_times_of_the_world_are_whole_seconds() -> None:
    assert int(NOW) == NOW
