"""What is unwise about how a policy and its HPA are joined, one sentence each."""

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest

from adapter.load.quantity import NANO
from adapter.load.spec import Algorithm, Bounds, HpaTolerance, Mode, Seconds, Strategy
from adapter.policy.conformance import Wiring, flaws
from adapter.policy.hpa import (
    CrossVersionReference,
    Hpa,
    HpaMetric,
    MetricSourceType,
    MetricTargetType,
    ScalingPolicy,
    ScalingRules,
)
from adapter.policy.linking import Neighbours
from tests.load.kit import cpu, policy

DEPLOYMENT = CrossVersionReference("apps/v1", "Deployment", "web")
POLICY = CrossVersionReference("effective-load.io/v1alpha1", "WatermarkPolicy", "web")
DESIRED = HpaMetric(
    kind=MetricSourceType.OBJECT,
    name="desired_replicas",
    described=POLICY,
    target=MetricTargetType.AVERAGE_VALUE,
    aim=NANO,
)
EXACT = ScalingRules(tolerance=Fraction(0))


def exact(**more: Any) -> ScalingRules:
    return ScalingRules(tolerance=Fraction(0), **more)


HPA = Hpa(
    namespace="shop",
    name="web",
    target=DEPLOYMENT,
    bounds=Bounds(minimum=2, maximum=50),
    metrics=(DESIRED,),
    scale_up=EXACT,
    scale_down=EXACT,
)
WELL = Wiring(policy=policy(cpu("1200m", "400m")), hpa=HPA, has_tolerance=True)


def beside(**names: str) -> Wiring:
    return replace(WELL, neighbours=Neighbours(**names))


TENTH = HpaTolerance(Fraction(1, 10), Fraction(1, 10))
COARSE = replace(HPA, bounds=replace(HPA.bounds, tolerance=TENTH))


def on(wiring: Wiring = WELL, **changes: object) -> Wiring:
    return replace(wiring, hpa=replace(wiring.hpa, **changes))  # type: ignore[arg-type]  # whatever the test names


def by(wiring: Wiring = WELL, **changes: object) -> Wiring:
    return replace(wiring, policy=replace(wiring.policy, **changes))  # type: ignore[arg-type]  # whatever the test names


def reasons(wiring: Wiring) -> list[str]:
    return [flaw.reason for flaw in flaws(wiring)]


def external(labels: dict[str, str]) -> HpaMetric:
    return replace(DESIRED, kind=MetricSourceType.EXTERNAL, described=None, match_labels=labels)


STOCK = HpaMetric(kind=MetricSourceType.RESOURCE, name="cpu", target=MetricTargetType.UTILIZATION, aim=80)
OTHER = replace(DESIRED, described=POLICY._replace(name="shop"))
PERCENT = ScalingPolicy("Percent", 100, 15)
STEPS = by(strategy=Strategy.STEP, cooldown=Seconds(down=300))
FROM_ZERO = on(bounds=Bounds(minimum=0, maximum=9))
CASES: dict[str, tuple[Wiring, str, str]] = {
    "an average value that is not 1": (
        on(metrics=(replace(DESIRED, aim=2 * NANO),)),
        "AverageValue",
        'averageValue "1", not AverageValue 2',
    ),
    "a stock metric beside ours": (on(metrics=(DESIRED, STOCK)), "StockMetric", "cpu of all running pods"),
    "an HPA that asks for nothing": (on(metrics=()), "NotWired", "does not ask for desired_replicas of policy web"),
    "only percents from zero": (
        on(FROM_ZERO, scale_up=exact(policies=(PERCENT,))),
        "StuckAtZero",
        "add a Pods policy",
    ),
    "no scale-up": (on(scale_up=exact(select="Disabled")), "ScaleUpDisabled", "does not scale up at all"),
    "other HPAs of the target": (beside(hpas="spare, web-2"), "SharedTarget", "(spare, web-2)"),
    "other HPAs of the pods": (on(ambiguous="pods by selector a=b are controlled by many"), "AmbiguousSelector", "a=b"),
    "other policies of the target": (beside(policies="old"), "PolicyConflict", "(old)"),
    "no stabilization": (on(scale_down=exact(stabilization=0)), "NoStabilization", "every dip"),
    "two waits down": (by(cooldown=Seconds(down=60)), "WaitsTwice", "cooldown (60 s)"),
    "a total": (by(algorithm=Algorithm.ABSOLUTE), "Total", "whole service"),
    "a policy that observes": (by(mode=Mode.OBSERVE), "Resting", "mode Observe"),
    "a policy that is paused": (by(mode=Mode.PAUSED), "Resting", "mode Paused"),
    "watermarks too close": (by(metrics=(cpu("1200m", "801m"),)), "WatermarksTooClose", "at most 2/3"),
    "a tolerance": (replace(WELL, hpa=COARSE), "Tolerance", "steps of up to 10 % up and 10 % down: set"),
    "a tolerance in an unknown cluster": (
        replace(WELL, hpa=COARSE, has_tolerance=None),
        "Tolerance",
        "Kubernetes 1.35",
    ),
    "a tolerance for ever": (
        replace(WELL, hpa=COARSE, has_tolerance=False),
        "Tolerance",
        "write tolerance 10% in the policy",
    ),
    "a tolerance for ever, and steps": (
        replace(by(strategy=Strategy.STEP), hpa=COARSE, has_tolerance=False),
        "Tolerance",
        "steps of more pods",
    ),
}


@pytest.mark.parametrize(("wiring", "reason", "text"), CASES.values(), ids=CASES.keys())
def test_each_flaw_has_a_sentence(wiring: Wiring, reason: str, text: str) -> None:
    (flaw,) = flaws(wiring)
    assert flaw.reason == reason
    assert text in flaw.message


PODS = HpaMetric(kind=MetricSourceType.PODS, name="effective_cpu", target=MetricTargetType.AVERAGE_VALUE, aim=NANO)
UNSAID: dict[str, Wiring] = {
    "nothing is wrong": WELL,
    "the count of an external metric": on(metrics=(external({"policy": "web"}),)),
    "the count of the target": on(metrics=(replace(DESIRED, described=DEPLOYMENT),)),
    "a pods metric is called like one of ours": on(metrics=(DESIRED, PODS)),
    "a metric of others is called like one of ours": on(
        metrics=(DESIRED, replace(DESIRED, name="raw_cpu", described=CrossVersionReference("v1", "Service", "web")))
    ),
    "a pods policy leads away from zero": on(
        FROM_ZERO, scale_up=exact(policies=(PERCENT, ScalingPolicy("Pods", 4, 15)))
    ),
    "a cooldown alone": by(cooldown=Seconds(up=60)),
    "a target": by(strategy=Strategy.RATIO, metrics=(cpu(None, target=Fraction(NANO)),)),
    "watermarks just far enough": by(metrics=(cpu("1200m", "800m"),)),
    "an observing policy that nobody asks": on(by(mode=Mode.OBSERVE), metrics=(OTHER,)),
    "as much tolerance in the policy": replace(by(tolerance=Fraction(1, 10)), hpa=COARSE, has_tolerance=False),
}


@pytest.mark.parametrize("wiring", UNSAID.values(), ids=UNSAID.keys())
def test_good_wiring_has_no_flaws(wiring: Wiring) -> None:
    assert reasons(wiring) == []


@pytest.mark.parametrize("name", ["effective_pods", "pulled_out_pods", "effective_cpu", "raw_cpu"])
@pytest.mark.parametrize(
    "make",
    [
        lambda name: replace(DESIRED, name=name),
        lambda name: replace(DESIRED, name=name, described=DEPLOYMENT),
        lambda name: replace(external({"policy": "web"}), name=name),
    ],
)
def test_metrics_that_are_there_to_be_read_are_no_targets(name: str, make: Callable[[str], HpaMetric]) -> None:
    assert reasons(on(metrics=(DESIRED, make(name)))) == ["ReadOnlyMetric"]


def test_the_step_suppressed_now_is_the_last_flaw_of_the_tolerance() -> None:
    found = replace(WELL, hpa=COARSE, suppressed="the HPA's tolerance suppresses the step from 20 to 21")
    assert [flaw.message for flaw in flaws(found)][-1] == found.suppressed


def test_what_stops_everything_comes_first() -> None:
    worst = replace(by(algorithm=Algorithm.ABSOLUTE, mode=Mode.OBSERVE), neighbours=Neighbours(policies="old"))
    assert reasons(worst) == ["PolicyConflict", "Resting", "Total"]
