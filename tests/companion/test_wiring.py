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
from adapter.policy.hpa import (
    CrossVersionReference,
    FieldManagers,
    Hpa,
    ScalingActive,
    ScalingPolicy,
    ScalingRules,
)
from adapter.policy.linking import Neighbours
from adapter.settings import CompanionFeatures, CompanionSettings
from tests.companion import kit
from tests.companion.kit import DESIRED, judged
from tests.load.kit import NOW, cpu, policy

TENTH = HpaTolerance(Fraction(1, 10), Fraction(1, 10))
MANAGED = policy(cpu("1200m", "400m"), hpa_configuration="Manage", uid="rule")
REPORTED = replace(MANAGED, hpa_configuration="Report")
SWITCHED_ON = CompanionSettings(features=CompanionFeatures(hpa_configuration=True))
PLAIN = Hpa(
    namespace="shop",
    name="web",
    uid="above",
    resource_version="7",
    target=CrossVersionReference("apps/v1", "Deployment", "web"),
    bounds=Bounds(minimum=1, maximum=100, tolerance=TENTH),
    metrics=(DESIRED,),
)
BEHAVIOR = {
    "scaleUp": {
        "tolerance": "0",
        "policies": [{"type": "Pods", "value": 100, "periodSeconds": 1}],
        "selectPolicy": "Max",
    },
    "scaleDown": {"tolerance": "0"},
}
SET = replace(
    PLAIN,
    resource_version="8",
    bounds=Bounds(minimum=1, maximum=100),
    scale_up=ScalingRules(tolerance=Fraction(0), select="Max", policies=(ScalingPolicy("Pods", 100, 1),)),
    scale_down=ScalingRules(tolerance=Fraction(0), select="Max", policies=(ScalingPolicy("Percent", 100, 1),)),
)
APPLIED = {
    "apiVersion": "autoscaling/v2",
    "kind": "HorizontalPodAutoscaler",
    "metadata": {"name": "web", "namespace": "shop", "uid": "above", "resourceVersion": "7"},
    "spec": {"behavior": BEHAVIOR},
}


def context(hpa: Hpa | None = PLAIN, rule: Policy = MANAGED, **changes: Any) -> Context:
    given = {"hpa": hpa, "settings": SWITCHED_ON, "has_tolerance": True}
    return kit.context(rule=rule, bounds=hpa.bounds if hpa else None, **(given | changes))


def finding(case: Context) -> Condition:
    found = hpa_configuration.condition(case)
    assert found is not None
    return found


def wired(case: Context) -> dict[str, Any]:
    """The behavior that is set."""
    (body,) = bodies(case)
    return dict(body["spec"]["behavior"])


def bodies(case: Context) -> list[Any]:
    """What is applied."""
    return [action.body for action in hpa_configuration.plan(case)]


def acted(case: Context, seconds: float, **changes: Any) -> Context:
    """The same some time after its actions were carried out, and what the watch then shows."""
    memory = case.state
    for action in hpa_configuration.plan(case):
        memory = memory.tried(action, ActionResult.DONE, case.now)
    return replace(case, state=memory, now=case.now + seconds, **changes)


def undone(case: Context, seconds: float, version: str = "9") -> Context:
    hpa = replace(PLAIN, resource_version=version, managers=FieldManagers(last="argocd-controller"))
    return acted(case, seconds, hpa=hpa)


REFUSED = ScalingActive("False", "FailedGetObjectMetric", "unable to get metric desired_replicas")
"""What an HPA says while no adapter answers it."""
MISSPELT = replace(SET.metrics[0], name="desired_replica")


@pytest.mark.parametrize(
    ("hpa", "ready", "reason"),
    [
        (replace(SET, scaling_active=ScalingActive("True")), True, "Decided"),
        (replace(SET, scaling_active=None), True, "Decided"),
        (replace(SET, scaling_active=REFUSED), False, "HPAInactive"),
        (replace(SET, scaling_active=ScalingActive("False", "ScalingDisabled", "at 0")), True, "Decided"),
        (replace(SET, scaling_active=REFUSED, metrics=()), True, "Decided"),
        (replace(SET, scaling_active=REFUSED, metrics=(MISSPELT,)), False, "HPAInactive"),
    ],
    ids=[
        "it acts", "it has not synced yet", "it gets an error", "its target is at 0", "it asks another metric",
        "it asks for what the policy does not have",
    ],
)  # fmt: skip
def test_a_policy_is_ready_while_the_hpa_that_asks_for_it_acts(hpa: Hpa, ready: bool, reason: str) -> None:
    found = judged(context(hpa)).conditions["Ready"]
    assert (found.is_true, found.reason) == (ready, reason)
    says = "a count is decided, and HPA web does not follow: it does not act (FailedGetObjectMetric): unable to get"
    assert found.message.startswith("a count is decided" if ready else says)


class TestSetting:
    @pytest.mark.parametrize(
        ("changes", "writes"),
        [
            ({}, [APPLIED]),
            ({"rule": REPORTED}, []),
            ({"rule": replace(MANAGED, mode=Mode.OBSERVE)}, []),
            ({"rule": replace(MANAGED, mode=Mode.PAUSED)}, [APPLIED]),
            pytest.param({"hpa": replace(PLAIN, metrics=())}, [], id="an HPA that asks another policy"),
            pytest.param({"neighbours": Neighbours(policies="old")}, [], id="one with two policies"),
        ],
    )
    def test_all_of_it_is_set_at_once_where_the_policy_asks_for_it(
        self, changes: dict[str, Any], writes: list[Any]
    ) -> None:
        assert bodies(context(**changes)) == writes

    def test_nothing_is_set_on_an_hpa_that_is_as_wanted(self) -> None:
        assert list(hpa_configuration.plan(context(SET))) == []
        assert (finding(context(SET)).is_true, finding(context(SET)).reason) == (True, "Conformant")

    def test_an_hpa_that_never_scales_down_is_conformant_and_says_so(self) -> None:
        found = finding(context(replace(SET, scale_down=msgspec.structs.replace(SET.scale_down, select="Disabled"))))
        assert found.is_true
        assert found.message.endswith("it never scales down, since its scaleDown.selectPolicy is Disabled")

    def test_a_policy_in_mode_observe_beside_another_metric_is_no_trouble(self) -> None:
        elsewhere = replace(PLAIN, metrics=(), bounds=Bounds(minimum=1, maximum=100))
        case = context(elsewhere, replace(REPORTED, mode=Mode.OBSERVE))
        found = finding(case)
        assert (found.is_true, found.reason) == (True, "OnlyObserved")
        assert "HPA web is left as it is" in found.message

    def test_no_tolerance_is_set_where_there_is_no_such_field(self) -> None:
        behavior = wired(context(has_tolerance=False))
        assert "tolerance" not in behavior["scaleUp"]
        assert "scaleDown" not in behavior

    def test_the_pace_of_the_way_down_is_left_to_people_unless_the_policy_has_one(self) -> None:
        paced = msgspec.structs.replace(SET.scale_down, policies=SHIPPED_PACE.policies)
        for managers in (FieldManagers(), FieldManagers(owners={"scaleDown.policies": ("kubectl",)})):
            case = context(replace(SET, scale_down=paced, managers=managers))
            assert list(hpa_configuration.plan(case)) == []
            assert finding(case).reason == "Conformant"
        behavior = wired(context(rule=replace(MANAGED, velocity=Velocity(down=10))))
        assert [one["value"] for one in behavior["scaleDown"]["policies"]] == [1, 10]


class TestOthers:
    def owned(self, name: str, **pace: Any) -> Hpa:
        return replace(
            PLAIN,
            managers=FieldManagers(owners={name: ("flux",)}),
            scale_up=msgspec.structs.replace(PLAIN.scale_up, **pace),
        )

    def test_fields_of_other_owners_are_left_alone_and_named(self) -> None:
        case = context(self.owned("scaleUp.tolerance", tolerance=Fraction(1, 20)))
        assert "tolerance" not in wired(case)["scaleUp"]
        assert finding(case).reason == "WiringConflict"
        assert "flux owns behavior.scaleUp.tolerance of HPA web" in finding(case).message


class TestWar:
    def test_a_client_that_undoes_the_wiring_is_named_and_not_fought(self) -> None:
        case = undone(context(), 5)
        assert list(hpa_configuration.plan(case)) == []
        found = finding(case)
        assert found.reason == "WiringUndone"
        assert "the companion's changes of HPA web (scaleUp.tolerance" in found.message
        assert "were undone, most likely by argocd-controller" in found.message
        assert "made again in an hour" in found.message

    def test_wiring_that_was_undone_is_set_again_after_an_hour(self) -> None:
        case = undone(context(), 3599)
        assert list(hpa_configuration.plan(case)) == []
        assert len(list(hpa_configuration.plan(replace(case, now=case.now + 1)))) == 1


class TestMissing:
    def test_a_missing_right_is_shown_until_it_is_granted_or_others_have_set_every_field(self) -> None:
        (write,) = hpa_configuration.plan(context())
        memory = State().tried(write, ActionResult.REFUSED, NOW)
        assert finding(context(state=memory)).reason == "WiringRefused"
        assert finding(context(SET, state=memory)).is_true
        granted = memory.tried(write, ActionResult.DONE, NOW + 60)
        assert finding(context(state=granted)).reason == "Tolerance"

    def test_a_policy_that_asks_for_wiring_shows_that_the_feature_is_off(self) -> None:
        assert finding(context(settings=CompanionSettings())).reason == "WiringOff"
        assert finding(context(rule=REPORTED, settings=CompanionSettings())).reason == "Tolerance"
