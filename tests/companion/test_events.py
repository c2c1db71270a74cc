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
from tests.companion.kit import KEY, RULE, Leader, context
from tests.load.kit import NOW, pod, same, usage

SCALED = Bounds(minimum=1, maximum=100, last_scale=NOW + 1)


def blind(at: float, **changes: Any) -> Context:
    """No pod has a sample."""
    return context(None, now=NOW + at, **changes)


def seeing(at: float, **changes: Any) -> Context:
    return context(now=NOW + at, **changes)


def test_a_scaling_gets_one_event_with_its_reason() -> None:
    leader = Leader()
    leader.look(context("2400m"))
    (event,) = leader.events(seeing(2, current=8, bounds=SCALED))
    assert event.startswith("Normal Scaled: from 4 to 8 by the HPA: cpu: 4 pods use 2400m")
    assert [leader.events(seeing(at, current=8, bounds=SCALED)) for at in range(3, 700, 10)] == [[]] * 70


def test_a_missing_hpa_gets_one_event_by_condition_ready() -> None:
    def gone(at: float) -> Context:
        case = seeing(at)
        missing = Problem(
            404, "NotFound", "HorizontalPodAutoscaler web, that WatermarkPolicy web names, does not exist"
        )
        return replace(case, view=replace(case.view, assessment=None, problem=missing), decision=None)

    leader = Leader()
    leader.look(seeing(0))
    events = [event for at in range(1, 60) for event in leader.events(gone(at))]
    assert [event.split(":")[0] for event in events] == ["Warning NotFound"]
    events = [event for at in range(60, 120) for event in leader.events(seeing(at))]
    assert [event.split(":")[0] for event in events] == ["Normal Decided"]


def test_a_healthy_policy_gets_no_events() -> None:
    leader = Leader()
    assert [leader.events(seeing(at)) for at in range(0, 3600, 10)] == [[]] * 360


def test_a_condition_gets_an_event_once_it_has_lasted_and_another_when_it_is_over() -> None:
    leader = Leader()
    leader.look(seeing(0))
    assert leader.events(blind(10)) == []
    assert any(event.startswith("Warning InputsMissing: InputsFresh: ") for event in leader.events(blind(21)))
    assert leader.events(blind(30)) == []
    assert leader.events(seeing(40)) == []
    assert "Normal SamplesFresh: InputsFresh: every metric has fresh samples" in leader.events(seeing(51))


def test_a_condition_that_changes_back_at_once_gets_no_event() -> None:
    leader = Leader()
    told = [leader.events(blind(at) if at % 10 else seeing(at)) for at in range(0, 600, 5)]
    assert told == [[]] * 120


def test_repetitions_within_ten_minutes_are_one_series_written_once_a_minute_at_most() -> None:
    leader = Leader()
    written: list[WriteEvent] = []
    for minute in range(10):
        for second in range(0, 60, 5):
            case = (blind if second < 30 else seeing)(60 * minute + second)
            written += [action for action in leader.look(case) if isinstance(action, WriteEvent)]
    troubles = [action.series for action in written if action.subject.reason == "InputsMissing"]
    assert len({series.name for series in troubles}) == 1
    assert [series.count for series in troubles] == list(range(1, 11))
    first, *others = [writer.event_request(action) for action in written if action.subject.reason == "InputsMissing"]
    assert first.method == "POST"
    assert {write.method for write in others} == {"PATCH"}
    assert others[-1].body["series"]["count"] == 10


def test_the_last_event_of_a_repeated_condition_names_the_latest_cause() -> None:
    leader = Leader()
    leader.look(seeing(0))
    told: dict[str, str] = {}
    for minute, cause in enumerate(("etcd is full", "no route to host", "no route to host")):
        failing = Samples(resources=ResourceSamples(error=cause))
        for second in (10, 25):
            looked = leader.look(seeing(60 * minute + second, samples=failing))
            for one in (one for one in looked if isinstance(one, WriteEvent) and one.subject.reason == "NoDecision"):
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
    leader, paused = Leader(), replace(RULE, mode=Mode.PAUSED)
    leader.look(seeing(0))
    written = [
        action.series.count
        for at in range(1, 181)
        for action in leader.look(seeing(at, rule=paused if at % 2 else RULE))
        if isinstance(action, WriteEvent) and action.subject.reason == "Paused"
    ]
    assert written == [1, 31, 61]


def test_a_condition_that_returns_after_ten_minutes_begins_a_new_series() -> None:
    leader = Leader()
    names = set()
    for at in (0, 2000):
        leader.look(seeing(at))
        for later in (10, 25):
            names |= {one.series.name for one in leader.look(blind(at + later)) if isinstance(one, WriteEvent)}
        assert not any(isinstance(one, WriteEvent) for one in leader.look(blind(at + 30 + SERIES_SECONDS)))
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


def test_an_event_that_could_not_be_written_is_tried_again_under_the_same_name() -> None:
    leader = Leader()
    leader.look(context("2400m"))
    leader.outcome = ActionResult.FAILED
    names = [
        action.series.name
        for at in (2, 12)
        for action in leader.look(seeing(at, current=8, bounds=SCALED))
        if isinstance(action, WriteEvent)
    ]
    assert len(names) == 2
    assert len(set(names)) == 1


def test_an_event_that_is_there_already_is_not_tried_again() -> None:
    leader = Leader()
    leader.look(context("2400m"))
    leader.outcome = ActionResult.OVERTAKEN
    assert len(leader.events(seeing(2, current=8, bounds=SCALED))) == 1
    assert leader.events(seeing(12, current=8, bounds=SCALED)) == []


def test_an_event_that_was_not_tried_without_the_lease_is_still_due() -> None:
    leader = Leader()
    leader.look(context("2400m"))
    leader.outcome = ActionResult.NOT_LEADING
    assert len(leader.events(seeing(2, current=8, bounds=SCALED))) == 1
    leader.outcome = ActionResult.DONE
    assert len(leader.events(seeing(12, current=8, bounds=SCALED))) == 1


def test_the_repetition_of_a_deleted_event_is_a_new_event() -> None:
    leader, paused = Leader(), replace(RULE, mode=Mode.PAUSED)

    def pausings(at: float) -> list[tuple[str, int]]:
        leader.look(seeing(at))
        found = [one for one in leader.look(seeing(at + 1, rule=paused)) if isinstance(one, WriteEvent)]
        return [(writer.event_request(one).method, one.series.count) for one in found if one.subject.reason == "Paused"]

    assert pausings(0) == [("POST", 1)]
    leader.outcome = ActionResult.OVERTAKEN
    assert pausings(100) == [("PATCH", 2)]
    leader.outcome = ActionResult.DONE
    assert pausings(200) == [("POST", 1)]


def test_an_events_name_is_valid_for_the_longest_policy_name() -> None:
    leader, name = Leader(), "a" * 235 + ".b" * 9
    leader.look(seeing(0, key=Key("shop", name)))
    paused = seeing(1, key=Key("shop", name), rule=replace(RULE, mode=Mode.PAUSED))
    (action,) = [one for one in leader.look(paused) if isinstance(one, WriteEvent)]
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
    ("change", "event"),
    [
        ({"mode": Mode.PAUSED}, "Normal Paused: Active: mode Paused: the current count is asked for"),
        ({"mode": Mode.OBSERVE}, "Normal Observed: Active: mode Observe: everything is computed, "),
        ({"hold_until": NOW + 600}, "Normal Held: Active: held until 2026-01-01T12:10:00Z by the annotation "),
    ],
)
def test_a_mode_of_rest_gets_an_event_at_once_and_no_warning(change: dict[str, object], event: str) -> None:
    leader = Leader()
    leader.look(seeing(0))
    (found,) = leader.events(seeing(1, rule=replace(RULE, **change)))  # type: ignore[arg-type]
    assert found.startswith(event)
    (back,) = leader.events(seeing(2))
    assert back == "Normal Deciding: Active: the count is decided by the metrics"


def test_a_policy_that_is_not_valid_has_no_mode() -> None:
    found = readiness.conditions(seeing(0, rule=replace(RULE, metrics=())))
    assert "Active" not in [one.type for one in found]


def test_the_end_of_a_hold_gets_an_event() -> None:
    leader, held = Leader(), replace(RULE, hold_until=NOW + 60)
    leader.look(seeing(0, rule=held))
    assert leader.events(seeing(59, rule=held)) == []
    assert [event.split(":")[0] for event in leader.events(seeing(60, rule=held))] == ["Normal Deciding"]


def test_switched_off_no_event_is_written() -> None:
    leader, off = Leader(), CompanionSettings(features=CompanionFeatures(events=False))
    leader.look(context("2400m", settings=off))
    assert leader.events(seeing(2, current=8, bounds=SCALED, settings=off)) == []


def test_switched_on_later_earlier_scalings_get_no_event() -> None:
    leader, off = Leader(), CompanionSettings(features=CompanionFeatures(events=False))
    leader.look(context("2400m", settings=off))
    leader.look(seeing(2, current=8, bounds=SCALED, settings=off))
    assert leader.events(seeing(9, current=8, bounds=SCALED)) == []


def test_an_event_is_about_the_policy_and_names_the_target() -> None:
    leader = Leader()
    leader.look(context("2400m"))
    (action,) = [one for one in leader.look(seeing(2, current=8, bounds=SCALED)) if isinstance(one, WriteEvent)]
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


def test_a_long_note_is_cut_to_what_the_api_takes() -> None:
    leader = Leader()
    leader.look(seeing(0))
    rule = replace(RULE, metrics=tuple(replace(RULE.metrics[0], name=f"metric-{'ä' * 30}-{n}") for n in range(30)))
    leader.look(blind(10, rule=rule))
    found = [one for one in leader.look(blind(25, rule=rule)) if isinstance(one, WriteEvent)]
    assert found
    assert 1020 <= max(len(one.series.note.encode()) for one in found) <= 1024
