"""What is unwise about how a policy and its HPA are joined, one sentence each."""

from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest

from adapter.load.quantity import NANO
from adapter.load.spec import Algorithm, Bounds, HpaTolerance, Mode, Seconds, Strategy
from adapter.policy.conformance import Wiring, flaws
from adapter.policy.hpa import CrossVersionReference, Hpa, HpaMetric, ScalingActive, ScalingPolicy, ScalingRules
from adapter.policy.linking import Neighbours
from tests.load.kit import cpu, policy

DEPLOYMENT = CrossVersionReference("apps/v1", "Deployment", "web")
POLICY = CrossVersionReference("effective-load.io/v1alpha1", "WatermarkPolicy", "web")
DESIRED = HpaMetric(kind="Object", name="desired_replicas", described=POLICY, target="AverageValue", aim=NANO)


def exact(**more: Any) -> ScalingRules:
    return ScalingRules(tolerance=Fraction(0), **more)


HPA = Hpa(
    namespace="shop",
    name="web",
    target=DEPLOYMENT,
    bounds=Bounds(minimum=2, maximum=50),
    metrics=(DESIRED,),
    scale_up=exact(),
    scale_down=exact(),
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
    return replace(DESIRED, kind="External", described=None, match_labels=labels)


STOCK = HpaMetric(kind="Resource", name="cpu", target="Utilization", aim=80)
OTHER = replace(DESIRED, described=POLICY._replace(name="shop"))
PERCENT = ScalingPolicy("Percent", 100, 15)
AMBIGUOUS = ScalingActive("False", "AmbiguousSelector", "pods by selector a=b are controlled by many")
FROM_ZERO = on(bounds=Bounds(minimum=0, maximum=9))
TOLERANT = replace(WELL, hpa=COARSE)
CASES: list[tuple[str, Wiring, str]] = [
    ("AverageValue", on(metrics=(replace(DESIRED, aim=2 * NANO),)), 'averageValue "1", not AverageValue 2'),
    ("StockMetric", on(metrics=(DESIRED, STOCK)), "cpu of all running pods"),
    ("NotWired", on(metrics=()), "does not ask for desired_replicas of policy web"),
    ("StuckAtZero", on(FROM_ZERO, scale_up=exact(policies=(PERCENT,))), "add a Pods policy"),
    ("ScaleUpDisabled", on(scale_up=exact(select="Disabled")), "does not scale up at all"),
    ("SharedTarget", beside(hpas="spare, web-2"), "(spare, web-2)"),
    ("AmbiguousSelector", on(scaling_active=AMBIGUOUS), "a=b"),
    ("PolicyConflict", beside(policies="old"), "(old)"),
    ("NoStabilization", on(scale_down=exact(stabilization=0)), "every dip"),
    ("WaitsTwice", by(cooldown=Seconds(down=60)), "cooldown (60 s)"),
    ("Total", by(algorithm=Algorithm.ABSOLUTE), "whole service"),
    ("Resting", by(mode=Mode.OBSERVE), "mode Observe"),
    ("Resting", by(mode=Mode.PAUSED), "mode Paused"),
    ("WatermarksTooClose", by(metrics=(cpu("1200m", "801m"),)), "at most 2/3"),
    ("Tolerance", TOLERANT, "steps of up to 10 % up and 10 % down: set"),
    ("Tolerance", replace(TOLERANT, has_tolerance=None), "Kubernetes 1.35"),
    ("Tolerance", replace(TOLERANT, has_tolerance=False), "write tolerance 10% in the policy"),
    ("Tolerance", by(replace(TOLERANT, has_tolerance=False), strategy=Strategy.STEP), "steps of more pods"),
]


@pytest.mark.parametrize(("reason", "wiring", "text"), CASES)
def test_each_flaw_has_a_sentence(reason: str, wiring: Wiring, text: str) -> None:
    (flaw,) = flaws(wiring)
    assert flaw.reason == reason
    assert text in flaw.message


PODS = HpaMetric(kind="Pods", name="effective_cpu", target="AverageValue", aim=NANO)
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
    "a policy that waits itself": by(on(scale_down=exact(stabilization=0)), cooldown=Seconds(down=60)),
    "a target": by(strategy=Strategy.RATIO, metrics=(cpu(None, target=Fraction(NANO)),)),
    "watermarks just far enough": by(metrics=(cpu("1200m", "800m"),)),
    "an observing policy that nobody asks": on(by(mode=Mode.OBSERVE), metrics=(OTHER,)),
    "as much tolerance in the policy": replace(by(tolerance=Fraction(1, 10)), hpa=COARSE, has_tolerance=False),
}


@pytest.mark.parametrize("wiring", UNSAID.values(), ids=UNSAID.keys())
def test_good_wiring_has_no_flaws(wiring: Wiring) -> None:
    assert reasons(wiring) == []


@pytest.mark.parametrize("name", ["effective_pods", "pulled_out_pods", "effective_cpu", "raw_cpu"])
@pytest.mark.parametrize("asked", [DESIRED, replace(DESIRED, described=DEPLOYMENT), external({"policy": "web"})])
def test_metrics_that_are_there_to_be_read_are_no_targets(name: str, asked: HpaMetric) -> None:
    assert reasons(on(metrics=(DESIRED, replace(asked, name=name)))) == ["ReadOnlyMetric"]


def test_the_step_suppressed_now_is_the_last_flaw_of_the_tolerance() -> None:
    found = replace(WELL, hpa=COARSE, suppressed="the HPA's tolerance suppresses the step from 20 to 21")
    assert [flaw.message for flaw in flaws(found)][-1] == found.suppressed


def test_what_stops_everything_comes_first() -> None:
    worst = replace(by(algorithm=Algorithm.ABSOLUTE, mode=Mode.OBSERVE), neighbours=Neighbours(policies="old"))
    assert reasons(worst) == ["PolicyConflict", "Resting", "Total"]
