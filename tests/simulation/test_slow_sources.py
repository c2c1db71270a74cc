"""Lagging sources in closed loop: the count is never below the true need."""

from itertools import pairwise

import pytest

from adapter.load.spec import Average, Bounds, Converge
from adapter.policy.hpa import ScalingPolicy
from tests.load.kit import REGISTRY
from tests.simulation.closed_loop import ClosedLoop, Habits, assert_never_below_the_truth, down_to_the_truth, rule_of
from tests.simulation.services import BY_POD, HIGH, LOW, MINUTE, counts, restart, service
from tests.simulation.sources import Kind
from tests.simulation.stock_hpa import PODS, StockHpa


class TestSlowSources:
    """decision.md §2, departed load, row 38: without stabilization the HPA syncs ten times on the same samples."""

    @pytest.mark.parametrize("delay", [0, 10])
    @pytest.mark.parametrize(("refresh", "window"), [(30, 30), (60, 60), (60, 15), (60, 0), (15, 120)])
    @pytest.mark.parametrize("kind", list(Kind))
    def test_a_service_shrinks_once_to_its_need(self, kind: Kind, refresh: int, window: int, delay: int) -> None:
        loop = service(20, 300, kind=kind, refresh=refresh, window=window, delay=delay)
        loop.run(20 * MINUTE)
        assert counts(loop.steps) == [15]
        assert_never_below_the_truth(loop)

    @pytest.mark.parametrize("seconds", [4, 20])
    def test_an_adapter_restarted_after_a_step_does_not_repeat_it(self, seconds: int) -> None:
        loop = service(20, 300, refresh=60, window=60)
        loop.run(2)
        while not loop.steps:
            loop.run(1)
        loop.run(seconds)
        restart(loop)
        loop.run(20 * MINUTE)
        assert counts(loop.steps) == [15]

    @pytest.mark.parametrize(("refresh", "window"), [(15, 15), (60, 60), (60, 120)])
    def test_one_pod_a_period_keeps_its_pace(self, refresh: int, window: int) -> None:
        loop = service(13, 1000, refresh=refresh, window=window, sync=10)
        loop.hpa = StockHpa(
            bounds=Bounds(minimum=1, maximum=20), sync=10, down_window=60, down=(ScalingPolicy(PODS, 1, 10),)
        )
        loop.run(5 * MINUTE)
        loop.demand = lambda _: 300
        loop.run(20 * MINUTE)
        assert counts(loop.steps) == list(range(12, 0, -1))
        assert {after.at - before.at for before, after in pairwise(loop.steps)} == {10}
        assert_never_below_the_truth(loop)


class TestTotals:
    """A watermark for the whole service is a feedback loop, yet the same samples lead to one count only."""

    @pytest.mark.parametrize("kind", list(Kind))
    @pytest.mark.parametrize(("refresh", "window"), [(30, 30), (60, 0), (15, 60)])
    def test_the_same_samples_shrink_it_once(self, kind: Kind, refresh: int, window: int) -> None:
        rule = rule_of(kind, 24_000, 8_000, average=Average.TOTAL)
        loop = service(20, 300, kind=kind, refresh=refresh, window=window, rule=rule)
        loop.run(20 * MINUTE)
        assert counts(loop.steps)[:3] == [15, 11, 8]
        assert all(after.at - before.at >= max(refresh, window) for before, after in pairwise(loop.steps))

    @pytest.mark.parametrize(("towards", "expected"), [(Converge.HIGH, 7), (Converge.LOW, 20)])
    def test_a_service_total_by_pod_that_converges_arrives_and_stays(self, towards: Converge, expected: int) -> None:
        loop = service(10, 800, kind=Kind.TOTAL, rule=rule_of(Kind.TOTAL, HIGH, LOW, converge_towards=towards))
        loop.run(30 * MINUTE)
        assert loop.replicas == expected


class TestRollingUpdates:
    def roll(self, loop: ClosedLoop, surge: int) -> None:
        """Replaces every pod, `surge` at a time."""
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
        """Ten pods just scaled to fifteen; the new five are Ready and not registered yet."""
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
        loop.registry.mode = "silent" if silent else "ok"
        loop.demand = lambda _: 1_000
        loop.run(55)
        loop.demand = lambda _: 17_900
        loop.registry.mode = "ok"
        loop.run(20 * MINUTE)
        assert counts(loop.steps) == [15]

    @pytest.mark.parametrize("refresh", [15, 60])
    @pytest.mark.parametrize("silence", [40, 4 * MINUTE, 31 * MINUTE])
    def test_a_registry_silent_during_a_scale_up_removes_no_pod(self, silence: int, refresh: int) -> None:
        loop = self.grows(refresh=refresh, registers=10)
        loop.registry.mode = "silent"
        loop.run(silence)
        loop.registry.mode = "ok"
        loop.run(20 * MINUTE)
        assert_never_below_the_truth(loop)
        assert loop.replicas == max(counts(loop.steps))

    @pytest.mark.parametrize("refresh", [30, 60])
    @pytest.mark.parametrize("silence", [40, 10 * MINUTE])
    def test_a_fall_of_load_while_the_registry_is_silent_never_undershoots(self, silence: int, refresh: int) -> None:
        loop = self.grows(refresh=refresh)
        loop.registry.mode = "silent"
        loop.demand = lambda _: 5_000
        loop.run(silence)
        loop.registry.mode = "ok"
        loop.run(30 * MINUTE)
        assert_never_below_the_truth(loop)
        assert down_to_the_truth(loop)
