"""Strategy Ratio: one target, a count in proportion beyond the tolerance, and the recount of Watermark."""

import math
from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter.load.assessment import Decision, HeldBy, Verdict
from adapter.load.pods import Pod
from adapter.load.samples import Point, QuerySamples, ResourceSamples, Samples
from adapter.load.spec import Average, Capacity, Metric, Policy, Query, ResourceMetric, Strategy
from tests.load.kit import NOW, assess_and_decide, cpu, nano, out, pod, policy, queue, total, usage

MEMORY = ResourceMetric(name="memory", of=Capacity.LIMIT)


def ratio(*metrics: Metric, tolerance: str = "0.1", **changes: object) -> Policy:
    return policy(*metrics, strategy=Strategy.RATIO, tolerance=Fraction(tolerance), **changes)


def aim(target: str = "100m") -> Metric:
    return cpu(None, target=Fraction(nano(target)))


def pods(count: int) -> list[Pod]:
    return [pod(f"web-{i}") for i in range(count)]


def decided(loads: list[str | int | None], rule: Policy | None = None, **changes: object) -> Decision:
    samples = usage({f"web-{i}": load for i, load in enumerate(loads)})
    return assess_and_decide(rule or ratio(aim()), pods(len(loads)), samples, **changes)[1]  # type: ignore[arg-type]


class TestTheRule:
    def test_beyond_the_tolerance_the_count_is_in_proportion_in_both_directions(self) -> None:
        assert decided(["150m"]).desired == 2
        assert decided(["110000001n"] * 10).desired == 12
        assert decided(["89999999n"] * 10).desired == 9
        assert decided(["20m"] * 10).desired == 2

    def test_both_bounds_are_exact_and_equality_is_near(self) -> None:
        assert decided(["110m"] * 10).verdict is Verdict.INSIDE
        assert decided(["90m"] * 10).verdict is Verdict.INSIDE

    @given(n=st.integers(1, 60), each=st.integers(1, 10**9))
    def test_at_the_new_count_the_same_load_asks_for_no_other(self, n: int, each: int) -> None:
        first = decided([f"{each}n"] * n).desired
        assert first is not None
        after = assess_and_decide(ratio(queue_aim()), pods(first), total(f"{n * each}n"), current=first)[1]
        assert after.desired == first
        if first != n:
            assert first == max(1, math.ceil(Fraction(n * each, nano("100m"))))

    def test_a_total_is_compared_as_it_is_as_the_stock_hpas_value_targets_are(self) -> None:
        rule = ratio(aim("1"), average=Average.TOTAL)
        assert decided(["400m"] * 4, rule).desired == 7


def queue_aim() -> Metric:
    return replace(queue(), target=Fraction(nano("100m")))


class TestGaps:
    def test_a_pod_without_a_sample_counts_as_idle_on_the_way_up(self) -> None:
        assert decided(["150m", "150m", None]).desired == 3
        held = decided(["160m", None])
        assert (held.desired, held.held_by) == (2, HeldBy.MISSING)

    def test_a_pod_without_a_sample_counts_as_full_on_the_way_down(self) -> None:
        assert decided([*["20m"] * 5, None]).desired == 3  # (100 + 110)/100, up
        held = decided(["85m", "85m", None])
        assert (held.desired, held.held_by) == (3, HeldBy.MISSING)

    def test_pulled_out_pods_are_replaced_on_the_way_up_and_kept_on_the_way_down(self) -> None:
        served = {f"web-{i}": "150m" for i in range(2)}
        there = [*pods(2), *(out(f"out-{i}") for i in range(2))]
        assert assess_and_decide(ratio(aim()), there, usage(served))[1].desired == 5
        idle = dict.fromkeys(served, "10m")
        assert assess_and_decide(ratio(aim()), there, usage(idle))[1].desired == 3


class TestMemoryOfAllContainers:
    """The memory autoscaler: memory of all containers over the sum of limits."""

    RULE = ratio(cpu(None, name="memory", resource=MEMORY, target=Fraction(nano("800m"))))

    def test_it_is_the_sum_over_the_sum_and_not_a_mean_of_shares(self) -> None:
        limits = ["6Gi", "2Gi", "1Gi", "1Gi"]
        there = [pod(f"web-{i}", limits={"memory": limit}) for i, limit in enumerate(limits)]
        used = {"web-0": "6Gi", "web-1": "2Gi", "web-2": "512Mi", "web-3": "512Mi"}
        samples = usage(used, resource="memory")  # type: ignore[arg-type]
        decision = assess_and_decide(self.RULE, there, samples)[1]
        assert decision.outcome is not None
        assert decision.outcome.scenario.usage == nano("900m")
        assert decision.desired == 5

    @pytest.mark.parametrize("extra", [{}, {"web-0-canary": "99Gi", "web-10": "99Gi", "web": "99Gi"}])
    def test_a_query_by_name_prefix_brings_pods_of_others_which_are_dropped(self, extra: dict[str, str]) -> None:
        query = Query(name="memory", of=Capacity.LIMIT, resource="memory")
        rule = ratio(cpu(None, name="memory", resource=None, query=query, target=Fraction(nano("800m"))))
        there = [pod(f"web-{i}", limits={"memory": "2560Mi"}) for i in range(4)]
        values = {"web-0": "2304Mi", "web-1": "2304Mi", "web-2": "2560Mi", "web-3": "2048Mi"} | extra
        points = {name: Point(NOW - 10, nano(value)) for name, value in values.items()}
        samples = Samples(ResourceSamples(), {"memory": QuerySamples(pods=points, fetched_at=NOW)})
        decision = assess_and_decide(rule, there, samples)[1]
        assert decision.outcome is not None
        assert (decision.desired, decision.outcome.scenario.usage) == (5, nano("900m"))
        assert (decision.outcome.scenario.n, decision.outcome.metric.raw) == (4, nano("900m"))
