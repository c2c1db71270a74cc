"""What a status says, and when it is written."""

import json
from dataclasses import replace
from fractions import Fraction
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter.companion.actions import WriteStatus
from adapter.companion.companion import as_written
from adapter.companion.features import status
from adapter.companion.state import Context, State, WrittenStatus
from adapter.load.conditions import Reason
from adapter.load.quantity import NANO
from adapter.load.spec import Bounds, Capacity, Metric, Mode, ResourceMetric
from adapter.policy.hpa import CrossVersionReference, Hpa
from adapter.snapshot import Problem
from tests.companion.kit import KEY, RULE, context, judged
from tests.load.kit import NOW, out, pod, policy, usage


def planned(case: Context) -> list[WriteStatus]:
    return list(status.plan(judged(case)))


def hpa() -> Hpa:
    """An HPA that is there."""
    target = CrossVersionReference("apps/v1", "Deployment", "web")
    return Hpa(namespace="shop", name="web", target=target, bounds=Bounds(minimum=1, maximum=100))


def later(case: Context, seconds: float, before: WriteStatus) -> Context:
    """The same case after this was written and so much time."""
    state = status.after(case.state, before, case.now)
    return replace(case, state=state, now=case.now + seconds)


def conditions(found: Any) -> dict[str, tuple[str, str]]:
    return {one["type"]: (one["status"], one["reason"]) for one in found["conditions"]}


def test_a_status_says_what_was_found_and_decided() -> None:
    (action,) = planned(context("1500m", pods=[*(pod(f"p{n}") for n in range(5)), out("o")], current=6))
    found = action.status
    assert (action.key, action.uid, action.over) == (KEY, "policy-uid", "")
    assert (found["verdict"], found["current"], found["desired"]) == ("Above", 6, 8)
    assert (found["metric"], found["effective"], found["high"], found["low"]) == ("cpu", "1500m", "1200m", "400m")
    assert (found["pods"]["serving"], found["pods"]["pulledOut"]) == (5, 1)
    assert found["metrics"][0] == {
        "name": "cpu", "effective": "1500m", "raw": "1500m", "high": "1200m", "low": "400m",
        "sampled": 5, "missing": 0, "windowSeconds": 15.0, "verdict": "Above", "proposal": 8,
    }  # fmt: skip
    assert found["decision"].startswith("asks for 8, now 6: cpu: 5 pods use 1500m on average")
    assert found["memory"]["pods"].keys() == {"uid-o"}
    assert conditions(found)["Ready"] == ("True", "Decided")


def test_a_policy_that_is_not_answered_says_why_and_asks_for_no_count() -> None:
    case = context(None)
    (action,) = planned(case)
    assert action.status["verdict"] == "Error"
    assert "desired" not in action.status
    assert conditions(action.status)["Ready"] == ("False", "NoDecision")
    assert conditions(action.status)["InputsFresh"][0] == "False"


def test_a_problem_is_shown_as_the_decision_and_the_memory_stays() -> None:
    case = context()
    remembered = {"memory": {"lastReplicas": 4}, "assessedAt": "2026-01-01T00:00:00Z"}
    case = replace(
        case,
        view=replace(case.view, assessment=None, problem=Problem(404, "NotFound", "the HPA does not exist")),
        decision=None,
        state=State(written=WrittenStatus(status=remembered, at=None)),
    )
    (action,) = planned(case)
    assert (action.status["verdict"], action.status["decision"]) == ("Error", "the HPA does not exist")
    assert conditions(action.status) == {"Ready": ("False", "NotFound"), **_others(action)}
    assert action.status["memory"] == {"lastReplicas": 4}
    assert action.over == "2026-01-01T00:00:00Z"


def test_a_policy_whose_hpa_is_missing_does_not_pass_for_active() -> None:
    case = context()
    gone = Problem(404, "NotFound", "HorizontalPodAutoscaler web, that WatermarkPolicy web names, does not exist")
    case = replace(case, view=replace(case.view, assessment=None, problem=gone), decision=None, hpa=None)
    (action,) = planned(case)
    assert conditions(action.status)["Active"] == ("False", "HPAMissing")
    (active,) = [one for one in action.status["conditions"] if one["type"] == "Active"]
    assert "there is no HorizontalPodAutoscaler web" in active["message"]


def test_a_policy_that_is_refused_does_not_pass_for_active_whatever_its_mode() -> None:
    for mode in Mode:
        rule = replace(RULE, mode=mode)
        case = context(rule=rule, hpa=hpa())
        refused = Problem(409, "Conflict", "PolicyConflict: Deployment web has other policies as well (old); keep one")
        case = replace(case, view=replace(case.view, assessment=None, problem=refused), decision=None)
        (action,) = planned(case)
        assert conditions(action.status)["Active"] == ("False", "NotDeciding")


MEMORY = Metric(
    name="memory",
    resource=ResourceMetric(name="memory", of=Capacity.LIMIT),
    high=Fraction(8 * NANO, 10),
    low=Fraction(1, 2) * NANO,
)


def share(used: str) -> dict[str, Any]:
    """The status of two pods that use so much of 1000 Mi each."""
    pods = [pod(name, limits={"memory": "1000Mi"}) for name in ("a", "b")]
    rule = policy(MEMORY, uid="policy-uid")
    (action,) = planned(context(rule=rule, pods=pods, samples=usage({"a": used, "b": used}, resource="memory")))
    return dict(action.status)


@pytest.mark.parametrize(
    ("used", "shown"), [("830Mi", "83%"), ("834Mi", "83.4%"), ("8349Ki", "0.8%"), ("1020Mi", "102%"), ("0", "0%")]
)
def test_a_share_of_a_limit_is_shown_in_percent_rounded_down(used: str, shown: str) -> None:
    found = share(used)
    assert (found["effective"], found["high"], found["low"]) == (shown, "80%", "50%")
    assert (found["metrics"][0]["effective"], found["metrics"][0]["raw"]) == (shown, shown)


def test_a_share_that_is_less_than_a_tenth_of_a_percent_is_not_shown_as_nothing() -> None:
    assert share("1Ki")["effective"] == "0.0000976%"


def test_sentences_show_a_share_of_a_limit_in_percent() -> None:
    sentence = share("830Mi")["decision"]
    assert sentence.endswith("2 pods use 83% on average, above the high watermark 80% (acts beyond 80.8%)")


def _others(action: WriteStatus) -> dict[str, tuple[str, str]]:
    return {key: value for key, value in conditions(action.status).items() if key != "Ready"}


def test_a_policy_without_uid_gets_no_status() -> None:
    case = context()
    assert planned(replace(case, view=replace(case.view, policy=replace(case.view.policy, uid="")))) == []


def test_the_same_is_not_written_again_before_two_minutes() -> None:
    case = context("800m")
    (first,) = planned(case)
    assert planned(later(case, 11, first)) == []
    assert planned(later(case, 119, first)) == []
    assert len(planned(later(case, 120, first))) == 1


def test_a_server_whose_clock_was_put_back_does_not_keep_the_status_from_being_written() -> None:
    case = context("800m")
    (first,) = planned(case)
    assert planned(later(case, -0.5, first)) == []
    assert len(planned(later(case, -3600, first))) == 1


def test_usage_that_moves_within_the_band_is_no_news() -> None:
    (first,) = planned(context("800m"))
    moved = context("900m", now=NOW + 30)
    assert planned(replace(moved, state=status.after(State(), first, NOW))) == []


def test_news_is_written_but_not_within_ten_seconds() -> None:
    (first,) = planned(context("800m"))
    news = context("1500m", now=NOW + 9.9)
    assert planned(replace(news, state=status.after(State(), first, NOW))) == []
    (second,) = planned(replace(news, now=NOW + 10, state=status.after(State(), first, NOW)))
    assert second.status["desired"] == 5
    assert second.over == first.status["assessedAt"]


def test_a_condition_is_as_old_as_its_status_whoever_leads() -> None:
    (first,) = planned(context("800m"))
    found = json.loads(msgspec.json.encode(first.status))
    taken_over = State(written=as_written(found, NOW + 1))
    (second,) = planned(replace(context("1500m", now=NOW + 500), state=taken_over))
    assert _since(second.status, "Ready") == _since(first.status, "Ready")
    (third,) = planned(replace(context(None, now=NOW + 600), state=taken_over))
    assert _since(third.status, "Ready") != _since(first.status, "Ready")


def _since(found: Any, kind: str) -> str:
    return str(next(one["lastTransitionTime"] for one in found["conditions"] if one["type"] == kind))


def test_a_new_leader_does_not_write_again_what_was_written_a_moment_ago() -> None:
    case = context("800m")
    (first,) = planned(case)
    taken_over = State(written=as_written(json.loads(msgspec.json.encode(first.status)), NOW + 1))
    assert planned(replace(case, now=NOW + 30, state=taken_over)) == []


@pytest.mark.parametrize("at", [None, "", "yesterday", 5])
def test_a_status_without_a_valid_time_is_written_again(at: object) -> None:
    assert as_written({"assessedAt": at}, NOW).at is None


def test_a_status_with_a_future_time_counts_as_written_now() -> None:
    found = as_written({"assessedAt": "2999-01-01T00:00:00Z"}, NOW)
    case = context("800m")
    assert planned(replace(case, state=State(written=found))) == []
    (action,) = planned(replace(case, state=State(written=found), now=NOW + 10))
    assert action.over == "2999-01-01T00:00:00Z"


def test_that_a_policy_is_not_accepted_is_written_at_once_and_the_rest_every_ten_seconds() -> None:
    case = context("800m")
    (first,) = planned(case)
    written = replace(
        case, now=NOW + 1, state=State(written=as_written(json.loads(msgspec.json.encode(first.status)), NOW))
    )

    def failing(code: int, reason: Reason) -> Context:
        problem = Problem(code, reason, "what is wrong")
        return replace(written, view=replace(written.view, assessment=None, problem=problem), decision=None)

    assert planned(failing(503, Reason.SERVICE_UNAVAILABLE)) == []
    (refused,) = planned(failing(422, Reason.INVALID))
    accepted, ready, *_ = refused.status["conditions"]
    assert [(one["type"], one["status"], one["reason"], one["message"]) for one in (accepted, ready)] == [
        ("Accepted", "False", "Refused", "what is wrong"),
        ("Ready", "False", "Invalid", "what is wrong"),
    ]


def test_while_a_watch_is_silent_nobody_says_that_the_settings_have_what_the_policy_names() -> None:
    case = context("800m")
    problem = Problem(503, Reason.WATCH_SILENT, "the watch is silent")
    case = replace(case, view=replace(case.view, assessment=None, problem=problem), decision=None)
    (action,) = planned(case)
    accepted, *_ = action.status["conditions"]
    assert (accepted["status"], accepted["message"]) == (
        "True",
        "the policy is valid by itself; whether the settings have what it names shows once it is assessed",
    )


def test_a_policy_without_a_registry_is_not_told_that_its_registry_answers() -> None:
    (action,) = planned(context("800m"))
    (trusted,) = [one for one in action.status["conditions"] if one["type"] == "RegistryTrusted"]
    assert (trusted["status"], trusted["reason"], trusted["message"]) == (
        "True",
        "NoRegistry",
        "the policy names no registry: Kubernetes says which pods serve",
    )


def test_no_text_is_longer_than_the_schema_allows() -> None:
    case = context()
    problem = Problem(503, "ServiceUnavailable", "x" * 100_000)
    case = replace(case, view=replace(case.view, assessment=None, problem=problem), decision=None)
    (action,) = planned(case)
    assert len(action.status["decision"]) == 1024
    messages = [one["message"] for one in action.status["conditions"]]
    assert messages
    assert max(map(len, messages)) <= 32768


@given(load=st.integers(0, 10**13), pods=st.integers(1, 12), current=st.integers(0, 20))
def test_quantities_and_counts_fit_the_schema_whatever_is_measured(load: int, pods: int, current: int) -> None:
    (action,) = planned(context(f"{load}m", pods=pods, current=current, bounds=Bounds(minimum=1, maximum=10**6)))
    for name in ("effective", "raw", "high", "low"):
        assert len(action.status.get(name, "")) <= 32
    assert action.status["verdict"] in {"Above", "Inside", "Below", "Error"}
    assert json.loads(msgspec.json.encode(action.status))
