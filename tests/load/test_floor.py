"""Floors: a service total that keeps the count from falling below what it needs, and does nothing else."""

from dataclasses import replace
from fractions import Fraction

import pytest

from adapter.load.samples import Point, QuerySamples, Samples
from adapter.load.spec import Metric, Query
from tests.load.kit import NOW, assess_and_decide, cpu, nano, policy, same, usage

PLAN = Metric(name="plan", query=Query(name="plan"), high=Fraction(nano("100")), floor=True)
CPU = cpu("1200m", "400m")


def with_plan(samples: Samples, plan: str | None, *, age: float = 10.0, **more: object) -> Samples:
    """The samples, and a plan of so much load (None: its query failed)."""
    answer = QuerySamples(error="it answered with status 500")
    if plan is not None:
        answer = QuerySamples(total=Point(NOW - age, nano(plan)), fetched_at=NOW - age)
    return replace(samples, queries={**samples.queries, "plan": replace(answer, **more)})  # type: ignore[arg-type]


class TestWhenItFails:
    """It proposes nothing and blocks nothing, and a condition says so."""

    @pytest.mark.parametrize(("age", "count"), [(10, 6), (90, 6), (91, 4)])
    def test_last_weeks_same_hour_is_as_old_as_its_answer(self, age: float, count: int) -> None:
        pods, loads = same(6, "300m")
        week = 7 * 86_400.0
        samples = with_plan(usage(loads), "550", age=week + age, behind=week, window=week, fetched_at=NOW - 1)
        assert assess_and_decide(policy(CPU, PLAN), pods, samples)[1].desired == count

    def test_a_metric_that_is_no_floor_is_as_old_as_its_samples(self) -> None:
        pods, _ = same(6, None)
        samples = with_plan(Samples(), "550", age=130, behind=120)
        assert assess_and_decide(policy(replace(PLAN, floor=False)), pods, samples)[1].error is not None

    def test_one_that_answers_by_pod_says_what_to_do(self) -> None:
        pods, loads = same(6, "300m")
        by_pod = QuerySamples(pods={"web-0": Point(NOW, nano("550"))}, by_pod=True, fetched_at=NOW)
        samples = replace(usage(loads), queries={"plan": by_pod})
        assessment, decision = assess_and_decide(policy(CPU, PLAN), pods, samples)
        assert decision.desired == 4
        assert assessment.conditions["FloorMissing"].endswith(
            "query plan answers by pod, and a floor needs one number for the service; "
            "sum the query up, or take floor away"
        )

    def test_its_old_sample_does_not_make_the_others_look_old(self) -> None:
        pods, loads = same(6, "300m")
        assessment, _ = assess_and_decide(policy(CPU, PLAN), pods, with_plan(usage(loads), "550", age=80))
        assert assessment.sampled_at == NOW - 10
        assert not assessment.conditions
