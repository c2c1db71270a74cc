"""Events: one for a scaling or a condition that changed, none for what repeats, and never one a loop."""

from dataclasses import replace
from typing import Any

import pytest

from adapter.companion.changes import REPEATED_SECONDS, SCALINGS_PER_HOUR
from adapter.companion.state import ActionResult, Context
from adapter.load.memory import Memory
from adapter.load.samples import ResourceSamples, Samples
from adapter.load.spec import Bounds, Fallback, Mode
from adapter.settings import CompanionFeatures, CompanionSettings
from adapter.snapshot import Problem
from tests.companion.kit import KEY, RULE, Leader, context, told
from tests.load.kit import NOW

SCALED = Bounds(minimum=1, maximum=100, last_scale=NOW + 1)
PAUSED = replace(RULE, mode=Mode.PAUSED)


def blind(at: float, **changes: Any) -> Context:
    """No pod has a sample."""
    return context(None, now=NOW + at, **changes)


def seeing(at: float, **changes: Any) -> Context:
    return context(now=NOW + at, **changes)


def has_scaled(at: float, **changes: Any) -> Context:
    return seeing(at, current=8, bounds=SCALED, **changes)


def about_to_scale() -> Leader:
    """A leader of a policy whose load asks for eight pods."""
    leader = Leader()
    leader.look(context("2400m"))
    return leader


def test_a_scaling_gets_one_event_about_the_policy_with_its_target_and_reason() -> None:
    leader = about_to_scale()
    (body,) = leader.written(has_scaled(2))
    assert told(body).startswith("Normal Scaled: from 4 to 8 by the HPA: cpu: 4 pods use 2400m")
    assert body["regarding"] == {
        "apiVersion": "effective-load.io/v1alpha1",
        "kind": "WatermarkPolicy",
        "namespace": KEY.namespace,
        "name": KEY.name,
        "uid": "policy-uid",
    }
    assert [leader.events(has_scaled(at)) for at in range(3, 700, 10)] == [[]] * 70


def test_the_event_of_a_fallback_says_so() -> None:
    leader, rule = Leader(), replace(RULE, fallback=Fallback(after=60, replicas=8))
    leader.look(blind(0, rule=rule, memory=Memory(error_since=NOW - 600)))
    (event,) = leader.events(has_scaled(2, rule=rule))
    assert event == ("Normal Scaled: from 4 to 8 by the HPA: nothing could be decided for 60 s: the fallback is 8")


def test_a_missing_hpa_gets_one_event_by_condition_ready() -> None:
    leader = Leader()
    leader.look(seeing(0))
    told = []
    for at in range(1, 120):
        case = seeing(at)
        if at < 60:
            missing = Problem(404, "NotFound", "HorizontalPodAutoscaler web does not exist")
            case = replace(case, view=replace(case.view, assessment=None, problem=missing), decision=None)
        told += [(at, event.split(":")[0]) for event in leader.events(case)]
    assert [event for _, event in told] == ["Warning NotFound", "Normal Decided"]
    assert told[0][0] < 60 <= told[1][0]


def test_a_healthy_policy_gets_no_events() -> None:
    leader = Leader()
    assert [leader.events(seeing(at)) for at in range(0, 3600, 10)] == [[]] * 360


def test_a_condition_gets_an_event_once_it_has_lasted_and_another_when_it_is_over() -> None:
    leader = Leader()
    looks = {0: seeing, 10: blind, 21: blind, 71: blind, 90: seeing, 101: seeing, 151: seeing}
    told = [[event.split(":")[0] for event in leader.events(look(at))] for at, look in looks.items()]
    assert told == [
        [], [], ["Warning NoDecision"], ["Warning InputsMissing"], [], ["Normal Decided"], ["Normal SamplesFresh"]
    ]  # fmt: skip


def causes(leader: Leader, *outages: tuple[float, str]) -> list[str]:
    """The notes of the Events about outages, each of 30 s."""
    found = []
    for at, cause in outages:
        failing = Samples(resources=ResourceSamples(error=cause))
        for second in (0, 15):
            written = leader.written(seeing(at + second, samples=failing))
            found += [one["note"] for one in written if one["reason"] == "NoDecision"]
        for second in (30, 45):
            leader.look(seeing(at + second))
    return found


def test_the_same_trouble_within_ten_minutes_gets_one_event() -> None:
    leader = Leader()
    leader.look(seeing(0))
    assert len(causes(leader, *((60.0 * minute, "etcd is full") for minute in range(1, 10)))) == 1
    assert len(causes(leader, (60 + REPEATED_SECONDS + 15, "etcd is full"))) == 1


def test_a_trouble_that_is_back_and_stays_is_told_ten_minutes_after_the_last_time() -> None:
    leader = Leader()
    leader.look(seeing(0))
    told = []
    for at in range(15, 1500, 15):
        told += [(at, event.split(":")[0]) for event in leader.events((blind if at % 300 < 240 else seeing)(at))]
    lost = [at for at, event in told if event == "Warning NoDecision"]
    assert lost == [30, 630, 1230]


def test_a_policy_gets_only_so_many_events_an_hour() -> None:
    leader = Leader()
    leader.look(seeing(0, current=1))
    assert len(scaled(leader, SCALINGS_PER_HOUR + 10)) == SCALINGS_PER_HOUR
    leader.look(seeing(4200, current=100))
    (event,) = leader.events(seeing(4204, current=100))
    assert event == "Normal Scaled: from 31 to 100 by another client"


def scaled(leader: Leader, times: int) -> list[str]:
    """The Events of so many scalings by one pod, each 10 s."""
    told = []
    for n in range(1, times + 1):
        told += leader.events(seeing(10 * n, current=n + 1)) + leader.events(seeing(10 * n + 4, current=n + 1))
    return told


@pytest.mark.parametrize(("outcome", "tries"), [(ActionResult.FAILED, 2), (None, 2), (ActionResult.OVERTAKEN, 1)])
def test_an_event_that_is_not_there_yet_is_tried_again_under_the_same_name(
    outcome: ActionResult | None, tries: int
) -> None:
    leader = about_to_scale()
    leader.outcome = outcome
    names = [body["metadata"]["name"] for at in (2, 12) for body in leader.written(has_scaled(at))]
    assert len(names) == tries
    assert len(set(names)) == 1


def test_a_new_leader_writes_no_events_for_the_conditions_of_the_status() -> None:
    before = Leader()
    before.look(seeing(0))
    for at in (10, 25):
        before.look(blind(at))
    status = before.status(blind(150))
    successor = Leader(status, at=NOW + 150)
    assert [successor.events(blind(at)) for at in (160, 175, 190)] == [[], [], []]


@pytest.mark.parametrize(
    ("change", "later", "reason"),
    [
        ({"mode": Mode.PAUSED}, {"mode": Mode.ACTIVE}, "Paused"),
        ({"mode": Mode.OBSERVE}, {"mode": Mode.ACTIVE}, "Observed"),
        pytest.param({"hold_until": NOW + 60}, {}, "Held", id="a hold, which ends by itself"),
    ],
)
def test_a_mode_of_rest_gets_an_event_at_once_and_another_at_its_end_and_no_warning(
    change: dict[str, Any], later: dict[str, Any], reason: str
) -> None:
    leader, resting = Leader(), replace(RULE, **change)
    leader.look(seeing(0))
    told = [leader.events(seeing(at, rule=resting)) for at in (1, 59)]
    assert [[event.split(": ")[:2] for event in events] for events in told] == [[[f"Normal {reason}", "Active"]], []]
    (event,) = leader.events(seeing(60, rule=replace(resting, **later)))
    assert event == "Normal Deciding: Active: the count is decided by the metrics"


def test_while_switched_off_no_event_is_written_nor_later_for_what_was_then() -> None:
    leader, off = Leader(), CompanionSettings(features=CompanionFeatures(events=False))
    leader.look(context("2400m", settings=off))
    assert leader.events(has_scaled(2, settings=off)) == []
    assert leader.events(has_scaled(9)) == []


def test_a_long_note_is_cut_to_what_the_api_takes() -> None:
    leader = Leader()
    leader.look(seeing(0))
    rule = replace(RULE, metrics=tuple(replace(RULE.metrics[0], name=f"metric-{'ä' * 30}-{n}") for n in range(30)))
    leader.look(blind(10, rule=rule))
    assert 1020 <= max(len(one["note"].encode()) for one in leader.written(blind(25, rule=rule))) <= 1024
