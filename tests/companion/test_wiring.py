"""An HPA is set to follow its policy where that is asked for, and nobody who has it another way is fought."""

from dataclasses import replace
from fractions import Fraction
from typing import Any

import msgspec
import pytest

from adapter.companion import hpa_configuration
from adapter.companion.state import ActionResult, Condition, Context, State
from adapter.load.spec import Bounds, HpaTolerance, Mode, Policy, Velocity
from adapter.policy.behavior import SHIPPED_PACE
from adapter.policy.hpa import DIRECTIONS, Hpa, ScalingActive, ScalingPolicy, ScalingRules
from adapter.policy.linking import Neighbours
from adapter.settings import CompanionFeatures, CompanionSettings
from tests.companion import kit
from tests.companion.kit import judged
from tests.load.kit import NOW, cpu, policy

MANAGED = policy(cpu("1200m", "400m"), hpa_configuration="Manage", uid="rule")
REPORTED = replace(MANAGED, hpa_configuration="Report")
SWITCHED_ON = CompanionSettings(features=CompanionFeatures(hpa_configuration=True))
TENTH = Bounds(minimum=1, maximum=100, tolerance=HpaTolerance(Fraction(1, 10), Fraction(1, 10)))
PLAIN = kit.hpa(ScalingRules(), uid="above", resource_version="7", bounds=TENTH)
ZERO = ScalingRules(tolerance=Fraction(0), select="Max")
SET = replace(
    PLAIN,
    resource_version="8",
    bounds=Bounds(minimum=1, maximum=100),
    scale_up=msgspec.structs.replace(ZERO, policies=(ScalingPolicy("Pods", 100, 1),)),
    scale_down=msgspec.structs.replace(ZERO, policies=(ScalingPolicy("Percent", 100, 1),)),
)
PODS = [{"type": "Pods", "value": 100, "periodSeconds": 1}]
APPLIED = {
    "apiVersion": "autoscaling/v2",
    "kind": "HorizontalPodAutoscaler",
    "metadata": {"name": "web", "namespace": "shop", "uid": "above", "resourceVersion": "7"},
    "spec": {
        "behavior": {
            "scaleUp": {"tolerance": "0", "policies": PODS, "selectPolicy": "Max"},
            "scaleDown": {"tolerance": "0"},
        }
    },
}


def context(hpa: Hpa | None = PLAIN, rule: Policy = MANAGED, **changes: Any) -> Context:
    given = {"hpa": hpa, "settings": SWITCHED_ON, "has_tolerance": True}
    return kit.context(rule=rule, bounds=hpa.bounds if hpa else None, **(given | changes))


def finding(case: Context) -> Condition:
    found = hpa_configuration.condition(case)
    assert found is not None
    return found


def bodies(case: Context) -> list[Any]:
    """What is applied."""
    return [write.body for write in hpa_configuration.plan(case)]


def wired(case: Context) -> dict[str, Any]:
    """The behavior that is set."""
    (body,) = bodies(case)
    return dict(body["spec"]["behavior"])


def undone(seconds: float) -> Context:
    """So long after an HPA was set, and another client has undone that."""
    case = context()
    (write,) = hpa_configuration.plan(case)
    state = case.state.tried(write, ActionResult.DONE, NOW)
    hpa = replace(PLAIN, resource_version="9", last_writer="argocd-controller")
    return replace(case, state=state, now=NOW + seconds, hpa=hpa)


REFUSED = ScalingActive("False", "FailedGetObjectMetric", "unable to get metric desired_replicas")
"""What an HPA says while no adapter answers it."""
MISSPELT = replace(SET.metrics[0], name="desired_replica")


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        pytest.param({}, "Decided", id="it acts"),
        pytest.param({"scaling_active": None}, "Decided", id="it has not synced yet"),
        pytest.param({"scaling_active": REFUSED}, "HPAInactive", id="it gets an error"),
        pytest.param({"scaling_active": ScalingActive("False", "ScalingDisabled")}, "Decided", id="its target is at 0"),
        pytest.param({"scaling_active": REFUSED, "metrics": ()}, "Decided", id="it asks another metric"),
        pytest.param({"scaling_active": REFUSED, "metrics": (MISSPELT,)}, "HPAInactive", id="it misspells the metric"),
    ],
)
def test_a_policy_is_ready_while_the_hpa_that_asks_for_it_acts(changes: dict[str, Any], reason: str) -> None:
    found = judged(context(replace(SET, **changes))).conditions["Ready"]
    assert (found.is_true, found.reason) == (reason == "Decided", reason)
    says = "a count is decided, and HPA web does not follow: it does not act (FailedGetObjectMetric): unable to get"
    assert found.message.startswith("a count is decided" if found.is_true else says)


# --- what is set


@pytest.mark.parametrize(
    ("changes", "writes"),
    [
        ({}, [APPLIED]),
        ({"rule": REPORTED}, []),
        ({"rule": replace(MANAGED, mode=Mode.OBSERVE)}, []),
        ({"rule": replace(MANAGED, mode=Mode.PAUSED)}, [APPLIED]),
        pytest.param({"hpa": replace(PLAIN, metrics=())}, [], id="an HPA that asks another policy"),
        pytest.param({"neighbours": Neighbours(policies="old")}, [], id="one with two policies"),
        pytest.param({"hpa": SET}, [], id="one that is as wanted"),
    ],
)
def test_all_of_it_is_set_at_once_where_the_policy_asks_for_it(changes: dict[str, Any], writes: list[Any]) -> None:
    assert bodies(context(**changes)) == writes


def test_an_hpa_that_never_scales_down_is_conformant_and_says_so() -> None:
    found = finding(context(replace(SET, scale_down=msgspec.structs.replace(SET.scale_down, select="Disabled"))))
    assert (found.is_true, found.reason) == (True, "Conformant")
    assert found.message.endswith("it never scales down, since its scaleDown.selectPolicy is Disabled")


def test_a_policy_in_mode_observe_beside_another_metric_is_no_trouble() -> None:
    elsewhere = replace(SET, metrics=())
    found = finding(context(elsewhere, replace(REPORTED, mode=Mode.OBSERVE)))
    assert (found.is_true, found.reason) == (True, "OnlyObserved")
    assert "HPA web is left as it is" in found.message


def test_no_tolerance_is_set_where_there_is_no_such_field() -> None:
    behavior = wired(context(has_tolerance=False))
    assert "tolerance" not in behavior["scaleUp"]
    assert "scaleDown" not in behavior


def test_the_pace_of_the_way_down_is_left_to_people_unless_the_policy_has_one() -> None:
    paced = msgspec.structs.replace(SET.scale_down, policies=SHIPPED_PACE.policies)
    for owners in ({}, {"scaleDown.policies": ("kubectl",)}):
        case = context(replace(SET, scale_down=paced, owners=owners))
        assert (bodies(case), finding(case).reason) == ([], "Conformant")
    behavior = wired(context(rule=replace(MANAGED, velocity=Velocity(down=10))))
    assert [one["value"] for one in behavior["scaleDown"]["policies"]] == [1, 10]


# --- what is left to others, and said


@pytest.mark.parametrize(
    ("tolerance", "told"),
    [(Fraction(1, 20), "of HPA web, so it is left as it is"), (None, "of HPA web, and the API server kept no value")],
)
def test_a_tolerance_of_another_manager_stays_and_is_named(tolerance: Fraction | None, told: str) -> None:
    """A manager owns a field that the API server dropped, too."""
    up, down = (msgspec.structs.replace(rules, tolerance=tolerance) for rules in (SET.scale_up, SET.scale_down))
    owners = {f"{way}.tolerance": ("kubectl",) for way in DIRECTIONS}
    case = context(replace(SET, scale_up=up, scale_down=down, owners=owners))
    assert (bodies(case), finding(case).reason) == ([], "WiringConflict")
    assert f"kubectl owns behavior.scaleUp.tolerance {told}" in finding(case).message


def test_only_what_others_own_and_keep_from_being_set_is_named() -> None:
    policies = (ScalingPolicy("Pods", 1, 60),)
    slow = replace(
        SET, scale_up=msgspec.structs.replace(ZERO, policies=policies), scale_down=ScalingRules(select="Max")
    )
    owners = {f"scaleUp.{name}": ("kubectl",) for name in ("tolerance", "policies")}
    message = finding(context(replace(slow, owners=owners))).message
    assert message.startswith("kubectl owns behavior.scaleUp.policies of HPA web, so it is left as it is")
    assert "tolerance of HPA" not in message
    loose = replace(slow, scale_up=ScalingRules(select="Max", policies=policies))
    message = finding(context(replace(loose, owners={"scaleUp.policies": ("kubectl",)}))).message
    assert message.startswith("kubectl owns behavior.scaleUp.policies of HPA web, so it is left as it is")


def test_a_client_that_undoes_the_wiring_is_named_and_not_fought_for_an_hour() -> None:
    assert bodies(undone(5)) == bodies(undone(3599)) == []
    found = finding(undone(5))
    assert found.reason == "WiringUndone"
    assert "the companion's changes of HPA web (scaleUp.tolerance" in found.message
    assert "were undone, most likely by argocd-controller; they are made again in an hour" in found.message
    assert len(bodies(undone(3600))) == 1


def test_a_missing_right_is_shown_until_it_is_granted_or_others_have_set_every_field() -> None:
    (write,) = hpa_configuration.plan(context())
    state = State().tried(write, ActionResult.REFUSED, NOW)
    assert finding(context(state=state)).reason == "WiringRefused"
    assert finding(context(SET, state=state)).is_true
    assert finding(context(state=state.tried(write, ActionResult.DONE, NOW + 60))).reason == "Tolerance"


def test_a_policy_that_asks_for_wiring_shows_that_the_feature_is_off() -> None:
    assert finding(context(settings=CompanionSettings())).reason == "WiringOff"
    assert finding(context(rule=REPORTED, settings=CompanionSettings())).reason == "Tolerance"
