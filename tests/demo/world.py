"""A short story of the demo, played in the model."""

from lab.demo.curve import Chapter, Curve
from lab.demo.model import ModelStage
from lab.demo.play import Player
from lab.demo.story import Narrator

SHORT = Curve(
    (Chapter(0, "Calm.", 5500), Chapter(2, "Up.", 7500), Chapter(30, "Out.", 7500, pull_out=2)),
    end=58,
)


def played(curve: Curve) -> Player:
    """A player at the end of its story in the model."""
    player = Player(ModelStage(), curve, Narrator(), lambda _: None)
    player.play()
    return player
