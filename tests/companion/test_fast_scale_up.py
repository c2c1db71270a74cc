"""A count is raised before the HPA's next sync where that one will agree, and no further than it might go itself."""

from dataclasses import replace
from fractions import Fraction
from typing import Any

import msgspec
import pytest

from adapter.companion import fast_scale_up, plan
from adapter.companion.replica_history import LastRaise, ReplicaHistory
from adapter.companion.state import ActionResult, Context, State, Write
from adapter.hpa.behavior import ScaleEvent
from adapter.kube.api import JSON_PATCH
from adapter.load.quantity import NANO
from adapter.load.spec import Bounds, HpaTolerance, Mode, Policy, Seconds
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
from tests.companion import kit
from tests.load.kit import NOW, cpu, policy

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
SLOW = CompanionSettings(features=CompanionFeatures(fast_scale_up=True), hpa_sync_seconds=30)


def hpa(up: ScalingRules = FREE, *, bounds: Bounds | None = None, **changes: Any) -> Hpa:
    base = Hpa(
        namespace="shop",
        name="web",
        target=DEPLOYMENT,
        bounds=bounds or Bounds(minimum=1, maximum=100),
        metrics=(DESIRED,),
        scale_up=up,
        has_behavior=bool(up.policies),
        scaling_active=ScalingActive("True"),
    )
    return replace(base, **changes)


def watched(replicas: int = 4, *rises: ScaleEvent, **changes: Any) -> ReplicaHistory:
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
    **changes: Any,
) -> Context:
    """Four pods that each carry twice what they should: eight are wanted."""
    followed = above or hpa()
    given = {
        "hpa": followed,
        "settings": SWITCHED_ON,
        "state": State().having(seen or watched(pods), raised or LastRaise()),
    }
    return kit.context(load, pods=pods, rule=rule, bounds=followed.bounds, scale_path=PATH, **(given | changes))


def raised_to(case: Context) -> int | None:
    """The count that it is raised to, None where it is left to the HPA."""
    found = list(fast_scale_up.plan(case))
    assert len(found) <= 1
    return int(found[0].body[-1]["value"]) if found else None


def shown(case: Context) -> tuple[bool, str] | None:
    """Whether its condition is true, and why; None without a condition."""
    found = next(fast_scale_up.conditions(case), None)
    return (found.is_true, found.reason) if found else None


def a_raise() -> Write:
    """The write that raises the count of the usual case."""
    (write,) = fast_scale_up.plan(context())
    return write


def test_the_count_is_raised_to_what_is_decided_before_anything_else() -> None:
    first = next(plan.actions(context(), urgent=True))
    assert (first.kind, first.method, first.path, first.content_type) == ("RaiseScale", "PATCH", PATH, JSON_PATCH)
    assert first.body == [
        {"op": "test", "path": "/metadata/uid", "value": "target"},
        {"op": "test", "path": "/spec/replicas", "value": 4},
        {"op": "add", "path": "/spec/replicas", "value": 8},
    ]
    assert shown(context()) == (True, "Ready")


def test_it_is_off_by_default_and_a_policy_that_asks_for_it_says_so() -> None:
    case = context(settings=CompanionSettings())
    assert list(plan.actions(case, urgent=True)) == []
    assert shown(case) == (False, "SwitchedOff")


def test_a_policy_that_does_not_ask_for_it_is_left_to_the_hpa_and_has_no_condition() -> None:
    case = context(rule=replace(FAST, fast_scale_up=False))
    assert raised_to(case) is None
    assert shown(case) is None


def bounded(minimum: int, maximum: int, tolerance: str = "0") -> Bounds:
    return Bounds(minimum=minimum, maximum=maximum, tolerance=HpaTolerance(Fraction(tolerance), Fraction(0)))


CPU = HpaMetric(kind=MetricSourceType.RESOURCE, name="cpu", target=MetricTargetType.UTILIZATION, aim=70)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        pytest.param({"load": "800m"}, None, id="a count is never kept"),
        pytest.param(
            {"rule": replace(FAST, metrics=(cpu("1200m", "400m", delay=Seconds(up=60)),))}, None,
            id="a metric waits for its delay",
        ),
        pytest.param({"hpa": None}, None, id="there is no HPA"),
        pytest.param({"above": hpa(scaling_active=ScalingActive("False"))}, None, id="the HPA does not act"),
        pytest.param({"above": hpa(bounds=bounded(1, 6))}, 6, id="the HPA's maximum is not exceeded"),
        pytest.param({"above": hpa(bounds=bounded(5, 100))}, None, id="a count below the HPA's minimum is left to it"),
        pytest.param({"above": hpa(bounds=bounded(1, 3))}, None, id="and one above its maximum"),
        pytest.param({"above": hpa(metrics=(EXTERNAL,))}, 8, id="the HPA may follow by an External metric"),
        pytest.param({"state": State()}, None, id="a count that was never watched is left to the HPA"),
        pytest.param({"seen": watched(since=NOW - 14.9)}, None, id="a target is watched for 15 s"),
        pytest.param({"seen": watched(since=NOW - 15)}, 8, id="before it is raised"),
        pytest.param({"raised": LastRaise(at=NOW - 14.9)}, None, id="a target is raised once"),
        pytest.param({"raised": LastRaise(at=NOW - 15)}, 8, id="in 15 s"),
        pytest.param(
            {"raised": LastRaise(at=NOW - 15), "settings": SLOW}, None, id="or in the sync period of the settings"
        ),
        pytest.param({"raised": LastRaise(at=NOW - 30), "settings": SLOW}, 8, id="which may be 30 s"),
        pytest.param({"raised": LastRaise(at=NOW + 3600)}, 8, id="but not for an hour"),
        pytest.param(
            {"seen": watched(4, ScaleEvent(1, NOW - 10)), "leads_since": NOW - 5}, None,
            id="a raise before this replica led may be its predecessor's",
        ),
        pytest.param(
            {"seen": watched(4, ScaleEvent(1, NOW - 10)), "leads_since": NOW - 11}, 8,
            id="one since then was the HPA's",
        ),
    ],
)  # fmt: skip
def test_a_count_is_raised_where_the_hpa_will_agree(changes: dict[str, Any], expected: int | None) -> None:
    assert raised_to(context(**changes)) == expected


@pytest.mark.parametrize("rest", [{"mode": Mode.OBSERVE}, {"mode": Mode.PAUSED}, {"hold_until": NOW + 60}])
def test_nothing_is_raised_while_a_policy_rests_whatever_was_decided_before(rest: dict[str, Any]) -> None:
    case = context(rule=replace(FAST, **rest))
    assert raised_to(case) is None
    assert raised_to(replace(case, decision=context().decision)) is None


@pytest.mark.parametrize(
    ("above", "reason"),
    [
        *(
            pytest.param(hpa(metrics=(metric,)), "NotFollowed", id=sentence)
            for sentence, metric in {
                "another policy's count": replace(DESIRED, described=POLICY._replace(name="other")),
                "another policy's External metric": replace(EXTERNAL, match_labels={"policy": "other"}),
                "another metric of the policy": replace(DESIRED, name="effective_cpu"),
                "the count as a Value": replace(DESIRED, target=MetricTargetType.VALUE),
                "the pods' cpu": CPU,
            }.items()
        ),
        pytest.param(
            hpa(msgspec.structs.replace(FREE, stabilization=1)), "ScaleUpStabilized", id="scale up is stabilized"
        ),
        pytest.param(
            hpa(msgspec.structs.replace(FREE, select="Disabled")), "ScaleUpDisabled", id="scale up is disabled"
        ),
    ],
)
def test_an_hpa_that_would_not_agree_is_left_alone_and_the_condition_says_why(above: Hpa, reason: str) -> None:
    assert raised_to(context(above=above)) is None
    assert shown(context(above=above)) == (False, reason)


@pytest.mark.parametrize(("tolerance", "expected"), [("0.1", None), ("0.01", None), ("0.0099", 8), ("0", 8)])
def test_a_tolerance_that_could_swallow_a_pod_at_the_maximum_forbids_a_raise(
    tolerance: str, expected: int | None
) -> None:
    above = hpa(bounds=bounded(1, 100, tolerance))
    assert shown(context(above=above)) == ((True, "Ready") if expected else (False, "Tolerance"))
    assert raised_to(context(hpa=above)) == expected


# --- what the HPA's behavior would still allow

PODS = (ScalingPolicy("Pods", 3, 60),)


@pytest.mark.parametrize(
    ("policies", "seen", "expected"),
    [
        (PODS, watched(), 7),
        pytest.param(PODS, watched(4, ScaleEvent(2, NOW - 59)), 5, id="rises count"),
        pytest.param(PODS, watched(4, ScaleEvent(3, NOW - 59)), None, id="all of them"),
        pytest.param(PODS, watched(scaled_before=NOW - 60), None, id="one before the first look may have used it up"),
        pytest.param(PODS, watched(scaled_before=NOW - 61), 7, id="but not one before the period"),
        pytest.param((), watched(scaled_before=NOW - 0.5), 8, id="without any behavior it may double"),
    ],
)
def test_the_hpas_policies_limit_it(
    policies: tuple[ScalingPolicy, ...], seen: ReplicaHistory, expected: int | None
) -> None:
    assert raised_to(context(above=hpa(msgspec.structs.replace(FREE, policies=policies)), seen=seen)) == expected


# --- what is remembered of it


def test_a_raise_counts_as_made_unless_it_was_overtaken() -> None:
    assert plan.after(State(), a_raise(), ActionResult.DONE, NOW).of(LastRaise) == LastRaise(at=NOW, to=8)
    assert plan.after(State(), a_raise(), ActionResult.FAILED, NOW).of(LastRaise).at == NOW
    assert plan.after(State(), a_raise(), ActionResult.OVERTAKEN, NOW) == State()


def test_a_missing_right_is_shown_until_it_is_granted() -> None:
    state = plan.after(State(), a_raise(), ActionResult.REFUSED, NOW)
    assert shown(context(state=state)) == (False, "Forbidden")
    assert shown(context(state=plan.after(state, a_raise(), ActionResult.DONE, NOW))) == (True, "Ready")
