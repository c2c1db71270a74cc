"""The bounds of the load: watermarks, the two readings of the lower bound, the one sum of the upper bound."""

from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter.load.assessment import Decision, HeldBy, Verdict
from adapter.load.decide import decide
from adapter.load.memory import Departed, LastSample, Memory, MetricMemory, PodMemory
from adapter.load.pods import Container, Pod, PodState
from adapter.load.samples import UNCOUNTED, Point, QuerySamples, Samples
from adapter.load.spec import Algorithm, Bounds, Capacity, Converge, Metric, Policy, Query, ResourceMetric
from tests.load.kit import (
    BOUNDS,
    NOW,
    REGISTRY,
    TARGET,
    assess_and_decide,
    cpu,
    nano,
    out,
    pod,
    policy,
    queue,
    roster,
    same,
    scale,
    total,
    usage,
)

FREE = Bounds(minimum=0, maximum=1000)
BAND = policy(cpu("1200m", "400m"))
NANO = 10**9


def decided(count: int, load: str | None, *others: Pod, rule: Policy = BAND, **changes: object) -> Decision:
    """The decision for so many pods of a load; the others have no sample."""
    pods, loads = same(count, load)
    return assess_and_decide(rule, [*pods, *others], usage(loads), **changes)[1]  # type: ignore[arg-type]


class TestTolerance:
    @pytest.mark.parametrize(("load", "high", "low"), [("9", None, "400m"), ("1n", "1200m", None)])
    def test_a_watermark_that_is_not_given_never_proposes(self, load: str, high: str | None, low: str | None) -> None:
        decision = decided(7, load, rule=policy(cpu(high, low)))
        assert (decision.desired, decision.lower_bound, decision.upper_bound) == (7, None, None)

    @given(st.integers(1, 30), st.integers(1, 5 * 10**9), st.sampled_from(["0.01", "0.1", "1/3"]))
    def test_it_decides_whether_and_never_how_many(self, n: int, each: int, tolerance: str) -> None:
        found = decided(n, f"{each}n", rule=replace(BAND, tolerance=Fraction(tolerance)))
        strict = decided(n, f"{each}n", rule=replace(BAND, tolerance=Fraction(0)))
        if found.verdict is not Verdict.INSIDE:
            assert (found.desired, found.verdict) == (strict.desired, strict.verdict)

    @given(st.integers(1, 60), st.integers(1, 10**11))
    def test_the_count_carries_the_load_at_high_and_is_no_more_than_low_allows(self, n: int, each: int) -> None:
        found, high, low = decided(n, f"{each}n"), nano("1200m"), nano("400m")
        assert found.desired is not None
        if found.verdict is Verdict.ABOVE:
            assert min(1000, found.desired) * high >= min(n * each, 1000 * high) > (found.desired - 1) * high
        if found.verdict is Verdict.BELOW:
            assert found.desired == max(1, n * each // low)


class TestLowerBound:
    def test_a_doubtful_pod_with_more_than_high_serves(self) -> None:
        """All in, 11100/10 is inside; with the busy one of those in doubt 11100/6 is above high, and needs 10."""
        pods = [pod(f"p{i}", ip=f"10.0.0.{i}") for i in range(10)]
        loads: dict[str, str | int | None] = {p.name: "1850m" if i < 6 else "0" for i, p in enumerate(pods)}
        listed = roster(*(f"10.0.0.{i}" for i in range(5)))
        rule = policy(cpu("1200m", "400m"), registry=REGISTRY)
        decision = assess_and_decide(rule, pods, usage(loads), listed=listed)[1]
        assert (decision.desired, decision.verdict) == (10, Verdict.ABOVE)
        assert decision.outcome is not None
        assert decision.outcome.reading is not None
        assert (decision.outcome.reading.pods, decision.outcome.reading.needed) == (6, 10)

    @pytest.mark.parametrize(
        ("reason", "desired"), [("", 12), ("NewReplicaSetAvailable", 12), ("ReplicaSetUpdated", 10)]
    )
    def test_no_pod_is_replaced_while_a_rollout_progresses(self, reason: str, desired: int) -> None:
        others = [out(f"out-{i}") for i in range(3)]
        assert decided(7, "1440m", *others, target=replace(TARGET, progressing=reason)).desired == desired


class TestUpperBound:
    def test_a_missing_pod_counts_with_its_last_sample_where_that_is_larger(self) -> None:
        memory = Memory(metrics={"cpu": MetricMemory(last={"uid-gap": LastSample(NOW - 60, nano("20"))})})
        held = decided(24, "100m", pod("gap"), memory=memory)
        assert (held.desired, held.held_by) == (25, HeldBy.MISSING)
        assert decided(24, "100m", pod("gap")).desired == 9  # (2400 + 1212)/400

    @pytest.mark.parametrize(("age", "desired"), [(299, 9), (300, 6)])
    def test_a_pod_that_may_serve_soon_counts_as_full_for_300_s(self, age: float, desired: int) -> None:
        young = pod("new", age=age, ready=False, ready_for=age)
        assert decided(24, "100m", young).desired == desired

    def test_a_pod_that_was_pulled_out_since_the_samples_began_counts_twice(self) -> None:
        memory = Memory(pods={"uid-out-0": PodMemory(PodState.PULLED_OUT, NOW - 5, turned_at=NOW - 5)})
        pods, loads = same(9, "100m")
        gone = assess_and_decide(BAND, [*pods, out("out-0")], usage(loads | {"out-0": "900m"}), memory=memory)[1]
        assert gone.desired == 5  # (900 + 900 + 400)/400
        assert (gone.held_by, gone.upper_bound) == (HeldBy.DEPARTED, 5)

    @pytest.mark.parametrize(("ago", "desired"), [(35, 5), (45, 2)])
    def test_a_pod_that_left_since_the_samples_began_counts_with_its_last_sample(self, ago: int, desired: int) -> None:
        """Samples of NOW - 10 over 15 s and a poll of 15 s began at NOW - 40."""
        memory = Memory(departed={"gone": Departed(NOW - ago, {"cpu": nano("1100m")})}, last_replicas=9)
        assert decided(9, "100m", memory=memory).desired == desired

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

    def test_a_newcomer_is_filled_for_the_load_of_the_pod_that_left(self) -> None:
        memory = Memory(departed={"gone": Departed(NOW - 5, {"cpu": nano("1100m")})}, last_replicas=10)
        new = pod("new", age=4, ready=False, ready_for=4)
        assert decided(9, "100m", new, memory=memory).desired == 5  # (900 + 1212)/400

    def test_a_resize_in_progress_counts_with_the_smaller_capacity(self) -> None:
        """100 Mi are half of the 200 Mi in force, and a quarter of the 400 Mi that are wanted but refused."""
        memory = Metric(
            name="memory", resource=ResourceMetric(name="memory", relative_to=Capacity.LIMIT),
            high=Fraction(8 * NANO, 10), low=Fraction(4 * NANO, 10),
        )  # fmt: skip
        small, large = ({"memory": nano(size)} for size in ("200Mi", "400Mi"))
        app = Container("app", limits=large, limits_in_force=small, running=True)
        pods = [pod(f"web-{i}", containers=(app,)) for i in range(8)]
        samples = usage({one.name: "100Mi" for one in pods}, resource="memory")
        assert assess_and_decide(policy(memory), pods, samples)[1].desired == 8
        settled = [replace(one, containers=(replace(app, limits_in_force=large),)) for one in pods]
        assert assess_and_decide(policy(memory), settled, samples)[1].desired == 5


class TestHolds:
    """Nothing shrinks on samples from before the adapter started or the count rose."""

    @pytest.mark.parametrize(("ago", "held_by"), [(39, HeldBy.WARMING_UP), (41, None)])
    def test_until_the_process_has_watched_since_the_samples_began(self, ago: float, held_by: HeldBy | None) -> None:
        decision = decided(9, "100m", memory=Memory(started_at=NOW - ago))
        assert (decision.held_by, decision.desired) == (held_by, 9 if held_by else 2)
        assert decided(9, "2", memory=Memory(started_at=NOW - ago)).desired == 15

    @pytest.mark.parametrize(("ago", "held_by"), [(39, HeldBy.WARMING_UP), (41, None)])
    def test_until_the_samples_began_after_the_count_rose(self, ago: float, held_by: HeldBy | None) -> None:
        memory = Memory(last_replicas=9, rose_at=NOW - ago, changed_at=NOW - ago)
        assert decided(9, "100m", memory=memory).held_by is held_by

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

    @pytest.mark.parametrize(
        ("value", "count", "full", "desired", "held_by"),
        [
            pytest.param("377m", 4, 4, 9, None, id="full"),
            pytest.param("377m", 3, 4, 10, HeldBy.MISSING, id="3 of 4: at most 754m"),
            pytest.param("1300m", 3, 4, 11, None, id="on the way up the value counts"),
            pytest.param("40m", 2, 8, 8, None, id="2 of 8: at most 320m"),
        ],
    )
    def test_the_bound_is_the_value_times_full_by_the_distances(
        self, value: str, count: int, full: int, desired: int, held_by: HeldBy | None
    ) -> None:
        pods, _ = same(10, None)
        samples = counted({one.name: (value, count) for one in pods})
        memory = Memory(metrics={"rps": MetricMemory(medians=((NOW - 1000, full),))})
        decision = assess_and_decide(policy(RPS), pods, samples, memory=memory)[1]
        assert (decision.desired, decision.held_by) == (desired, held_by)

    def test_one_sample_gives_no_rate(self) -> None:
        samples = counted({"web-0": ("1", 1)})
        assert assess_and_decide(policy(RPS), [pod()], samples)[1].error is not None

    def test_full_is_the_largest_median_of_an_hour(self) -> None:
        pods, _ = same(10, None)
        samples = counted({one.name: ("200m", 3) for one in pods})
        for ago, desired in ((3500, 7), (3700, 5)):  # 200 · 4/2 = 400 of 4 samples; after an hour 3 are full
            memory = Memory(metrics={"rps": MetricMemory(medians=((NOW - ago, 4),))})
            found = assess_and_decide(policy(RPS), pods, samples, memory=memory)[1]
            assert found.desired == (10 if desired == 7 else 5)

    @pytest.mark.parametrize(("median", "held_by"), [(5, None), (6, HeldBy.WINDOWS), (2, HeldBy.WINDOWS)])
    def test_nothing_shrinks_while_windows_fill_or_drain(self, median: int, held_by: HeldBy | None) -> None:
        pods, _ = same(10, None)
        samples = counted({one.name: ("10m", 4) for one in pods})
        memory = Memory(metrics={"rps": MetricMemory(medians=((NOW - 30, median),))})
        assert assess_and_decide(policy(RPS), pods, samples, memory=memory)[1].held_by is held_by

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
    @pytest.mark.parametrize(
        ("counts", "desired"),
        [
            pytest.param({"web-0": 4, "other": 2}, 3, id="only the target's pods count"),
            pytest.param({"web-0": 3, "web-1": 4}, 6, id="3 of 4: at most 2000 · 4/2"),
            pytest.param({"other": 2}, 10, id="where none of them is read: all that are"),
            pytest.param({"web-0": 1}, 10, id="of one sample nobody knows"),
        ],
    )
    def test_its_bound_follows_the_windows_of_the_targets_pods(self, counts: dict[str, int], desired: int) -> None:
        pods, _ = same(10, None)
        total = Point(NOW - 10, nano("2"), min(counts.values()))
        samples = Samples(queries={"rps": QuerySamples(total=total, window=60.0, counts=counts)})
        memory = Memory(metrics={"rps": MetricMemory(medians=((NOW - 1000, 4),))})
        rule = replace(RPS, low=Fraction(nano("600m")))
        assert assess_and_decide(policy(rule), pods, samples, memory=memory)[1].desired == desired

    def test_a_pod_that_came_into_service_since_the_samples_began_holds(self) -> None:
        pods, _ = same(10, None)
        samples = Samples(queries={"queue": QuerySamples(total=Point(NOW - 10, nano("100")), window=60.0)})
        rule = policy(queue("100", "50"))
        assert assess_and_decide(rule, pods, samples)[1].desired == 2
        held = assess_and_decide(rule, [*pods[1:], pod("web-0", age=60, ready_for=40)], samples)[1]
        assert (held.desired, held.held_by) == (10, HeldBy.MISSING)

    @pytest.mark.parametrize(("reads", "desired"), [((), 2), (("web-0",), 2), (("web-0", "web-1"), 10), ("all", 2)])
    def test_a_query_that_reads_some_pods_and_not_others_holds(self, reads: object, desired: int) -> None:
        """One of several speaks for all, as the leader of a group does; none: something else counts their load."""
        pods, _ = same(10, None)
        names = frozenset(one.name for one in pods) if reads == "all" else frozenset(reads)  # type: ignore[call-overload]
        samples = Samples(
            queries={"queue": QuerySamples(total=Point(NOW - 10, nano("100")), targets=dict.fromkeys(names, 1))}
        )
        assert assess_and_decide(policy(queue("100", "50")), pods, samples)[1].desired == desired

    @pytest.mark.parametrize(("load", "minimum", "desired"), [("0", 0, 0), ("0", 1, 1), ("1", 0, 1)])
    def test_a_believed_zero_needs_no_pod_where_the_hpa_allows_that(
        self, load: str, minimum: int, desired: int
    ) -> None:
        bounds = Bounds(minimum=minimum, maximum=1000)
        assert assess_and_decide(policy(queue("85", "40")), same(3, None)[0], total(load), bounds=bounds)[
            1
        ].desired == (desired)


class TestAbsolute:
    RULE = policy(cpu("1200m", "400m"), algorithm=Algorithm.ABSOLUTE)

    @pytest.mark.parametrize(
        ("count", "load", "desired"), [(4, "375m", 5), (4, "300m", 4), (4, "90m", 3), (4, "99m", 4)]
    )
    def test_the_watermark_is_for_the_whole_service(self, count: int, load: str, desired: int) -> None:
        assert decided(count, load, rule=self.RULE).desired == desired

    def test_pods_that_left_since_the_samples_began_are_a_factor_of_the_need(self) -> None:
        memory = Memory(departed={"gone": Departed(NOW - 5, {"cpu": 0})}, last_replicas=4)
        assert decided(4, "50m", rule=self.RULE, memory=memory).desired == 3  # ⌊5 · 250/400⌋
        assert decided(4, "50m", rule=self.RULE).desired == 2


class TestFromZero:
    @pytest.mark.parametrize(("load", "expected"), [("0", 0), ("1n", 1), ("9000", 1)])
    @pytest.mark.parametrize(
        "left",
        [[], [pod(deleting=True)], [pod(age=5, ready=False, ready_for=5)]],
        ids=["no pod", "one on its way out", "one that starts already"],
    )
    def test_any_load_of_the_service_asks_for_one_pod(self, load: str, expected: int, left: list[Pod]) -> None:
        rule = policy(queue("85", "40"))
        assessment, decision = assess_and_decide(rule, left, total(load), current=0, bounds=FREE)
        assert (decision.desired, decision.error, decision.served) == (expected, None, 1000 * expected)
        assert assessment.memory.error_since is None
        assert left or not assessment.conditions, "having no pod is no trouble then"


class TestConverging:
    @pytest.mark.parametrize(
        ("towards", "n", "load", "current", "desired"),
        [
            pytest.param(Converge.HIGH, 10, "1080m", 10, 9, id="one fewer: 1200m exactly"),
            pytest.param(Converge.HIGH, 10, "1081m", 10, 10, id="one fewer would pass high"),
            pytest.param(Converge.LOW, 10, "440m", 10, 11, id="one more: 400m exactly"),
            pytest.param(Converge.LOW, 10, "439m", 10, 10, id="one more would pass low"),
            pytest.param(Converge.LOW, 8, "1200m", 12, 13, id="fewer pods exist than are asked for"),
            pytest.param(Converge.LOW, 8, "1200m", 8, 9, id="one more at the upper edge"),
            pytest.param(Converge.HIGH, 10, "500m", 8, 7, id="more pods exist than are asked for"),
        ],
    )
    def test_one_step_toward_the_watermark_and_not_past_it(
        self, towards: Converge, n: int, load: str, current: int, desired: int
    ) -> None:
        pods, loads = same(n, load)
        rule = policy(cpu("1200m", "400m"), converge_towards=towards)
        assert assess_and_decide(rule, pods, usage(loads), current=current, bounds=FREE)[1].desired == desired

    @pytest.mark.parametrize(("towards", "load", "count"), [(Converge.HIGH, "500m", 8), (Converge.LOW, "1100m", 12)])
    def test_one_assessment_takes_one_step_however_often_it_is_asked(
        self, towards: Converge, load: str, count: int
    ) -> None:
        pods, loads = same(10, load)
        rule = policy(cpu("1200m", "400m"), converge_towards=towards, replica_multiple=2)
        assessment, decision = assess_and_decide(rule, pods, usage(loads))
        assert (decision.desired, decide(assessment, scale(count), BOUNDS, NOW + 15).desired) == (count, count)

    @pytest.mark.parametrize("multiple", [1, 2])
    def test_samples_take_one_step_up_until_they_are_newer_than_the_count(self, multiple: int) -> None:
        pods, loads = same(6, "800m")
        rule = policy(cpu("1200m", "400m"), converge_towards=Converge.LOW, replica_multiple=multiple)
        first, decision = assess_and_decide(rule, pods, usage(loads))
        grown = 6 + multiple
        assert decision.desired == grown
        more = [*pods, *(pod(f"new-{index}") for index in range(multiple))]
        again, decision = assess_and_decide(rule, more, usage(loads), memory=first.memory, now=NOW + 2)
        assert decision.desired == grown
        fresh = usage(dict.fromkeys((one.name for one in more), "600m"), at=NOW + 40)
        assert assess_and_decide(rule, more, fresh, memory=again.memory, now=NOW + 41)[1].desired == grown + multiple
