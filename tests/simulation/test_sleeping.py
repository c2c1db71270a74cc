"""Services at zero replicas: the inputs that wake them (decision.md §6, rows 33 and 34)."""

from dataclasses import replace

import pytest

from adapter.load.assessment import HeldBy
from adapter.load.pods import PodCondition
from adapter.load.spec import Bounds, Fallback, Metric, Policy, Query
from tests.load.kit import cpu, pod
from tests.simulation.closed_loop import ClosedLoop, assert_never_below_the_truth, rule_of
from tests.simulation.services import HIGH, LOW, MINUTE, service
from tests.simulation.sources import Kind

LEFT_OVER = pod("left-over", ready=False)


def asleep(rule: Policy, kind: Kind, *, replicas: int = 0, minimum: int = 0, **changes: object) -> ClosedLoop:
    """A service at zero with a source of this kind."""
    loop = service(replicas, 0, kind=kind, sync=15, rule=rule)
    loop.hpa.bounds = Bounds(minimum=minimum, maximum=50)
    for name, value in changes.items():
        setattr(loop, name, value)
    return loop


def rule_with_fallback(kind: Kind, replicas: int = 8) -> Policy:
    return rule_of(kind, HIGH, LOW, fallback=Fallback(after=300, replicas=replicas))


class TestByTotal:
    def test_it_sleeps_wakes_follows_its_load_and_sleeps_again(self) -> None:
        loop = asleep(rule_of(Kind.TOTAL, HIGH, LOW), Kind.TOTAL)
        loop.run(10 * MINUTE)
        assert loop.replicas == 0
        loop.demand = lambda _: 6_000
        loop.run(10 * MINUTE)
        assert [step.after for step in loop.steps] == [1, 5]
        loop.demand = lambda _: 0
        loop.run(10 * MINUTE)
        assert [step.after for step in loop.steps] == [1, 5, 0]
        assert_never_below_the_truth(loop)

    @pytest.mark.parametrize("load", [1, 399, 401])
    def test_any_load_keeps_it_awake(self, load: int) -> None:
        loop = asleep(rule_of(Kind.TOTAL, HIGH, LOW), Kind.TOTAL)
        loop.demand = lambda _: load
        loop.run(30 * MINUTE)
        assert [step.after for step in loop.steps] == [1]

    @pytest.mark.parametrize("beside", [(), (cpu(f"{HIGH}m", f"{LOW}m"),)], ids=["alone", "beside a metric by pod"])
    def test_a_fallback_does_not_wake_it_while_its_total_is_known(self, beside: tuple[Metric, ...]) -> None:
        rule = rule_with_fallback(Kind.TOTAL)
        rule = replace(rule, metrics=(*rule.metrics, *beside))
        loop = asleep(rule, Kind.TOTAL, strays=(LEFT_OVER,))
        loop.run(60 * MINUTE)
        assert not loop.steps

    def test_a_fallback_wakes_it_after_a_lasting_error_of_its_total(self) -> None:
        loop = asleep(rule_with_fallback(Kind.TOTAL), Kind.TOTAL)
        loop.run(10 * MINUTE)
        loop.source.frozen = True
        loop.run(5 * MINUTE)
        assert loop.replicas == 0
        loop.run(5 * MINUTE)
        assert [step.after for step in loop.steps] == [8]


class TestByPod:
    @pytest.mark.parametrize("kind", [Kind.RESOURCE, Kind.QUERY])
    @pytest.mark.parametrize("minimum", [0, 1])
    def test_a_left_over_pod_does_not_let_a_fallback_wake_it(self, kind: Kind, minimum: int) -> None:
        rule = rule_with_fallback(kind)
        strays = (
            LEFT_OVER,
            replace(LEFT_OVER, name="ready", uid="ready", ready=PodCondition(True, LEFT_OVER.created_at)),
        )
        loop = asleep(rule, kind, minimum=minimum, strays=strays)
        loop.run(60 * MINUTE)
        assert not loop.steps

    def test_the_error_says_that_it_is_scaled_to_zero(self) -> None:
        loop = asleep(rule_with_fallback(Kind.RESOURCE), Kind.RESOURCE, strays=(LEFT_OVER,))
        loop.run(20 * MINUTE)
        assert "is scaled to zero" in (loop.decisions[-1][1].error or "")


class TestNoPods:
    @pytest.mark.parametrize("kind", list(Kind))
    def test_a_service_whose_pods_cannot_be_created_gets_its_fallback(self, kind: Kind) -> None:
        loop = asleep(rule_with_fallback(kind, 7), kind, replicas=3, minimum=1, quota=0)
        for each in loop.living:
            loop.delete(each)
        loop.run(4 * MINUTE)
        assert loop.replicas == 3
        loop.run(10 * MINUTE)
        assert loop.replicas == 7
        assert loop.decisions[-1][1].held_by in {HeldBy.METRIC_ERROR, None}


def test_a_query_that_never_answered_is_named_in_the_error() -> None:
    rule = rule_of(Kind.TOTAL, HIGH, LOW)
    rule = replace(rule, metrics=(replace(rule.metrics[0], name="other", query=Query(name="other")),))
    loop = asleep(rule, Kind.TOTAL)
    loop.run(MINUTE)
    assert "other" in (loop.decisions[-1][1].error or "")
