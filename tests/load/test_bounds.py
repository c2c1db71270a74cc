"""The bounds of the load: watermarks, the two readings of the lower bound, the one sum of the upper bound."""

from fractions import Fraction
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter.load.assessment import Decision, HeldBy, Verdict
from adapter.load.decide import decide
from adapter.load.memory import Memory
from adapter.load.pods import Pod
from adapter.load.samples import UNCOUNTED, Point, QuerySamples, Samples
from adapter.load.spec import Metric, Policy, Query
from tests.load.kit import BOUNDS, NOW, assess_and_decide, cpu, nano, out, pod, policy, queue, same, scale, usage

BAND = policy(cpu("1200m", "400m"))


def decided(count: int, load: str | None, *others: Pod, rule: Policy = BAND, **changes: object) -> Decision:
    """The decision for so many pods of a load; the others have no sample."""
    pods, loads = same(count, load)
    return assess_and_decide(rule, [*pods, *others], usage(loads), **changes)[1]  # type: ignore[arg-type]


class TestTolerance:
    @given(st.integers(1, 60), st.integers(1, 10**11))
    def test_the_count_carries_the_load_at_high_and_is_no_more_than_low_allows(self, n: int, each: int) -> None:
        found, high, low = decided(n, f"{each}n"), nano("1200m"), nano("400m")
        assert found.desired is not None
        if found.verdict is Verdict.ABOVE:
            assert min(1000, found.desired) * high >= min(n * each, 1000 * high) > (found.desired - 1) * high
        if found.verdict is Verdict.BELOW:
            assert found.desired == max(1, n * each // low)


class TestUpperBound:
    @pytest.mark.parametrize("marked", [False, True])
    @pytest.mark.parametrize("after", ["10m", "0", None])
    def test_what_a_pod_carried_before_it_was_pulled_out_counts(self, marked: bool, after: str | None) -> None:
        """Its own sample is newer than the others', or it has none any more: their samples do not show its load yet."""
        cost = {"deletion_cost": -100 if marked else 0}
        pods, loads = same(9, "100m")
        carried = usage(loads | {"hot": "3000m"}, at=NOW - 15)
        before, first = assess_and_decide(BAND, [*pods, pod("hot")], carried, now=NOW - 10)
        samples = usage(loads | {"hot": after}, at=NOW - 15)
        if after is not None:
            samples.resources.pods["hot"] = usage({"hot": after}, at=NOW - 1).resources.pods["hot"]  # type: ignore[index]
        assert first.desired == 9
        memory = before.memory
        for _ in range(2):
            assessment, decision = assess_and_decide(BAND, [*pods, out("hot", **cost)], samples, memory=memory)
            memory = assessment.memory
            assert decision.desired in {9, 10}


class TestHolds:
    """Nothing shrinks on samples from before the adapter started or the count rose."""

    def test_a_rise_since_the_assessment_counts(self) -> None:
        pods, loads = same(9, "100m")
        assessment, decision = assess_and_decide(BAND, pods, usage(loads))
        assert decision.desired == 2
        later = decide(assessment, scale(12), BOUNDS, NOW + 1)
        assert (later.desired, later.held_by) == (12, HeldBy.WARMING_UP)


RPS = Metric(name="rps", query=Query(name="rps"), high=Fraction(nano("1200m")), low=Fraction(nano("400m")))


def counted(values: dict[str, tuple[str, int | None]], window: float = 60.0) -> Samples:
    """A query's answer: by pod a value and the number of samples in its window."""
    points = {name: Point(NOW - 10, nano(value), count) for name, (value, count) in values.items()}
    return Samples(queries={"rps": QuerySamples(pods=points, window=window, fetched_at=NOW - 1)})


class TestWindows:
    """A rate divides by its whole window however few samples that holds: its bound counts on the way down."""

    @pytest.mark.parametrize(("ago", "held_by"), [(59, HeldBy.WARMING_UP), (61, HeldBy.WARMING_UP), (200, None)])
    def test_windows_that_cannot_be_counted_shrink_nothing_for_a_window_after_a_start(
        self, ago: float, held_by: HeldBy | None
    ) -> None:
        pods, _ = same(10, None)
        samples = counted({one.name: ("10m", UNCOUNTED) for one in pods})
        memory = Memory(started_at=NOW - ago)
        decision = assess_and_decide(policy(RPS), pods, samples, memory=memory)[1]
        assert (decision.desired == 10) is (held_by is not None)

    def test_after_a_gap_of_any_length_they_shrink_nothing_for_a_window(self) -> None:
        pods, _ = same(10, None)
        memory = Memory()
        for later, count in ((0, 1), (400, 10), (430, 10), (460, 1)):
            points = {one.name: Point(NOW + later - 10, nano("10m"), UNCOUNTED) for one in pods}
            samples = Samples(queries={"rps": QuerySamples(pods=points, window=60.0, interval=30.0, fetched_at=NOW)})
            assessment, decision = assess_and_decide(policy(RPS), pods, samples, memory=memory, now=NOW + later)
            memory = assessment.memory
            assert decision.desired == count


class TestTotals:
    @pytest.mark.parametrize(("reads", "desired"), [((), 2), (("web-0",), 2), (("web-0", "web-1"), 10), ("all", 2)])
    def test_a_query_that_reads_some_pods_and_not_others_holds(self, reads: object, desired: int) -> None:
        """One of several speaks for all, as the leader of a group does; none: something else counts their load."""
        pods, _ = same(10, None)
        names = frozenset(one.name for one in pods) if reads == "all" else frozenset(reads)  # type: ignore[call-overload]
        samples = Samples(
            queries={"queue": QuerySamples(total=Point(NOW - 10, nano("100")), targets=dict.fromkeys(names, 1))}
        )
        assert assess_and_decide(policy(queue("100", "50")), pods, samples)[1].desired == desired


class TestConverging:
    @pytest.mark.parametrize(("towards", "load", "count"), [("High", "500m", 8), ("Low", "1100m", 12)])
    def test_one_assessment_takes_one_step_however_often_it_is_asked(
        self, towards: Literal["High", "Low"], load: str, count: int
    ) -> None:
        pods, loads = same(10, load)
        rule = policy(cpu("1200m", "400m"), converge_towards=towards, replica_multiple=2)
        assessment, decision = assess_and_decide(rule, pods, usage(loads))
        assert (decision.desired, decide(assessment, scale(count), BOUNDS, NOW + 15).desired) == (count, count)

    @pytest.mark.parametrize("multiple", [1, 2])
    def test_samples_take_one_step_up_until_they_are_newer_than_the_count(self, multiple: int) -> None:
        pods, loads = same(6, "800m")
        rule = policy(cpu("1200m", "400m"), converge_towards="Low", replica_multiple=multiple)
        first, decision = assess_and_decide(rule, pods, usage(loads))
        grown = 6 + multiple
        assert decision.desired == grown
        more = [*pods, *(pod(f"new-{index}") for index in range(multiple))]
        again, decision = assess_and_decide(rule, more, usage(loads), memory=first.memory, now=NOW + 2)
        assert decision.desired == grown
        fresh = usage(dict.fromkeys((one.name for one in more), "600m"), at=NOW + 40)
        assert assess_and_decide(rule, more, fresh, memory=again.memory, now=NOW + 41)[1].desired == grown + multiple
