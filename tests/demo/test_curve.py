"""The load curve: ramps, chapters, and the properties of the story's curves."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.demo.curve import FULL, QUICK, Chapter, Curve
from lab.demo.objects import AT_FIRST, FEWEST, HIGH, LOW, PODS_AT_FIRST

CURVE = Curve((Chapter(0, "a", 1000), Chapter(10, "b", 3000, ramp=4), Chapter(20, "c", 500)), end=30)


@pytest.mark.parametrize(
    ("at", "demand"),
    [(0, 1000), (9.9, 1000), (10, 1000), (11, 1500), (12, 2000), (14, 3000), (19, 3000), (20, 500), (29, 500)],
)
def test_demand_is_ramped_within_a_chapter_and_held_after_it(at: float, demand: int) -> None:
    assert CURVE.demand(at) == demand


@given(st.floats(0, 200, allow_nan=False))
def test_demand_never_leaves_the_range_of_the_chapters(at: float) -> None:
    levels = [chapter.demand for chapter in FULL.chapters]
    assert min(levels) <= FULL.demand(at) <= max(levels)


def test_each_chapter_is_returned_once_for_any_step() -> None:
    moments = [-1, 0, 3.2, 9.99, 10.01, 19, 20, 31]
    met = [chapter.title for after, until in itertools.pairwise(moments) for chapter in CURVE.between(after, until)]
    assert met == ["a", "b", "c"]


def test_a_stretched_curve_is_the_same_story_slower() -> None:
    slow = CURVE.stretched(2)
    assert slow.end == 60
    assert [slow.demand(2 * at) for at in range(30)] == [CURVE.demand(at) for at in range(30)]


@pytest.mark.parametrize("curve", [FULL, QUICK])
def test_the_story_begins_inside_the_band_where_both_hpas_rest(curve: Curve) -> None:
    each = curve.demand(0) / PODS_AT_FIRST
    assert LOW < each < HIGH
    assert abs(each / HIGH - 1) < 0.1
    assert curve.chapters[0].at == 0
    assert each == AT_FIRST


@pytest.mark.parametrize("curve", [FULL, QUICK])
def test_chapters_come_in_order_and_their_ramps_end_before_the_next(curve: Curve) -> None:
    ends = [chapter.at + chapter.ramp for chapter in curve.chapters]
    starts = [chapter.at for chapter in curve.chapters[1:]] + [curve.end]
    assert all(end < start for end, start in zip(ends, starts, strict=True))


def test_the_whole_story_leaves_a_hundred_seconds_of_the_four_minutes_for_starting_and_stopping() -> None:
    assert FULL.end <= 140


def test_the_full_story_rises_pulls_out_and_falls() -> None:
    rises = [chapter.demand for chapter in FULL.chapters]
    pulled = next(chapter for chapter in FULL.chapters if chapter.pull_out)
    assert rises[0] < rises[1] < rises[2]
    assert FULL.demand(pulled.at) == max(rises)
    assert FULL.demand(FULL.end) < LOW * (FEWEST + 4)  # low enough that 7 serving pods are below the low watermark


def test_the_first_rise_is_one_that_the_stock_tolerance_swallows() -> None:
    each = FULL.chapters[1].demand / PODS_AT_FIRST / HIGH
    assert 1.01 < each < 1.1
