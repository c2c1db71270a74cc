"""Departed pods: their load counts until samples show their absence, so that no sample shrinks a service twice."""

from dataclasses import replace
from fractions import Fraction
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter.load.assessment import Assessment, Decision, HeldBy
from adapter.load.explanation import explain
from adapter.load.memory import Departed, LastSample, Memory
from adapter.load.pods import Pod
from adapter.load.remembering import DepartedLoad
from adapter.load.samples import PodUsage, Point, QuerySamples, ResourceSamples, Samples
from adapter.load.spec import Average, Capacity, Converge, Metric, Policy, Query, ResourceMetric
from tests.load.kit import BOUNDS, NOW, assess_and_decide, cpu, nano, out, pod, policy, queue, same, total, usage

BAND = policy(cpu("1200m", "400m"))


def walk(rule: Policy, pods: list[Pod], samples: Samples, steps: int, take: int) -> list[int | None]:
    """The desired counts while up to `take` pods leave at each assessment, without a newer sample."""
    asked: list[int | None] = []
    memory = Memory()
    for step in range(steps):
        assessment, decision = assess_and_decide(rule, pods, samples, memory=memory, now=NOW + step)
        memory = assessment.memory
        asked.append(decision.desired)
        assert decision.desired is not None
        pods = pods[: max(decision.desired, len(pods) - take)]
    return asked


@given(
    loads=st.lists(st.integers(0, 2000), min_size=2, max_size=30),
    take=st.integers(1, 30),
    average=st.sampled_from(list(Average)),
    of=st.sampled_from([None, Capacity.LIMIT]),
)
def test_the_goal_never_falls_while_the_samples_stay_the_same(
    loads: list[int], take: int, average: Average, of: Capacity | None
) -> None:
    if average is Average.TOTAL:
        of = None
    low, high = (Fraction(4, 10), Fraction(12, 10)) if of is None else (Fraction(2, 10), Fraction(6, 10))
    metric = Metric(name="cpu", resource=ResourceMetric(name="cpu", of=of), high=high * 10**9, low=low * 10**9)
    pods = [pod(f"web-{index}", limits={"cpu": "2"}) for index in range(len(loads))]
    samples = usage({f"web-{index}": f"{load}m" for index, load in enumerate(loads)})
    asked = walk(policy(metric, average=average), pods, samples, 6, take)
    first = asked[0]
    assert first is not None
    # A pod that goes may have used more, or less, than the average of those that stay.
    assert all(count is not None and count >= first for count in asked)


@pytest.mark.parametrize("take", [1, 2, 5])
@pytest.mark.parametrize(
    ("rule", "total_of_service"),
    [
        pytest.param(policy(cpu("12", "4"), average=Average.TOTAL), None, id="a total of pods"),
        pytest.param(policy(queue("12", "4"), average=Average.TOTAL), "3", id="a service total"),
        pytest.param(policy(queue("1200m", "400m")), "6", id="a share of a service total"),
    ],
)
def test_a_total_has_the_same_goal_however_fast_pods_leave(
    rule: Policy, total_of_service: str | None, take: int
) -> None:
    pods, loads = same(20, "150m")
    samples = total(total_of_service) if total_of_service else usage(loads)
    assert set(walk(rule, pods, samples, 6, take)) == {15}


@pytest.mark.parametrize("average", list(Average))
def test_steps_inside_the_band_stop_at_the_watermark_without_a_new_sample(average: Average) -> None:
    high = "1200m" if average is Average.PER_POD else "12"
    rule = policy(cpu(high, None), average=average, converge_towards=Converge.HIGH)
    pods, loads = same(20, "600m" if average is Average.PER_POD else "300m")
    asked = walk(rule, pods, usage(loads), 20, 1)
    assert asked[-1] == 10
    assert all(before is not None and after is not None and before >= after for before, after in pairwise(asked))


def after_leaving(
    rule: Policy, before: list[Pod], samples: Samples, then: list[Pod], later: Samples, after: float = 5.0
) -> tuple[Assessment, Decision]:
    first, _ = assess_and_decide(rule, before, samples)
    return assess_and_decide(rule, then, later, memory=first.memory, now=NOW + after)


class TestDepartures:
    def test_its_last_usage_is_forgotten_after_5_min_however_often_it_was_assessed(self) -> None:
        pods, loads = same(2, "300m")
        first, _ = assess_and_decide(BAND, pods, usage(loads))
        gone, _ = assess_and_decide(BAND, pods[:1], usage(loads, at=NOW + 300), memory=first.memory, now=NOW + 310)
        assert gone.memory.departed["uid-web-1"].last_sample == {}

    def test_one_that_turned_unready_before_it_went_had_served(self) -> None:
        pods, loads = same(20, "300m")
        first, _ = assess_and_decide(BAND, pods, usage(loads))
        ill = [*pods[:19], pod("web-19", ready=False, ready_for=1, now=NOW + 2)]
        then, _ = assess_and_decide(BAND, ill, usage(loads), memory=first.memory, now=NOW + 2)
        gone, _ = assess_and_decide(BAND, pods[:19], usage(loads), memory=then.memory, now=NOW + 4)
        assert gone.memory.departed["uid-web-19"] == Departed(NOW + 4, {"cpu": LastSample(NOW - 10, nano("300m"))})

    @pytest.mark.parametrize("other", [pod("o", ready=False, age=20, ready_for=20), out("o")], ids=["young", "out"])
    def test_a_pod_that_never_served_carried_nothing(self, other: Pod) -> None:
        serving, loads = same(9, "300m")
        gone, _ = after_leaving(BAND, [*serving, other], usage(loads), serving, usage(loads))
        assert gone.memory.departed == {}

    def test_a_pod_that_is_pulled_out_leaves_its_load_to_the_others_and_takes_it_back(self) -> None:
        pods, loads = same(20, "300m")
        pulled = [*pods[:15], *(out(one.name) for one in pods[15:])]
        first, decision = after_leaving(BAND, pods, usage(loads), pulled, usage(loads))
        assert (decision.desired, decision.held_by) == (20, HeldBy.DEPARTED)  # by these samples alone 11 and the 5 out
        gone, decision = assess_and_decide(BAND, pods[:15], usage(loads), memory=first.memory, now=NOW + 8)
        assert (decision.desired, len(gone.memory.departed)) == (15, 5)
        assert {one.at for one in gone.memory.departed.values()} == {NOW + 5}
        back, decision = assess_and_decide(BAND, pods, usage(loads), memory=first.memory, now=NOW + 8)
        assert (decision.desired, decision.held_by, back.memory.departed) == (20, HeldBy.MISSING, {})
        later = usage(loads, at=NOW + 8 + 15)
        _, decision = assess_and_decide(BAND, pods, later, memory=back.memory, now=NOW + 24)
        assert decision.desired == 15


class TestForgetting:
    def test_for_fifteen_minutes_at_most(self) -> None:
        pods, loads = same(20, "300m")
        left, _ = after_leaving(BAND, pods, usage(loads), pods[:15], usage(loads))
        for after, kept in ((900, 5), (901, 0)):
            then, _ = assess_and_decide(BAND, pods[:15], usage({}), memory=left.memory, now=NOW + 5 + after)
            assert len(then.memory.departed) == kept

    def test_a_time_in_the_future_ends_like_any_other(self) -> None:
        memory = Memory(departed={"u": Departed(NOW + 10**6, {})})
        then, _ = assess_and_decide(BAND, [pod()], usage({}), memory=memory)
        assert then.memory.departed["u"].at == NOW
        last, _ = assess_and_decide(BAND, [pod()], usage({}), memory=then.memory, now=NOW + 901)
        assert last.memory.departed == {}

    def test_each_metric_by_the_window_of_its_own_samples(self) -> None:
        rps = Metric(name="rps", query=Query(name="r"), high=Fraction(120 * 10**9), low=Fraction(40 * 10**9))
        pods, loads = same(20, "300m")
        points = {one.name: Point(NOW + 55, nano("30")) for one in pods}

        def samples(window: float, at: float) -> Samples:
            query = QuerySamples(pods=points, window=window, fetched_at=NOW + 55)
            return Samples(replace(usage(loads, at=at).resources, fetched_at=at), {"rps": query})

        left, _ = after_leaving(policy(cpu("1200m", "400m"), rps), pods, usage(loads), pods[:15], usage(loads))
        held, decision = assess_and_decide(
            policy(rps), pods[:15], samples(60, NOW + 55), memory=left.memory, now=NOW + 60
        )
        assert (decision.held_by, decision.desired) == (HeldBy.DEPARTED, 15)
        assert held.metrics[0].window == 60
        _, decision = assess_and_decide(policy(rps), pods[:15], samples(44, NOW + 55), memory=left.memory, now=NOW + 60)
        assert decision.desired == 11

    def test_until_every_sample_that_counts_began_later(self) -> None:
        pods, loads = same(20, "300m")
        stay = pods[:15]
        left, _ = after_leaving(BAND, pods, usage(loads), stay, usage(loads))
        fresh = {name: load for name, load in loads.items() if name != "web-0"}

        def later(oldest: float) -> tuple[Assessment, Decision]:
            samples = usage(fresh, at=NOW + 60).resources
            old = PodUsage(oldest, 15.0, {"app": {"cpu": nano("300m")}})
            return assess_and_decide(
                BAND, stay, Samples(replace(samples, pods={**samples.pods, "web-0": old})), memory=left.memory,
                now=NOW + 70,
            )  # fmt: skip

        known, decision = later(NOW + 25)  # the window of 15 s began 5 s after they were seen to be gone
        assert (decision.held_by, len(known.memory.departed)) == (HeldBy.DEPARTED, 5)
        known, decision = later(NOW + 25.5)
        assert (decision.desired, len(known.memory.departed)) == (11, 5)


class TestLoad:
    @given(st.lists(st.integers(0, 100)), st.fractions(0, 100))
    def test_it_is_the_larger_of_last_sample_and_average_of_each(self, lasts: list[int], average: Fraction) -> None:
        assert DepartedLoad(lasts).over(average) == sum(max(Fraction(last), average) for last in lasts)

    def test_it_says_so(self) -> None:
        pods, loads = same(20, "300m")
        assessment, decision = after_leaving(BAND, pods, usage(loads), pods[:15], usage(loads))
        said = "5 pods left or went out since these samples began, whose load the others have now"
        assert f"cpu proposes 15 ({said})" in explain(assessment, decision, BOUNDS, NOW + 5)


def test_a_sample_dated_after_its_answer_knows_nothing_that_came_after_it_was_first_seen() -> None:
    """A clock that is a few seconds ahead; a slow source repeats the sample at each answer."""
    pods, loads = same(20, "300m")
    ahead = {name: PodUsage(NOW + 8, 0.0, {"app": {"cpu": nano("300m")}}) for name in loads}
    first, _ = assess_and_decide(BAND, pods, Samples(ResourceSamples(pods=ahead, fetched_at=NOW)))
    for later in (3, 9, 30):
        again = Samples(ResourceSamples(pods=ahead, fetched_at=NOW + later))
        first, decision = assess_and_decide(BAND, pods[:15], again, memory=first.memory, now=NOW + later)
        assert (decision.desired, decision.held_by) == (15, HeldBy.DEPARTED)


@pytest.mark.parametrize("behind", [0, 2, 4])
def test_a_clock_that_is_behind_that_of_the_samples_makes_none_newer_than_a_departure(behind: int) -> None:
    """The samples were taken 1 s before five pods left, and were first read later than the clocks differ."""
    pods, loads = same(20, "300m")
    query = policy(replace(cpu("1200m", "400m"), resource=None, query=Query(name="r")))

    def samples(at: float) -> Samples:
        points = {name: Point(at, nano("300m")) for name in loads}
        return Samples(queries={"cpu": QuerySamples(pods=points, window=0.0, fetched_at=at + 8 - behind)})

    first, _ = assess_and_decide(query, pods, samples(NOW - 10), now=NOW - behind)
    left, _ = assess_and_decide(query, pods[:15], samples(NOW - 10), memory=first.memory, now=NOW + 5 - behind)
    _, decision = assess_and_decide(query, pods[:15], samples(NOW + 4), memory=left.memory, now=NOW + 12 - behind)
    assert (decision.desired, decision.held_by) == (15, HeldBy.DEPARTED)
