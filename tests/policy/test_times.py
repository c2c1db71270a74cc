"""Times as they are written, and those that nobody could write back."""

import pytest

from adapter.policy.memory_json import RecollectionError, load, time_text
from adapter.policy.times import seconds_of


@pytest.mark.parametrize("text", ["2026-01-01T12:00:00Z", "2026-01-01T13:00:00+01:00", "2026-01-01T12:00:00.000000Z"])
def test_a_time_with_its_offset_is_read(text: str) -> None:
    assert seconds_of(text) == 1767268800


@pytest.mark.parametrize("text", ["", None, 5, "noon", "2026-01-01", "2026-01-01T12:00:00", "2026-13-01T12:00:00Z"])
def test_anything_else_is_no_time(text: object) -> None:
    assert seconds_of(text) is None


@pytest.mark.parametrize(
    "text", ["9999-12-31T23:59:59.999999Z", "9999-12-31T23:59:59-01:00", "0001-01-01T00:00:00+01:00"]
)
def test_a_time_that_cannot_be_written_in_utc_is_none(text: str) -> None:
    assert seconds_of(text) is None


@pytest.mark.parametrize("text", ["9999-12-31T23:59:59Z", "0001-01-01T00:00:00Z"])
def test_whatever_is_read_can_be_written(text: str) -> None:
    found = seconds_of(text)
    assert found is not None
    assert time_text(found) == text.replace("Z", ".000000Z")


def test_a_memory_of_such_a_time_is_a_fault_with_its_path() -> None:
    with pytest.raises(RecollectionError, match=r"memory\.lastScale"):
        load({"lastScale": "9999-12-31T23:59:59-01:00"})
