"""Trust in a registry's answers: what makes one invalid, how old it may be, and what is remembered across services."""

from dataclasses import replace

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from adapter.load.roster import Instance, Roster
from adapter.registries.roster import AnswerHistory, LastAnswer, RegistryAnswer, ServiceKey

NOW = 1_767_268_800.0
WEB = ServiceKey("nacos", "web")
API = ServiceKey("nacos", "api")
KEYS = [WEB, API, ServiceKey("nacos", "web", "prod"), ServiceKey("nacos", "web", "", "BLUE")]


def instances(count: int) -> tuple[Instance, ...]:
    return tuple(Instance(ip=f"10.0.0.{number}", port=8080) for number in range(count))


def heard(
    history: AnswerHistory, key: ServiceKey, count: int, at: float = NOW, **more: object
) -> tuple[AnswerHistory, Roster]:
    return history.admit(key, replace(RegistryAnswer(at=at, instances=instances(count)), **more))  # type: ignore[arg-type]


@pytest.mark.parametrize("protected", [False, True])
def test_a_plain_answer_is_valid_and_its_protection_is_passed_on(protected: bool) -> None:
    _, roster = heard(AnswerHistory().follow([WEB]), WEB, 3, protected=protected)
    assert roster == Roster(at=NOW, registry_total=3, protected=protected, instances=instances(3))


class TestIndex:
    def test_one_that_grows_or_stays_is_well_and_each_service_has_its_own(self) -> None:
        history = AnswerHistory().follow([WEB, API])
        for key, index in ((WEB, 5), (WEB, 5), (WEB, 9), (API, 3)):
            history, roster = heard(history, key, 1, index=index)
            assert roster.valid
        assert history.reconnected_at is None

    def test_one_that_goes_back_is_a_restart_and_that_answer_is_not_valid(self) -> None:
        history, _ = heard(AnswerHistory().follow([WEB]), WEB, 3, index=90)
        history, roster = heard(history, WEB, 0, at=NOW + 5, index=12)
        assert not roster.valid
        assert "went back from 90 to 12" in (roster.error or "")
        assert roster.reconnected_at == history.reconnected_at == NOW + 5
        _, roster = heard(history, WEB, 3, at=NOW + 10, index=13)
        assert roster.valid, "the next answer is measured against it"
        assert roster.reconnected_at == NOW + 5


class TestTotal:
    """`Registry`, below, holds that it is that of the followed services that were heard of."""

    def test_a_service_that_is_watched_no_more_is_forgotten(self) -> None:
        history, _ = heard(AnswerHistory().follow([WEB, API]), WEB, 3, index=9)
        history = history.follow([API])
        assert WEB not in history.indexes
        assert heard(history.follow([WEB, API]), WEB, 3, index=1)[1].valid

    def test_a_service_that_is_watched_no_more_is_no_fall_of_it(self) -> None:
        history, _ = heard(AnswerHistory().follow([WEB, API]), WEB, 3)
        history, _ = heard(history, API, 9)
        for following in ([WEB], [WEB, API], [WEB]):
            history, roster = heard(history.follow(following), WEB, 3)
            assert (roster.registry_total, roster.registry_unfollowed) == (3, 9)


class TestSignOfLife:
    def test_another_service_with_instances_is_one(self) -> None:
        history, _ = heard(AnswerHistory().follow([WEB, API]), API, 4, at=NOW - 20)
        assert heard(history, WEB, 0)[1].alive

    @pytest.mark.parametrize(("count", "age"), [(0, 5), (4, 31)])
    def test_an_empty_or_an_old_one_is_none(self, count: int, age: float) -> None:
        history, _ = heard(AnswerHistory().follow([WEB, API]), API, count, at=NOW - age)
        assert not heard(history, WEB, 0)[1].alive

    def test_the_service_itself_is_none(self) -> None:
        history, _ = heard(AnswerHistory().follow([WEB]), WEB, 4, at=NOW - 5)
        assert not heard(history, WEB, 0)[1].alive

    def test_a_registry_may_have_one_of_its_own(self) -> None:
        assert heard(AnswerHistory().follow([WEB]), WEB, 0, alive=True)[1].alive

    def test_after_a_reconnect_that_of_the_registry_is_no_proof_that_registrations_survived(self) -> None:
        history, _ = heard(AnswerHistory().follow([WEB]), WEB, 4, at=NOW - 20)
        _, roster = heard(history.reconnected(NOW - 10), WEB, 0, alive=True)
        assert not roster.alive

    def test_nor_is_a_service_that_was_empty_meanwhile(self) -> None:
        history, _ = heard(AnswerHistory().follow([WEB, API]), WEB, 4, at=NOW - 20)
        history, _ = heard(history, API, 4, at=NOW - 20)
        history, _ = heard(history.reconnected(NOW - 10), API, 0, at=NOW - 9)
        history, _ = heard(history, API, 4, at=NOW - 5)
        assert not heard(history, WEB, 0, alive=True)[1].alive

    def test_a_service_that_never_was_empty_is(self) -> None:
        history, _ = heard(AnswerHistory().follow([WEB, API]), WEB, 4, at=NOW - 20)
        history, _ = heard(history, API, 4, at=NOW - 20)
        history, _ = heard(history.reconnected(NOW - 10), API, 3, at=NOW - 5)
        assert heard(history, WEB, 0)[1].alive
        assert heard(history.confirm([API], NOW + 100), WEB, 0, at=NOW + 100)[1].alive

    def test_a_service_that_was_full_after_the_reconnect_is_emptied_by_its_pods(self) -> None:
        history, _ = heard(AnswerHistory().follow([WEB]).reconnected(NOW - 10), WEB, 4, at=NOW - 5)
        assert heard(history, WEB, 0, alive=True)[1].alive


def test_a_clock_that_was_put_back_hides_no_reconnect() -> None:
    assert AnswerHistory().reconnected(NOW).reconnected(NOW - 500).reconnected_at == NOW - 500


class Registry(RuleBasedStateMachine):
    """Any sequence of answers: what is remembered always follows from the valid ones."""

    def __init__(self) -> None:
        super().__init__()
        self.history = AnswerHistory().follow(KEYS[:2])
        self.watched = set(KEYS[:2])
        self.last: dict[ServiceKey, LastAnswer] = {}
        self.time = NOW

    @rule(keys=st.sets(st.sampled_from(KEYS)))
    def watch(self, keys: set[ServiceKey]) -> None:
        self.history = self.history.follow(keys)
        self.watched = keys
        self.last = {key: heard for key, heard in self.last.items() if key in keys}

    @rule(
        key=st.sampled_from(KEYS),
        count=st.integers(0, 5),
        partial=st.booleans(),
        index=st.none() | st.integers(0, 5),
        passed=st.floats(0, 60),
    )
    def answer(self, key: ServiceKey, count: int, partial: bool, index: int | None, passed: float) -> None:
        if key not in self.watched:
            return
        self.time += passed
        given_ = RegistryAnswer(at=self.time, instances=instances(count), partial=partial, index=index)
        before = self.history
        self.history, roster = before.admit(key, given_)
        assert roster.at == self.time
        assert roster.valid is (roster.error is None)
        assert roster.valid or not roster.instances
        assert not roster.valid or not partial
        assert (roster.reconnected_at or 0) >= (before.reconnected_at or 0)
        if roster.valid:
            self.last[key] = LastAnswer(self.time, count)

    @invariant()
    def the_total_is_that_of_the_last_valid_answers(self) -> None:
        assert {key: LastAnswer(heard.at, heard.count) for key, heard in self.history.last_valid.items()} == self.last
        assert self.history.total == (sum(heard.count for heard in self.last.values()) if self.last else None)


TestAnySequence = Registry.TestCase
