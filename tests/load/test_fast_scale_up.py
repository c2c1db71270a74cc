"""With fastScaleUp a count falls only on samples newer than its last rise: the companion may have had newer ones."""

from dataclasses import replace

import pytest

from adapter.load.assessment import Decision, HeldBy
from adapter.load.decide import decide
from adapter.load.explanation import explain
from adapter.load.memory import Memory
from adapter.load.samples import Samples
from adapter.load.spec import Policy
from tests.load.kit import BOUNDS, NOW, assess_and_decide, cpu, pod, policy, queue, scale, total, usage

FAST = policy(cpu("1200m", "400m"), fast_scale_up=True)
NAMES = [f"web-{n}" for n in range(10)]
SAMPLED = NOW - 10


def decided(
    rule: Policy, changed_at: float | None, samples: Samples | None = None, *, by_hpa: float | None = None
) -> Decision:
    """Ten pods at 200m, half of what is too little; the count rose at that time, by the HPA at that other one."""
    known, bounds = (
        Memory(last_replicas=10, last_scale=changed_at, last_rise=changed_at),
        replace(BOUNDS, last_scale=by_hpa),
    )
    heard = samples or usage(dict.fromkeys(NAMES, "200m"))
    return assess_and_decide(rule, [pod(n) for n in NAMES], heard, memory=known, bounds=bounds)[1]


def test_it_does_not_fall_on_samples_from_before_its_last_rise_and_says_so() -> None:
    known = Memory(last_replicas=10, last_scale=SAMPLED + 1, last_rise=SAMPLED + 1)
    samples = usage(dict.fromkeys(NAMES, "200m"))
    assessment, decision = assess_and_decide(FAST, [pod(n) for n in NAMES], samples, memory=known)
    assert (decision.desired, decision.held_by) == (10, HeldBy.FAST_SCALE_UP)
    assert "newer ones only" in "\n".join(explain(assessment, decision, BOUNDS, NOW))


@pytest.mark.parametrize(
    ("changed_at", "by_hpa"),
    [
        (None, None),
        (SAMPLED - 1, SAMPLED - 1),
        (SAMPLED, SAMPLED),
        pytest.param(SAMPLED, SAMPLED - 5, id="seen 5 s after the HPA's date"),
    ],
)
def test_it_falls_on_newer_ones(changed_at: float | None, by_hpa: float | None) -> None:
    assert decided(FAST, changed_at, by_hpa=by_hpa).desired == 5


@pytest.mark.parametrize(
    ("rule", "load", "expected"), [(replace(FAST, fast_scale_up=False), "200m", 5), (FAST, "2400m", 20)]
)
def test_a_policy_without_it_and_a_rise_wait_for_none(rule: Policy, load: str, expected: int) -> None:
    assert decided(rule, SAMPLED + 1, usage(dict.fromkeys(NAMES, load))).desired == expected


@pytest.mark.parametrize("by_hpa", [None, SAMPLED - 3600, SAMPLED - 25.1])
@pytest.mark.parametrize(("ago", "expected"), [(0.0, 10), (19.9, 10), (20.0, 5)])
def test_a_change_that_is_not_the_hpas_stays_until_the_hpa_was_asked_for_it(
    by_hpa: float | None, ago: float, expected: int
) -> None:
    assert decided(FAST, SAMPLED - ago, by_hpa=by_hpa).desired == expected


@pytest.mark.parametrize(("fast", "expected"), [(True, 5), (False, 1)])
def test_a_count_that_rose_after_the_assessment_does_not_fall_on_it(fast: bool, expected: int) -> None:
    rule = policy(queue("100", "10"), fast_scale_up=fast)
    assessment, before = assess_and_decide(rule, [pod("web-0")], total("5"))
    assert before.desired == 1
    after = decide(assessment, scale(5), BOUNDS, NOW)
    assert after.desired == expected


def test_after_a_fall_the_departed_load_is_enough() -> None:
    first, _ = assess_and_decide(FAST, [pod(n) for n in NAMES], usage(dict.fromkeys(NAMES, "200m")))
    left = NAMES[:9]
    _, then = assess_and_decide(
        FAST, [pod(n) for n in left], usage(dict.fromkeys(left, "200m")), memory=first.memory, now=NOW + 1
    )  # fmt: skip
    assert (then.desired, then.held_by) == (5, None)
