"""The span of a history: the options' moments, on a grid that all spans of one step share."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter.commands.replay.history.range_client import MOST_POINTS
from adapter.commands.replay.history.span import DAY, Span, read_span
from adapter.runtime.faults import FaultyDocument

NOW = 1_800_000_007.0


def test_moments_are_times_now_or_ago() -> None:
    assert read_span("7d", "now", "15s", NOW) == Span(1_799_395_215_000, 1_800_000_000_000, 15_000)
    told = read_span("2026-11-01T00:00:00Z", "2026-11-02T01:00:00+01:00", "1m", NOW)
    assert told.last - told.first == DAY
    assert str(told) == "2026-11-01T00:00:00Z to 2026-11-02T00:00:00Z"


@pytest.mark.parametrize(
    ("start", "end", "step", "words"),
    [
        ("yesterday", "now", "15s", "--from: 'yesterday': write a time such as"),
        ("7d", "2026-01-01", "15s", "--to: '2026-01-01': write a time"),
        ("7d", "now", "0s", "--step: '0s': write a duration above 0"),
        ("7d", "now", "quick", "--step"),
        ("1h", "2h", "15s", "--from: '1h': must be earlier than --to"),
        ("now", "now", "15s", "must be earlier"),
        ("100000d", "now", "1ms", "take a longer step"),
    ],
)
def test_each_wrong_option_is_named(start: str, end: str, step: str, words: str) -> None:
    with pytest.raises(FaultyDocument) as raised:
        read_span(start, end, step, NOW)
    assert words in str(raised.value)


@given(st.integers(0, 10**6), st.integers(1, 30 * DAY), st.integers(50, 3 * DAY))
def test_the_parts_are_the_span_and_begin_at_the_same_moments_in_every_span(first: int, length: int, step: int) -> None:
    span = Span(first * step, first * step + length // step * step, step)
    parts = list(span.parts())
    assert sum(map(len, parts)) == len(span)
    assert [parts[0].first, *(part.last + step for part in parts)] == [
        *(part.first for part in parts),
        span.last + step,
    ]
    assert all(len(part) <= MOST_POINTS for part in parts)
    later = Span(span.first + step, span.last + step, step)
    assert set(parts[1:-1]) <= set(later.parts())
