"""The circuit breaker: who is asked, and when."""

import asyncio
from collections.abc import Callable

import pytest

from adapter.runtime.backoff import FAILURES, LONGEST_TRIAL_SECONDS, CircuitBreaker, CircuitOpen
from adapter.runtime.source_errors import SourceUnreachable, WrongAnswer
from tests.runtime.conftest import Clock


@pytest.fixture
def circuit(clock: Clock) -> CircuitBreaker:
    return CircuitBreaker(clock)


def ask(circuit: CircuitBreaker, error: BaseException | None = None, source: str | None = None) -> None:
    with circuit.request(source):
        if error is not None:
            raise error


def fail(circuit: CircuitBreaker, times: int = 1, source: str | None = None) -> None:
    for _ in range(times):
        with pytest.raises(SourceUnreachable):
            ask(circuit, SourceUnreachable(public="timed out"), source)


def is_refused(circuit: CircuitBreaker) -> bool:
    try:
        circuit.check()
    except CircuitOpen:
        return True
    return False


def test_it_opens_after_failures_in_a_row(circuit: CircuitBreaker) -> None:
    fail(circuit, FAILURES - 1)
    ask(circuit)
    fail(circuit, FAILURES - 1)
    assert not is_refused(circuit)
    fail(circuit)
    assert is_refused(circuit)
    with pytest.raises(CircuitOpen) as refusal:
        ask(circuit)
    assert refusal.value.public == "timed out"


def test_the_failures_of_one_source_count_once(circuit: CircuitBreaker) -> None:
    fail(circuit, 9, "shop")
    fail(circuit, 9, "bank")
    assert not is_refused(circuit)
    fail(circuit, 1, "depot")
    assert is_refused(circuit)


@pytest.mark.parametrize("error", [WrongAnswer("html"), ValueError("404")])
def test_an_error_that_the_server_answers_is_an_answer(circuit: CircuitBreaker, error: Exception) -> None:
    fail(circuit, FAILURES - 1)
    with pytest.raises(type(error)):
        ask(circuit, error)
    fail(circuit, FAILURES - 1)
    assert not is_refused(circuit)


def test_the_refusal_of_another_circuit_says_nothing(circuit: CircuitBreaker, clock: Clock) -> None:
    other = CircuitBreaker(clock)
    fail(other, FAILURES)
    for _ in range(FAILURES):
        with pytest.raises(CircuitOpen), circuit.request(), other.request():
            pass
    assert not circuit.is_open


def test_a_cancelled_request_says_nothing(circuit: CircuitBreaker, clock: Clock) -> None:
    fail(circuit, FAILURES)
    clock.now += 2
    with pytest.raises(asyncio.CancelledError):
        ask(circuit, asyncio.CancelledError())
    assert circuit.is_open
    assert not is_refused(circuit)  # the next one is the trial


def test_one_trial_at_a_time_and_its_answer_closes_it(circuit: CircuitBreaker, clock: Clock) -> None:
    fail(circuit, FAILURES)
    clock.now += 1.9
    assert is_refused(circuit)
    clock.now += 0.2
    with circuit.request():
        assert is_refused(circuit)
    assert not circuit.is_open
    assert not is_refused(circuit)


def test_trials_become_rare_up_to_a_limit(circuit: CircuitBreaker, clock: Clock) -> None:
    fail(circuit, FAILURES)
    waits = []
    for _ in range(6):
        began = clock.now
        while is_refused(circuit):
            clock.now += 0.5
        waits.append(clock.now - began)
        fail(circuit)
    assert waits == [2, 4, 8, LONGEST_TRIAL_SECONDS, LONGEST_TRIAL_SECONDS, LONGEST_TRIAL_SECONDS]


def test_requests_that_began_before_it_opened_do_not_postpone_the_trial(circuit: CircuitBreaker, clock: Clock) -> None:
    def begun() -> Callable[[], None]:
        context = circuit.request()
        context.__enter__()

        def end() -> None:
            error = SourceUnreachable(public="timed out")
            assert not context.__exit__(type(error), error, None)

        return end

    for end in [begun() for _ in range(12)]:
        end()
    clock.now += 2
    assert not is_refused(circuit)


def test_a_sign_of_life_allows_the_next_trial_at_once(circuit: CircuitBreaker) -> None:
    fail(circuit, FAILURES)
    circuit.allow_trial()
    assert not is_refused(circuit)
    fail(circuit)
    assert is_refused(circuit)
