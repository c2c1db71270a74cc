"""The picture: its data from the timeline, and drawings that are the same bytes for the same story."""

import itertools
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.demo.picture import BlindPeriod, apart, draw, picture
from lab.demo.timeline import Mark, load
from tests.demo.world import changed, pulled_out_story, side, tick, timeline

PICTURES = Path(__file__).resolve().parent.parent.parent / "docs" / "pictures"


def test_every_line_extends_to_the_end_of_the_story() -> None:
    shown = picture(pulled_out_story())
    assert shown.times == (0, 10, 20, 40, 60)
    assert shown.ours.replicas == (7, 7, 9, 9, 9)
    assert shown.stock.serving == (7, 5, 5, 5, 5)
    assert shown.ours.carried == (1143, 1600, 1143, 429, 429)
    assert shown.stock.carried == (1143, 1600, 1600, 600, 600)


def test_the_demand_is_shown_in_pods_at_the_high_watermark() -> None:
    shown = picture(timeline(tick(0, 6000), tick(10, 1800), end=20))
    assert shown.needed == (5.0, 1.5, 1.5)


def test_a_missing_value_is_a_gap() -> None:
    shown = picture(timeline(tick(0, ours=side(5)), tick(10, ours=side(5, seen=1000, raw=900)), end=20))
    assert shown.ours.seen == (None, 1000, 1000)
    assert shown.ours.raw == (None, 900, 900)


def test_neighbouring_seconds_of_overload_make_one_stretch() -> None:
    shown = picture(timeline(tick(0, 7000), tick(1, 7000), tick(2, 1000), tick(5, 8000), end=9))
    assert shown.ours.over == ((0, 2), (5, 9))


def test_the_blind_period_is_the_overload_that_the_stock_hpa_does_not_see() -> None:
    assert picture(pulled_out_story()).blind == BlindPeriod(10, 40, 1149, 1600)


def test_an_overload_before_the_pull_out_is_no_blind_period() -> None:
    over = side(5, serving=5, seen=1190)
    shown = picture(timeline(tick(0, 7000, stock=over), tick(10, 1000), end=20, marks=(Mark(10, "out"),)))
    assert shown.blind is None


def test_an_overload_that_the_stock_hpa_sees_is_no_blind_period() -> None:
    story = pulled_out_story()
    seeing = [changed_stock(one, 1600) for one in story.ticks]
    assert picture(timeline(*seeing, end=60, marks=tuple(story.marks))).blind is None


def changed_stock(one: object, seen: int) -> object:
    return changed(one, stock=changed(one.stock, seen=seen))  # type: ignore[attr-defined]


def test_an_empty_timeline_cannot_be_drawn() -> None:
    with pytest.raises(ValueError, match="nothing to draw"):
        picture(timeline(end=0))


def test_labels_are_moved_apart_and_keep_their_order() -> None:
    assert apart([1, 1.2, 5], 1) == [1, 2, 5]
    assert apart([], 1) == []


@given(st.lists(st.floats(-1e6, 1e6), max_size=8).map(sorted), st.floats(0.1, 1e3))
def test_labels_never_come_closer_than_the_gap(heights: list[float], gap: float) -> None:
    placed = apart(heights, gap)
    assert all(later - one >= gap * 0.999 - 1e-6 for one, later in itertools.pairwise(placed))
    assert all(moved >= height for moved, height in zip(placed, heights, strict=True))


@pytest.mark.parametrize("suffix", ["svg", "png"])
def test_the_same_story_is_drawn_with_the_same_bytes(tmp_path: Path, suffix: str) -> None:
    shown = picture(pulled_out_story())
    first, second = tmp_path / f"a/one.{suffix}", tmp_path / f"b/two.{suffix}"
    draw(shown, first)
    draw(shown, second)
    assert first.read_bytes() == second.read_bytes()


def test_a_story_without_figures_or_marks_is_drawn(tmp_path: Path) -> None:
    nothing = timeline(tick(0, ours=side(5), stock=side(5, serving=0)), tick(1, ours=side(5)), end=700)
    draw(picture(nothing), tmp_path / "bare.svg")
    assert "<svg" in (tmp_path / "bare.svg").read_text()


def secrets_in(text: str) -> list[str]:
    """Texts in a drawing that reveal the machine or the date."""
    return re.findall(r"/home/|/root|/tmp|/work|<dc:date|20\d\d-\d\d-\d\d", text)


def test_a_drawing_does_not_reveal_machine_or_date(tmp_path: Path) -> None:
    draw(picture(pulled_out_story()), tmp_path / "demo.svg")
    assert secrets_in((tmp_path / "demo.svg").read_text()) == []


def test_the_readmes_picture_shows_a_recovery() -> None:
    assert secrets_in((PICTURES / "demo.svg").read_text()) == []
    shown = picture(load((PICTURES / "demo.json").read_text()))
    assert max(count or 0 for count in shown.ours.replicas) == 9
    assert shown.blind is not None
    assert shown.blind.until - shown.blind.since > 20
    assert sum(until - since for since, until in shown.ours.over) < sum(
        until - since for since, until in shown.stock.over
    )


def test_the_readmes_picture_matches_its_timeline(tmp_path: Path) -> None:
    draw(picture(load((PICTURES / "demo.json").read_text())), tmp_path / "demo.svg")
    ours, committed = (tmp_path / "demo.svg").read_text(), (PICTURES / "demo.svg").read_text()
    assert shapes(ours) == shapes(committed)


def shapes(svg: str) -> list[str]:
    """The ids of the picture's elements; coordinates may differ in the last digit between machines."""
    return re.findall(r'<g id="([^"]+)"', svg)
