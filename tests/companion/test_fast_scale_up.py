"""A count is raised before the HPA's next sync where that one will agree, and no further than it might go itself."""

from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest

from adapter.companion import plan
from adapter.companion.actions import ActionResult, RaiseScale
from adapter.companion.features import fast_scale_up
from adapter.companion.state import Context, LastRaise, ReplicaHistory, State
from adapter.load.quantity import NANO
from adapter.load.spec import Bounds, Delay, HpaTolerance, Mode, Policy
from adapter.policy.behavior import ReplicaChange
from adapter.policy.hpa import (
    CrossVersionReference,
    Hpa,
    HpaMetric,
    MetricSourceType,
    MetricTargetType,
    ScalingActive,
    ScalingPolicy,
    ScalingRules,
)
from adapter.settings import CompanionFeatures, CompanionSettings
from adapter.snapshot import Key, PolicyView
from tests.load.kit import NOW, TARGET, assess_and_decide, cpu, pod, policy, scale, usage

KEY = Key("shop", "web")
PATH = "/apis/apps/v1/namespaces/shop/deployments/web/scale"
FAST = policy(cpu("1200m", "400m"), fast_scale_up=True)
POLICY = CrossVersionReference("effective-load.io/v1alpha1", "WatermarkPolicy", "web")
DEPLOYMENT = CrossVersionReference("apps/v1", "Deployment", "web")
DESIRED = HpaMetric(
    kind=MetricSourceType.OBJECT,
    name="desired_replicas",
    described=POLICY,
    target=MetricTargetType.AVERAGE_VALUE,
    aim=NANO,
)
EXTERNAL = replace(DESIRED, kind=MetricSourceType.EXTERNAL, described=None, match_labels={"policy": "web"})
FREE = ScalingRules(tolerance=Fraction(0), stabilization=0, select="Max", policies=(ScalingPolicy("Percent", 900, 60),))
LONG_AGO = NOW - 3600.0
SWITCHED_ON = CompanionSettings(features=CompanionFeatures(fast_scale_up=True))


def hpa(up: ScalingRules = FREE, *, bounds: Bounds | None = None, **changes: Any) -> Hpa:
    base = Hpa(
        namespace="shop",
        name="web",
        target=DEPLOYMENT,
        bounds=bounds or Bounds(minimum=1, maximum=100),
        metrics=(DESIRED,),
        scale_up=up,
        scaling_active=ScalingActive("True"),
    )
    return replace(base, **changes)


def watched(replicas: int = 4, *rises: ReplicaChange, **changes: Any) -> ReplicaHistory:
    base = ReplicaHistory(target="target", since=LONG_AGO, scaled_before=None, replicas=replicas, rises=rises)
    return replace(base, **changes)


def context(
    load: str = "2400m",
    *,
    pods: int = 4,
    rule: Policy = FAST,
    above: Hpa | None = None,
    seen: ReplicaHistory | None = None,
    raised: LastRaise | None = None,
    current: int | None = None,
    **changes: Any,
) -> Context:
    """Four pods that each carry twice what they should: eight are wanted."""
    followed = above or hpa()
    names = [f"web-{n}" for n in range(pods)]
    assessment, decision = assess_and_decide(
        rule, [pod(n) for n in names], usage(dict.fromkeys(names, load)), current=current, bounds=followed.bounds
    )
    at = scale(pods if current is None else current)
    view = PolicyView(
        policy=rule, target=TARGET, scale_path=PATH, scale=at, bounds=followed.bounds, assessment=assessment
    )
    base = Context(
        key=KEY,
        now=NOW,
        view=view,
        decision=decision,
        hpa=followed,
        settings=SWITCHED_ON,
        state=State(history=seen or watched(pods), raised=raised or LastRaise()),
        leads_since=LONG_AGO,
    )
    return replace(base, **changes)


def raised_to(case: Context) -> int | None:
    """The count that it is raised to, None where it is left to the HPA."""
    found = list(fast_scale_up.plan(case))
    assert len(found) <= 1
    return found[0].to if found else None


def test_the_count_is_raised_to_what_is_decided() -> None:
    assert list(fast_scale_up.plan(context())) == [RaiseScale(key=KEY, path=PATH, target="target", current=4, to=8)]


def test_it_waits_for_nothing_else() -> None:
    assert isinstance(next(plan.urgent(context())), RaiseScale)


def test_switched_off_nothing_is_raised() -> None:
    case = replace(context(), settings=CompanionSettings())
    assert not [one for one in plan.urgent(case) if isinstance(one, RaiseScale)]


def test_it_is_off_by_default() -> None:
    assert not CompanionFeatures().fast_scale_up


def test_a_policy_that_does_not_ask_for_it_is_left_to_the_hpa() -> None:
    assert raised_to(context(rule=replace(FAST, fast_scale_up=False))) is None


@pytest.mark.parametrize("load", ["800m", "100m"])
def test_a_count_is_never_kept_or_lowered(load: str) -> None:
    assert raised_to(context(load)) is None


@pytest.mark.parametrize("changes", [{"mode": Mode.OBSERVE}, {"mode": Mode.PAUSED}, {"hold_until": NOW + 60}])
def test_nothing_is_raised_while_a_policy_rests(changes: dict[str, Any]) -> None:
    assert raised_to(context(rule=replace(FAST, **changes))) is None


def test_an_error_raises_nothing() -> None:
    case = context()
    assert case.decision is not None
    failed = replace(case.decision, desired=None, served=None, error="metric cpu: nobody answers")
    assert raised_to(replace(case, decision=failed)) is None


def test_a_policy_that_was_not_assessed_raises_nothing() -> None:
    assert raised_to(replace(context(), decision=None)) is None


def test_the_hpas_maximum_is_not_exceeded() -> None:
    assert raised_to(context(above=hpa(bounds=Bounds(minimum=1, maximum=6)))) == 6


# --- the HPA must agree at its next sync


@pytest.mark.parametrize("metric", [DESIRED, EXTERNAL, replace(DESIRED, described=DEPLOYMENT)])
def test_an_hpa_that_takes_the_count_as_it_is_allows_a_raise(metric: HpaMetric) -> None:
    assert raised_to(context(above=hpa(metrics=(metric,)))) == 8


@pytest.mark.parametrize(
    "metric",
    [
        replace(DESIRED, described=POLICY._replace(name="other")),
        replace(EXTERNAL, match_labels={"policy": "other"}),
        replace(DESIRED, name="effective_cpu"),
        replace(DESIRED, aim=2 * NANO),
        replace(DESIRED, target=MetricTargetType.VALUE),
        HpaMetric(kind=MetricSourceType.RESOURCE, name="cpu", target=MetricTargetType.UTILIZATION, aim=70),
    ],
)
def test_an_hpa_that_does_not_take_the_count_is_left_alone(metric: HpaMetric) -> None:
    assert raised_to(context(above=hpa(metrics=(metric,)))) is None
    assert obstacle(hpa(metrics=(metric,))) == "NotFollowed"


def test_other_metrics_of_the_hpa_do_not_matter_for_the_largest_wins() -> None:
    other = HpaMetric(kind=MetricSourceType.RESOURCE, name="cpu", target=MetricTargetType.UTILIZATION, aim=70)
    assert raised_to(context(above=hpa(metrics=(other, DESIRED)))) == 8


def test_without_an_hpa_nothing_is_raised() -> None:
    assert raised_to(replace(context(), hpa=None)) is None


def test_nothing_is_raised_while_the_hpa_does_not_act() -> None:
    assert raised_to(context(above=hpa(scaling_active=ScalingActive("False")))) is None


@pytest.mark.parametrize(("tolerance", "expected"), [("0.1", None), ("0.01", None), ("0.0099", 8), ("0", 8)])
def test_a_tolerance_that_could_swallow_a_pod_at_the_maximum_forbids_a_raise(
    tolerance: str, expected: int | None
) -> None:
    above = hpa(bounds=Bounds(minimum=1, maximum=100, tolerance=HpaTolerance(Fraction(tolerance), Fraction(0))))
    assert obstacle(above) == (None if expected else "Tolerance")
    case = context()
    assert raised_to(replace(case, hpa=above)) == expected


def test_a_scale_up_that_the_hpa_stabilizes_is_left_to_it() -> None:
    pace = replace(FREE, stabilization=1)
    assert raised_to(context(above=hpa(pace))) is None
    assert obstacle(hpa(pace)) == "ScaleUpStabilized"


def test_a_scale_up_that_is_disabled_stays_so() -> None:
    pace = replace(FREE, select="Disabled")
    assert raised_to(context(above=hpa(pace))) is None
    assert obstacle(hpa(pace)) == "ScaleUpDisabled"


def obstacle(above: Hpa) -> str | None:
    (found,) = fast_scale_up.conditions(context(above=above))
    return None if found.is_true else found.reason


@pytest.mark.parametrize("bounds", [Bounds(minimum=5, maximum=100), Bounds(minimum=1, maximum=3)])
def test_a_count_outside_of_the_hpas_bounds_is_left_to_it(bounds: Bounds) -> None:
    assert raised_to(context(above=hpa(bounds=bounds))) is None


def test_a_target_that_somebody_scaled_to_zero_stays_there() -> None:
    case = context(above=hpa(bounds=Bounds(minimum=0, maximum=100)))
    assert case.decision is not None
    assert case.view.scale is not None
    view = replace(case.view, scale=scale(0))
    assert raised_to(replace(case, view=view, decision=replace(case.decision, current=0, desired=1))) is None


# --- what the HPA's behavior would still allow


@pytest.mark.parametrize(
    ("pace", "expected"),
    [
        (replace(FREE, policies=(ScalingPolicy("Pods", 2, 60),)), 6),
        (replace(FREE, policies=(ScalingPolicy("Percent", 50, 60),)), 6),
        (replace(FREE, policies=(ScalingPolicy("Pods", 3, 60), ScalingPolicy("Percent", 50, 60))), 7),
        (replace(FREE, select="Min", policies=(ScalingPolicy("Pods", 3, 60), ScalingPolicy("Percent", 50, 60))), 6),
        (replace(FREE, policies=()), 8),
    ],
)
def test_the_hpas_policies_limit_it(pace: ScalingRules, expected: int) -> None:
    assert raised_to(context(above=hpa(pace))) == expected


def test_without_any_behavior_it_may_double() -> None:
    assert raised_to(context("4800m", above=hpa(replace(FREE, policies=())))) == 8


def test_every_rise_within_the_period_counts() -> None:
    pace = replace(FREE, policies=(ScalingPolicy("Pods", 3, 60),))
    assert raised_to(context(above=hpa(pace), seen=watched(4, ReplicaChange(NOW - 59, 2)))) == 5
    assert raised_to(context(above=hpa(pace), seen=watched(4, ReplicaChange(NOW - 59, 3)))) is None
    assert raised_to(context(above=hpa(pace), seen=watched(4, ReplicaChange(NOW - 61, 3)))) == 7


def test_a_scaling_before_the_first_observation_may_have_used_up_the_period() -> None:
    pace = replace(FREE, policies=(ScalingPolicy("Pods", 3, 60),))
    for ago, expected in ((60.0, None), (61.0, 7)):
        assert raised_to(context(above=hpa(pace), seen=watched(4, scaled_before=NOW - ago))) == expected


def test_without_any_behavior_nothing_before_matters() -> None:
    pace = replace(FREE, policies=())
    assert raised_to(context(above=hpa(pace), seen=watched(4, scaled_before=NOW - 1))) == 8


def test_a_count_that_was_never_watched_is_left_to_the_hpa() -> None:
    assert raised_to(replace(context(), state=State())) is None


def test_one_to_thirteen_is_ten_at_once_and_thirteen_after_300_seconds() -> None:
    pace = replace(FREE, policies=(ScalingPolicy("Percent", 900, 300),))
    assert raised_to(context("15600m", pods=1, above=hpa(pace))) == 10
    later = context("1560m", pods=10, above=hpa(pace), seen=watched(10, ReplicaChange(NOW - 299, 9)))
    assert raised_to(later) is None
    assert raised_to(replace(later, state=State(history=watched(10, ReplicaChange(NOW - 300, 9))))) == 13


# --- once in 15 s


@pytest.mark.parametrize(("ago", "expected"), [(14.9, None), (15.0, 8), (-0.5, None), (-3600.0, 8)])
def test_a_target_is_raised_once_in_15_seconds(ago: float, expected: int | None) -> None:
    assert raised_to(context(raised=LastRaise(at=NOW - ago))) == expected


@pytest.mark.parametrize(("led_for", "expected"), [(5.0, None), (11.0, 8)])
def test_a_raise_before_this_replica_led_may_be_its_predecessors(led_for: float, expected: int | None) -> None:
    case = context(seen=watched(4, ReplicaChange(NOW - 10, 1)))
    assert raised_to(replace(case, leads_since=NOW - led_for)) == expected


def test_a_raise_by_the_hpa_is_no_reason_to_wait() -> None:
    assert raised_to(context(seen=watched(4, ReplicaChange(NOW - 1, 1)))) == 8


def test_a_target_is_watched_for_15_seconds_first() -> None:
    assert raised_to(context(seen=watched(4, since=NOW - 14.9))) is None
    assert raised_to(context(seen=watched(4, since=NOW - 15))) == 8


# --- what is remembered of it

RAISE = RaiseScale(key=KEY, path=PATH, target="target", current=4, to=8)


def test_a_raise_is_remembered() -> None:
    assert plan.after(State(), RAISE, NOW).raised == LastRaise(at=NOW, to=RAISE.to)


def test_a_raise_without_an_answer_counts_as_made() -> None:
    assert plan.missed(State(), RAISE, ActionResult.FAILED, NOW).raised.at == NOW


def test_a_raise_that_was_overtaken_may_be_made_again_at_once() -> None:
    assert plan.missed(State(), RAISE, ActionResult.OVERTAKEN, NOW) == State()


def test_where_the_right_for_it_lacks_a_condition_says_so_until_it_is_there() -> None:
    state = plan.missed(State(), RAISE, ActionResult.REFUSED, NOW)
    (found,) = fast_scale_up.conditions(replace(context(), state=state))
    assert (found.is_true, found.reason) == (False, "Forbidden")
    (mended,) = fast_scale_up.conditions(replace(context(), state=plan.after(state, RAISE, NOW)))
    assert mended.is_true


# --- its condition


def test_a_policy_that_may_be_raised_fast_says_so() -> None:
    (found,) = fast_scale_up.conditions(context())
    assert (found.type, found.is_true, found.reason) == ("FastScaleUp", True, "Ready")


def test_a_policy_that_asks_for_what_is_switched_off_says_so() -> None:
    (found,) = fast_scale_up.conditions(replace(context(), settings=CompanionSettings()))
    assert (found.is_true, found.reason) == (False, "SwitchedOff")
    assert "companion.features.fastScaleUp" in found.message


def test_a_policy_that_does_not_ask_for_it_has_no_such_condition() -> None:
    assert not list(fast_scale_up.conditions(context(rule=replace(FAST, fast_scale_up=False))))


def test_a_policy_that_was_not_assessed_says_nothing_of_it() -> None:
    case = context()
    case = replace(case, decision=None, view=replace(case.view, assessment=None))
    assert not list(fast_scale_up.conditions(case))


def test_a_metric_that_waits_for_its_delay_raises_nothing() -> None:
    waiting = cpu("1200m", "400m", delay=Delay(up=60))
    assert not list(fast_scale_up.plan(context(rule=replace(FAST, metrics=(waiting,)))))
    assert list(fast_scale_up.plan(context()))
