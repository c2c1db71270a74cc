"""Inputs that could mislead: sources with alternating replicas, changes long ago, clocks that were put back."""

from dataclasses import replace

import pytest

from adapter.load.assessment import HeldBy
from adapter.load.memory import LastSample, Memory, PodMemory
from adapter.load.pods import Pod, PodState
from adapter.load.samples import Point, QuerySamples, Samples
from adapter.load.spec import Fallback, Query
from tests.load.kit import (
    BOUNDS,
    NOW,
    REGISTRY,
    TARGET,
    assess_and_decide,
    cpu,
    last_samples,
    nano,
    out,
    pod,
    policy,
    roster,
    same,
    usage,
)

BAND = policy(cpu("1200m", "400m"))
HOUR = 3600.0
FAST = policy(cpu("1200m", "400m"), fast_scale_up=True)


@pytest.mark.parametrize("ahead", [0, 8])
def test_a_clock_that_is_ahead_makes_no_sample_newer_than_a_rise_that_came_after_it(ahead: int) -> None:
    pods, loads = same(10, "200m")
    dated = usage(loads, at=NOW + ahead).resources
    samples = Samples(replace(dated, fetched_at=NOW))
    first, _ = assess_and_decide(FAST, pods, samples)
    memory = replace(first.memory, last_rise=NOW + 3)
    bounds = replace(BOUNDS, last_scale=NOW + 3)
    _, decision = assess_and_decide(FAST, pods, samples, memory=memory, bounds=bounds, now=NOW + 5)
    assert (decision.desired, decision.held_by) == (10, HeldBy.FAST_SCALE_UP)


def rps(window: float, load: str, pods: list[Pod], at: float) -> Samples:
    points = {one.name: Point(at, nano(load)) for one in pods}
    return Samples(queries={"cpu": QuerySamples(pods=points, window=window, fetched_at=at)})


@pytest.mark.parametrize(("ago", "held_by"), [(3611, None), (3609, HeldBy.DEPARTED), (1, HeldBy.DEPARTED)])
def test_a_take_over_holds_as_long_as_the_windows_reach_back_to_it(ago: float, held_by: HeldBy | None) -> None:
    """A pod may have left between the last status that the process before wrote and the take-over."""
    rule = policy(replace(cpu("1200m", "400m"), resource=None, query=Query(name="r")))
    pods = [pod(f"web-{index}", age=9000) for index in range(20)]
    memory = Memory(observing_since=NOW - ago)
    _, decision = assess_and_decide(rule, pods, rps(HOUR, "300m", pods, NOW - 5), memory=memory)
    assert decision.held_by is held_by


@pytest.mark.parametrize("window", [600.0, 1800.0, HOUR])
def test_constant_load_falls_no_further_while_the_window_still_knows_departed_pods(window: float) -> None:
    """15 pods carry 6000m at 400m each; over a window their values come to that little by little."""
    rule = policy(replace(cpu("1200m", "400m"), resource=None, query=Query(name="r")))
    pods = [pod(f"web-{index}", age=9000) for index in range(20)]
    first, decision = assess_and_decide(rule, pods, rps(window, "300m", pods, NOW - 5))
    assert decision.desired == 15
    memory, stay = first.memory, pods[:15]
    for later in range(10, int(window) + 60, 60):
        share = min(1.0, later / window)
        samples = rps(window, f"{int(300 + 100 * share)}m", stay, NOW + later - 5)
        found, decision = assess_and_decide(rule, stay, samples, memory=memory, now=NOW + later)
        memory = found.memory
        assert decision.desired == 15, later


class TestAClockThatWasPutBack:
    def test_a_take_over_in_the_future_holds_only_until_new_samples(self) -> None:
        memory = Memory(observing_since=NOW + HOUR, last_scale=NOW + HOUR, last_replicas=20)
        pods, loads = same(20, "300m")
        first, _ = assess_and_decide(BAND, pods, usage(loads), memory=memory)
        _, decision = assess_and_decide(BAND, pods, usage(loads, at=NOW + 40), memory=first.memory, now=NOW + 45)
        assert decision.desired == 15

    def test_a_zero_is_doubted_for_at_most_5_min(self) -> None:
        pods, loads = same(10, "300m")
        used = {"cpu": LastSample(NOW + HOUR, nano("1"))}
        known = {one.uid: PodMemory(served=True) for one in pods}
        last = last_samples(dict.fromkeys(known, used))
        zeros = {**dict.fromkeys(loads, "0"), "web-0": "300m"}
        first, decision = assess_and_decide(BAND, pods, usage(zeros), memory=Memory(pods=known, samples=last))
        assert decision.desired == 10
        _, decision = assess_and_decide(BAND, pods, usage(zeros, at=NOW + 300), memory=first.memory, now=NOW + 301)
        assert decision.desired == 1

    def test_a_pod_that_is_out_is_replaced_in_time(self) -> None:
        pods, loads = same(5, "1500m")
        rule = replace(BAND, pulled_out=replace(BAND.pulled_out, replace_after=60.0))
        away = [*pods, out("o")]
        memory = Memory(pods={"uid-o": PodMemory(served=True, out_since=NOW + HOUR)})
        first, _ = assess_and_decide(rule, away, usage(loads), memory=memory)
        _, decision = assess_and_decide(rule, away, usage(loads, at=NOW + 60), memory=first.memory, now=NOW + 61)
        assert decision.desired == 8

    def test_a_fallback_comes_in_time(self) -> None:
        rule = replace(BAND, fallback=Fallback(after=60.0, replicas=7))
        pods, _ = same(3, None)
        first, _ = assess_and_decide(rule, pods, Samples(), memory=Memory(error_since=NOW + HOUR, last_replicas=3))
        _, decision = assess_and_decide(rule, pods, Samples(), memory=first.memory, now=NOW + 61)
        assert decision.desired == 7

    def test_a_rollout_keeps_from_replacing_for_ten_minutes_only(self) -> None:
        pods, loads = same(5, "1500m")
        away = [*pods, out("o")]
        target = replace(TARGET, progressing="ReplicaSetUpdated")
        memory = Memory(rollout_since=NOW + HOUR, last_replicas=6)
        first, _ = assess_and_decide(BAND, away, usage(loads), memory=memory, target=target)
        _, decision = assess_and_decide(
            BAND, away, usage(loads, at=NOW + 600), memory=first.memory, target=target, now=NOW + 601
        )
        assert decision.desired == 8

    def test_answers_of_a_registry_are_counted_from_the_present(self) -> None:
        rule = replace(BAND, registry=REGISTRY)
        pods = [pod(f"web-{index}", ip=f"10.0.0.{index}") for index in range(5)]
        loads = {one.name: "600m" for one in pods}
        memory = Memory(
            pods={one.uid: PodMemory(served=True, seen=NOW - 99, absent_since=NOW + HOUR) for one in pods[:1]},
            ever_in_roster=True, roster_at=NOW + HOUR, rosters=9, rosters_since=NOW + HOUR,
        )  # fmt: skip
        for later in range(0, 61, 15):
            listed = roster(*(one.ips[0] for one in pods[1:]), at=NOW + later)
            now = NOW + later + 1
            seen, _ = assess_and_decide(rule, pods, usage(loads, at=now - 5), listed=listed, memory=memory, now=now)
            memory = seen.memory
        assert seen.pods[0].state is PodState.PULLED_OUT
