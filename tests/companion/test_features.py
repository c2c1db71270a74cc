"""Features act where they are switched on, and every type of condition is documented."""

import re
from dataclasses import replace
from pathlib import Path

from adapter.companion import companion
from adapter.companion.changes import Told
from adapter.companion.state import Context
from adapter.load.spec import PulledOut
from adapter.policy.conditions import ConditionType, Reason
from adapter.settings import CompanionFeatures, CompanionSettings
from adapter.snapshot import Problem
from tests.companion.kit import RULE, Leader, context, hpa
from tests.load.kit import NOW, out, pod

DOCS = Path(__file__).parents[2] / "docs" / "conditions.md"
EVERY = {"RaiseScale", "MarkPod", "WireHpa", "WriteStatus", "WriteEvent"}


def kinds(*, silent: bool = False, **switched: bool) -> set[str]:
    """The kinds of actions for a policy of which everything is due that is switched on."""
    features = dict.fromkeys(CompanionFeatures.model_fields, True) | switched
    settings = CompanionSettings(features=CompanionFeatures(**features))
    rule = replace(RULE, fast_scale_up=True, hpa_configuration="Manage", pulled_out=PulledOut(delete_first=True))
    pods = [*(pod(f"web-{n}") for n in range(4)), out("out-0")]

    def at(seconds: float) -> Context:
        case = context(
            "2400m", pods=pods, rule=rule, now=NOW + seconds, settings=settings, hpa=hpa(), has_tolerance=True,
            scale_path="/scale",
        )  # fmt: skip
        if not silent:
            return case
        view = replace(case.view, assessment=None, problem=Problem(503, Reason.WATCH_SILENT, "pods are silent"))
        return replace(case, view=view, decision=None)

    leader = Leader()
    done = [action.kind for look in range(0, 180, 15) for action in leader.look(at(look))]
    assert companion.conditions(at(0)).keys() >= {"Ready"}
    return set(done)


def test_each_action_has_a_switch() -> None:
    assert kinds() == EVERY
    for switch, kind in {
        "status": "WriteStatus", "events": "WriteEvent", "fast_scale_up": "RaiseScale", "deletion_cost": "MarkPod",
        "hpa_configuration": "WireHpa",
    }.items():  # fmt: skip
        assert kinds(**{switch: False}) == EVERY - {kind}


def test_while_a_watch_is_silent_only_its_status_and_events_are_written() -> None:
    assert kinds(silent=True) == {"WriteStatus", "WriteEvent"}


def test_the_docs_have_a_row_for_every_type_of_condition() -> None:
    table = re.findall(r"^\| `(\w+)` \|", DOCS.read_text(encoding="utf-8"), flags=re.MULTILINE)
    assert set(ConditionType) <= set(table)


def test_a_condition_of_another_version_in_the_status_stops_nothing() -> None:
    later = {"type": "OfALaterVersion", "status": "False", "reason": "Odd", "message": "odd"}
    leader = Leader(status={"conditions": [later]})
    for at in (NOW, NOW + 11):
        leader.look(context(now=at))
    assert [change.reason for change in leader.state.of(Told).news] == ["OfALaterVersionOver"]
