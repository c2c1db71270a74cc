"""A count is raised before the HPA's next sync where that one will agree, and no further than it might go itself."""

from dataclasses import replace
from fractions import Fraction
from typing import Any

import msgspec
import pytest

from adapter.companion import companion, fast_scale_up
from adapter.companion.changes import ReplicaHistory
from adapter.companion.state import ActionResult, Context, State, Write
from adapter.kube.api import JSON_PATCH
from adapter.load.spec import Bounds, HpaTolerance, Mode, Policy, Seconds
from adapter.policy.hpa import (
    CrossVersionReference,
    Hpa,
    HpaMetric,
    MetricSourceType,
    MetricTargetType,
    ScalingActive,
    ScalingPolicy,
)
from adapter.settings import CompanionFeatures, CompanionSettings
from tests.companion import kit
from tests.companion.kit import DESIRED, FREE, hpa
from tests.load.kit import NOW, cpu, policy

PATH = "/apis/apps/v1/namespaces/shop/deployments/web/scale"
FAST = policy(cpu("1200m", "400m"), fast_scale_up=True)
EXTERNAL = replace(DESIRED, kind=MetricSourceType.EXTERNAL, described=None, match_labels={"policy": "web"})
OTHER = CrossVersionReference("effective-load.io/v1alpha1", "WatermarkPolicy", "other")
LONG_AGO = NOW - 3600.0
SWITCHED_ON = CompanionSettings(features=CompanionFeatures(fast_scale_up=True))
SLOW = CompanionSettings(features=CompanionFeatures(fast_scale_up=True), hpa_sync_seconds=30)


def context(
    load: str = "2400m",
    *,
    pods: int = 4,
    rule: Policy = FAST,
    above: Hpa | None = None,
    since: float = LONG_AGO,
    **changes: Any,
) -> Context:
    """Four pods that each carry twice what they should: eight are wanted."""
    followed = above or hpa()
    seen = ReplicaHistory(target="target", since=since, replicas=4)
    given = {"hpa": followed, "settings": SWITCHED_ON, "state": State().having(seen)}
    return kit.context(load, pods=pods, rule=rule, bounds=followed.bounds, scale_path=PATH, **(given | changes))


def raised_to(case: Context) -> int | None:
    """The count that it is raised to, None where it is left to the HPA."""
    found = list(fast_scale_up.plan(case))
    assert len(found) <= 1
    return int(found[0].body[-1]["value"]) if found else None


def shown(case: Context) -> tuple[bool, str] | None:
    """Whether its condition is true, and why; None without a condition."""
    found = fast_scale_up.condition(case)
    return (found.is_true, found.reason) if found else None


def a_raise() -> Write:
    """The write that raises the count of the usual case."""
    (write,) = fast_scale_up.plan(context())
    return write


def test_the_count_is_raised_to_what_is_decided_before_anything_else() -> None:
    first = next(companion.writes(context(), urgent=True))
    assert (first.kind, first.method, first.path, first.content_type) == ("RaiseScale", "PATCH", PATH, JSON_PATCH)
    assert first.body == [
        {"op": "test", "path": "/metadata/uid", "value": "target"},
        {"op": "test", "path": "/spec/replicas", "value": 4},
        {"op": "add", "path": "/spec/replicas", "value": 8},
    ]
    assert shown(context()) == (True, "Ready")


def test_it_is_off_by_default_and_a_policy_that_asks_for_it_says_so() -> None:
    case = context(settings=CompanionSettings())
    assert list(companion.writes(case, urgent=True)) == []
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
        pytest.param({"since": NOW - 14.9}, None, id="a count that rose, or was first seen, lately"),
        pytest.param({"since": NOW - 15}, 8, id="has risen 15 s ago"),
        pytest.param({"since": NOW - 15, "settings": SLOW}, None, id="or in the sync period of the settings"),
        pytest.param({"since": NOW - 30, "settings": SLOW}, 8, id="which may be 30 s"),
        pytest.param({"since": NOW + 3600}, 8, id="but not for an hour"),
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
                "another policy's count": replace(DESIRED, described=OTHER),
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
    ("policies", "since", "expected"),
    [
        (PODS, NOW - 61, 7),
        pytest.param(PODS, NOW - 60, None, id="a rise within the period may have used it up"),
        pytest.param((*PODS, ScalingPolicy("Pods", 1, 15)), NOW - 60, None, id="the longest period counts"),
        pytest.param((), NOW - 15, 8, id="without any behavior it may double"),
    ],
)
def test_the_hpas_policies_limit_it(policies: tuple[ScalingPolicy, ...], since: float, expected: int | None) -> None:
    assert raised_to(context(above=hpa(msgspec.structs.replace(FREE, policies=policies)), since=since)) == expected


# --- what is remembered of it


def test_a_missing_right_is_shown_until_it_is_granted() -> None:
    state = State().tried(a_raise(), ActionResult.REFUSED, NOW)
    assert shown(context(state=state)) == (False, "Forbidden")
    assert shown(context(state=state.tried(a_raise(), ActionResult.DONE, NOW))) == (True, "Ready")
