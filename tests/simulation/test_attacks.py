"""A source of two alternating servers, one of which may answer older samples than the other."""

from collections.abc import Iterable
from dataclasses import dataclass

import pytest

from adapter.load.samples import Samples
from tests.simulation.services import LOW, service
from tests.simulation.sources import Kind, LoadHistory, Measured, Source


@dataclass
class Pair(Source):
    """A source with an `other` one, which has its own phase and delay and answers every second `turn`."""

    other: Source | None = None
    turn: int = 15
    _answers: Source | None = None

    def advance(self, pods: Iterable[Measured], load: LoadHistory, now: int) -> bool:
        assert self.other is not None
        pods = list(pods)
        news = {False: super().advance(pods, load, now), True: self.other.advance(pods, load, now)}
        asks_other = now // self.turn % 2 == 1
        before, self._answers = self._answers, self.other if asks_other else None
        return news[asks_other] or before is not self._answers

    def samples(self) -> Samples:
        return super().samples() if self._answers is None else self._answers.samples()


@pytest.mark.parametrize("kind", [Kind.RESOURCE, Kind.QUERY])
@pytest.mark.parametrize(("turn", "refresh", "delay", "window"), [(20, 30, 25, 15), (15, 60, 50, 30), (15, 15, 14, 15)])
@pytest.mark.parametrize("load", [300, 150])
def test_alternating_servers_do_not_shrink_a_service_below_its_need(
    kind: Kind, turn: int, refresh: int, delay: int, window: int, load: int
) -> None:
    loop = service(20, load, kind=kind)
    other = Source(kind, refresh=refresh, window=window, delay=delay, phase=refresh // 2)
    loop.source = Pair(kind, refresh=refresh, window=window, other=other, turn=turn)
    loop.run(600)
    assert min(step.after for step in loop.steps) >= 20 * load // LOW
