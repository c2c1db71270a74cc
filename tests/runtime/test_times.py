"""RFC 3339 times: what is read, what is written, and that one reads the other."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter.runtime.times import format_time, parse_time


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("1970-01-01T00:00:00Z", 0.0),
        ("2026-01-01T12:00:00Z", 1767268800.0),
        ("2026-01-01T12:00:00.5Z", 1767268800.5),
        ("2026-01-01T12:00:00.123456Z", 1767268800.123456),
        ("2026-01-01T12:00:00.123456789Z", 1767268800.123456),
        ("2026-01-01T20:00:00+08:00", 1767268800.0),
    ],
)
def test_a_time_with_its_offset_is_read(text: str, seconds: float) -> None:
    assert parse_time(text) == seconds


@pytest.mark.parametrize(
    "text",
    [
        "", None, 5, "now", "noon", "1767268800", "2026-01-01", "2026-01-01T12:00:00", "2026-13-01T12:00:00Z",
        # These cannot be written in UTC:
        "9999-12-31T23:59:59.999999Z", "9999-12-31T23:59:59-01:00", "0001-01-01T00:00:00+01:00",
    ],
)  # fmt: skip
def test_anything_else_is_no_time(text: object) -> None:
    assert parse_time(text) is None


@given(st.integers(0, 4_000_000_000))
def test_a_written_time_reads_back(seconds: int) -> None:
    assert parse_time(format_time(seconds)) == seconds
