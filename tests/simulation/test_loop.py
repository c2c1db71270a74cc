"""The closed loop: no runaway, no oscillation, no service stuck undersized, nothing shrinks on a lie."""

import json
import random
from collections.abc import Sequence
from dataclasses import replace

import pytest

from adapter.load.assessment import Assessment, HeldBy
from adapter.load.memory import Memory
from adapter.load.spec import Converge
from adapter.policy import memory as recollection
from tests.simulation.model import (
    HIGH,
    POLICY,
    Demand,
    Moment,
    Registry,
    Service,
    SimPod,
    changes,
    constant,
    counts,
    needed,
    replay,
    turns,
)

MINUTE = 60
LONG = 40 * MINUTE
"""Longer than any patience of the adapter: evidence of a silent registry is forgotten after 30 minutes."""


def settled(moments: Sequence[Moment]) -> bool:
    """The last ten minutes saw one count, and nobody was loaded beyond high and its tolerance."""
    last = moments[-120:]
    return len(set(counts(last))) == 1 and all(moment.load <= HIGH * 1.01 for moment in last)


def stepped(before: int, after: int, at: int = 5 * MINUTE) -> Demand:
    return lambda now: before if now < at else after


class TestLoad:
    @pytest.mark.parametrize("load", [400, 800, 1200])
    def test_inside_the_band_nothing_moves(self, load: int) -> None:
        service = Service(10, constant(10 * load))
        assert set(counts(service.run(LONG))) == {10}

    @pytest.mark.parametrize(("before", "after"), [(8_000, 24_000), (8_000, 12_200), (1_700, 90_000), (900, 2_500)])
    def test_a_step_up_is_followed_by_one_step_to_what_is_needed(self, before: int, after: int) -> None:
        service = Service(needed(before) + 1, stepped(before, after))
        moments = service.run(LONG)
        assert settled(moments)
        assert turns(moments) == 0
        assert service.replicas == needed(after)

    @pytest.mark.parametrize(("before", "after"), [(24_000, 6_000), (12_000, 700), (24_000, 15_900)])
    def test_a_step_down_is_followed_without_undershoot(self, before: int, after: int) -> None:
        service = Service(needed(before), stepped(before, after))
        moments = service.run(LONG)
        assert settled(moments)
        assert turns(moments) == 0
        assert min(counts(moments)) >= needed(after)

    def test_a_ramp_up_and_down_turns_once(self) -> None:
        def ramp(now: int) -> int:
            return 8_000 + 20 * max(0, min(now, LONG - now))

        service = Service(10, ramp)
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
        service = Service(10, lambda now: 20_000 if 600 <= now < 615 else 8_000)
        moments = service.run(LONG)
        assert turns(moments) <= 1
        assert settled(moments)


def broken(pod: SimPod) -> None:
    """It never comes up."""
    pod.ready_at = None


def shut_out(pod: SimPod) -> None:
    """It comes up, and never gets into the registry."""
    pod.deregistered = True


class TestRollouts:
    def rollout(self, demand: int, surge: int = 3) -> Service:
        service = Service(10, constant(demand))
        service.run(5 * MINUTE)
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

    def test_more_load_meanwhile_asks_for_what_is_needed_and_no_more(self) -> None:
        service = self.rollout(8_000)
        service.fate = broken
        service.demand = constant(20_000)
        moments = service.run(LONG)
        assert max(counts(moments)) == needed(20_000)
        assert turns(moments) == 0
        assert "UndersizedByUnready" in moments[-1].assessment.conditions

    def test_it_grows_to_what_is_needed_once_the_pods_come_up(self) -> None:
        service = self.rollout(8_000)
        service.fate = broken
        service.demand = constant(20_000)
        service.run(20 * MINUTE)
        for pod in service.living:
            if pod.ready_at is None:
                pod.ready_at = service.now + 30
        service.surge = 0
        service.rolling("NewReplicaSetAvailable")
        assert settled(service.run(30 * MINUTE))

    def test_new_pods_that_are_pulled_out_stop_being_replaced(self) -> None:
        """The version registers, takes traffic and is taken out by operators, over and over."""
        service = Service(10, constant(12_000))
        service.run(5 * MINUTE)
        service.originals()[0].disabled = True
        moments: list[Moment] = []
        for _ in range(30):
            moments += service.run(MINUTE)
            for pod in service.living:
                pod.disabled |= pod.created >= 0 and service.now - pod.created > 2 * MINUTE
        assert max(counts(moments)) == 12
        assert turns(moments) == 0
        assert "ReplacementIneffective" in moments[-1].assessment.conditions

    def test_new_pods_that_never_register_do_not_run_away(self) -> None:
        service = Service(10, constant(12_000), fate=shut_out)
        service.run(5 * MINUTE)
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
            pod.deleted = service.now
        service.surge = 0
        service.rolling("NewReplicaSetAvailable")
        moments += service.run(10 * MINUTE)
        assert set(counts(moments)) == {10}
        assert settled(moments)


class TestPullOuts:
    def test_originals_pulled_out_one_by_one_are_all_replaced(self) -> None:
        service = Service(10, constant(12_000))
        moments = service.run(5 * MINUTE)
        for original in service.originals()[:6]:
            original.disabled = True
            moments += service.run(4 * MINUTE)
        moments += service.run(20 * MINUTE)
        assert service.replicas == 16
        assert moments[-1].in_traffic == 10
        assert settled(moments)
        assert turns(moments) == 0

    def test_when_they_return_the_surplus_goes(self) -> None:
        service = Service(10, constant(12_000))
        service.run(5 * MINUTE)
        pulled = service.originals()[:5]
        for pod in pulled:
            pod.disabled = True
        service.run(30 * MINUTE)
        assert service.replicas == 15
        service.demand = constant(5_000)
        for pod in pulled:
            pod.disabled = False
        moments = service.run(LONG)
        assert settled(moments)
        assert turns(moments) == 0
        assert needed(5_000) <= service.replicas <= 12

    def test_a_pull_out_under_little_load_changes_nothing(self) -> None:
        service = Service(10, constant(6_000))
        service.run(5 * MINUTE)
        for pod in service.originals()[:4]:
            pod.disabled = True
        assert set(counts(service.run(LONG))) == {10}

    def test_most_of_a_service_pulled_out_at_once_is_rebuilt(self) -> None:
        service = Service(16, constant(16_000))
        service.run(5 * MINUTE)
        for pod in service.originals()[:14]:
            pod.disabled = True
        moments = service.run(LONG)
        assert settled(moments)
        assert moments[-1].in_traffic >= needed(16_000)
        assert max(counts(moments)) <= needed(16_000) + 14

    def test_all_of_it_pulled_out_is_not_believed(self) -> None:
        service = Service(10, constant(8_000))
        service.run(5 * MINUTE)
        for pod in service.originals():
            pod.disabled = True
        assert set(counts(service.run(LONG))) == {10}


class TestRegistryOutages:
    @pytest.mark.parametrize("load", [400, 800, 1200])
    @pytest.mark.parametrize(("mode", "alive"), [("silent", False), ("empty", False), ("empty", True)])
    def test_an_outage_alone_changes_nothing(self, mode: str, alive: bool, load: int) -> None:
        service = Service(10, constant(10 * load))
        moments = service.run(5 * MINUTE)
        service.registry.mode, service.registry.alive = mode, alive
        moments += service.run(LONG)
        service.registry.mode = "ok"
        moments += service.run(20 * MINUTE)
        assert set(counts(moments)) == {10}

    @pytest.mark.parametrize(("mode", "alive"), [("silent", False), ("empty", False), ("empty", True)])
    def test_with_pods_out_it_never_shrinks_and_adds_pods_once_at_most(self, mode: str, alive: bool) -> None:
        service = Service(10, constant(9_000))
        service.run(5 * MINUTE)
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
        service = Service(10, constant(8_000))
        service.run(5 * MINUTE)
        service.registry.mode = "silent"
        service.demand = constant(24_000)
        moments = service.run(LONG)
        assert moments[-1].in_traffic >= needed(24_000)
        assert settled(moments)
        assert turns(moments) == 0
        assert max(counts(moments)) <= 2 * needed(24_000)

    def test_falling_demand_shrinks_nothing_below_what_is_needed_while_it_is_silent(self) -> None:
        service = Service(20, constant(20_000))
        service.run(5 * MINUTE)
        service.registry.mode = "silent"
        service.demand = constant(5_000)
        moments = service.run(LONG)
        assert min(counts(moments)) >= needed(5_000)
        assert turns(moments) == 0

    def test_a_restart_that_refills_slowly_changes_nothing(self) -> None:
        service = Service(20, constant(20 * 1_100))
        moments = service.run(5 * MINUTE)
        names = [pod.name for pod in service.living]
        service.registry.reconnected = service.now
        for back in range(0, 21, 2):
            service.registry.forgotten = set(names[back:])
            moments += service.run(10)
        moments += service.run(30 * MINUTE)
        assert set(counts(moments)) == {20}

    def test_an_assessor_started_during_an_outage_shrinks_nothing(self) -> None:
        service = Service(10, constant(6_000), registry=Registry(mode="silent"))
        assert set(counts(service.run(30 * MINUTE))) == {10}


class TestMassAbsence:
    def vanish(self, count: int, of: int, demand: int) -> tuple[Service, list[Moment]]:
        service = Service(of, constant(demand))
        service.run(5 * MINUTE)
        for pod in service.originals()[:count]:
            pod.deregistered = True
        return service, service.run(LONG)

    @pytest.mark.parametrize("count", [2, 5, 8])
    def test_pods_that_lost_their_traffic_are_replaced_and_no_more(self, count: int) -> None:
        service, moments = self.vanish(count, 10, 10_000)
        assert settled(moments)
        assert moments[-1].in_traffic >= needed(10_000)
        assert max(counts(moments)) <= needed(10_000) + count
        assert all(step > 0 for step in changes(moments))
        for pod in service.living:
            pod.deregistered = False
        after = service.run(LONG)
        assert settled(after)
        assert turns([*moments, *after]) <= 1

    def test_pods_that_only_the_registry_lost_cost_nothing(self) -> None:
        for lost in (2, 5, 8, 10):
            service = Service(10, constant(10_000))
            service.run(5 * MINUTE)
            service.registry.forgotten = {pod.name for pod in service.originals()[:lost]}
            moments = service.run(LONG)
            assert set(counts(moments)) == {10}, lost


class TestMetricsOutages:
    @pytest.mark.parametrize("after", [2_000, 8_000, 30_000])
    def test_nothing_moves_without_metrics_and_the_count_follows_once_they_return(self, after: int) -> None:
        service = Service(10, constant(8_000))
        service.run(5 * MINUTE)
        service.metrics = False
        service.demand = constant(after)
        moments = service.run(20 * MINUTE)
        assert set(counts(moments)) == {10}
        assert moments[-1].decision.error is not None
        assert "metrics.k8s.io" in moments[-1].decision.error
        service.metrics = True
        moments = service.run(30 * MINUTE)
        assert settled(moments)
        assert turns(moments) == 0

    def test_samples_lost_of_half_the_pods_hold(self) -> None:
        service = Service(10, constant(8_000))
        service.run(5 * MINUTE)
        service.lost_samples = {pod.name for pod in service.living[:5]}
        service.demand = constant(2_000)
        moments = service.run(20 * MINUTE)
        assert set(counts(moments)) == {10}
        assert moments[-1].decision.held_by is HeldBy.MISSING

    def test_pods_that_turn_unready_for_a_while_shrink_nothing(self) -> None:
        service = Service(10, constant(8_000))
        service.run(5 * MINUTE)
        ill = service.living[:6]
        for pod in ill:
            pod.unready_since = service.now
        moments = service.run(3 * MINUTE)
        for pod in ill:
            pod.unready_since, pod.ready_at = None, service.now
        moments += service.run(20 * MINUTE)
        assert min(counts(moments)) >= 10
        assert settled(moments)


def chaos(seed: int) -> Service:
    """Half an hour of pull-outs, lost registrations and samples, ill pods, outages and steps of demand; then peace."""
    rng = random.Random(seed)
    service = Service(rng.randint(4, 20), constant(rng.randint(4, 20) * 800))
    service.run(3 * MINUTE)
    for _ in range(15):
        pod = rng.choice(service.living)
        match rng.randrange(7):
            case 0:
                pod.disabled = True
            case 1:
                pod.deregistered = True
            case 2:
                pod.unready_since = service.now
            case 3:
                service.registry.mode = rng.choice(["ok", "silent", "empty"])
            case 4:
                service.metrics = not service.metrics
            case 5:
                service.lost_samples ^= {pod.name}
            case _:
                service.demand = constant(rng.randint(4, 25) * 800)
        service.run(2 * MINUTE)
    service.registry.mode, service.metrics, service.lost_samples = "ok", True, set()
    for pod in service.pods:
        if pod.unready_since is not None:
            pod.unready_since, pod.ready_at = None, service.now
    return service


@pytest.mark.parametrize("seed", range(8))
def test_after_any_half_hour_of_trouble_the_service_settles_with_what_it_needs(seed: int) -> None:
    service = chaos(seed)
    during = len(service.history)
    after = service.run(LONG)
    demand = service.demand(0)
    away = sum(pod.disabled or pod.deregistered for pod in service.living)
    assert settled(after)
    assert after[-1].in_traffic * HIGH * 1.01 >= demand
    assert turns(after) <= 1
    peak = needed(20_000) + sum(pod.disabled or pod.deregistered for pod in service.pods) + away
    assert max(counts(service.history[:during])) <= 20 + peak


class TestSameAnswers:
    def answers(self, service: Service) -> list[object]:
        return [self.answer(moment.assessment) for moment in service.history]

    def answer(self, found: Assessment) -> tuple[object, ...]:
        return found.metrics, found.counts, found.conditions, found.memory

    @pytest.mark.parametrize("seed", [3, 5])
    def test_two_assessors_that_see_the_same_say_the_same(self, seed: int) -> None:
        service = chaos(seed)
        again = [self.answer(found) for found in replay(service.inputs, Memory())]
        assert again == self.answers(service)

    @pytest.mark.parametrize("seed", [3, 5, 7])
    def test_one_that_restarts_with_its_memory_says_the_same(self, seed: int) -> None:
        service = chaos(seed)
        for middle in (40, 111, 250):
            known = service.history[middle - 1].assessment.memory
            written = json.loads(json.dumps(recollection.dump(known)))
            again = [self.answer(found) for found in replay(service.inputs, recollection.load(written), middle)]
            assert again == self.answers(service)[middle:]


def test_the_policy_simulated_is_the_default_one() -> None:
    assert POLICY.pulled_out.replace_after == 60.0
    assert POLICY.min_serving_percent == 50
