"""Exponential back-off, for one caller and by key; and causes that are logged once."""

import random

from adapter.runtime.backoff import KEYED_LONGEST_SECONDS, Backoff, KeyedBackoff, LogOnce


class TestBackoff:
    def test_bound_doubles_from_half_a_second_to_30_until_a_success(self) -> None:
        backoff = Backoff(uniform=lambda _, bound: bound)
        assert [backoff.next() for _ in range(8)] == [0.5, 1, 2, 4, 8, 16, 30, 30]
        backoff.reset()
        assert backoff.next() == 0.5

    def test_retry_after_is_waited_for_30_s_at_most(self) -> None:
        backoff = Backoff(uniform=lambda _low, _high: 0.0)
        assert backoff.next(7.0) == 7.0
        assert backoff.next(3600.0) == 30.0


def test_keyed_wait_doubles_with_each_failure_up_to_5_min() -> None:
    backoff: KeyedBackoff[str] = KeyedBackoff()
    now, waits = 0.0, []
    for _ in range(12):
        backoff.failed("a", "WriteStatus", "Forbidden", now)
        began = now
        while not backoff.is_ready("a", "WriteStatus", now):
            now += 1
        waits.append(now - began)
    assert waits == [2, 4, 8, 16, 32, 64, 128, 256, *[KEYED_LONGEST_SECONDS] * 4]


def test_clock_set_back_does_not_make_a_wait_longer() -> None:
    backoff: KeyedBackoff[str] = KeyedBackoff()
    backoff.failed("a", "WriteStatus", "Forbidden", 3600)
    assert not backoff.is_ready("a", "WriteStatus", 3601)
    assert backoff.is_ready("a", "WriteStatus", 0)


def test_failure_is_new_for_another_reason_or_after_a_success() -> None:
    backoff: KeyedBackoff[str] = KeyedBackoff()
    assert [backoff.failed("a", "x", reason, 0) for reason in ("Forbidden", "Forbidden", "TimedOut")] == [
        True, False, True,
    ]  # fmt: skip
    backoff.reset("a", "x")
    assert backoff.is_ready("a", "x", 0)
    assert backoff.failed("a", "x", "TimedOut", 0)


def test_other_keys_and_kinds_do_not_wait() -> None:
    backoff: KeyedBackoff[str] = KeyedBackoff()
    backoff.failed("a", "x", "Forbidden", 0)
    assert backoff.is_ready("a", "y", 0)
    assert backoff.is_ready("b", "x", 0)
    backoff.forget("a")
    assert backoff.is_ready("a", "x", 0)


def test_cause_is_logged_once_until_it_changes_or_clears() -> None:
    log_once = LogOnce()
    assert [log_once.is_new(cause) for cause in ("refused", "refused", "silent")] == [True, False, True]
    assert log_once.is_new("silent", "another key")
    assert log_once.clear()
    assert not log_once.clear()
    assert log_once.is_new("silent")
    assert not log_once.is_new("silent", "another key")


def test_random_numbers_of_a_test_are_the_same_in_a_whole_run_and_alone() -> None:
    drawn = random.random()
    random.seed("tests/runtime/test_backoff.py::test_random_numbers_of_a_test_are_the_same_in_a_whole_run_and_alone")
    assert random.random() == drawn
