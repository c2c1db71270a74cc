"""A count is raised before the HPA's next sync where that one will agree, and no further than it might go itself."""

from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest

from adapter.companion import plan
from adapter.companion.context import Context, Raised, State
from adapter.companion.features import fast_scale_up
from adapter.companion.replica_observer import Watched, look
from adapter.companion.writes.actions import ActionResult, RaiseScale
from adapter.load.quantity import NANO
from adapter.load.spec import Bounds, HpaTolerance, Mode, Policy
from adapter.policy.behavior import ReplicaChange
from adapter.policy.hpa import (
    Hpa,
    HpaMetric,
    MetricSourceType,
    MetricTargetType,
    ObjectReference,
    ScalingPolicy,
    ScalingRules,
)
from adapter.settings import CompanionFeatures, CompanionSettings
from adapter.snapshot import Key, PolicyView
from tests.load.world import NOW, TARGET, cpu, pod, policy, scale, see, usage

KEY = Key("shop", "web")
PATH = "/apis/apps/v1/namespaces/shop/deployments/web/scale"
FAST = policy(cpu("1200m", "400m"), fast_scale_up=True)
POLICY = ObjectReference("effective-load.io/v1alpha1", "WatermarkPolicy", "web")
DEPLOYMENT = ObjectReference("apps/v1", "Deployment", "web")
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
        active=True,
    )
    return replace(base, **changes)


def watched(replicas: int = 4, *rises: ReplicaChange, **changes: Any) -> Watched:
    base = Watched(target="target", since=LONG_AGO, scaled_before=None, replicas=replicas, rises=rises)
    return replace(base, **changes)


def situation(
    load: str = "2400m",
    *,
    pods: int = 4,
    rule: Policy = FAST,
    above: Hpa | None = None,
    seen: Watched | None = None,
    current: int | None = None,
    **changes: Any,
) -> Context:
    """Four pods that each carry twice what they should: eight are wanted."""
    followed = above or hpa()
    names = [f"web-{n}" for n in range(pods)]
    assessment, decision = see(
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
        past=State(),
        watched=seen or watched(pods),
        leads_since=LONG_AGO,
    )
    return replace(base, **changes)


def raised_to(case: Context) -> int | None:
    """The count that it is raised to, None where it is left to the HPA."""
    found = list(fast_scale_up.plan(case))
    assert len(found) <= 1
    return found[0].to if found else None


def test_the_count_is_raised_to_what_is_decided() -> None:
    assert list(fast_scale_up.plan(situation())) == [RaiseScale(key=KEY, path=PATH, target="target", current=4, to=8)]


def test_it_waits_for_nothing_else() -> None:
    assert isinstance(next(plan.urgent(situation())), RaiseScale)


def test_switched_off_nothing_is_raised() -> None:
    case = replace(situation(), settings=CompanionSettings())
    assert not [one for one in plan.urgent(case) if isinstance(one, RaiseScale)]


def test_it_is_off_by_default() -> None:
    assert not CompanionFeatures().fast_scale_up


def test_a_policy_that_does_not_ask_for_it_is_left_to_the_hpa() -> None:
    assert raised_to(situation(rule=replace(FAST, fast_scale_up=False))) is None


@pytest.mark.parametrize("load", ["800m", "100m"])
def test_a_count_is_never_kept_or_lowered(load: str) -> None:
    assert raised_to(situation(load)) is None


@pytest.mark.parametrize("changes", [{"mode": Mode.OBSERVE}, {"mode": Mode.PAUSED}, {"hold_until": NOW + 60}])
def test_nothing_is_raised_while_a_policy_rests(changes: dict[str, Any]) -> None:
    assert raised_to(situation(rule=replace(FAST, **changes))) is None


def test_an_error_raises_nothing() -> None:
    case = situation()
    assert case.decision is not None
    failed = replace(case.decision, desired=None, served=None, error="metric cpu: nobody answers")
    assert raised_to(replace(case, decision=failed)) is None


def test_a_policy_that_was_not_assessed_raises_nothing() -> None:
    assert raised_to(replace(situation(), decision=None)) is None


def test_the_hpas_maximum_is_the_most() -> None:
    assert raised_to(situation(above=hpa(bounds=Bounds(minimum=1, maximum=6)))) == 6


# --- the HPA must agree at its next sync


@pytest.mark.parametrize("metric", [DESIRED, EXTERNAL, replace(DESIRED, described=DEPLOYMENT)])
def test_an_hpa_that_takes_the_count_as_it_is_agrees(metric: HpaMetric) -> None:
    assert raised_to(situation(above=hpa(metrics=(metric,)))) == 8


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
def test_an_hpa_that_does_not_is_left_alone(metric: HpaMetric) -> None:
    assert raised_to(situation(above=hpa(metrics=(metric,)))) is None
    assert obstacle(hpa(metrics=(metric,))) == "NotFollowed"


def test_other_metrics_of_the_hpa_do_not_matter_for_the_largest_wins() -> None:
    other = HpaMetric(kind=MetricSourceType.RESOURCE, name="cpu", target=MetricTargetType.UTILIZATION, aim=70)
    assert raised_to(situation(above=hpa(metrics=(other, DESIRED)))) == 8


def test_without_an_hpa_nothing_is_raised() -> None:
    assert raised_to(replace(situation(), hpa=None)) is None


def test_an_hpa_that_does_not_act_is_not_overtaken() -> None:
    assert raised_to(situation(above=hpa(active=False))) is None


@pytest.mark.parametrize(("tolerance", "expected"), [("0.1", None), ("0.01", None), ("0.0099", 8), ("0", 8)])
def test_a_tolerance_that_could_take_a_pod_of_the_most_there_may_be_forbids_it(
    tolerance: str, expected: int | None
) -> None:
    above = hpa(bounds=Bounds(minimum=1, maximum=100, tolerance=HpaTolerance(Fraction(tolerance), Fraction(0))))
    assert obstacle(above) == (None if expected else "Tolerance")
    case = situation()
    assert raised_to(replace(case, hpa=above)) == expected


def test_a_scale_up_that_the_hpa_stabilizes_is_left_to_it() -> None:
    pace = replace(FREE, stabilization=1)
    assert raised_to(situation(above=hpa(pace))) is None
    assert obstacle(hpa(pace)) == "ScaleUpStabilized"


def test_a_scale_up_that_is_disabled_stays_so() -> None:
    pace = replace(FREE, select="Disabled")
    assert raised_to(situation(above=hpa(pace))) is None
    assert obstacle(hpa(pace)) == "ScaleUpDisabled"


def obstacle(above: Hpa) -> str | None:
    (found,) = fast_scale_up.findings(situation(above=above))
    return None if found.is_true else found.reason


@pytest.mark.parametrize("bounds", [Bounds(minimum=5, maximum=100), Bounds(minimum=1, maximum=3)])
def test_a_count_outside_of_the_hpas_bounds_is_left_to_it(bounds: Bounds) -> None:
    assert raised_to(situation(above=hpa(bounds=bounds))) is None


def test_a_target_that_somebody_scaled_to_zero_stays_there() -> None:
    case = situation(above=hpa(bounds=Bounds(minimum=0, maximum=100)))
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
    assert raised_to(situation(above=hpa(pace))) == expected


def test_without_any_behavior_it_may_double() -> None:
    assert raised_to(situation("4800m", above=hpa(replace(FREE, policies=())))) == 8


def test_what_rose_within_the_period_counts_whoever_raised_it() -> None:
    pace = replace(FREE, policies=(ScalingPolicy("Pods", 3, 60),))
    assert raised_to(situation(above=hpa(pace), seen=watched(4, ReplicaChange(NOW - 59, 2)))) == 5
    assert raised_to(situation(above=hpa(pace), seen=watched(4, ReplicaChange(NOW - 59, 3)))) is None
    assert raised_to(situation(above=hpa(pace), seen=watched(4, ReplicaChange(NOW - 61, 3)))) == 7


def test_a_scaling_that_was_not_seen_may_have_taken_all_there_was() -> None:
    pace = replace(FREE, policies=(ScalingPolicy("Pods", 3, 60),))
    for ago, expected in ((60.0, None), (61.0, 7)):
        assert raised_to(situation(above=hpa(pace), seen=watched(4, scaled_before=NOW - ago))) == expected


def test_without_any_behavior_nothing_before_matters() -> None:
    pace = replace(FREE, policies=())
    assert raised_to(situation(above=hpa(pace), seen=watched(4, scaled_before=NOW - 1))) == 8


def test_a_count_that_was_never_watched_is_left_to_the_hpa() -> None:
    assert raised_to(replace(situation(), watched=None)) is None


def test_one_to_thirteen_is_ten_at_once_and_thirteen_after_300_seconds() -> None:
    pace = replace(FREE, policies=(ScalingPolicy("Percent", 900, 300),))
    assert raised_to(situation("15600m", pods=1, above=hpa(pace))) == 10
    later = situation("1560m", pods=10, above=hpa(pace), seen=watched(10, ReplicaChange(NOW - 299, 9)))
    assert raised_to(later) is None
    assert raised_to(replace(later, watched=watched(10, ReplicaChange(NOW - 300, 9)))) == 13


# --- once in 15 s


@pytest.mark.parametrize(("ago", "expected"), [(14.9, None), (15.0, 8)])
def test_a_target_is_raised_once_in_15_seconds(ago: float, expected: int | None) -> None:
    assert raised_to(replace(situation(), past=State(raised=Raised(at=NOW - ago)))) == expected


@pytest.mark.parametrize(("led_for", "expected"), [(5.0, None), (11.0, 8)])
def test_a_raise_before_this_replica_led_may_be_its_predecessors(led_for: float, expected: int | None) -> None:
    case = situation(seen=watched(4, ReplicaChange(NOW - 10, 1)))
    assert raised_to(replace(case, leads_since=NOW - led_for)) == expected


def test_a_raise_by_the_hpa_is_no_reason_to_wait() -> None:
    assert raised_to(situation(seen=watched(4, ReplicaChange(NOW - 1, 1)))) == 8


def test_a_target_is_watched_for_15_seconds_first() -> None:
    assert raised_to(situation(seen=watched(4, since=NOW - 14.9))) is None
    assert raised_to(situation(seen=watched(4, since=NOW - 15))) == 8


# --- what is remembered of it

RAISE = RaiseScale(key=KEY, path=PATH, target="target", current=4, to=8)


def test_a_raise_is_remembered() -> None:
    assert plan.after(State(), RAISE, NOW).raised == Raised(at=NOW, to=RAISE.to)


def test_one_without_an_answer_may_have_been_made() -> None:
    assert plan.missed(State(), RAISE, ActionResult.FAILED, NOW).raised.at == NOW


def test_one_that_came_too_late_may_be_made_again_at_once() -> None:
    assert plan.missed(State(), RAISE, ActionResult.OVERTAKEN, NOW) == State()


def test_where_the_right_for_it_lacks_a_condition_says_so_until_it_is_there() -> None:
    past = plan.missed(State(), RAISE, ActionResult.REFUSED, NOW)
    (found,) = fast_scale_up.findings(replace(situation(), past=past))
    assert (found.is_true, found.reason) == (False, "Forbidden")
    (mended,) = fast_scale_up.findings(replace(situation(), past=plan.after(past, RAISE, NOW)))
    assert mended.is_true


# --- its condition


def test_a_policy_that_may_be_raised_fast_says_so() -> None:
    (found,) = fast_scale_up.findings(situation())
    assert (found.type, found.is_true, found.reason) == ("FastScaleUp", True, "Ready")


def test_a_policy_that_asks_for_what_is_switched_off_says_so() -> None:
    (found,) = fast_scale_up.findings(replace(situation(), settings=CompanionSettings()))
    assert (found.is_true, found.reason) == (False, "SwitchedOff")
    assert "companion.features.fastScaleUp" in found.message


def test_a_policy_that_does_not_ask_for_it_has_no_such_condition() -> None:
    assert not list(fast_scale_up.findings(situation(rule=replace(FAST, fast_scale_up=False))))


# --- what is seen of a count


def view(replicas: int, *, last_scale: float | None = None, uid: str = "target") -> PolicyView:
    bounds = Bounds(minimum=1, maximum=100, last_scale=last_scale)
    return PolicyView(policy=FAST, target=replace(TARGET, uid=uid), scale=scale(replicas), bounds=bounds)


def test_a_count_is_watched_from_the_first_look_on() -> None:
    known = look(None, view(3, last_scale=NOW - 5), NOW)
    assert known == Watched(target="target", since=NOW, scaled_before=NOW - 5, replicas=3)


def test_rises_are_dated_and_falls_are_not_kept() -> None:
    known = look(None, view(3), NOW)
    for after, replicas in enumerate((3, 5, 4, 9, 9), start=1):
        known = look(known, view(replicas, last_scale=NOW), NOW + after)
    assert known == Watched(
        target="target",
        since=NOW,
        scaled_before=None,
        replicas=9,
        rises=(ReplicaChange(NOW + 2, 2), ReplicaChange(NOW + 4, 5)),
    )


def test_rises_are_kept_for_as_long_as_a_period_may_be() -> None:
    known = look(look(None, view(3), NOW), view(5), NOW + 1)
    assert known is not None
    kept = look(known, view(6), NOW + 1800.9)
    gone = look(known, view(6), NOW + 1801)
    assert kept is not None
    assert gone is not None
    assert [rise.by for rise in kept.rises] == [2, 1]
    assert [rise.by for rise in gone.rises] == [1]


def test_another_target_of_the_same_policy_is_watched_anew() -> None:
    known = look(look(None, view(3), NOW), view(5), NOW + 1)
    assert look(known, view(7, uid="other"), NOW + 2) == Watched(
        target="other", since=NOW + 2, scaled_before=None, replicas=7
    )


def test_a_target_that_cannot_be_seen_for_a_while_is_not_forgotten() -> None:
    known = look(None, view(3), NOW)
    assert look(known, PolicyView(policy=FAST), NOW + 1) is known
