"""Test data of the demo: ticks, timelines, and observations of plain dictionaries."""

from typing import Any

from lab.demo.curve import Chapter, Curve
from lab.demo.model import ModelStage
from lab.demo.play import Player
from lab.demo.story import Narrator
from lab.demo.timeline import Mark, Side, Tick, Timeline

SHORT = Curve(
    (Chapter(0, "Calm.", 5500), Chapter(2, "Up.", 7500), Chapter(30, "Out.", 7500, pull_out=2)),
    end=58,
)


def played(curve: Curve) -> Player:
    """A player at the end of its story in the model."""
    player = Player(ModelStage(), curve, Narrator(), lambda _: None)
    player.play()
    return player


def side(replicas: int, serving: int | None = None, **more: Any) -> Side:
    given = {"pods": replicas, **more}
    return Side(replicas=replicas, serving=replicas if serving is None else serving, **given)


def tick(at: float, demand: int = 5000, ours: Side | None = None, stock: Side | None = None) -> Tick:
    return Tick(at, demand, ours or side(5, seen=1000, raw=1000), stock or side(5, seen=1000))


def timeline(*ticks: Tick, end: float = 60, marks: tuple[Mark, ...] = ()) -> Timeline:
    return Timeline(1200, 400, 1200, end, ticks, marks)


def pulled_out_story() -> Timeline:
    """7 pods each, two pulled out at 10 s; ours recovers at 20 s, the stock service when demand falls at 40 s."""
    both = side(7, seen=1143, raw=1143)
    hit = side(7, serving=5, out=2, seen=1143, raw=1143)
    blind = side(7, serving=5, out=2, seen=1149)
    mended = side(9, serving=7, out=2, seen=1143, raw=830)
    return timeline(
        tick(0, 8000, both, both),
        tick(10, 8000, hit, hit),
        tick(20, 8000, mended, blind),
        tick(40, 3000, mended, blind),
        end=60,
        marks=(Mark(10, "2 pods pulled out"),),
    )
