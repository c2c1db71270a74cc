"""Failures of registry and metrics in closed loop: no wrong scale-down, no runaway, no undersized service."""

import pytest

from tests.simulation.registered import (
    LONG,
    MINUTE,
    changes,
    constant,
    counts,
    needed,
    running,
    settled,
    turns,
)

OUTAGES = pytest.mark.parametrize(("mode", "alive"), [("silent", False), ("empty", False), ("empty", True)])


class TestRegistryOutages:
    @pytest.mark.parametrize("load", [400, 800, 1200])
    @OUTAGES
    def test_an_outage_alone_changes_nothing(self, mode: str, alive: bool, load: int) -> None:
        service = running(10, 10 * load)
        service.registry.mode, service.registry.alive = mode, alive
        service.run(LONG)
        service.registry.mode = "ok"
        service.run(20 * MINUTE)
        assert set(counts(service.moments)) == {10}

    @OUTAGES
    def test_an_outage_with_pulled_out_pods_never_shrinks_and_adds_pods_at_most_once(
        self, mode: str, alive: bool
    ) -> None:
        service = running(10, 9_000)
        for pod in service.originals()[:3]:
            pod.disabled = True
        service.run(10 * MINUTE)
        before = service.replicas
        service.registry.mode, service.registry.alive = mode, alive
        moments = service.run(LONG)
        assert all(step > 0 for step in changes(moments))
        assert max(counts(moments)) <= before + 3
        service.registry.mode = "ok"
        after = service.run(30 * MINUTE)
        assert settled(after)
        assert turns([*moments, *after]) <= 1

    def test_growing_demand_is_met_while_the_registry_is_silent(self) -> None:
        service = running(10, 8_000)
        service.registry.mode = "silent"
        service.demand = constant(24_000)
        moments = service.run(LONG)
        assert moments[-1].in_traffic >= needed(24_000)
        assert settled(moments)
        assert turns(moments) == 0
        assert max(counts(moments)) <= 2 * needed(24_000)

    def test_falling_demand_never_shrinks_below_the_need_while_the_registry_is_silent(self) -> None:
        service = running(20, 20_000)
        service.registry.mode = "silent"
        service.demand = constant(5_000)
        moments = service.run(LONG)
        assert min(counts(moments)) >= needed(5_000)
        assert turns(moments) == 0


class TestMassAbsence:
    @pytest.mark.parametrize("count", [2, 5, 8])
    def test_only_pods_that_lost_their_traffic_are_replaced(self, count: int) -> None:
        service = running(10, 10_000)
        for pod in service.originals()[:count]:
            pod.deregistered = True
        moments = service.run(LONG)
        assert settled(moments)
        assert moments[-1].in_traffic >= needed(10_000)
        assert max(counts(moments)) <= needed(10_000) + count
        assert all(step > 0 for step in changes(moments))
        for pod in service.living:
            pod.deregistered = False
        after = service.run(LONG)
        assert settled(after)
        assert turns([*moments, *after]) <= 1

    @pytest.mark.parametrize("lost", [2, 5, 8, 10])
    def test_pods_that_only_the_registry_lost_are_not_replaced(self, lost: int) -> None:
        service = running(10, 10_000)
        service.registry.forgotten = {pod.measured.name for pod in service.originals()[:lost]}
        assert set(counts(service.run(LONG))) == {10}


class TestMetricsOutages:
    @pytest.mark.parametrize("after", [2_000, 8_000, 30_000])
    def test_the_count_holds_without_metrics_and_follows_once_they_return(self, after: int) -> None:
        service = running(10, 8_000)
        service.source.frozen = True
        service.demand = constant(after)
        moments = service.run(20 * MINUTE)
        assert set(counts(moments)) == {10}
        assert "metrics.k8s.io" in (moments[-1].decision.error or "")
        service.source.frozen = False
        moments = service.run(30 * MINUTE)
        assert settled(moments)
        assert turns(moments) == 0
