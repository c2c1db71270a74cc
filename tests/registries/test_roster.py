"""Trust in a registry's answers: what makes one invalid, how old it may be, and what is remembered across services."""

from dataclasses import replace

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from adapter.load.roster import Instance, Roster
from adapter.registries.roster import Answer, AnswerHistory, Heard, RosterSource, ServiceKey

NOW = 1_767_268_800.0
WEB = ServiceKey("nacos", "web")
API = ServiceKey("nacos", "api")
KEYS = [WEB, API, ServiceKey("nacos", "web", "prod"), ServiceKey("nacos", "web", "", "BLUE")]
NOTHING: tuple[Instance, ...] = ()


def instances(count: int) -> tuple[Instance, ...]:
    return tuple(Instance(ip=f"10.0.0.{number}", port=8080) for number in range(count))


def heard(
    ledger: AnswerHistory, key: ServiceKey, count: int, at: float = NOW, **more: object
) -> tuple[AnswerHistory, Roster]:
    return ledger.admit(key, replace(Answer(at=at, instances=instances(count)), **more))  # type: ignore[arg-type]


class TestValidity:
    def test_a_plain_answer_is_valid(self) -> None:
        _, roster = heard(AnswerHistory().watch([WEB]), WEB, 3)
        assert roster == Roster(at=NOW, registry_total=3, instances=instances(3))

    @pytest.mark.parametrize(
        ("more", "reason"),
        [
            ({"error": "connection refused"}, "connection refused"),
            ({"filtered": True}, "filtered its answer; give the adapter's token the right"),
            ({"partial": True}, "incomplete"),
        ],
    )
    def test_these_are_not(self, more: dict[str, object], reason: str) -> None:
        _, roster = heard(AnswerHistory().watch([WEB]), WEB, 3, **more)
        assert not roster.valid
        assert reason in (roster.error or "")
        assert roster.instances == NOTHING

    def test_an_empty_answer_is_valid_and_it_is_the_guards_that_doubt_it(self) -> None:
        _, roster = heard(AnswerHistory().watch([WEB]), WEB, 0)
        assert roster.valid
        assert not roster.alive

    def test_protection_is_passed_on(self) -> None:
        _, roster = heard(AnswerHistory(), WEB, 3, protected=True)
        assert roster.protected
        assert roster.valid


class TestIndex:
    def test_one_that_grows_or_stays_is_well(self) -> None:
        ledger = AnswerHistory().watch([WEB])
        for index in (5, 5, 9):
            ledger, roster = heard(ledger, WEB, 1, index=index)
            assert roster.valid
        assert ledger.reconnected_at is None

    def test_one_that_goes_back_is_a_restart_and_that_answer_is_not_valid(self) -> None:
        ledger, _ = heard(AnswerHistory().watch([WEB]), WEB, 3, index=90)
        ledger, roster = heard(ledger, WEB, 0, at=NOW + 5, index=12)
        assert not roster.valid
        assert "went back from 90 to 12" in (roster.error or "")
        assert roster.reconnected_at == ledger.reconnected_at == NOW + 5

    def test_the_next_answer_is_measured_against_it(self) -> None:
        ledger, _ = heard(AnswerHistory().watch([WEB]), WEB, 3, index=90)
        ledger, _ = heard(ledger, WEB, 0, at=NOW + 5, index=12)
        _, roster = heard(ledger, WEB, 3, at=NOW + 10, index=13)
        assert roster.valid
        assert roster.reconnected_at == NOW + 5

    def test_each_service_has_its_own(self) -> None:
        ledger, _ = heard(AnswerHistory().watch([WEB, API]), WEB, 3, index=90)
        _, roster = heard(ledger, API, 3, index=12)
        assert roster.valid

    def test_an_answer_that_failed_has_none(self) -> None:
        ledger, _ = heard(AnswerHistory().watch([WEB]), WEB, 3, index=90)
        ledger, _ = heard(ledger, WEB, 0, error="refused", index=0)
        _, roster = heard(ledger, WEB, 3, index=91)
        assert roster.valid
        assert roster.reconnected_at is None


class TestTotal:
    def test_it_is_unknown_until_every_service_was_heard_of(self) -> None:
        ledger = AnswerHistory().watch([WEB, API])
        ledger, first = heard(ledger, WEB, 3)
        ledger, second = heard(ledger, API, 4)
        assert (first.registry_total, second.registry_total) == (None, 7)

    def test_an_invalid_answer_does_not_lower_it(self) -> None:
        ledger, _ = heard(AnswerHistory().watch([WEB]), WEB, 3)
        _, roster = heard(ledger, WEB, 0, error="refused")
        assert roster.registry_total == 3

    def test_a_collapse_is_seen_in_one_answer(self) -> None:
        ledger, _ = heard(AnswerHistory().watch([WEB, API]), WEB, 10)
        ledger, before = heard(ledger, API, 10)
        _, after = heard(ledger, API, 1)
        assert (before.registry_total, after.registry_total) == (20, 11)

    def test_a_service_that_is_watched_no_more_is_forgotten(self) -> None:
        ledger, _ = heard(AnswerHistory().watch([WEB, API]), WEB, 3, index=9)
        ledger, _ = heard(ledger, API, 4)
        ledger = ledger.watch([API])
        assert ledger.total == 4
        assert WEB not in ledger.indexes
        assert heard(ledger.watch([WEB, API]), WEB, 3, index=1)[1].valid

    def test_a_service_that_is_new_makes_it_unknown_again(self) -> None:
        ledger, _ = heard(AnswerHistory().watch([WEB]), WEB, 3)
        assert ledger.watch([WEB, API]).total is None


class TestSignOfLife:
    def test_another_service_with_instances_is_one(self) -> None:
        ledger, _ = heard(AnswerHistory().watch([WEB, API]), API, 4, at=NOW - 20)
        assert heard(ledger, WEB, 0)[1].alive

    @pytest.mark.parametrize(("count", "age"), [(0, 5), (4, 31)])
    def test_an_empty_or_an_old_one_is_none(self, count: int, age: float) -> None:
        ledger, _ = heard(AnswerHistory().watch([WEB, API]), API, count, at=NOW - age)
        assert not heard(ledger, WEB, 0)[1].alive

    def test_the_service_itself_is_none(self) -> None:
        ledger, _ = heard(AnswerHistory().watch([WEB]), WEB, 4, at=NOW - 5)
        assert not heard(ledger, WEB, 0)[1].alive

    def test_a_registry_may_have_one_of_its_own(self) -> None:
        assert heard(AnswerHistory().watch([WEB]), WEB, 0, alive=True)[1].alive

    def test_after_a_reconnect_that_of_the_registry_is_no_proof_that_registrations_survived(self) -> None:
        ledger, _ = heard(AnswerHistory().watch([WEB]), WEB, 4, at=NOW - 20)
        _, roster = heard(ledger.reconnected(NOW - 10), WEB, 0, alive=True)
        assert not roster.alive

    def test_nor_is_a_service_that_was_empty_meanwhile(self) -> None:
        ledger, _ = heard(AnswerHistory().watch([WEB, API]), WEB, 4, at=NOW - 20)
        ledger, _ = heard(ledger, API, 4, at=NOW - 20)
        ledger, _ = heard(ledger.reconnected(NOW - 10), API, 0, at=NOW - 9)
        ledger, _ = heard(ledger, API, 4, at=NOW - 5)
        assert not heard(ledger, WEB, 0, alive=True)[1].alive

    def test_a_service_that_never_was_empty_is(self) -> None:
        ledger, _ = heard(AnswerHistory().watch([WEB, API]), WEB, 4, at=NOW - 20)
        ledger, _ = heard(ledger, API, 4, at=NOW - 20)
        ledger, _ = heard(ledger.reconnected(NOW - 10), API, 3, at=NOW - 5)
        assert heard(ledger, WEB, 0)[1].alive
        assert heard(ledger.confirm([API], NOW + 100), WEB, 0, at=NOW + 100)[1].alive

    def test_a_service_that_was_full_after_the_reconnect_is_emptied_by_its_pods(self) -> None:
        ledger, _ = heard(AnswerHistory().watch([WEB]).reconnected(NOW - 10), WEB, 4, at=NOW - 5)
        assert heard(ledger, WEB, 0, alive=True)[1].alive


class TestReconnects:
    def test_a_reconnect_is_in_every_roster_after_it(self) -> None:
        ledger = AnswerHistory().watch([WEB, API]).reconnected(NOW - 3)
        assert heard(ledger, WEB, 1)[1].reconnected_at == NOW - 3
        assert heard(ledger, API, 1)[1].reconnected_at == NOW - 3

    def test_the_latest_counts_in_whatever_order_they_are_told(self) -> None:
        assert AnswerHistory().reconnected(NOW).reconnected(NOW - 50).reconnected_at == NOW


class Registry(RuleBasedStateMachine):
    """Any sequence of answers: what is remembered always follows from the valid ones."""

    def __init__(self) -> None:
        super().__init__()
        self.ledger = AnswerHistory().watch(KEYS[:2])
        self.watched = set(KEYS[:2])
        self.last: dict[ServiceKey, Heard] = {}
        self.time = NOW

    @rule(keys=st.sets(st.sampled_from(KEYS)))
    def watch(self, keys: set[ServiceKey]) -> None:
        self.ledger = self.ledger.watch(keys)
        self.watched = keys
        self.last = {key: heard for key, heard in self.last.items() if key in keys}

    @rule(
        key=st.sampled_from(KEYS),
        count=st.integers(0, 5),
        error=st.sampled_from(["", "", "refused"]),
        filtered=st.booleans(),
        index=st.none() | st.integers(0, 5),
        passed=st.floats(0, 60),
    )
    def answer(self, key: ServiceKey, count: int, error: str, filtered: bool, index: int | None, passed: float) -> None:
        if key not in self.watched:
            return
        self.time += passed
        given_ = Answer(at=self.time, instances=instances(count), error=error, filtered=filtered, index=index)
        before = self.ledger
        self.ledger, roster = before.admit(key, given_)
        assert roster.at == self.time
        assert roster.valid is (roster.error is None)
        assert roster.valid or not roster.instances
        assert not roster.valid or not (error or filtered)
        assert (roster.reconnected_at or 0) >= (before.reconnected_at or 0)
        if roster.valid:
            self.last[key] = Heard(self.time, count)

    @invariant()
    def the_total_is_that_of_the_last_valid_answers(self) -> None:
        assert {key: Heard(heard.at, heard.count) for key, heard in self.ledger.heard.items()} == self.last
        complete = self.watched == self.last.keys()
        assert self.ledger.total == (sum(heard.count for heard in self.last.values()) if complete else None)


TestAnySequence = Registry.TestCase


class _Still:
    """The least that a source can be."""

    def watch(self, keys: object) -> None: ...

    def roster(self, _key: ServiceKey) -> Roster | None:
        return None

    async def run(self) -> None: ...


def test_services_are_told_apart_by_all_of_their_key() -> None:
    assert len(set(KEYS)) == 4
    source: RosterSource = _Still()
    assert source.roster(WEB) is None
