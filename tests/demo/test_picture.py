"""The picture: when the stock HPA is blind, and what README's own picture shows."""

import re
from dataclasses import replace
from pathlib import Path

from lab.demo.picture import BlindPeriod, blind_period, draw
from lab.demo.timeline import Mark, counts, load, summed
from tests.demo.world import pulled_out_story, side, tick, timeline

PICTURES = Path(__file__).resolve().parent.parent.parent / "docs" / "pictures"


def test_the_blind_period_is_the_overload_that_the_stock_hpa_does_not_see() -> None:
    assert blind_period(pulled_out_story()) == BlindPeriod(10, 40, 1149, 1600)


def test_an_overload_before_the_pull_out_or_one_that_the_stock_hpa_sees_is_no_blind_period() -> None:
    over = side(5, serving=5, seen=1190)
    assert blind_period(timeline(tick(0, 7000, stock=over), tick(10, 1000), end=20, marks=(Mark(10, "out"),))) is None
    story = pulled_out_story()
    seeing = tuple(replace(one, stock=replace(one.stock, seen=1600)) for one in story.ticks)
    assert blind_period(replace(story, ticks=seeing)) is None


def test_the_readmes_picture_shows_a_recovery_and_is_drawn_of_its_timeline(tmp_path: Path) -> None:
    story = load((PICTURES / "demo.json").read_text())
    assert max(counts(story, "ours")) == 9
    blind = blind_period(story)
    assert blind is not None
    assert blind.until - blind.since > 20
    assert summed(story, "ours").overloaded < summed(story, "stock").overloaded
    draw(story, tmp_path / "demo.svg")
    drawn, committed = ((folder / "demo.svg").read_text() for folder in (tmp_path, PICTURES))
    assert shapes(drawn) == shapes(committed)
    for text in (drawn, committed):
        assert not re.findall(r"/home/|/root|/tmp|/work|<dc:date|20\d\d-\d\d-\d\d", text), "it names machine or date"


def shapes(svg: str) -> list[str]:
    """The ids of the picture's elements; coordinates may differ in the last digit between machines."""
    return re.findall(r'<g id="([^"]+)"', svg)
