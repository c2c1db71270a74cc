"""Samples over a window that holds fewer samples than usual: bounds instead of values on the way down."""

from dataclasses import replace

import pytest

from adapter.load.assessment import Assessment, Decision, HeldBy
from adapter.load.explanation import explain
from adapter.load.memory import Memory, PodMemory
from adapter.load.pods import Pod
from adapter.load.samples import Point, QuerySamples, Samples
from adapter.load.spec import Policy, Query
from tests.load.kit import BOUNDS, NOW, assess_and_decide, cpu, nano, pod, policy, queue, same

RPS = replace(cpu("1200m", "400m"), name="rps", resource=None, query=Query(name="rps"))
QUEUE = queue("100", "50")
WINDOW = 60.0


def over_a_window(value: str, held: int | None, full: int | None, pods: int = 10, at: float = NOW - 5) -> Samples:
    points = {f"web-{index}": Point(at, nano(value), held, full) for index in range(pods)}
    return Samples(queries={"rps": QuerySamples(pods=points, window=WINDOW, fetched_at=at)})


def a_total(value: str, held: int | None = None, full: int | None = None, window: float = WINDOW) -> Samples:
    point = Point(NOW - 5, nano(value), held, full)
    return Samples(queries={"queue": QuerySamples(total=point, window=window, by_pod=False, fetched_at=NOW - 5)})


def found(
    rule: Policy, samples: Samples, pods: list[Pod] | None = None, memory: Memory | None = None
) -> tuple[Assessment, Decision]:
    return assess_and_decide(rule, pods or same(10, None)[0], samples, memory=memory)


@pytest.mark.parametrize(
    ("held", "full", "bound"),
    [
        *((held, full, 100) for held, full in ((None, None), (None, 8), (8, 8), (9, 8), (1, 1))),
        *((held, full, bound) for held, full, bound in ((7, 8, 134), (5, 8, 200), (3, 4, 200), (2, 2, 100))),
        *((held, full, None) for held, full in ((5, None), (0, 8), (0, None))),
    ],
)
def test_a_partial_window_bounds_the_load_rounded_up_and_one_of_unknown_fullness_does_not(
    held: int | None, full: int | None, bound: int | None
) -> None:
    point = Point(NOW, 100, held, full)
    assert (point.bound, point.is_hollow) == (bound, False)
    assert point.is_partial or bound is not None


@pytest.mark.parametrize(("held", "full"), [(4, 8), (1, 8), (1, 2), (2, 5)])
def test_a_window_with_less_than_half_of_its_distances_says_nothing(held: int, full: int) -> None:
    assert Point(NOW, 100, held, full).is_hollow


class TestPods:
    @pytest.mark.parametrize(
        ("rule", "full", "desired", "held_by"),
        [
            pytest.param(policy(RPS), 8, 5, None, id="a bound"),
            pytest.param(policy(RPS), None, 10, HeldBy.MISSING, id="of unknown fullness"),
            pytest.param(
                policy(replace(RPS, high=None)),
                None,
                10,
                HeldBy.MISSING,
                id="of unknown fullness, nothing to fill with",
            ),
        ],
    )
    def test_a_partial_window_shrinks_by_its_bound_and_one_of_unknown_fullness_holds(
        self, rule: Policy, full: int | None, desired: int, held_by: HeldBy | None
    ) -> None:
        _, decision = found(rule, over_a_window("100m", 5, full))
        assert (decision.desired, decision.held_by) == (desired, held_by)

    def test_what_is_remembered_is_the_bound(self) -> None:
        assessment, _ = found(policy(RPS), over_a_window("100m", 5, 8))
        assert assessment.memory.samples_of("rps").last["uid-web-0"].value == nano("200m")
        assessment, _ = found(policy(RPS), over_a_window("100m", 5, None))
        assert not assessment.memory.samples_of("rps").last

    def test_it_says_so(self) -> None:
        assessment, decision = found(policy(RPS), over_a_window("300m", 5, 8))
        text = "10 pods with partial samples: the emptiest window holds 5 of 8 samples"
        assert text in "\n".join(explain(assessment, decision, BOUNDS, NOW))
        assessment, _ = found(policy(RPS), over_a_window("300m", 4, 8))
        assert next(assessment.with_usage(assessment.pods)).missing == {"rps": "its window holds 4 of 8 samples"}

    def test_a_gap_that_is_counted_is_no_condition_and_one_that_nobody_can_count_is(self) -> None:
        assert not found(policy(RPS), over_a_window("300m", 5, 8))[0].conditions
        text = "metric rps: 10 pods with partial samples: the emptiest window may lack samples"
        assert [*found(policy(RPS), over_a_window("300m", 0, None))[0].conditions.values()] == [text]
        points = {**over_a_window("300m", 5, 8).queries["rps"].pods, "web-3": Point(NOW - 5, nano("300m"), 0)}
        some = Samples(queries={"rps": QuerySamples(pods=points, window=WINDOW, fetched_at=NOW - 5)})
        text = "metric rps: 1 pod with a partial sample: its window may lack samples"
        assert [*found(policy(RPS), some)[0].conditions.values()] == [text]


class TestTotals:
    def test_it_knows_nothing_of_a_pod_that_is_back_from_being_pulled_out(self) -> None:
        memory = Memory(pods={"uid-web-3": PodMemory(back_since=NOW - 64)})
        assert found(policy(QUEUE), a_total("200"), memory=memory)[1].held_by is HeldBy.MISSING

    def test_a_floor_keeps_up_what_the_bound_may_need(self) -> None:
        rule = policy(RPS, replace(QUEUE, low=None, floor=True))
        both = Samples(queries=over_a_window("100m", None, None).queries | a_total("300", 5, 8).queries)
        assert found(rule, both)[1].desired == 6  # ⌈600/100⌉

    def test_a_gap_that_is_counted_is_no_condition_and_what_it_does_not_know_is(self) -> None:
        assert not found(policy(QUEUE), a_total("200", 5, 8))[0].conditions
        conditions = found(policy(QUEUE), a_total("200", 0, None))[0].conditions
        assert [*conditions.values()] == ["metric queue: its window may lack samples"]
        new = [*same(9, None)[0], pod("web-9", ready_for=30)]
        assessment, decision = found(policy(QUEUE), a_total("200"), new)
        assert not assessment.conditions, "a new pod is none either"
        text = "(its window began before web-9 came into service)"
        assert text in "\n".join(explain(assessment, decision, BOUNDS, NOW))

    @pytest.mark.parametrize(
        ("pods", "read", "held_by"),
        [
            (10, 10, None),
            (10, 9, HeldBy.MISSING),
            (10, 2, HeldBy.MISSING),
            (10, 1, None),
            (10, 0, None),
            (2, 1, HeldBy.MISSING),
        ],
    )
    @pytest.mark.parametrize("window", [0.0, WINDOW])
    def test_it_shrinks_nothing_while_it_reads_several_of_the_pods_but_not_all(
        self, pods: int, read: int, held_by: HeldBy | None, window: float
    ) -> None:
        """One of several speaks for all, as a leader does; where none is read, something else counts their load."""
        samples = a_total("40", window=window)
        reads = frozenset(f"web-{index}" for index in range(read))
        samples = Samples(queries={"queue": replace(samples.queries["queue"], reads=reads)})
        assessment, decision = found(policy(QUEUE), samples, same(pods, None)[0])
        assert decision.held_by is held_by
        assert (decision.desired == pods) is (held_by is not None)
        told = "holds no sample of web-" in "\n".join(explain(assessment, decision, BOUNDS, NOW))
        assert told is (held_by is not None)


class TestMissedScrapes:
    """A condition that changed with each of them would be a write with each of them."""

    def conditions(self, rule: Policy, first: Samples, then: Samples, seconds: float) -> list[str]:
        """What is told while the first samples are followed by these for so long."""
        memory, told = assess_and_decide(rule, same(10, None)[0], first)[0].memory, set[str]()
        for later in range(15, round(seconds) + 1, 15):
            queries = {
                name: replace(
                    one,
                    pods={pod: replace(point, at=point.at + later) for pod, point in one.pods.items()},
                    total=one.total and replace(one.total, at=one.total.at + later),
                    fetched_at=NOW - 5 + later,
                )
                for name, one in then.queries.items()
            }
            assessment, _ = assess_and_decide(
                rule, same(10, None)[0], Samples(queries=queries), memory=memory, now=NOW + later
            )
            memory = assessment.memory
            told |= {*assessment.conditions.values()}
        return sorted(told)

    def test_a_pod_without_a_sample_is_told_of_once_its_last_one_is_really_late(self) -> None:
        whole, gap = over_a_window("600m", None, None), over_a_window("600m", None, None, pods=9)
        assert self.conditions(policy(RPS), whole, gap, 90 + WINDOW - 15) == []
        text = "metric rps: 1 pod without a fresh sample"
        assert self.conditions(policy(RPS), whole, gap, 90 + WINDOW) == [text]

    def test_so_is_a_window_of_few_samples(self) -> None:
        points = over_a_window("600m", 3, 3).queries["rps"].pods
        hollow = {**points, "web-3": Point(NOW - 5, nano("600m"), 2, 3)}
        gap = Samples(queries={"rps": QuerySamples(pods=hollow, window=WINDOW, fetched_at=NOW - 5)})
        whole = over_a_window("600m", 3, 3)
        assert self.conditions(policy(RPS), whole, gap, 90 + WINDOW - 15) == []
        assert len(self.conditions(policy(RPS), whole, gap, 90 + WINDOW)) == 1

    @pytest.mark.parametrize("window", [0.0, WINDOW])
    def test_so_is_one_target_of_several_in_a_total(self, window: float) -> None:
        def of(read: int) -> Samples:
            one = a_total("600", window=window).queries["queue"]
            return Samples(queries={"queue": replace(one, reads=frozenset(f"web-{at}" for at in range(read)))})

        assert self.conditions(policy(QUEUE), of(10), of(9), 90 + window) == []
        text = f"metric queue: {'its window' if window else 'it'} holds no sample of web-9"
        assert self.conditions(policy(QUEUE), of(10), of(9), 105 + window) == [text]

    def test_and_a_total_whose_window_lacks_a_half(self) -> None:
        whole, gap = a_total("600", 3, 3), a_total("600", 2, None)
        assert self.conditions(policy(QUEUE), whole, gap, 90 + WINDOW) == []
        assert len(self.conditions(policy(QUEUE), whole, gap, 105 + WINDOW)) == 1

    def test_windows_that_nobody_counts_are_told_of_at_once(self) -> None:
        assert len(self.conditions(policy(RPS), over_a_window("600m", 3, 3), over_a_window("600m", 0, None), 15)) == 1
        assert len(self.conditions(policy(QUEUE), a_total("600", 3, 3), a_total("600", 0, None), 15)) == 1
