"""A lasting failure is logged once."""

from adapter.runtime.backoff import LogOnce


def test_a_cause_is_new_until_it_changes() -> None:
    log_once = LogOnce()
    assert [log_once.is_new(cause) for cause in ("refused", "refused", "silent", "silent")] == [
        True, False, True, False,
    ]  # fmt: skip


def test_after_a_success_the_same_cause_is_new_again() -> None:
    log_once = LogOnce()
    log_once.is_new("refused")
    assert log_once.clear()
    assert not log_once.clear()
    assert log_once.is_new("refused")


def test_keys_are_apart() -> None:
    log_once = LogOnce()
    log_once.is_new("refused", "shop")
    assert log_once.is_new("refused", "bank")
    log_once.clear("bank")
    assert not log_once.is_new("refused", "shop")
