"""Events: one for a scaling or a condition that changed, a series for what repeats, and never one a loop."""

import re
from dataclasses import replace
from typing import Any

import pytest

from adapter.companion import writer
from adapter.companion.actions import ActionResult, WriteEvent
from adapter.companion.features import readiness
from adapter.companion.features.events import MOST_PER_HOUR, SCALINGS_PER_HOUR, SERIES_SECONDS, STEADY_SECONDS
from adapter.companion.state import Context
from adapter.load.pods import Pod
from adapter.load.samples import ResourceSamples, Samples
from adapter.load.spec import Bounds, Mode
from adapter.settings import CompanionFeatures, CompanionSettings
from adapter.snapshot import Key, Problem
from tests.companion.kit import KEY, RULE, Leader, context, told
from tests.load.kit import NOW, pod, same, usage

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
    (action,) = leader.written(has_scaled(2))
    assert told(action).startswith("Normal Scaled: from 4 to 8 by the HPA: cpu: 4 pods use 2400m")
    write = writer.event_request(action)
    assert write.path == "/apis/events.k8s.io/v1/namespaces/shop/events"
    assert write.body["regarding"] == {
        "apiVersion": "effective-load.io/v1alpha1",
        "kind": "WatermarkPolicy",
        "namespace": KEY.namespace,
        "name": KEY.name,
        "uid": "policy-uid",
    }
    assert (write.body["related"]["kind"], write.body["related"]["name"]) == ("Deployment", "web")
    assert "series" not in write.body
    assert [leader.events(has_scaled(at)) for at in range(3, 700, 10)] == [[]] * 70


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
    told = [leader.events((seeing if at in {0, 40, 51} else blind)(at)) for at in (0, 10, 21, 30, 40, 51)]
    assert [bool(events) for events in told] == [False, False, True, False, False, True]
    assert any(event.startswith("Warning InputsMissing: InputsFresh: ") for event in told[2])
    assert "Normal SamplesFresh: InputsFresh: every metric has fresh samples" in told[5]


def test_a_condition_that_changes_back_at_once_gets_no_event() -> None:
    leader = Leader()
    told = [leader.events(blind(at) if at % 10 else seeing(at)) for at in range(0, 600, 5)]
    assert told == [[]] * 120


def test_repetitions_within_ten_minutes_are_one_series_written_once_a_minute_at_most() -> None:
    leader = Leader()
    written: list[WriteEvent] = []
    for at in range(0, 600, 5):
        written += leader.written((blind if at % 60 < 30 else seeing)(at))
    troubles = [action for action in written if action.subject.reason == "InputsMissing"]
    assert len({action.series.name for action in troubles}) == 1
    assert [action.series.count for action in troubles] == list(range(1, 11))
    requests = [writer.event_request(action) for action in troubles]
    assert [request.method for request in requests] == ["POST", *["PATCH"] * 9]
    assert requests[-1].body["series"]["count"] == 10


def test_the_last_event_of_a_repeated_condition_names_the_latest_cause() -> None:
    leader = Leader()
    leader.look(seeing(0))
    told: dict[str, str] = {}
    for minute, cause in enumerate(("etcd is full", "no route to host", "no route to host")):
        failing = Samples(resources=ResourceSamples(error=cause))
        for second in (10, 25):
            for one in leader.written(seeing(60 * minute + second, samples=failing)):
                if one.subject.reason == "NoDecision":
                    told[one.series.name] = one.series.note
        for second in (40, 55):
            leader.look(seeing(60 * minute + second))
    assert [cause in note for cause, note in zip(("etcd is full", "no route to host"), told.values(), strict=True)]


def test_new_pods_without_a_sample_are_no_warning_however_long_pods_are_added_and_one_that_stays_so_is() -> None:
    leader = Leader()
    leader.look(seeing(0))
    loads = {f"web-{n}": "800m" for n in range(4)}
    old = same(4, None)[0]

    def newest(at: float) -> Pod:
        """One of a row of new pods, one each minute, of which the last gets no sample."""
        begun = NOW + 60 * min(at // 60, 9)
        return pod(f"new-{begun:.0f}", age=NOW + at - begun, ready_for=NOW + at - begun, now=NOW + at)

    told = {
        at: leader.events(seeing(at, pods=[*old, newest(at)], samples=usage(loads, at=NOW + at - 10)))
        for at in range(5, 800, 5)
    }
    warned = [at for at, events in told.items() if any(one.startswith("Warning InputsMissing") for one in events)]
    assert warned == [540 + 120 + 10]


def test_the_count_of_a_series_is_written_once_a_minute_at_most() -> None:
    leader = Leader()
    written = []
    for at in range(181):
        written += leader.written(seeing(at, rule=PAUSED if at % 2 else RULE))
    assert [one.series.count for one in written if one.subject.reason == "Paused"] == [1, 31, 61]


def test_a_condition_that_returns_after_ten_minutes_begins_a_new_series() -> None:
    leader = Leader()
    names = set()
    for at in (0, 2000):
        leader.look(seeing(at))
        for later in (10, 25):
            names |= {one.series.name for one in leader.written(blind(at + later))}
        assert not leader.written(blind(at + 30 + SERIES_SECONDS))
        leader.look(seeing(at + 700))
        leader.look(seeing(at + 700 + STEADY_SECONDS))
    assert len(names) == 2 * len({"InputsFresh", "Ready"})


def test_a_policy_begins_only_so_many_series_an_hour_and_the_next_one_says_how_many_were_left_out() -> None:
    leader = Leader()
    leader.look(seeing(0, current=1))
    assert len(scaled(leader, SCALINGS_PER_HOUR + 10)) == SCALINGS_PER_HOUR
    leader.look(seeing(4200, current=100))
    (event,) = leader.events(seeing(4204, current=100))
    assert event == "Normal Scaled: from 31 to 100 (the hourly limit left out 10 before this one)"


def scaled(leader: Leader, times: int) -> list[str]:
    """The Events of so many scalings by one pod, each 10 s."""
    told = []
    for n in range(1, times + 1):
        told += leader.events(seeing(10 * n, current=n + 1)) + leader.events(seeing(10 * n + 4, current=n + 1))
    return told


def test_a_service_that_scales_all_the_time_still_gets_events_of_its_trouble() -> None:
    leader = Leader()
    leader.look(seeing(0, current=1))
    scaled(leader, MOST_PER_HOUR)
    leader.look(blind(310, current=MOST_PER_HOUR + 1))
    told = leader.events(blind(321, current=MOST_PER_HOUR + 1))
    assert any(event.startswith("Warning InputsMissing") for event in told)


@pytest.mark.parametrize(
    ("outcome", "tries"), [(ActionResult.FAILED, 2), (ActionResult.NOT_LEADING, 2), (ActionResult.OVERTAKEN, 1)]
)
def test_an_event_that_is_not_there_yet_is_tried_again_under_the_same_name(outcome: ActionResult, tries: int) -> None:
    leader = about_to_scale()
    leader.outcome = outcome
    names = [action.series.name for at in (2, 12) for action in leader.written(has_scaled(at))]
    assert len(names) == tries
    assert len(set(names)) == 1


def test_the_repetition_of_a_deleted_event_is_a_new_event() -> None:
    leader = Leader()

    def pausings(at: float) -> list[tuple[str, int]]:
        leader.look(seeing(at))
        found = leader.written(seeing(at + 1, rule=PAUSED))
        return [(writer.event_request(one).method, one.series.count) for one in found if one.subject.reason == "Paused"]

    assert pausings(0) == [("POST", 1)]
    leader.outcome = ActionResult.OVERTAKEN
    assert pausings(100) == [("PATCH", 2)]
    leader.outcome = ActionResult.DONE
    assert pausings(200) == [("POST", 1)]


def test_an_events_name_is_valid_for_the_longest_policy_name() -> None:
    leader, key = Leader(), Key("shop", "a" * 235 + ".b" * 9)
    leader.look(seeing(0, key=key))
    (action,) = leader.written(seeing(1, key=key, rule=PAUSED))
    made = writer.event_request(action).body["metadata"]["name"]
    assert len(made) <= 253
    assert re.fullmatch(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*", made)


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


def test_a_policy_that_is_not_valid_has_no_mode() -> None:
    found = readiness.conditions(seeing(0, rule=replace(RULE, metrics=())))
    assert "Active" not in [one.type for one in found]


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
    assert 1020 <= max(len(one.series.note.encode()) for one in leader.written(blind(25, rule=rule))) <= 1024
