"""The verdict of the long run finds leaks that are planted, and none in what only goes up and down."""

import random
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.endurance.run import per_minute
from lab.endurance.verdict import BOUNDS, Bound, judge, judge_all, slope, together

HOUR = [minute / 2 for minute in range(120)]
WARM_UP = 10.0
_STEADY = {"memory": 82.0, "blocks": 700_000, "tasks": 60, "sockets": 24, "threads": 6}


def _series(value: Callable[[float], float]) -> list[tuple[float, float]]:
    return [(minute, value(minute)) for minute in HOUR]


def _row(minute: float, **changes: float) -> dict[str, float]:
    return {"minute": minute, **_STEADY, "log": 9000, **changes}


@given(st.floats(-100, 100), st.floats(-1e6, 1e6))
def test_the_slope_of_a_line_is_its_own(rise: float, begin: float) -> None:
    assert slope(_series(lambda minute: begin + rise * minute)) == pytest.approx(rise, rel=1e-6, abs=1e-6)


@given(st.sets(st.integers(0, 119), max_size=30), st.floats(-1e9, 1e9))
def test_a_quarter_of_outliers_does_not_turn_a_flat_series_into_a_growing_one(places: set[int], wild: float) -> None:
    points = [(minute, wild if number in places else 80.0) for number, minute in enumerate(HOUR)]
    assert abs(slope(points)) <= 1e-9


def test_a_trend_needs_figures_of_two_moments() -> None:
    with pytest.raises(ValueError, match="two moments"):
        slope([(1, 5), (1, 6)])


@pytest.mark.parametrize(
    ("quantity", "grows"),
    [
        ("memory", lambda minute: 82 + 0.1 * minute),
        ("blocks", lambda minute: 700_000 + 15 * 60 * minute),
        ("tasks", lambda minute: 60 + minute // 9),
        ("sockets", lambda minute: 24 + minute // 10),
        ("threads", lambda minute: 6 + minute // 12),
        ("log", lambda minute: 9000 + 100 * minute),
    ],
)
def test_a_planted_leak_is_found_in_the_noise(quantity: str, grows: Callable[[float], float]) -> None:
    noise = random.Random(2)
    points = [(minute, value * noise.gauss(1, 0.01)) for minute, value in _series(grows)]
    verdict = judge("adapter", quantity, points, WARM_UP)
    assert not verdict.flat
    assert verdict.line().startswith("GROWS")


@pytest.mark.parametrize("quantity", BOUNDS)
def test_what_goes_up_and_down_is_flat(quantity: str) -> None:
    noise = random.Random(2)
    middle = {**_STEADY, "log": 9000}[quantity]
    points = _series(lambda minute: middle * (1 + 0.05 * (minute % 5) / 5) * noise.gauss(1, 0.01))
    verdict = judge("adapter", quantity, points, WARM_UP)
    assert verdict.flat, verdict.line()
    assert verdict.line().startswith("flat")


def test_a_warm_up_may_grow_as_it_likes() -> None:
    assert judge("adapter", "memory", _series(lambda minute: min(80, 8 * minute)), WARM_UP).flat


def test_what_shrinks_is_no_leak() -> None:
    assert judge("adapter", "memory", _series(lambda minute: 90 - 0.5 * minute), WARM_UP).flat


def test_too_short_a_run_has_no_verdict() -> None:
    with pytest.raises(ValueError, match="9 figures of memory"):
        judge("adapter", "memory", _series(lambda _: 80)[:29], WARM_UP)


def test_a_log_is_measured_by_its_volume_a_minute() -> None:
    assert per_minute({"minute": 1, "log": 100}, {"minute": 1.5, "log": 400}, "log") == 600


def test_what_grows_is_named_with_its_process() -> None:
    steady = [_row(minute) for minute in HOUR]
    louder = [_row(minute, log=9000 + 100 * minute) for minute in HOUR]
    growing = [one for one in judge_all({"adapter": steady, "companion": louder}, WARM_UP) if not one.flat]
    assert [(one.process, one.quantity) for one in growing] == [("companion", "log")]


def test_two_processes_that_take_turns_are_flat_together() -> None:
    first = [_row(minute, tasks=45 if minute < 30 else 33) for minute in HOUR]
    second = [_row(minute, tasks=33 if minute < 30 else 45) for minute in HOUR]
    both = together([first, second])
    assert both[3]["minute"] == first[3]["minute"]
    assert {one["tasks"] for one in both} == {78}
    assert all(one.flat for one in judge_all({"companions": both}, WARM_UP))


def test_a_bound_is_a_share_of_the_median_and_a_number() -> None:
    assert Bound("x", share=0.05, more=2).of(100) == 7
