"""The whole decision path: from the pods' states to one count, what held it, and what is remembered."""

from dataclasses import replace

import pytest

from adapter.load.assessment import HeldBy, Verdict
from adapter.load.decide import decide
from adapter.load.memory import Memory
from adapter.load.pods import Pod
from adapter.load.samples import Point, QuerySamples, ResourceSamples, Samples
from adapter.load.spec import Bounds, Fallback, Mode, Seconds
from tests.load.kit import (
    BOUNDS,
    NOW,
    assess_and_decide,
    cpu,
    nano,
    out,
    pod,
    policy,
    queue,
    same,
    scale,
    total,
    usage,
)

BAND = policy(cpu("1200m", "400m"))


class TestBoundsAndModes:
    @pytest.mark.parametrize("mode", [Mode.OBSERVE, Mode.PAUSED])
    def test_a_resting_policy_holds_and_still_publishes_its_outcome(self, mode: Mode) -> None:
        pods, loads = same(4, "1500m")
        bounds = Bounds(minimum=6, maximum=9)
        _, decision = assess_and_decide(replace(BAND, mode=mode), pods, usage(loads), bounds=bounds)
        assert (decision.desired, decision.held_by, decision.verdict) == (4, HeldBy.MODE, Verdict.ABOVE)
        assert decision.outcome is not None
        assert decision.outcome.proposal == 5

    def test_each_request_decides_on_the_count_of_its_moment(self) -> None:
        pods, loads = same(4, "1500m")
        assessment, _ = assess_and_decide(BAND, pods, usage(loads))
        assert [decide(assessment, scale(n), BOUNDS, NOW).desired for n in (1, 4, 5, 6, 9)] == [5, 5, 5, 6, 9]
        assert [decide(assessment, scale(n), BOUNDS, NOW).current for n in (1, 9)] == [1, 9]


class TestConditions:
    def conditions(self, rule: object, pods: list[Pod], samples: Samples, **changes: object) -> dict[str, str]:
        return dict(assess_and_decide(rule, pods, samples, **changes)[0].conditions)  # type: ignore[arg-type]

    def test_missing_samples_and_errors_are_a_condition(self) -> None:
        pods, loads = same(3, "800m")
        gap = {"InputsFresh": "metric cpu: 1 pod without a fresh sample"}
        assert self.conditions(BAND, [*pods, pod("gap")], usage(loads)) == gap
        assert "503" in self.conditions(BAND, pods, Samples(ResourceSamples(error="503")))["InputsFresh"]

    @pytest.mark.parametrize(("limit", "is_fault"), [("1212m", True), ("1213m", False)])
    def test_a_watermark_that_no_pod_can_pass_within_its_limit_is_a_condition(
        self, limit: str, *, is_fault: bool
    ) -> None:
        pods, loads = same(3, "800m")
        limited = [
            replace(one, containers=tuple(replace(part, limits={"cpu": nano(limit)}) for part in one.containers))
            for one in pods
        ]
        assert ("WatermarkAtLimit" in self.conditions(BAND, limited, usage(loads))) is is_fault


def test_a_target_that_is_not_known_is_named_by_its_hpa() -> None:
    _, decision = assess_and_decide(BAND, [], usage({}), current=1, target=None)
    assert decision.error == "no pods of web exist"


def test_a_scaling_since_the_assessment_counts_for_the_cooldown() -> None:
    rule = replace(BAND, cooldown=Seconds(down=60))
    made, loads = same(5, "200m")
    assessment, before = assess_and_decide(rule, made, usage(loads))
    assert before.desired == 2
    seen = decide(assessment, scale(4), BOUNDS, NOW + 5)
    assert (seen.desired, seen.held_by) == (4, HeldBy.COOLDOWN)
    told = decide(assessment, scale(5), replace(BOUNDS, last_scale=NOW + 1), NOW + 5)
    assert (told.desired, told.held_by) == (5, HeldBy.COOLDOWN)


def test_a_fallback_wakes_no_service_that_was_put_to_sleep_since_the_assessment() -> None:
    rule, memory = replace(BAND, fallback=Fallback(after=60, replicas=8)), Memory(error_since=NOW - 600)
    assessment, decision = assess_and_decide(rule, same(5, None)[0], usage({}), memory=memory)
    assert (decision.desired, decide(assessment, scale(0), replace(BOUNDS, minimum=0), NOW).desired) == (8, None)


def test_metrics_that_a_policy_no_longer_has_leave_nothing_behind() -> None:
    pods, loads = same(3, "800m")
    first, _ = assess_and_decide(policy(cpu(), queue("85")), pods, usage(loads))
    assert set(first.memory.metrics) == {"cpu", "queue"}
    second, _ = assess_and_decide(policy(queue("85")), pods, total("3"), memory=first.memory, now=NOW + 1)
    assert set(second.memory.metrics) == {"queue"}


def test_pods_that_left_are_forgotten_once_no_window_reaches_back_to_them() -> None:
    pods, loads = same(3, "800m")
    memory = assess_and_decide(BAND, pods, usage(loads))[0].memory
    for later, known in ((10, {"uid-web-2"}), (310, {"uid-web-2"}), (320, set())):
        assessment, _ = assess_and_decide(BAND, pods[:2], usage(loads, at=NOW + later), memory=memory, now=NOW + later)
        memory = assessment.memory
        assert set(memory.departed) == known


def test_the_load_of_pods_that_left_counts_for_as_long_as_a_long_window_reaches_back() -> None:
    rule = policy(queue("1200m", "400m"))
    memory, (pods, _) = None, same(20, None)
    for later, desired in ((0, 15), (10, 15), (300, 15), (600, 15), (650, 11)):
        left, at = pods[: 15 if later else 20], NOW + later - 10
        points = {one.name: Point(at, nano("300m")) for one in left}
        samples = Samples(queries={"queue": QuerySamples(pods=points, by_pod=True, window=600.0, fetched_at=at)})
        found, decision = assess_and_decide(rule, left, samples, memory=memory, now=NOW + later)
        memory = found.memory
        assert decision.desired == desired


def test_a_pod_that_turned_out_counts_with_its_former_load_until_the_samples_of_others_can_show_that() -> None:
    memory, (pods, loads) = None, same(9, "300m")
    for later, desired in ((0, 19), (10, 10), (20, 10), (40, 10), (60, 7)):
        last, load = (out("web-9"), "20m") if later else (pod("web-9"), "20000m")
        samples = usage(loads | {"web-9": load}, at=NOW + later - 5)
        found, decision = assess_and_decide(BAND, [*pods, last], samples, memory=memory, now=NOW + later)
        memory = found.memory
        assert decision.desired == desired
