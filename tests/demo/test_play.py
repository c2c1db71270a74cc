"""Plays the story on a fake stage of plain dictionaries, with an HPA of three lines."""

from dataclasses import dataclass, field
from typing import cast

from lab.demo.curve import Chapter, Curve
from lab.demo.objects import OURS, PULLED_OUT, STOCK, Object
from lab.demo.observe import Observation
from lab.demo.play import LEVELS, Player
from lab.demo.sharing import usages
from lab.demo.stage import Stage
from lab.demo.story import Narrator
from lab.demo.timeline import Mark
from tests.demo.world import observation, pod


@dataclass
class FakeReader:
    """Observes the fake cluster; its HPAs act on the last observation."""

    stage: "FakeStage"

    def observe(self) -> Observation:
        return self.stage.seen()

    def rescale_message(self, name: str, count: int) -> str:
        return f"New size: {count}; reason: test of {name}"


@dataclass
class FakeStage:
    """Both services as dictionaries: name of pod → usage. `counts` are the HPAs' replica counts."""

    namespace: str = "demo"
    at: float = 0
    counts: dict[str, int] = field(default_factory=lambda: {OURS: 5, STOCK: 5})
    pulled_out: dict[str, set[str]] = field(default_factory=lambda: {OURS: set(), STOCK: set()})
    annotated: list[tuple[str, list[str], str]] = field(default_factory=list)
    demands: list[int] = field(default_factory=list)

    @property
    def reader(self) -> FakeReader:
        return FakeReader(self)

    def pods(self, name: str) -> list[Object]:
        names = [f"{name}-{index}" for index in range(self.counts[name])]
        return [pod(name, one, out=name == OURS and one in self.pulled_out[name]) for one in names]

    def seen(self) -> Observation:
        demand = self.demands[-1] if self.demands else 5500
        shown = observation(self.pods(OURS), self.pods(STOCK), at=self.at)
        use = {key: load for name in (OURS, STOCK) for key, load in self.share(shown, name, demand).items()}
        loads = [use[one.name] for one in shown.replicas(STOCK)]
        figures = {"effective_cpu": 1100, "raw_cpu": 1000, "desired_replicas": self.counts[OURS] * 1000 - 999}
        average = f"{round(sum(loads) / len(loads))}m"
        return observation(
            self.pods(OURS), self.pods(STOCK), at=self.at, usage=use, figures=figures, stock_average=average
        )

    def share(self, shown: Observation, name: str, demand: int) -> dict[str, int]:
        return usages(shown.replicas(name), self.pulled_out[name], demand)

    def load(self, shown: Observation, demand: int) -> None:
        self.demands.append(demand)

    def pull_out(self, name: str, names: list[str], annotation: str) -> None:
        self.pulled_out[name].update(names)
        self.annotated.append((name, names, annotation))


CURVE = Curve((Chapter(0, "Calm.", 5500), Chapter(3, "Up.", 7500), Chapter(6, "Out.", 7500, pull_out=2)), end=10)


def player(stage: FakeStage, curve: Curve = CURVE) -> tuple[Player, list[str]]:
    lines: list[str] = []
    made = Player(cast("Stage", stage), curve, Narrator(LEVELS), lines.extend, clock=lambda: stage.at)

    def sleep(seconds: float) -> None:
        stage.at += seconds

    made.sleep = sleep
    return made, lines


def test_a_story_is_played_to_its_end_second_by_second() -> None:
    stage = FakeStage()
    made, _ = player(stage)
    timeline = made.play()
    assert [tick.at for tick in timeline.ticks] == list(range(10))
    assert stage.demands == [5500] * 3 + [7500] * 7
    assert [tick.demand for tick in timeline.ticks] == stage.demands
    assert timeline.end == 10


def test_the_same_number_of_pods_is_pulled_out_of_both_services() -> None:
    stage = FakeStage()
    made, _ = player(stage)
    timeline = made.play()
    assert stage.annotated == [
        (OURS, [f"{OURS}-0", f"{OURS}-1"], PULLED_OUT),
        (STOCK, [f"{STOCK}-0", f"{STOCK}-1"], PULLED_OUT),
    ]
    assert timeline.marks == (Mark(6, "2 pods pulled out"),)
    before, after = timeline.ticks[5], timeline.ticks[6]
    assert (before.ours.serving, after.ours.serving, after.stock.serving) == (5, 3, 3)
    assert (before.stock.out, after.stock.out) == (0, 2)


def test_each_chapter_is_announced_once() -> None:
    made, lines = player(FakeStage())
    made.play()
    titles = [line.strip() for line in lines if line.strip() in {"Calm.", "Up.", "Out."}]
    assert titles == ["Calm.", "Up.", "Out."]


def test_a_rescale_is_printed_with_the_decision_behind_it() -> None:
    stage = FakeStage()
    made, lines = player(stage)
    _begin(made)
    for at in (3, 4):  # the decision uses the load of the previous second
        stage.at = at
        made.step(at)
    stage.counts[OURS] = 7
    stage.at = 5
    made.step(5)
    printed = [line.strip() for line in lines]
    assert f"{OURS}: 5 → 7   HPA: New size: 7; reason: test of {OURS}" in printed
    assert "cpu needs 7 serving pods: proposes 7 (now 5)" in printed
    assert [(rescale.before, rescale.after) for rescale, _ in made.kept] == [(5, 7)]


def _begin(made: Player) -> None:
    made.step(0)


def test_a_rescale_by_the_stock_hpa_has_no_reasons_of_the_adapter() -> None:
    stage = FakeStage()
    made, lines = player(stage)
    _begin(made)
    stage.counts[STOCK] = 6
    made.step(1)
    assert lines[-1].strip() == f"{STOCK}: 5 → 6   HPA: New size: 6; reason: test of {STOCK}"
    assert made.kept == []


def test_a_ticks_figures_are_those_of_the_adapter_and_of_the_stock_hpa() -> None:
    made, _ = player(FakeStage())
    _begin(made)
    tick = made.timeline.ticks[0]
    assert (tick.ours.seen, tick.ours.raw, tick.stock.seen, tick.stock.raw) == (1100, 1000, 1100, None)
    assert tick.asked == 5  # 4001 milli, rounded up as the HPA does


def test_the_story_ends_with_a_final_row() -> None:
    made, lines = player(FakeStage())
    made.play()
    assert lines[-1].split()[0] == "0:09"
