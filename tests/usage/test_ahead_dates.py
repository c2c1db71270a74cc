"""Samples that are dated after the answer that brought them."""

import pytest

from adapter.usage.ahead_dates import AheadDates


def test_a_sample_dated_ahead_has_the_date_of_its_answer() -> None:
    assert AheadDates().clamped("ab", [99.0, 200.0], 100.0) == [99.0, 100.0]


@pytest.mark.parametrize(("second", "third"), [(200.0, 100.0), (215.0, 130.0)], ids=["frozen", "a new sample"])
def test_the_same_sample_keeps_its_date_when_it_is_read_again(second: float, third: float) -> None:
    dates = AheadDates()
    assert dates.clamped("a", [200.0], 100.0) == [100.0]
    assert dates.clamped("a", [200.0], 115.0) == [100.0]
    assert dates.clamped("a", [second], 130.0) == [third]


def test_a_sample_that_is_not_ahead_any_more_has_its_own_date() -> None:
    dates = AheadDates()
    assert dates.clamped("a", [200.0], 100.0) == [100.0]
    assert dates.clamped("a", [200.0], 201.0) == [200.0]
    assert dates.clamped("a", [None], 201.0) == [None]
