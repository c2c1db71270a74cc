"""Strategy Step: up at once by what the target needs and a few more, down by a few where those left can carry it."""

from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter.load.assessment import Decision, HeldBy, Verdict
from adapter.load.decide import decide
from adapter.load.explanation import explain
from adapter.load.memory import Departed, LastSample, Memory
from adapter.load.pods import Pod
from adapter.load.samples import Samples
from adapter.load.spec import (
    Bounds,
    Capacity,
    Cooldown,
    Metric,
    Policy,
    Query,
    ResourceMetric,
    Step,
    Strategy,
    ToleranceIn,
    Trigger,
)
from tests.load.kit import (
    BOUNDS,
    NOW,
    REGISTRY,
    assess_and_decide,
    cpu,
    nano,
    out,
    pod,
    policy,
    queue,
    roster,
    scale,
    total,
)
from tests.load.kit import usage as samples_of

SHARE = ResourceMetric(name="cpu", of=Capacity.LIMIT)
DEFAULT = Step()
FREE = Bounds(minimum=0, maximum=100)
AVERAGE = Step(trigger=Trigger.AVERAGE)
IN_RATIO = Step(tolerance_in=ToleranceIn.RATIO)


def metric(target: str = "60%") -> Metric:
    return cpu(None, resource=SHARE, target=Fraction(nano(target.replace("%", "e-2"))))


def rule(step: Step = DEFAULT, *metrics: Metric, **changes: object) -> Policy:
    return policy(*(metrics or (metric(),)), strategy=Strategy.STEP, step=step, **changes)


def pods(count: int) -> list[Pod]:
    return [pod(f"web-{i}", limits={"cpu": "100m"}) for i in range(count)]


def decided(
    loads: list[int | None], by: Policy | None = None, more: list[Pod] | None = None, **changes: object
) -> Decision:
    """The decision for pods with these loads in percent of their limit."""
    samples = samples_of({f"web-{i}": None if load is None else f"{load}m" for i, load in enumerate(loads)})
    there = [*pods(len(loads)), *(more or [])]
    return assess_and_decide(by or rule(), there, samples, **changes)[1]  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("loads", "by", "desired", "verdict", "held_by"),
    [
        pytest.param([75, 75, 75], DEFAULT, 3, Verdict.INSIDE, None, id="equality with the upper bound"),
        pytest.param([60, 60, 100], AVERAGE, 3, Verdict.INSIDE, None, id="by average, one pod beyond"),
        pytest.param([60, 70, 100], AVERAGE, 6, Verdict.ABOVE, None, id="by average, the average beyond"),
        pytest.param([100, 5, 5, 5], DEFAULT, 4, Verdict.ABOVE, None, id="up comes before down"),
        pytest.param([100, *[5] * 9], DEFAULT, 10, Verdict.ABOVE, None, id="up never asks for fewer"),
        pytest.param([90, 90, None], DEFAULT, 5, Verdict.ABOVE, None, id="a missing pod does not dilute a single pod"),
        pytest.param([80, None, None], AVERAGE, 3, Verdict.ABOVE, HeldBy.MISSING, id="it dilutes an average"),
        pytest.param([90, 90], Step(up=0), 3, Verdict.ABOVE, None, id="stepUp of nothing"),
        pytest.param([45] * 6, DEFAULT, 6, Verdict.INSIDE, None, id="equality with the lower bound"),
        pytest.param([44, 44, 62], DEFAULT, 2, Verdict.BELOW, None, id="150/2 is carried by those left"),
        pytest.param([44, 44, 63], DEFAULT, 3, Verdict.BELOW, None, id="151/2 is not"),
        pytest.param([30, 50, 50, 50], DEFAULT, 4, Verdict.BELOW, None, id="180/2 is not"),
        pytest.param([20, 30, 30, 30], DEFAULT, 2, Verdict.BELOW, None, id="110/2 is"),
        pytest.param([5, 5, 5], DEFAULT, 2, Verdict.BELOW, None, id="never below minPods"),
        pytest.param([5, 5], Step(min_pods=1), 1, Verdict.BELOW, None, id="and the policy says how many these are"),
        pytest.param([5, 5, 5, 5, None], DEFAULT, 5, Verdict.BELOW, HeldBy.MISSING, id="a gap holds"),
        pytest.param([5, 5, 5, 5, None], AVERAGE, 5, Verdict.BELOW, HeldBy.MISSING, id="a gap holds, by average"),
        pytest.param([0] * 6, DEFAULT, 6, Verdict.INSIDE, None, id="pods that all use nothing are not believed"),
        pytest.param([76, 60], DEFAULT, 5, Verdict.ABOVE, None, id="in points of a share"),
        pytest.param([69, 51], IN_RATIO, 2, Verdict.INSIDE, None, id="in percent of the target, at its bounds"),
        pytest.param([70, 60], IN_RATIO, 5, Verdict.ABOVE, None, id="in percent of the target, above"),
        pytest.param([60, 50], IN_RATIO, 2, Verdict.BELOW, None, id="in percent of the target, below"),
    ],
)
def test_it_steps_up_by_what_is_needed_and_down_while_those_left_carry_the_load(
    loads: list[int | None], by: Step, desired: int, verdict: Verdict, held_by: HeldBy | None
) -> None:
    found = decided(loads, rule(by))
    assert (found.desired, found.verdict, found.held_by) == (desired, verdict, held_by)


def test_pulled_out_pods_are_replaced_too() -> None:
    assert decided([90, 90], more=[out("out-0"), out("out-1")]).desired == 7


class TestDown:
    @pytest.mark.parametrize("step", [DEFAULT, AVERAGE])
    def test_a_young_pod_that_does_not_serve_holds(self, step: Step) -> None:
        held = decided([5, 5, 5, 5], rule(step), more=[pod("young", ready=False, ready_for=60)])
        assert (held.desired, held.held_by) == (5, HeldBy.MISSING)

    def test_the_count_may_be_ahead_of_its_pods(self) -> None:
        assert decided([40, 40, 40], current=5).desired == 5  # 3 - 2 pods would be left for 120
        assert decided([10, 10, 10], current=5).desired == 3

    def test_a_multiple_is_counted_before_those_left(self) -> None:
        assert decided([5] * 9, rule(Step(down=4), multiple_of=3)).desired == 6

    def test_an_idle_pod_of_doubt_shrinks_nothing_while_the_sure_ones_are_busy(self) -> None:
        by = rule(registry=REGISTRY)
        there = [replace(pod, ips=(f"10.0.0.{i}",)) for i, pod in enumerate(pods(6))]
        samples = samples_of({f"web-{i}": "60m" if i < 3 else "1m" for i in range(6)})
        listed = roster("10.0.0.0", "10.0.0.1", "10.0.0.2")
        decision = assess_and_decide(by, there, samples, listed=listed, memory=Memory(ever_in_roster=True))[1]
        assert (decision.desired, decision.held_by) == (6, HeldBy.DOUBT)


class TestDeparted:
    """Pods that left gave their load to the others, whose samples do not know it yet."""

    @staticmethod
    def memory(*loads: int) -> Memory:
        gone = {f"gone-{i}": {"cpu": LastSample(NOW - 20, nano(f"{load}m"))} for i, load in enumerate(loads)}
        return Memory(departed={uid: Departed(NOW - 5, sample) for uid, sample in gone.items()})

    @pytest.mark.parametrize("step", [Step(), AVERAGE])
    def test_their_load_may_bring_all_back_above_the_bound(self, step: Step) -> None:
        held = decided([40, 40, 40, 40], rule(step), memory=self.memory(40, 40))
        assert (held.desired, held.held_by) == (4, HeldBy.DEPARTED)

    def test_those_left_have_to_carry_it_too(self) -> None:
        held = decided([20, 30, 30, 30], memory=self.memory(45))
        assert (held.desired, held.held_by) == (4, HeldBy.DEPARTED)


class TestTolerance:
    def test_points_of_a_query_are_units_of_its_values(self) -> None:
        asked = replace(queue(), query=Query(name="queue"), target=Fraction(nano(60)))
        by = rule(Step(), asked)
        assert assess_and_decide(by, pods(2), total("150"))[1].verdict is Verdict.INSIDE
        assert assess_and_decide(by, pods(2), total("151"))[1].desired == 5

    def test_pods_are_compared_by_their_own_limits(self) -> None:
        there = [pod("web-0", limits={"cpu": "100m"}), pod("web-1", limits={"cpu": "200m"})]
        above = assess_and_decide(rule(), there, samples_of({"web-0": "80m", "web-1": "100m"}))[1]
        assert (above.verdict, above.desired) == (Verdict.ABOVE, 4)  # 2 · 180/300 over 60 %, and 2
        near = assess_and_decide(rule(), there, samples_of({"web-0": "70m", "web-1": "100m"}))[1]
        assert near.verdict is Verdict.INSIDE


@pytest.mark.parametrize(
    ("load", "min_pods", "bounds", "counts"),
    [
        pytest.param("0", 2, FREE, {6: 4, 4: 2, 3: 2, 2: 2}, id="down to minPods by steps"),
        pytest.param("0", 0, FREE, {5: 3, 3: 1, 2: 0, 1: 0}, id="to zero where minPods is zero and the minimum is"),
        pytest.param("0", 0, BOUNDS, {3: 1, 2: 1, 1: 1}, id="not where the minimum is one"),
        pytest.param("1", 0, FREE, {2: 1}, id="not with any load"),
    ],
)
def test_an_idle_service_goes_down(load: str, min_pods: int, bounds: Bounds, counts: dict[int, int]) -> None:
    by = rule(Step(min_pods=min_pods), replace(queue(), target=Fraction(nano(60))))
    found = {count: assess_and_decide(by, pods(count), total(load), bounds=bounds)[1].desired for count in counts}
    assert found == counts


def test_the_pace_comes_after_the_step() -> None:
    by = rule(cooldown=Cooldown(up=180, down=300))
    recent = replace(BOUNDS, last_scale=NOW - 179)
    held = decided([90, 90], by, bounds=recent)
    assert (held.desired, held.held_by) == (2, HeldBy.COOLDOWN)
    assert decided([90, 90], by, bounds=replace(BOUNDS, last_scale=NOW - 180)).desired == 5
    assert decided([5] * 6, by, bounds=replace(BOUNDS, last_scale=NOW - 299)).desired == 6


LOADS = st.lists(st.integers(1, 150), min_size=1, max_size=12)


@given(LOADS, st.integers(0, 3), st.sampled_from(Trigger), st.integers(1, 4), st.integers(0, 4))
def test_a_step_down_leaves_pods_that_carry_the_load_within_the_bound(
    loads: list[int], ahead: int, trigger: Trigger, down: int, least: int
) -> None:
    step = Step(trigger=trigger, down=down, min_pods=least)
    decision = decided(list(loads), rule(step), current=len(loads) + ahead)
    current = len(loads) + ahead
    assert decision.desired is not None
    if decision.desired < current:
        left = len(loads) - (current - decision.desired)
        assert left >= 1
        assert sum(loads) <= 75 * left
        assert decision.desired == max(1, least, current - down)
        assert min(loads) < 45


@given(LOADS, st.data())
def test_losing_samples_never_lowers_the_count(loads: list[int], data: st.DataObject) -> None:
    lost = data.draw(st.sets(st.integers(0, len(loads) - 1), min_size=1, max_size=len(loads)))
    known = [None if i in lost else load for i, load in enumerate(loads)]
    with_all, without = decided(list(loads)), decided(list(known))
    assert without.desired is None or without.desired >= min(len(loads), with_all.desired or 0)


@pytest.mark.parametrize(
    ("loads", "memory", "words"),
    [
        ([73, 75, 82], None, "one of them 82%, above the target 60% (acts beyond 75%)"),
        ([73, 75, 82], None, "needs 6 serving pods (2 of them by stepUp): proposes 6 (now 3)"),
        ([50, 45, 47, 52, 43, 40], None, "one of them 40%, below the target 60% (acts under 45%)"),
        ([50, 45, 47, 52, 43, 40], None, "proposes 4 (now 6): 2 pods fewer (stepDown 2)"),
        ([5, 5], None, "proposes 2 (minPods 2)"),
        ([74, 74, 74, 74, 10], None, "proposes 5 (2 pods fewer would leave the others above 75%)"),
        ([60, 60], None, "near the target 60% (45% … 75%)"),
        ([5, 5, 5, None], None, "proposes 4 (1 pod without a fresh sample)"),
        (
            [20, 30, 30, 30],
            TestDeparted.memory(45),
            "1 pod left or went out since these samples began, whose load the others have now",
        ),
    ],
)
def test_every_step_says_why(loads: list[int | None], memory: Memory | None, words: str) -> None:
    samples = samples_of({f"web-{i}": None if load is None else f"{load}m" for i, load in enumerate(loads)})
    assessment, decision = assess_and_decide(rule(), pods(len(loads)), samples, memory=memory)
    assert words in "\n".join(explain(assessment, decision, BOUNDS, NOW))


class TestSameSamples:
    """The steps are relative to the count, so each one needs samples that began after the last change of it."""

    STEADY = rule(cooldown=Cooldown())

    @staticmethod
    def low(count: int, *, at: float = NOW - 10) -> Samples:
        return samples_of({f"web-{i}": "10m" for i in range(count)}, at=at)

    def test_one_assessment_takes_one_step_however_often_it_is_asked(self) -> None:
        assessment, decision = assess_and_decide(self.STEADY, pods(10), self.low(10))
        assert decision.desired == 8
        later = decide(assessment, scale(8), BOUNDS, NOW + 15)
        assert (later.desired, later.held_by) == (8, HeldBy.DEPARTED)
        assert "(the count changed since these samples began" in "\n".join(explain(assessment, later, BOUNDS, NOW + 15))

    def test_the_same_samples_take_one_step_whether_the_pods_have_left_or_not(self) -> None:
        memory = assess_and_decide(self.STEADY, pods(10), self.low(10))[0].memory
        for left in (10, 9, 8):
            assessment, decision = assess_and_decide(
                self.STEADY, pods(left), self.low(10), current=8, memory=memory, now=NOW + 5
            )
            assert (decision.desired, decision.held_by) == (8, HeldBy.DEPARTED)
            memory = assessment.memory

    def test_newer_samples_take_the_next_step(self) -> None:
        memory = assess_and_decide(self.STEADY, pods(10), self.low(10))[0].memory
        memory = assess_and_decide(self.STEADY, pods(8), self.low(10), memory=memory, now=NOW + 5)[0].memory
        for at, count in ((NOW + 19, 8), (NOW + 20, 6)):  # their window is 15 s
            samples = self.low(8, at=at)
            assert assess_and_decide(self.STEADY, pods(8), samples, memory=memory, now=NOW + 30)[1].desired == count

    def test_a_change_that_only_the_hpa_knows_counts_too(self) -> None:
        bounds = replace(BOUNDS, last_scale=NOW - 20)
        assert assess_and_decide(self.STEADY, pods(10), self.low(10), bounds=bounds)[1].desired == 10

    def test_a_service_total_takes_one_step_too(self) -> None:
        by = rule(DEFAULT, replace(queue(), target=Fraction(nano(60))), cooldown=Cooldown())
        assessment, decision = assess_and_decide(by, pods(10), total("100"))
        assert decision.desired == 8
        assert decide(assessment, scale(8), BOUNDS, NOW + 15).desired == 8

    def test_a_step_up_does_not_wait(self) -> None:
        assessment, decision = assess_and_decide(self.STEADY, pods(2), samples_of({"web-0": "90m", "web-1": "90m"}))
        assert decision.desired == 5
        assert decide(assessment, scale(3), BOUNDS, NOW + 15).desired == 5
