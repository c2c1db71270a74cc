"""An HPA is set to follow its policy where that is asked for, and nobody who has it another way is fought."""

from dataclasses import replace
from fractions import Fraction
from typing import Any

import msgspec
import pytest

from adapter.companion import plan
from adapter.companion.context import Context, PolicyCondition, State, ToleranceField
from adapter.companion.features import hpa_wiring
from adapter.companion.features.status import status_of
from adapter.companion.writes.actions import ActionResult, AskTolerance, WireHpa
from adapter.companion.writes.hpa_writer import HpaWriter
from adapter.kube.errors import MalformedAnswer
from adapter.load.quantity import NANO
from adapter.load.spec import Bounds, HpaTolerance, HpaWiring, Mode, Policy
from adapter.policy.behavior import required_behavior
from adapter.policy.hpa import (
    Hpa,
    HpaMetric,
    MetricSourceType,
    MetricTargetType,
    ObjectReference,
    ScalingPolicy,
    ScalingRules,
)
from adapter.policy.linking import Neighbours
from adapter.policy.managed_fields import FIELD_MANAGER, FieldManagers
from adapter.settings import CompanionFeatures, CompanionSettings
from adapter.snapshot import Key, PolicyView
from tests.load.world import NOW, cpu, policy, same, see, usage

KEY = Key("shop", "web")
TENTH = HpaTolerance(Fraction(1, 10), Fraction(1, 10))
ENFORCED = policy(cpu("1200m", "400m"), hpa_wiring=HpaWiring.ENFORCE, uid="rule")
REPORTED = replace(ENFORCED, hpa_wiring=HpaWiring.REPORT)
SWITCHED_ON = CompanionSettings(features=CompanionFeatures(hpa_wiring=True))
KNOWN = ToleranceField(known=True, asked_at=NOW + 1e9)
DESIRED = HpaMetric(
    kind=MetricSourceType.OBJECT,
    name="desired_replicas",
    described=ObjectReference("effective-load.io/v1alpha1", "WatermarkPolicy", "web"),
    target=MetricTargetType.AVERAGE_VALUE,
    aim=NANO,
)
PLAIN = Hpa(
    namespace="shop",
    name="web",
    uid="above",
    resource_version="7",
    target=ObjectReference("apps/v1", "Deployment", "web"),
    bounds=Bounds(minimum=1, maximum=100, tolerance=TENTH),
    metrics=(DESIRED,),
)
BEHAVIOR = {
    "scaleUp": {
        "tolerance": "0",
        "policies": [{"type": "Pods", "value": 100, "periodSeconds": 1}],
        "selectPolicy": "Max",
    },
    "scaleDown": {
        "tolerance": "0",
        "policies": [{"type": "Percent", "value": 100, "periodSeconds": 1}],
        "selectPolicy": "Max",
    },
}
SET = replace(
    PLAIN,
    resource_version="8",
    bounds=Bounds(minimum=1, maximum=100),
    scale_up=ScalingRules(tolerance=Fraction(0), select="Max", policies=(ScalingPolicy("Pods", 100, 1),)),
    scale_down=ScalingRules(tolerance=Fraction(0), select="Max", policies=(ScalingPolicy("Percent", 100, 1),)),
)
WRITE = WireHpa(key=KEY, hpa="web", uid="above", version="7", behavior=BEHAVIOR)


def situation(hpa: Hpa | None = PLAIN, rule: Policy = ENFORCED, **changes: Any) -> Context:
    pods, loads = same(4, "800m")
    bounds = hpa.bounds if hpa is not None else Bounds(maximum=9)
    assessment, decision = see(rule, pods, usage(loads), bounds=bounds)
    view = PolicyView(policy=rule, bounds=bounds, assessment=assessment)
    base = Context(
        key=KEY,
        now=NOW,
        view=view,
        decision=decision,
        hpa=hpa,
        settings=SWITCHED_ON,
        past=State(),
        tolerance_field=KNOWN,
    )
    return replace(base, **changes)


def finding(case: Context) -> PolicyCondition:
    (found,) = hpa_wiring.findings(case)
    assert found.type == "HPAConformant"
    return found


def past(case: Context, seconds: float, **changes: Any) -> Context:
    """The same some time after its actions were carried out, and what the watch then shows."""
    memory = case.past
    for action in plan.steady(case):
        if isinstance(action, WireHpa):
            memory = plan.after(memory, action, case.now)
    return replace(case, past=memory, now=case.now + seconds, **changes)


def undone(case: Context, seconds: float, version: str = "9") -> Context:
    hpa = replace(PLAIN, resource_version=version, managers=FieldManagers(last="argocd-controller"))
    return past(case, seconds, hpa=hpa)


class TestSetting:
    def test_all_of_it_is_set_at_once(self) -> None:
        assert list(hpa_wiring.plan(situation())) == [WRITE]

    def test_it_is_planned_only_where_the_feature_is_on(self) -> None:
        assert WRITE in list(plan.steady(situation()))
        assert WRITE not in list(plan.steady(situation(settings=CompanionSettings())))

    def test_a_report_sets_nothing(self) -> None:
        assert list(hpa_wiring.plan(situation(rule=REPORTED))) == []

    def test_a_policy_that_only_observes_changes_nothing(self) -> None:
        assert list(hpa_wiring.plan(situation(rule=replace(ENFORCED, mode=Mode.OBSERVE)))) == []
        assert list(hpa_wiring.plan(situation(rule=replace(ENFORCED, mode=Mode.PAUSED)))) == [WRITE]

    def test_nothing_is_set_where_it_is_so(self) -> None:
        assert list(hpa_wiring.plan(situation(SET))) == []
        assert finding(situation(SET)) == PolicyCondition(
            "HPAConformant", True, "Conformant", "HPA web sets the count that is decided"
        )

    def test_a_policy_that_observes_beside_what_scales_a_service_is_no_trouble(self) -> None:
        elsewhere = replace(PLAIN, metrics=(), bounds=Bounds(minimum=1, maximum=100))
        case = situation(elsewhere, replace(REPORTED, mode=Mode.OBSERVE))
        found = finding(case)
        assert (found.is_true, found.reason) == (True, "OnlyObserved")
        assert "HPA web is left as it is" in found.message

    def test_nothing_is_set_on_an_hpa_that_asks_another_policy_or_has_two(self) -> None:
        assert list(hpa_wiring.plan(situation(replace(PLAIN, metrics=())))) == []
        assert list(hpa_wiring.plan(situation(neighbours=Neighbours(policies=("old",))))) == []

    def test_no_tolerance_is_set_where_there_is_no_such_field(self) -> None:
        (action,) = hpa_wiring.plan(situation(tolerance_field=replace(KNOWN, known=False)))
        assert isinstance(action, WireHpa)
        assert {"tolerance"}.isdisjoint({*action.behavior["scaleUp"], *action.behavior["scaleDown"]})

    def test_what_was_set_is_repaired_long_after(self) -> None:
        case = past(situation(), 90_000, hpa=replace(PLAIN, resource_version="9"))
        (action,) = hpa_wiring.plan(case)
        assert hpa_wiring.after(case.past, action, case.now).wired.times == 1

    def test_a_policy_that_is_paced_anew_is_not_waited_with(self) -> None:
        case = past(situation(), 5, hpa=replace(SET, bounds=Bounds(minimum=1, maximum=200)))
        (action,) = hpa_wiring.plan(case)
        assert isinstance(action, WireHpa)
        assert action.behavior["scaleUp"]["policies"][0]["value"] == 200


class TestOthers:
    def owned(self, name: str, **pace: Any) -> Hpa:
        return replace(
            PLAIN, managers=FieldManagers(owners={name: ("flux",)}), scale_up=replace(PLAIN.scale_up, **pace)
        )

    def test_what_they_own_is_left_to_them_and_told(self) -> None:
        case = situation(self.owned("scaleUp.tolerance", tolerance=Fraction(1, 20)))
        (action,) = hpa_wiring.plan(case)
        assert isinstance(action, WireHpa)
        assert "tolerance" not in action.behavior["scaleUp"]
        assert finding(case).reason == "WiringConflict"
        assert "flux owns behavior.scaleUp.tolerance of HPA web" in finding(case).message

    def test_rules_of_theirs_that_hold_nothing_back_are_no_conflict(self) -> None:
        wide = (ScalingPolicy("Pods", 500, 15),)
        assert finding(situation(self.owned("scaleUp.policies", policies=wide))).reason == "Tolerance"
        narrow = (ScalingPolicy("Pods", 5, 15),)
        assert finding(situation(self.owned("scaleUp.policies", policies=narrow))).reason == "WiringConflict"

    def test_what_the_companion_owns_itself_is_repaired(self) -> None:
        ours = replace(PLAIN, managers=FieldManagers(owners={"scaleUp.tolerance": (FIELD_MANAGER,)}))
        assert list(hpa_wiring.plan(situation(ours))) == [WRITE]


class TestWar:
    def test_a_write_that_the_watch_has_not_shown_yet_is_nobodys_undoing(self) -> None:
        case = past(situation(), 1)
        assert list(hpa_wiring.plan(case)) == []
        assert finding(case).reason == "Tolerance"

    def test_who_undoes_it_is_named_and_not_fought(self) -> None:
        case = undone(situation(), 5)
        assert list(hpa_wiring.plan(case)) == []
        found = finding(case)
        assert found.reason == "WiringUndone"
        assert "what was set of HPA web (scaleUp.tolerance" in found.message
        assert "undone, most likely by argocd-controller" in found.message
        assert "again in 10 min" in found.message

    def test_each_undoing_makes_the_wait_six_times_as_long(self) -> None:
        case, waits = situation(), []
        for version in range(9, 15):
            case = undone(case, 0, str(version))
            waits.append(
                next(s for s in range(0, 200_000, 600) if list(hpa_wiring.plan(replace(case, now=case.now + s))))
            )
            case = replace(case, now=case.now + waits[-1])
        assert waits == [600, 3600, 21_600, 86_400, 86_400, 86_400]

    def test_a_day_of_a_write_every_five_seconds_costs_four_writes(self) -> None:
        case, writes = situation(), 0
        for step in range(86_400 // 5):
            writes += len(list(hpa_wiring.plan(case)))
            case = undone(case, 5, str(100 + step))
        assert writes == 4


class TestMissing:
    def test_a_write_that_was_overtaken_waits_ten_seconds(self) -> None:
        case = situation()
        memory = plan.missed(case.past, WRITE, ActionResult.OVERTAKEN, NOW)
        assert list(hpa_wiring.plan(replace(case, past=memory, now=NOW + 9))) == []
        assert list(hpa_wiring.plan(replace(case, past=memory, now=NOW + 10))) == [WRITE]

    def test_a_lacking_right_is_told_until_it_is_there(self) -> None:
        case = situation()
        memory = plan.missed(case.past, WRITE, ActionResult.REFUSED, NOW)
        assert finding(replace(case, past=memory)).reason == "WiringRefused"
        again = plan.after(memory, WRITE, NOW + 60)
        assert not again.wired.refused

    def test_a_lacking_right_is_told_no_more_once_others_set_all_there_was(self) -> None:
        memory = plan.missed(State(), WRITE, ActionResult.REFUSED, NOW)
        assert finding(situation(SET, past=memory)).is_true

    def test_a_feature_that_is_off_is_told_where_it_is_asked_for(self) -> None:
        assert finding(situation(settings=CompanionSettings())).reason == "WiringOff"
        assert finding(situation(rule=REPORTED, settings=CompanionSettings())).reason == "Tolerance"

    def test_without_an_hpa_there_is_nothing_to_say(self) -> None:
        assert list(hpa_wiring.findings(situation(None))) == []
        assert list(hpa_wiring.plan(situation(None))) == []


class TestTolerance:
    def test_it_is_asked_first_once_in_ten_minutes(self) -> None:
        asks = [AskTolerance(key=KEY, hpa="web")]
        assert list(hpa_wiring.plan(situation(rule=REPORTED, tolerance_field=ToleranceField()))) == asks
        old = ToleranceField(known=True, asked_at=NOW - 600)
        assert list(hpa_wiring.plan(situation(rule=REPORTED, tolerance_field=old))) == asks
        asked = ToleranceField(asked_at=NOW - 599)
        assert list(hpa_wiring.plan(situation(rule=REPORTED, tolerance_field=asked))) == []

    def test_an_hpa_that_has_one_cannot_tell(self) -> None:
        assert list(hpa_wiring.plan(situation(SET, tolerance_field=ToleranceField()))) == []

    async def test_the_answer_tells(self) -> None:
        sent: list[tuple[str, dict[str, str]]] = []
        kept: dict[str, Any] = {"scaleUp": {"tolerance": "0"}}

        async def patch(path: str, _body: object, _type: str, params: dict[str, str]) -> bytes:
            sent.append((path, params))
            return msgspec.json.encode({"spec": {"behavior": kept}})

        hpas = HpaWriter(patch, lambda: NOW)
        await hpas.ask_tolerance(AskTolerance(key=KEY, hpa="web"))
        assert hpas.tolerance == ToleranceField(known=True, asked_at=NOW)
        assert sent[0][0] == "/apis/autoscaling/v2/namespaces/shop/horizontalpodautoscalers/web"
        assert sent[0][1]["dryRun"] == "All"
        kept.clear()
        await hpas.wire(WRITE)
        assert hpas.tolerance.known is False
        assert sent[1][1] == {"fieldManager": FIELD_MANAGER, "force": "false"}

    async def test_an_answer_that_is_no_hpa_tells_nothing(self) -> None:
        async def patch(*_: object) -> bytes:
            return b"<html>"

        hpas = HpaWriter(patch, lambda: NOW)
        with pytest.raises(MalformedAnswer):
            await hpas.ask_tolerance(AskTolerance(key=KEY, hpa="web"))
        assert hpas.tolerance == ToleranceField(asked_at=NOW)


def test_the_condition_is_in_the_status() -> None:
    (found,) = (one for one in status_of(situation())["conditions"] if one["type"] == "HPAConformant")
    assert (found["status"], found["reason"]) == ("False", "Tolerance")


def test_what_is_swallowed_now_is_in_the_sentence() -> None:
    pods, loads = same(20, "1230m")
    _, decision = see(REPORTED, pods, usage(loads), bounds=PLAIN.bounds)
    told = finding(situation(rule=REPORTED, decision=decision)).message
    assert "swallows the step from 20 to 21" in told


def test_the_set_hpa_is_what_is_wanted() -> None:
    settings = required_behavior(ENFORCED, SET, tolerance=True)
    assert settings
    assert all(one.is_set for one in settings)
