"""Schedules: when their windows are open, across time zones and the change of the clocks."""

from datetime import datetime
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter.load.schedule import limits_at, schedule_windows
from adapter.load.spec import Schedule

BERLIN, SHANGHAI, UTC = ZoneInfo("Europe/Berlin"), ZoneInfo("Asia/Shanghai"), ZoneInfo("UTC")


def schedule(
    cron: str, hours: float = 2, zone: ZoneInfo = SHANGHAI, low: int | None = 20, high: int | None = None
) -> Schedule:
    return Schedule(name=cron, cron=cron, zone=zone, duration=hours * 3600, minimum=low, maximum=high)


def at(text: str, zone: ZoneInfo = SHANGHAI) -> float:
    """Epoch seconds of a local time; `fold` 1 (the second of two) is written with a trailing +."""
    return datetime.fromisoformat(text.rstrip("+")).replace(tzinfo=zone, fold=int(text.endswith("+"))).timestamp()


def floor(now: float, *schedules: Schedule) -> int | None:
    return limits_at(schedule_windows(schedules, now), now).floor


LUNCH = schedule("0 11 * * 1-5")
LONG = schedule("0 * * * *", hours=3)
NIGHT = schedule("30 2 * * *", hours=0.5, zone=BERLIN)
THRICE = schedule("0,20,40 2 * * *", hours=0.5, zone=BERLIN)
FROM_ONE = schedule("0 1 * * *", hours=3, zone=BERLIN)


@pytest.mark.parametrize(
    ("planned", "when", "is_open"),
    [
        pytest.param(LUNCH, at("2026-11-20T10:59:59"), False, id="before the start"),
        pytest.param(LUNCH, at("2026-11-20T11:00:00"), True, id="at the start"),
        pytest.param(LUNCH, at("2026-11-20T12:59:59"), True, id="before the end"),
        pytest.param(LUNCH, at("2026-11-20T13:00:00"), False, id="at the end"),
        pytest.param(LUNCH, at("2026-11-21T11:30:00"), False, id="on a Saturday"),
        pytest.param(LUNCH, at("2026-11-23T11:30:00"), True, id="on a Monday"),
        pytest.param(LUNCH, at("2026-11-20T11:30:00", UTC), False, id="at that time of another zone"),
        pytest.param(LONG, at("2026-11-20T12:59:00"), True, id="it outlasts the next start"),
        pytest.param(NIGHT, at("2026-03-29T01:59:59", BERLIN), False, id="clocks are put forward: before the start"),
        pytest.param(
            NIGHT, at("2026-03-29T03:00:00", BERLIN), True, id="clocks are put forward: the first moment after"
        ),
        pytest.param(NIGHT, at("2026-03-29T03:30:00", BERLIN), False, id="clocks are put forward: the end"),
        pytest.param(NIGHT, at("2026-10-25T02:40:00", BERLIN), True, id="clocks are put back: it starts"),
        pytest.param(NIGHT, at("2026-10-25T02:40:00+", BERLIN), False, id="clocks are put back: once"),
        pytest.param(THRICE, at("2026-10-25T02:59:59", BERLIN), True, id="clocks are put back: the last start"),
        pytest.param(THRICE, at("2026-10-25T02:09:59+", BERLIN), True, id="clocks are put back: known after it"),
        pytest.param(THRICE, at("2026-10-25T02:10:00+", BERLIN), False, id="clocks are put back: until its end"),
        pytest.param(FROM_ONE, at("2026-10-25T01:00:00", BERLIN) + 3 * 3600 - 1, True, id="so long as it is said"),
        pytest.param(FROM_ONE, at("2026-10-25T01:00:00", BERLIN) + 3 * 3600, False, id="and no longer"),
    ],
)
def test_a_window_is_open_from_its_start_to_before_its_end(planned: Schedule, when: float, *, is_open: bool) -> None:
    assert floor(when, planned) == (20 if is_open else None)


@pytest.mark.parametrize("minutes", [1, 5, 30])
def test_frequent_schedules_go_on_when_clocks_are_put_back(minutes: int) -> None:
    always = schedule(f"*/{minutes} * * * *", hours=minutes / 60, zone=BERLIN)
    first = at("2026-10-25T01:00:00", BERLIN)
    assert [second for second in range(0, 4 * 3600, 31) if floor(first + second, always) is None] == []


@given(st.integers(0, 2_000_000_000), st.floats(0, 0.999), st.sampled_from([BERLIN, SHANGHAI]))
def test_every_moment_is_in_an_hourly_window_of_an_hour(second: int, part: float, zone: ZoneInfo) -> None:
    assert floor(second + part, schedule("0 * * * *", hours=1, zone=zone)) == 20
