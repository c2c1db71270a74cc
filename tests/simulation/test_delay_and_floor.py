"""Closed loops with delays and floors: they change when and how low, never whether the loop comes to rest."""

import random
from dataclasses import replace
from fractions import Fraction

import pytest

from adapter.load.spec import Delay, Metric, Query
from tests.load.kit import cpu, nano
from tests.simulation.closed_loop import ClosedLoop, Demand, Moment
from tests.simulation.loops import figures
from tests.simulation.registered import HIGH, LOW, MINUTE, POLICY, Service, counts, needed, settled, turns
from tests.simulation.test_pacing import started_anew

QUIET, BUSY = 4_000, 24_000
PLAN = Metric(name="plan", query=Query(name="plan"), high=Fraction(nano(f"{HIGH}m")), floor=True)


def delayed(up: float = 0, down: float = 0) -> Metric:
    return cpu(f"{HIGH}m", f"{LOW}m", delay=Delay(up=up, down=down))


def spike(begins: int, lasts: int) -> Demand:
    return lambda now: BUSY if begins <= now < begins + lasts else QUIET


def run(metric: Metric, demand: Demand, *, anew_every: int = 0) -> list[Moment]:
    service = Service(5, demand, rule=replace(POLICY, metrics=(metric,)))
    moments = []
    for _ in range(40):
        moments += service.run(MINUTE)
        if anew_every and service.now % anew_every == 0:
            started_anew(service)
    return moments


class TestDelay:
    @pytest.mark.parametrize("anew_every", [0, MINUTE])
    def test_a_lasting_change_is_followed_once_after_the_delay(self, anew_every: int) -> None:
        moments = run(delayed(up=120, down=240), spike(5 * MINUTE, 15 * MINUTE), anew_every=anew_every)
        rises = [moment.at for moment in moments if moment.replicas > 5]
        assert 120 <= rises[0] - 5 * MINUTE <= 120 + 45
        assert max(counts(moments)) >= needed(BUSY)
        falls = [moment.at for moment in moments if moment.at > 20 * MINUTE and moment.replicas < max(counts(moments))]
        assert 240 <= falls[0] - 20 * MINUTE <= 240 + 60 + 60
        assert turns(moments) == 1
        assert settled(moments)

    def test_random_loops_with_lagging_sources_stay_true_and_come_to_rest(self) -> None:
        def alter(loop: ClosedLoop) -> None:
            rng = random.Random(f"{loop.now} {len(loop.living)}")
            delay = Delay(up=rng.choice([0, 30, 120]), down=rng.choice([0, 60, 300]))
            loop.rule = replace(loop.rule, metrics=tuple(replace(one, delay=delay) for one in loop.rule.metrics))

        counted = figures(range(25), alter)
        assert not counted.below
        assert not counted.not_up
        assert not counted.not_down


class TestFloor:
    RULE = replace(POLICY, metrics=(*POLICY.metrics, PLAN))

    def run(self, plan: Demand, demand: Demand) -> list[Moment]:
        return Service(5, demand, rule=self.RULE, plan=plan).run(40 * MINUTE)

    def test_a_plan_raises_the_service_in_time_and_lets_it_fall_afterwards(self) -> None:
        demand = spike(10 * MINUTE, 15 * MINUTE)

        planned = self.run(lambda now: demand(now + 5 * MINUTE), demand)
        surprised = run(POLICY.metrics[0], demand)

        def over(moments: list[Moment]) -> int:
            return sum(1 for moment in moments if moment.load > HIGH)

        assert over(planned) == 0 < over(surprised)
        assert turns(planned) == 1
        assert settled(planned)
        assert counts(planned)[-1] == counts(surprised)[-1]

    def test_a_plan_that_flaps_does_not_make_the_count_flap_faster_than_the_hpa_lets_it_fall(self) -> None:
        moments = self.run(lambda now: BUSY if now // 30 % 2 else 0, lambda _: QUIET)
        assert settled(moments)
        assert counts(moments)[-1] == needed(BUSY)
