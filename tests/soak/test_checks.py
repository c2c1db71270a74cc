"""Each invariant holds where it should and is seen where it breaks."""

import json
from dataclasses import replace
from typing import Any

from adapter.commands.decide import decision, reader
from lab.faults.watch import Size
from lab.soak import checks
from lab.soak.checks import Asked, Given, Spell, Synced
from lab.soak.observe import synced_in
from tests.soak.test_needs import BAND, WATERMARK, document

BEFORE = Given(10.0, "web", 200, desired=4, current=8, goal=4, samples="a", generation=1)


def envelope() -> dict[str, Any]:
    """A decision with its document, as a server hands it out."""
    made = document(BAND, WATERMARK, 4, 1500)
    own = decision.decision_json(reader.read_document(json.dumps(made)))
    return {"decision": {name: own[name] for name in checks.ANSWER}, "document": made}


def test_a_decision_that_differs_from_its_document_is_seen() -> None:
    found = envelope()
    assert not checks.document_difference(found)[0]
    found["decision"]["desiredReplicas"] = 99
    assert "the server said 99" in checks.document_difference(found)[0]


def looked(at: float, current: int, desired: int) -> Synced:
    return Synced(at, "web", current, desired, rescaled=current != desired)


def test_the_controller_sets_the_last_answer_before_its_look_within_the_hpas_bounds() -> None:
    answers = [replace(BEFORE, at=9.0, desired=6), BEFORE, replace(BEFORE, at=11.0, desired=7)]
    assert not checks.sync_difference(looked(10.5, 8, 4), answers, (1, 10))
    assert checks.sync_difference(looked(10.5, 8, 6), answers, (1, 10))
    assert not checks.sync_difference(looked(10.5, 8, 5), [BEFORE], (5, 10))
    # An error, or an answer of long ago, says nothing.
    assert not checks.sync_difference(looked(20.0, 8, 8), [BEFORE], (1, 10))
    assert not checks.sync_difference(looked(20.0, 8, 8), [Given(19.0, "web", 503)], (1, 10))


def test_a_line_of_the_controllers_log_is_read() -> None:
    head = "I1122 21:37:32.500000   12 horizontal.go:981]"
    line = f'{head} "Successfully rescaled" HPA="faults/web" currentReplicas=5 desiredReplicas=7 reason="above"'
    kept = f'{head} "Decided not to scale" scaleTarget="Deployment/faults/web" desiredReplicas=7'
    found = [synced_in(line), synced_in(kept)]
    assert [(one.name, one.current, one.desired, one.rescaled) for one in found if one] == [
        ("web", 5, 7, True),
        ("web", 7, 7, False),
    ]
    assert synced_in(f"{head} something else") is None


def test_a_count_may_fall_to_its_need_and_not_below() -> None:
    assert not checks.shrink_difference(looked(1.0, 8, 5), fewest=5)
    assert checks.shrink_difference(looked(1.0, 8, 5), fewest=6)
    for after in (3, 4):  # it is too small already
        assert not checks.shrink_difference(looked(1.0, 3, after), fewest=6)


def test_a_count_may_rise_somewhat_beyond_what_the_load_asks_for_and_not_far() -> None:
    assert not checks.rise_difference(looked(1.0, 4, 8), most=4)
    assert checks.rise_difference(looked(1.0, 8, 9), most=4)
    for after in (11, 12):  # it is too large already
        assert not checks.rise_difference(looked(1.0, 12, after), most=4)


def test_a_smaller_goal_of_the_same_samples_after_a_fall_is_seen() -> None:
    assert checks.shrunk_twice(BEFORE, replace(BEFORE, current=4, goal=2))
    for well in (
        {"current": 6, "goal": 4},
        {"current": 4, "goal": 2, "samples": "b"},
        {"current": 4, "goal": 2, "generation": 2},
        {"current": 3, "goal": 3},  # somebody lowered the count further
    ):
        assert not checks.shrunk_twice(BEFORE, replace(BEFORE, **well))


def test_a_late_answer_none_or_one_that_says_to_wait_is_seen_unless_the_adapter_is_killed() -> None:
    late, none = Asked(0, "web", 1.2, 200), Asked(0, "web", 0.1, 0, "refused")
    for asked in (late, none, Asked(0, "web", 0.1, 503, "gone", retry_after=True)):
        assert checks.answer_fault(asked, must_answer=True)
    assert not checks.answer_fault(none, must_answer=False)
    assert not checks.answer_fault(Asked(0, "web", 0.9, 503, "no sample"), must_answer=True)


def test_only_those_who_use_a_broken_input_or_change_themselves_may_answer_an_error() -> None:
    broken, busy = (Spell(10, 20, frozenset({"prometheus"})),), [Spell(14, 16, None)]
    error, prometheus, metrics = Asked(15, "web", 0.1, 503, "x"), frozenset({"prometheus"}), frozenset({"metrics"})
    assert not checks.error_fault(error, prometheus, broken, [])
    assert not checks.error_fault(error, metrics, (), busy)
    assert checks.error_fault(error, metrics, broken, [])
    assert checks.error_fault(replace(error, at=21), prometheus, broken, busy)


def test_a_process_that_grows_is_seen() -> None:
    before, most = Size(100, 20, 30, 4), Size(10, 5, 5, 1)
    assert not Size(110, 25, 35, 5).growth(before).beyond(most)
    assert Size(111, 20, 36, 4).growth(before).beyond(most) == [
        "memory grew by 11, more than 10",
        "sockets grew by 6, more than 5",
    ]
