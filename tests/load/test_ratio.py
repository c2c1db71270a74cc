"""Strategy Ratio: one target, a count in proportion beyond the tolerance, and the recount of Watermark."""

import math
from dataclasses import replace
from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from adapter.load.assessment import Decision
from adapter.load.pods import Pod
from adapter.load.samples import Point, QuerySamples, ResourceSamples, Samples
from adapter.load.spec import Capacity, Metric, Policy, Query, Strategy
from tests.load.kit import NOW, assess_and_decide, cpu, nano, pod, policy, queue, total, usage


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
    @given(n=st.integers(1, 60), each=st.integers(1, 10**9))
    def test_at_the_new_count_the_same_load_asks_for_no_other(self, n: int, each: int) -> None:
        first = decided([f"{each}n"] * n).desired
        assert first is not None
        after = assess_and_decide(ratio(queue_aim()), pods(first), total(f"{n * each}n"), current=first)[1]
        assert after.desired == first
        if first != n:
            assert first == max(1, math.ceil(Fraction(n * each, nano("100m"))))


def queue_aim() -> Metric:
    return replace(queue(), target=Fraction(nano("100m")))


def test_a_query_by_name_prefix_brings_pods_of_others_which_are_dropped() -> None:
    share = {"resource": "memory", "relative_to": Capacity.LIMIT}
    rule = ratio(cpu(None, name="memory", query=Query(name="memory"), **share, target=Fraction(nano("800m"))))
    there = [pod(f"web-{i}", limits={"memory": "2560Mi"}) for i in range(4)]
    values = dict.fromkeys((one.name for one in there), "2304Mi") | {"web-0-canary": "99Gi", "web-10": "99Gi"}
    points = {name: Point(NOW - 10, nano(value)) for name, value in values.items()}
    samples = Samples(ResourceSamples(), {"memory": QuerySamples(pods=points, fetched_at=NOW)})
    decision = assess_and_decide(rule, there, samples)[1]
    assert decision.outcome is not None
    assert (decision.desired, decision.outcome.metric.n, decision.outcome.metric.raw) == (5, 4, nano("900m"))
