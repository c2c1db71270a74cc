"""The table of features is whole: every action, every switch and every condition has a row."""

import re
from dataclasses import replace
from pathlib import Path
from typing import get_args

from adapter.companion import plan
from adapter.companion.features import FEATURES
from adapter.companion.writes.actions import Action
from adapter.load.conditions import ConditionType, Reason
from adapter.settings import CompanionFeatures, CompanionSettings
from adapter.snapshot import Problem
from tests.companion.kit import context

DOCS = Path(__file__).parents[2] / "docs" / "companion.md"


def test_each_action_belongs_to_one_feature() -> None:
    assert sorted(action.__name__ for one in FEATURES for action in one.actions) == sorted(
        action.__name__ for action in get_args(Action)
    )


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


def test_conditions_are_in_the_order_of_their_types() -> None:
    types = list(plan.conditions(context()))
    assert types == [one for one in ConditionType if one in types]


def test_the_docs_have_a_row_for_every_type_of_condition() -> None:
    table = re.findall(r"^\| `(\w+)` \|", DOCS.read_text(encoding="utf-8"), flags=re.MULTILINE)
    assert set(ConditionType) <= set(table)
