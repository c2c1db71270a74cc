"""What a status says, and when it is written."""

import itertools
import json
from dataclasses import replace
from fractions import Fraction
from typing import Any

import msgspec
import pytest
import yaml

from adapter.companion import status
from adapter.companion.state import ActionResult, Context, State, Write, WrittenStatus
from adapter.companion.writer import as_written
from adapter.load.quantity import NANO
from adapter.load.spec import Bounds, Capacity, Metric, Mode
from adapter.policy.conditions import Reason
from adapter.snapshot import Problem
from tests.companion.kit import RULE, Leader, context, judged, status_in
from tests.load.kit import NOW, out, pod


def planned(case: Context) -> list[Write]:
    return list(status.plan(judged(case)))


def troubled(case: Context, code: int, reason: str, message: str = "what is wrong") -> Context:
    """The same without an assessment, for this problem."""
    view = replace(case.view, assessment=None, problem=Problem(code, reason, message))
    return replace(case, view=view, decision=None)


def taken_over(found: Write, at: float = NOW + 1) -> State:
    """What a new leader reads of a status."""
    return State().having(as_written(json.loads(msgspec.json.encode(status_in(found))), at))


def fences(found: Write) -> dict[str, str]:
    """What has to be so for the status to be written."""
    return {one["path"]: one["value"] for one in found.body if one["op"] == "test"}


def conditions(found: Any) -> dict[str, tuple[str, str]]:
    return {one["type"]: (one["status"], one["reason"]) for one in found["conditions"]}


def message(found: Write, kind: str) -> str:
    return next(str(one["message"]) for one in status_in(found)["conditions"] if one["type"] == kind)


def test_a_status_says_what_was_found_and_decided() -> None:
    (action,) = planned(context("1500m", pods=[*(pod(f"p{n}") for n in range(5)), out("o")], current=6))
    found = status_in(action)
    assert fences(action) == {"/metadata/uid": "policy-uid"}
    assert (found["verdict"], found["current"], found["desired"]) == ("Above", 6, 8)
    assert (found["metric"], found["effective"], found["high"], found["low"]) == ("cpu", "1500m", "1200m", "400m")
    assert (found["pods"]["serving"], found["pods"]["pulledOut"]) == (5, 1)
    assert found["metrics"][0] == {
        "name": "cpu", "effective": "1500m", "raw": "1500m", "high": "1200m", "low": "400m",
        "sampled": 5, "missing": 0, "windowSeconds": 15.0, "verdict": "Above", "proposal": 8,
    }  # fmt: skip
    assert found["decision"].startswith("asks for 8, now 6: cpu: 5 pods use 1500m on average")
    assert (found["lowerBound"], "upperBound" in found) == (8, False)
    assert found["memory"] == {"away": ["pulledOut 2026-01-01T12:00:00.000000Z uid-o"]}
    assert conditions(found)["Ready"] == ("True", "Decided")


def test_figures_of_a_metric_have_one_unit() -> None:
    (action,) = planned(context("1000m", pods=[pod("p0"), out("o")], current=2))
    found = status_in(action)
    assert (found["effective"], found["high"], found["low"]) == ("1000m", "1200m", "400m")


def test_a_policy_that_is_not_answered_says_why_and_asks_for_no_count() -> None:
    case = context(None)
    (action,) = planned(case)
    assert status_in(action)["verdict"] == "Error"
    assert "desired" not in status_in(action)
    assert conditions(status_in(action))["Ready"] == ("False", "NoDecision")
    assert conditions(status_in(action))["InputsFresh"][0] == "False"


REMEMBERED = {"errorSince": "2026-01-01T00:00:00.000000Z"}


def test_a_problem_is_shown_as_the_decision_and_the_memory_stays() -> None:
    remembered = {"memory": REMEMBERED, "assessedAt": "2026-01-01T00:00:00Z"}
    state = State().having(WrittenStatus(status=remembered, at=None))
    (action,) = planned(troubled(context(state=state), 404, "NotFound", "the HPA does not exist"))
    assert (status_in(action)["verdict"], status_in(action)["decision"]) == ("Error", "the HPA does not exist")
    assert conditions(status_in(action))["Ready"] == ("False", "NotFound")
    assert status_in(action)["memory"] == REMEMBERED
    assert fences(action)["/status/assessedAt"] == "2026-01-01T00:00:00Z"


def test_a_policy_whose_hpa_is_missing_does_not_pass_for_active() -> None:
    gone = "HorizontalPodAutoscaler web, that WatermarkPolicy web names, does not exist"
    (action,) = planned(troubled(context(hpa=None), 404, "NotFound", gone))
    assert conditions(status_in(action))["Active"] == ("False", "HPAMissing")
    assert "there is no HorizontalPodAutoscaler web" in message(action, "Active")


MEMORY = Metric(
    name="memory",
    resource="memory",
    relative_to=Capacity.LIMIT,
    high=Fraction(8 * NANO, 10),
    low=Fraction(1, 2) * NANO,
)


@pytest.mark.parametrize(
    ("seconds", "writes"),
    [
        (11, 0),
        (59, 0),
        (60, 1),
        pytest.param(-0.5, 0, id="the API server's clock was put back a little"),
        pytest.param(-3600, 1, id="by an hour"),
    ],
)
def test_the_same_is_not_written_again_within_a_minute(seconds: float, writes: int) -> None:
    case = context()
    (first,) = planned(case)
    state = case.state.tried(first, ActionResult.DONE, case.now)
    assert len(planned(replace(case, state=state, now=NOW + seconds))) == writes


def test_changed_count_is_written_but_not_within_ten_seconds() -> None:
    (first,) = planned(context("800m"))
    state = State().tried(first, ActionResult.DONE, NOW)
    assert planned(replace(context("1500m", current=5, now=NOW + 9.9), state=state)) == []
    (second,) = planned(replace(context("1500m", current=5, now=NOW + 10), state=state))
    assert status_in(second)["current"] == 5
    assert fences(second)["/status/assessedAt"] == status_in(first)["assessedAt"]


@pytest.mark.parametrize("minimum", [1, 4])
def test_policy_at_rest_is_written_at_most_once_a_minute(minimum: int) -> None:
    """An hour of samples around the low watermark, whose count the HPA keeps."""
    leader, loads, writes = Leader(), itertools.cycle(("500m", "390m", "100m", "405m", "1230m", "900m")), []
    for second in range(0, 3600, 15):
        case = context(next(loads), now=NOW + second, bounds=Bounds(minimum=minimum, maximum=4))
        writes += [second for action in leader.look(case) if action.kind == "WriteStatus"]
    assert min(after - before for before, after in itertools.pairwise(writes)) >= 60
    assert len(writes) >= 30


def test_observing_policy_shows_the_count_that_it_would_ask_for() -> None:
    (action,) = planned(context("2400m", rule=replace(RULE, mode=Mode.OBSERVE)))
    assert (status_in(action)["desired"], status_in(action)["current"]) == (8, 4)
    assert status_in(action)["decision"].startswith("mode Observe; in mode Active it asks for 8, now 4: cpu: 4 pods")


def test_status_after_a_scale_down_from_sixty_pods_fits_one_screen() -> None:
    leader = Leader()
    leader.look(context("100m", pods=60, bounds=Bounds(minimum=2, maximum=100)))
    shown = leader.status(context("300m", pods=2, now=NOW + 600, bounds=Bounds(minimum=2, maximum=100)))
    assert "memory" not in shown
    assert len(yaml.safe_dump(json.loads(msgspec.json.encode(shown))).splitlines()) <= 90


def test_a_condition_is_as_old_as_its_status_whoever_leads() -> None:
    (first,) = planned(context())
    (second,) = planned(context("1500m", now=NOW + 500, state=taken_over(first)))
    assert _since(status_in(second), "Ready") == _since(status_in(first), "Ready")
    (third,) = planned(context(None, now=NOW + 600, state=taken_over(first)))
    assert _since(status_in(third), "Ready") != _since(status_in(first), "Ready")


def _since(found: Any, kind: str) -> str:
    return str(next(one["lastTransitionTime"] for one in found["conditions"] if one["type"] == kind))


def test_a_new_leader_does_not_write_again_what_was_written_a_moment_ago() -> None:
    case = context()
    (first,) = planned(case)
    assert planned(replace(case, now=NOW + 30, state=taken_over(first))) == []


def test_a_status_with_a_future_time_counts_as_written_now() -> None:
    found = as_written({"assessedAt": "2999-01-01T00:00:00Z"}, NOW)
    case = context("800m")
    assert planned(replace(case, state=State().having(found))) == []
    (action,) = planned(replace(case, state=State().having(found), now=NOW + 10))
    assert fences(action)["/status/assessedAt"] == "2999-01-01T00:00:00Z"


def test_that_a_policy_is_not_accepted_is_written_at_once_and_the_rest_every_ten_seconds() -> None:
    (first,) = planned(context())
    case = replace(context(), now=NOW + 1, state=taken_over(first, at=NOW))
    assert planned(troubled(case, 503, Reason.SERVICE_UNAVAILABLE)) == []
    (refused,) = planned(troubled(case, 422, Reason.INVALID))
    shown = conditions(status_in(refused))
    assert (shown["Accepted"], shown["Ready"]) == (("False", "Refused"), ("False", "Invalid"))
    assert message(refused, "Accepted") == message(refused, "Ready") == "what is wrong"


def test_while_a_watch_is_silent_nobody_says_that_the_settings_have_what_the_policy_names() -> None:
    (action,) = planned(troubled(context(), 503, Reason.WATCH_SILENT))
    assert conditions(status_in(action))["Accepted"][0] == "True"
    assert message(action, "Accepted").startswith("the policy is valid by itself; whether the settings have what")


def test_no_text_is_longer_than_the_schema_allows() -> None:
    (action,) = planned(troubled(context(), 503, "ServiceUnavailable", "x" * 100_000))
    assert len(status_in(action)["decision"]) == 1024
    assert max(len(one["message"]) for one in status_in(action)["conditions"]) <= 32768
