"""The picture: when the stock HPA is blind, and what README's own picture shows."""

import re
from pathlib import Path

from lab.demo.picture import BlindPeriod, draw, picture
from lab.demo.timeline import Mark, load
from tests.demo.world import changed, pulled_out_story, side, tick, timeline

PICTURES = Path(__file__).resolve().parent.parent.parent / "docs" / "pictures"


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
