"""The closed loop: no runaway, no oscillation, no undersized service, no scale-down on wrong data."""

from dataclasses import replace

import pytest

from adapter.load.spec import Converge
from tests.simulation.closed_loop import NEVER, LoopPod, Moment
from tests.simulation.registered import (
    HIGH,
    LONG,
    MINUTE,
    POLICY,
    Service,
    constant,
    counts,
    needed,
    running,
    settled,
    turns,
)


class TestLoad:
    @pytest.mark.parametrize("load", [400, 800, 1200])
    def test_inside_the_band_nothing_moves(self, load: int) -> None:
        assert set(counts(Service(10, constant(10 * load)).run(LONG))) == {10}

    @pytest.mark.parametrize(
        ("replicas", "before", "after"),
        [
            (8, 8_000, 24_000),
            (8, 8_000, 12_200),
            (3, 1_700, 90_000),
            (2, 900, 2_500),
            (20, 24_000, 6_000),
            (10, 12_000, 700),
            (20, 24_000, 15_900),
        ],
    )
    def test_a_step_of_the_load_is_followed_without_turning_and_without_undershoot(
        self, replicas: int, before: int, after: int
    ) -> None:
        service = Service(replicas, lambda now: before if now < 5 * MINUTE else after)
        moments = service.run(LONG)
        assert settled(moments)
        assert turns(moments) == 0
        assert min(counts(moments)) >= min(replicas, needed(after))
        assert after < before or service.replicas == needed(after)

    def test_a_ramp_up_and_down_turns_once(self) -> None:
        service = Service(10, lambda now: 8_000 + 20 * max(0, min(now, LONG - now)))
        up = service.run(LONG // 2)
        assert max(m.load for m in up) < 1.25 * HIGH  # the loop lags by a scrape, a sync and a startup
        down = service.run(LONG)
        assert turns([*up, *down]) == 1
        assert settled(down)

    @pytest.mark.parametrize(
        ("towards", "multiple", "demand", "expected"),
        [(Converge.HIGH, 1, 6_000, 5), (Converge.LOW, 1, 6_010, 15), (Converge.HIGH, 4, 6_000, 8)],
    )
    def test_a_count_that_converges_arrives_and_stays(
        self, towards: Converge, multiple: int, demand: int, expected: int
    ) -> None:
        rule = replace(POLICY, converge_towards=towards, multiple_of=multiple)
        service = Service(12 if multiple > 1 else 10, constant(demand), rule=rule)
        moments = service.run(LONG)
        assert settled(moments)
        assert service.replicas == expected
        assert turns(moments) == 0

    def test_a_spike_of_one_scrape_costs_one_up_and_one_down(self) -> None:
        moments = Service(10, lambda now: 20_000 if 600 <= now < 615 else 8_000).run(LONG)
        assert turns(moments) <= 1
        assert settled(moments)


def broken(pod: LoopPod) -> None:
    """Makes the pod never Ready."""
    pod.ready_at = pod.serves_at = pod.measured.since = NEVER


def shut_out(pod: LoopPod) -> None:
    """Makes the pod Ready, but never registered."""
    pod.deregistered = True


class TestRollouts:
    def rollout(self, demand: int, surge: int = 3) -> Service:
        service = running(10, demand)
        service.surge = surge
        service.rolling("ReplicaSetUpdated")
        return service

    @pytest.mark.parametrize("demand", [5_000, 8_000, 12_000])
    def test_new_pods_that_crash_change_nothing(self, demand: int) -> None:
        service = self.rollout(demand)
        service.fate = broken
        moments = service.run(10 * MINUTE)
        service.rolling("ProgressDeadlineExceeded")
        moments += service.run(LONG)
        assert set(counts(moments)) == {10}

    def test_more_load_during_the_rollout_asks_for_exactly_the_need_which_is_met_once_pods_become_ready(self) -> None:
        service = self.rollout(8_000)
        service.fate = broken
        service.demand = constant(20_000)
        moments = service.run(LONG)
        assert max(counts(moments)) == needed(20_000)
        assert turns(moments) == 0
        assert "UndersizedByUnready" in moments[-1].assessment.conditions
        for pod in service.living:
            if pod.ready_at == NEVER:
                service.start(pod, service.now + 30)
        service.surge = 0
        service.rolling("NewReplicaSetAvailable")
        assert settled(service.run(30 * MINUTE))

    def test_new_pods_that_are_pulled_out_stop_being_replaced(self) -> None:
        """The new version registers, takes traffic, and operators pull it out, repeatedly."""
        service = running(10, 11_900)
        service.originals()[0].disabled = True
        moments: list[Moment] = []
        for _ in range(30):
            moments += service.run(MINUTE)
            for pod in service.living:
                pod.disabled |= pod.measured.created >= 0 and service.now - pod.measured.created > 2 * MINUTE
        assert max(counts(moments)) == 12
        assert turns(moments) == 0
        assert "ReplacementIneffective" in moments[-1].assessment.conditions

    def test_new_pods_that_never_register_do_not_run_away(self) -> None:
        service = running(10, 11_900, fate=shut_out)
        service.originals()[0].disabled = True
        moments = service.run(LONG)
        assert max(counts(moments)) == 12
        assert turns(moments) == 0

    @pytest.mark.parametrize("demand", [4_000, 8_000, 12_000])
    def test_a_good_rollout_with_a_surge_of_100_percent_changes_no_count(self, demand: int) -> None:
        service = self.rollout(demand, surge=10)
        moments = service.run(5 * MINUTE)
        assert moments[-1].in_traffic == 20
        for pod in service.originals():
            service.delete(pod)
        service.surge = 0
        service.rolling("NewReplicaSetAvailable")
        moments += service.run(10 * MINUTE)
        assert set(counts(moments)) == {10}
        assert settled(moments)


class TestPullOuts:
    def test_originals_pulled_out_one_by_one_are_all_replaced_and_the_surplus_goes_when_they_return(self) -> None:
        service = running(10, 12_000)
        pulled, moments = service.originals()[:6], []
        for original in pulled:
            original.disabled = True
            moments += service.run(4 * MINUTE)
        moments += service.run(20 * MINUTE)
        assert (service.replicas, moments[-1].in_traffic, turns(moments)) == (16, 10, 0)
        assert settled(moments)
        service.demand = constant(5_000)
        for pod in pulled:
            pod.disabled = False
        moments = service.run(LONG)
        assert settled(moments)
        assert turns(moments) == 0
        assert needed(5_000) <= service.replicas <= 12

    @pytest.mark.parametrize(
        ("demand", "pulled"),
        [pytest.param(6_000, 4, id="under little load"), pytest.param(8_000, 10, id="of all pods, not believed")],
    )
    def test_a_pull_out_changes_nothing(self, demand: int, pulled: int) -> None:
        service = running(10, demand)
        for pod in service.originals()[:pulled]:
            pod.disabled = True
        assert set(counts(service.run(LONG))) == {10}

    def test_most_of_a_service_pulled_out_at_once_is_rebuilt(self) -> None:
        service = running(16, 16_000)
        for pod in service.originals()[:14]:
            pod.disabled = True
        moments = service.run(LONG)
        assert settled(moments)
        assert moments[-1].in_traffic >= needed(16_000)
        assert max(counts(moments)) <= needed(16_000) + 14
