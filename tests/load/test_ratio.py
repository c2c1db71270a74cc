"""Strategy Ratio: one target, a count in proportion beyond the tolerance, and the recount of Watermark."""

import math
from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter.load.assessment import Decision, HeldBy
from adapter.load.pods import Pod
from adapter.load.samples import Point, QuerySamples, ResourceSamples, Samples
from adapter.load.spec import Average, Capacity, Metric, Policy, Query, Strategy
from tests.load.kit import NOW, assess_and_decide, cpu, nano, out, pod, policy, queue, total, usage


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
    @pytest.mark.parametrize(
        ("load", "count"), [("110000001n", 12), ("110m", 10), ("90m", 10), ("89999999n", 9), ("20m", 2)]
    )
    def test_beyond_the_tolerance_the_count_is_in_proportion_and_equality_is_near(self, load: str, count: int) -> None:
        assert decided([load] * 10).desired == count

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


@pytest.mark.parametrize(
    ("loads", "desired", "held_by"),
    [
        pytest.param(["150m", "150m", None], 3, HeldBy.MISSING, id="above, and idle it is the target"),
        pytest.param(["160m", None], 2, HeldBy.MISSING, id="above, and idle it brings the rest near"),
        pytest.param([*["20m"] * 5, None], 3, None, id="below, and full it adds one: (100 + 110)/100, up"),
        pytest.param(["85m", "85m", None], 3, HeldBy.MISSING, id="below, and full it brings the rest near"),
    ],
)
def test_a_pod_without_a_sample_counts_as_idle_on_the_way_up_and_as_full_on_the_way_down(
    loads: list[str | int | None], desired: int, held_by: HeldBy | None
) -> None:
    found = decided(loads)
    assert (found.desired, found.held_by) == (desired, held_by)


@pytest.mark.parametrize(("load", "desired"), [("150m", 5), ("10m", 3)])
def test_pulled_out_pods_are_replaced_on_the_way_up_and_kept_on_the_way_down(load: str, desired: int) -> None:
    there = [*pods(2), out("out-0"), out("out-1")]
    assert assess_and_decide(ratio(aim()), there, usage({"web-0": load, "web-1": load}))[1].desired == desired


def test_a_query_by_name_prefix_brings_pods_of_others_which_are_dropped() -> None:
    query = Query(name="memory", of=Capacity.LIMIT, resource="memory")
    rule = ratio(cpu(None, name="memory", resource=None, query=query, target=Fraction(nano("800m"))))
    there = [pod(f"web-{i}", limits={"memory": "2560Mi"}) for i in range(4)]
    values = dict.fromkeys((one.name for one in there), "2304Mi") | {"web-0-canary": "99Gi", "web-10": "99Gi"}
    points = {name: Point(NOW - 10, nano(value)) for name, value in values.items()}
    samples = Samples(ResourceSamples(), {"memory": QuerySamples(pods=points, fetched_at=NOW)})
    decision = assess_and_decide(rule, there, samples)[1]
    assert decision.outcome is not None
    assert (decision.desired, decision.outcome.scenario.n, decision.outcome.metric.raw) == (5, 4, nano("900m"))
