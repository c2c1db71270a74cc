"""Strategy Step: up at once by what the target needs and a few more, down by a few where those left can carry it."""

from dataclasses import replace
from fractions import Fraction
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter.load.assessment import Decision, HeldBy
from adapter.load.decide import decide
from adapter.load.explanation import explain
from adapter.load.memory import Departed, Memory
from adapter.load.pods import Pod
from adapter.load.spec import Capacity, Metric, Policy, Seconds, Step, Strategy
from tests.load.kit import BOUNDS, NOW, assess_and_decide, cpu, nano, pod, policy, queue, same, scale, total
from tests.load.kit import usage as samples_of

DEFAULT = Step()


def metric(target: str = "60%") -> Metric:
    return cpu(None, relative_to=Capacity.LIMIT, target=Fraction(nano(target.replace("%", "e-2"))))


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


def departed(load: str) -> Memory:
    """A pod of this load that has left, which the samples of the others do not know yet."""
    return Memory(departed={"gone": Departed(NOW - 5, {"cpu": nano(load)})})


LOADS = st.lists(st.integers(1, 150), min_size=1, max_size=12)


@given(LOADS, st.integers(0, 3), st.sampled_from(["AnyPod", "Average"]), st.integers(1, 4), st.integers(0, 4))
def test_a_step_down_leaves_pods_that_carry_the_load_within_the_bound(
    loads: list[int], ahead: int, trigger: Literal["AnyPod", "Average"], down: int, least: int
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


@pytest.mark.parametrize(
    ("loads", "memory", "words"),
    [
        ([73, 75, 82], None, "one of them 82%, above the target 60% (acts beyond 75%)"),
        ([73, 75, 82], None, "6 serving pods carry the known load at the target; 2 of them by step.up"),
        (
            [100, *[5] * 9],
            None,
            "allows at least 10 (5 serving pods carry the known load at the target; 2 of them by step.up): proposes 10",
        ),
        ([50, 45, 47, 52, 43, 40], None, "(2 pods fewer (step.down 2)): proposes 4 (now 6)"),
        ([5, 5], None, "(step.minPods 2): proposes 2"),
        ([74, 74, 74, 74, 10], None, "(2 pods fewer would leave the others above the limit): proposes 5"),
        ([60, 60], None, "near the target 60% (45% … 75%)"),
        ([5, 5, 5, None], None, "(kept by 1 pod without a fresh sample): proposes 4"),
        (
            [20, 30, 30, 30],
            departed("45m"),
            "pods left, turned out or were added since these samples began, and others carry their load now",
        ),
    ],
)
def test_every_step_says_why(loads: list[int | None], memory: Memory | None, words: str) -> None:
    samples = samples_of({f"web-{i}": None if load is None else f"{load}m" for i, load in enumerate(loads)})
    assessment, decision = assess_and_decide(rule(), pods(len(loads)), samples, memory=memory)
    assert words in "\n".join(explain(assessment, decision, BOUNDS, NOW))


@pytest.mark.parametrize(("load", "count"), [("50", 5), ("42", 5), ("30", 3), ("58", 8)])
def test_a_service_total_takes_a_step_where_its_share_is_beyond_the_limit(load: str, count: int) -> None:
    share = replace(queue(), target=Fraction(nano("10")))
    by = rule(Step(tolerance_unit="Percent"), share)
    assert assess_and_decide(by, same(5, None)[0], total(load))[1].desired == count


@pytest.mark.parametrize(
    ("serving", "unready", "least", "count"),
    [(3, 3, 3, 6), (4, 2, 3, 3), (3, 0, 0, 0), (2, 2, 0, 4)],
)
def test_a_total_of_0_takes_away_the_last_serving_pod_only_on_the_way_to_0(
    serving: int, unready: int, least: int, count: int
) -> None:
    """Pods that have not served for long stay in the count, and would be all that is left of it."""
    share = replace(queue(), target=Fraction(nano("10")))
    ill = [pod(f"ill-{i}", ready=False, ready_for=900) for i in range(unready)]
    by = rule(Step(tolerance_unit="Percent", down=3, min_pods=least), share)
    bounds = replace(BOUNDS, minimum=0)
    there = [*same(serving, None)[0], *ill]
    assert assess_and_decide(by, there, total("0"), bounds=bounds)[1].desired == count


def test_one_assessment_takes_one_step_however_often_it_is_asked() -> None:
    """The steps are relative to the count, so each one needs samples that began after the last change of it."""
    low = samples_of({f"web-{i}": "10m" for i in range(10)})
    assessment, decision = assess_and_decide(rule(cooldown=Seconds()), pods(10), low)
    assert decision.desired == 8
    later = decide(assessment, scale(8), BOUNDS, NOW + 15)
    assert (later.desired, later.held_by) == (8, HeldBy.DEPARTED)
    assert "pods left, turned out or were added since these samples began" in "\n".join(
        explain(assessment, later, BOUNDS, NOW + 15)
    )
