"""Each invariant holds where it should and is seen where it breaks."""

import json
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from adapter.commands.decide import decision, reader
from lab.faults.watch import Size
from lab.soak import checks
from lab.soak.checks import Asked, Given, Spell, Synced
from lab.soak.observe import synced_in
from tests.literal.generator import sequence
from tests.literal.served import served

ANSWER = ("current", "desiredReplicas", "served", "error", "verdict", "heldBy")
BEFORE = Given(10.0, "web", 200, desired=4, current=8, goal=4, samples="a", generation=1)


def envelope(seed: int = 3) -> dict[str, Any]:
    """A decision with its document, as a server hands it out."""
    document = served(sequence(seed)[0], None, Random(seed))
    own = decision.decision_json(reader.read_document(json.dumps(document)))
    return {"decision": {name: own[name] for name in ANSWER}, "document": document}


class TestTheAnswerIsTheModels:
    def test_what_the_server_decided_of_its_document_is_what_both_implementations_decide(self) -> None:
        assert not checks.document_difference(envelope())[0]

    def test_another_count_than_the_documents_is_seen(self) -> None:
        found = envelope()
        found["decision"]["desiredReplicas"] = 99
        assert "the server said 99" in checks.document_difference(found)[0]

    def test_a_fault_in_the_arithmetic_that_both_server_and_replay_have_is_seen(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        real = decision.decision_json

        def one_more(case: reader.DecisionCase) -> dict[str, Any]:
            made = real(case)
            return made | {"desiredReplicas": (made["desiredReplicas"] or 0) + 1}

        monkeypatch.setattr(decision, "decision_json", one_more)
        found = envelope()
        found["decision"]["desiredReplicas"] = one_more(reader.read_document(json.dumps(found["document"])))[
            "desiredReplicas"
        ]
        assert checks.document_difference(found)[0].startswith("desiredReplicas: the page says")


class TestTheControllerSetsTheAnswer:
    def test_the_last_answer_before_a_look_is_what_it_sets(self) -> None:
        answers = [replace(BEFORE, at=9.0, desired=6), BEFORE, replace(BEFORE, at=11.0, desired=7)]
        assert not checks.sync_difference(Synced(10.5, "web", 8, 4, rescaled=True), answers, (1, 10))
        assert checks.sync_difference(Synced(10.5, "web", 8, 6, rescaled=True), answers, (1, 10))

    def test_the_hpas_bounds_come_after_the_answer(self) -> None:
        assert not checks.sync_difference(Synced(10.5, "web", 8, 5, rescaled=True), [BEFORE], (5, 10))

    def test_an_error_or_an_answer_of_long_ago_says_nothing(self) -> None:
        look = Synced(20.0, "web", 8, 8, rescaled=False)
        assert not checks.sync_difference(look, [BEFORE], (1, 10))
        assert not checks.sync_difference(look, [Given(19.0, "web", 503)], (1, 10))

    def test_a_line_of_the_controllers_log_is_read(self) -> None:
        head = "I1122 21:37:32.500000   12 horizontal.go:981]"
        line = f'{head} "Successfully rescaled" HPA="faults/web" currentReplicas=5 desiredReplicas=7 reason="above"'
        found = synced_in(line)
        assert found is not None
        assert (found.name, found.current, found.desired, found.rescaled) == ("web", 5, 7, True)
        kept = synced_in(f'{head} "Decided not to scale" scaleTarget="Deployment/faults/web" desiredReplicas=7')
        assert kept is not None
        assert (kept.current, kept.desired, kept.rescaled) == (7, 7, False)
        assert synced_in(f"{head} something else") is None


class TestNoCountShrinksBelowItsNeed:
    def test_a_count_may_fall_to_its_need_and_not_below(self) -> None:
        fall = Synced(1.0, "web", 8, 5, rescaled=True)
        assert not checks.shrink_difference(fall, fewest=5)
        assert checks.shrink_difference(fall, fewest=6)

    def test_a_count_that_is_too_small_already_may_stay_or_rise(self) -> None:
        assert not checks.shrink_difference(Synced(1.0, "web", 3, 4, rescaled=True), fewest=6)
        assert not checks.shrink_difference(Synced(1.0, "web", 3, 3, rescaled=False), fewest=6)


class TestNoCountRisesBeyondItsLoad:
    def test_a_count_may_rise_somewhat_beyond_what_the_load_asks_for_and_not_far(self) -> None:
        assert not checks.rise_difference(Synced(1.0, "web", 4, 8, rescaled=True), most=4)
        assert checks.rise_difference(Synced(1.0, "web", 8, 9, rescaled=True), most=4)

    def test_a_count_that_is_too_large_already_may_stay_or_fall(self) -> None:
        assert not checks.rise_difference(Synced(1.0, "web", 12, 11, rescaled=True), most=4)
        assert not checks.rise_difference(Synced(1.0, "web", 12, 12, rescaled=False), most=4)


class TestTheSameSamplesShrinkOnce:
    def test_a_smaller_goal_of_the_same_samples_after_a_fall_is_seen(self) -> None:
        assert checks.shrunk_twice(BEFORE, replace(BEFORE, current=4, goal=2))

    def test_the_same_goal_other_samples_or_another_policy_are_well(self) -> None:
        assert not checks.shrunk_twice(BEFORE, replace(BEFORE, current=6, goal=4))
        assert not checks.shrunk_twice(BEFORE, replace(BEFORE, current=4, goal=2, samples="b"))
        assert not checks.shrunk_twice(BEFORE, replace(BEFORE, current=4, goal=2, generation=2))

    def test_a_count_that_somebody_lowered_further_is_held(self) -> None:
        assert not checks.shrunk_twice(BEFORE, replace(BEFORE, current=3, goal=3))


class TestAnswersInTime:
    @pytest.mark.parametrize(
        "asked",
        [
            Asked(0, "web", 1.2, 200),
            Asked(0, "web", 0.1, 0, "refused"),
            Asked(0, "web", 0.1, 503, "gone", retry_after=True),
        ],
    )
    def test_a_late_answer_none_or_one_that_says_to_wait_is_seen(self, asked: Asked) -> None:
        assert checks.answer_fault(asked, must_answer=True)

    def test_an_adapter_that_is_killed_need_not_answer(self) -> None:
        assert not checks.answer_fault(Asked(0, "web", 0.1, 0, "refused"), must_answer=False)

    def test_a_number_or_an_error_within_a_second_is_well(self) -> None:
        assert not checks.answer_fault(Asked(0, "web", 0.9, 503, "no sample"), must_answer=True)


class TestAFaultOfOneInput:
    BROKEN = (Spell(10, 20, frozenset({"prometheus"})),)

    def test_only_those_who_use_it_may_answer_an_error(self) -> None:
        error = Asked(15, "web", 0.1, 503, "no fresh sample")
        assert not checks.error_fault(error, frozenset({"prometheus"}), self.BROKEN, [])
        assert checks.error_fault(error, frozenset({"metrics"}), self.BROKEN, [])

    def test_after_it_nobody_may(self) -> None:
        assert checks.error_fault(Asked(21, "web", 0.1, 503, "x"), frozenset({"prometheus"}), self.BROKEN, [])

    def test_a_change_of_the_service_itself_explains_an_error(self) -> None:
        busy = [Spell(14, 16, None)]
        assert not checks.error_fault(Asked(15, "web", 0.1, 503, "x"), frozenset({"metrics"}), (), busy)


def test_a_process_that_grows_is_seen() -> None:
    before, most = Size(100, 20, 30, 4), Size(10, 5, 5, 1)
    assert not Size(110, 25, 35, 5).growth(before).beyond(most)
    assert Size(111, 20, 36, 4).growth(before).beyond(most) == [
        "memory grew by 11, more than 10",
        "sockets grew by 6, more than 5",
    ]
