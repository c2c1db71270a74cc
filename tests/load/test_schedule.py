"""Schedules: when their windows are open, across time zones and the change of the clocks."""

from datetime import datetime
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter.load.schedule import ScheduleLimits, limits_at, schedule_windows
from adapter.load.spec import Schedule

BERLIN, SHANGHAI = ZoneInfo("Europe/Berlin"), ZoneInfo("Asia/Shanghai")


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


@pytest.mark.parametrize(
    ("when", "expected"),
    [
        ("2026-11-20T10:59:59", None),
        ("2026-11-20T11:00:00", 20),
        ("2026-11-20T12:59:59", 20),
        ("2026-11-20T13:00:00", None),
        ("2026-11-21T11:30:00", None),  # a Saturday
        ("2026-11-23T11:30:00", 20),
    ],
)
def test_a_window_is_open_from_its_start_to_before_its_end(when: str, expected: int | None) -> None:
    assert floor(at(when), LUNCH) == expected


def test_the_time_zone_is_the_schedules_own() -> None:
    assert floor(at("2026-11-20T03:30:00", ZoneInfo("UTC")), LUNCH) == 20
    assert floor(at("2026-11-20T11:30:00", ZoneInfo("UTC")), LUNCH) is None


def test_the_next_window_is_known_beforehand() -> None:
    now = at("2026-11-20T10:59:00")
    known = schedule_windows([LUNCH], now)
    assert [window.start for window in known] == [at("2026-11-20T11:00:00")]
    assert limits_at(known, now + 60) == ScheduleLimits(floor=20, floor_of=LUNCH.name)


def test_a_window_that_outlasts_the_next_start_stays_open() -> None:
    long = schedule("0 * * * *", hours=3)
    for minutes in (0, 30, 59, 119):
        assert floor(at("2026-11-20T11:00:00") + 60 * minutes, long) == 20


def test_of_several_windows_the_largest_floor_and_the_smallest_cap_hold() -> None:
    others = [
        schedule("0 11 * * *", low=5, high=60),
        schedule("30 11 * * *", low=30, high=50),
        schedule("0 20 * * *", low=99, high=1),
    ]
    now = at("2026-11-20T11:45:00")
    assert limits_at(schedule_windows(others, now), now) == ScheduleLimits(30, 50, "30 11 * * *", "30 11 * * *")


def test_where_the_clocks_are_put_forward_over_the_start_it_is_the_first_moment_after() -> None:
    night = schedule("30 2 * * *", hours=1, zone=BERLIN)
    assert floor(at("2026-03-29T01:59:59", BERLIN), night) is None
    assert floor(at("2026-03-29T03:00:00", BERLIN), night) == 20
    assert floor(at("2026-03-29T04:00:00", BERLIN), night) is None


def test_where_the_clocks_are_put_back_the_start_comes_once() -> None:
    night = schedule("30 2 * * *", hours=0.5, zone=BERLIN)
    assert floor(at("2026-10-25T02:40:00", BERLIN), night) == 20
    assert floor(at("2026-10-25T02:40:00+", BERLIN), night) is None


@pytest.mark.parametrize("minutes", [1, 5, 30])
def test_frequent_schedules_go_on_when_clocks_are_put_back(minutes: int) -> None:
    always = schedule(f"*/{minutes} * * * *", hours=minutes / 60, zone=BERLIN)
    first = at("2026-10-25T01:00:00", BERLIN)
    assert [second for second in range(0, 4 * 3600, 31) if floor(first + second, always) is None] == []


@pytest.mark.parametrize(
    ("when", "expected"), [("02:05:00", 20), ("02:59:59", 20), ("02:09:59+", 20), ("02:10:00+", None)]
)
def test_the_last_start_before_the_clocks_were_put_back_is_known_after_it(when: str, expected: int | None) -> None:
    thrice = schedule("0,20,40 2 * * *", hours=0.5, zone=BERLIN)
    assert floor(at(f"2026-10-25T{when}", BERLIN), thrice) == expected


def test_a_duration_is_so_long_even_where_the_clocks_change_in_it() -> None:
    night = schedule("0 1 * * *", hours=3, zone=BERLIN)
    start = at("2026-10-25T01:00:00", BERLIN)
    assert floor(start + 3 * 3600 - 1, night) == 20
    assert floor(start + 3 * 3600, night) is None


@given(st.integers(0, 2_000_000_000), st.floats(0, 0.999), st.sampled_from([BERLIN, SHANGHAI]))
def test_every_moment_is_in_an_hourly_window_of_an_hour(second: int, part: float, zone: ZoneInfo) -> None:
    assert floor(second + part, schedule("0 * * * *", hours=1, zone=zone)) == 20


@given(st.integers(0, 2_000_000_000))
def test_the_next_window_known_before_is_the_one_that_opens(second: int) -> None:
    half = schedule("*/30 * * * *", hours=0.2, zone=BERLIN)
    known = schedule_windows([half], second)
    for later in range(0, 1800, 97):
        assert limits_at(known, second + later) == limits_at(schedule_windows([half], second + later), second + later)
