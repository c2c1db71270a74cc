"""The table of features is whole: every action, every switch and every condition has a row."""

import re
from dataclasses import replace
from pathlib import Path

from adapter.companion.features.events import EventState
from adapter.companion.plan import FEATURES
from adapter.policy.conditions import ConditionType, Reason
from adapter.settings import CompanionFeatures, CompanionSettings
from adapter.snapshot import Problem
from tests.companion.kit import Leader, context
from tests.load.kit import NOW

DOCS = Path(__file__).parents[2] / "docs" / "conditions.md"


def test_each_switch_of_the_settings_has_a_feature_and_the_other_way_round() -> None:
    assert sorted(one.switch for one in FEATURES if one.switch) == sorted(CompanionFeatures.model_fields)


def test_a_feature_plans_only_where_it_is_switched_on() -> None:
    off = CompanionSettings(features=CompanionFeatures(**dict.fromkeys(CompanionFeatures.model_fields, False)))
    case = context(settings=off)
    assert [one.switch for one in FEATURES if one.may_plan(case) and one.switch] == []


def test_while_a_watch_is_silent_only_what_tells_of_it_is_planned() -> None:
    on = CompanionSettings(features=CompanionFeatures(**dict.fromkeys(CompanionFeatures.model_fields, True)))
    case = context(settings=on)
    view = replace(case.view, assessment=None, problem=Problem(503, Reason.WATCH_SILENT, "pods are silent"))
    case = replace(case, view=view, decision=None)
    assert {one.switch for one in FEATURES if one.may_plan(case) and one.switch} == {"status", "events"}


def test_the_docs_have_a_row_for_every_type_of_condition() -> None:
    table = re.findall(r"^\| `(\w+)` \|", DOCS.read_text(encoding="utf-8"), flags=re.MULTILINE)
    assert set(ConditionType) <= set(table)


def test_a_condition_of_another_version_in_the_status_stops_nothing() -> None:
    later = {"type": "OfALaterVersion", "status": "False", "reason": "Odd", "message": "odd"}
    leader = Leader(status={"conditions": [later]})
    for at in (NOW, NOW + 11):
        leader.look(context(now=at))
    assert [event.reason for event in leader.state.of(EventState).lately] == ["OfALaterVersionOver"]
