"""Plays the story second by second: sets the load, observes, records changes, and prints the narration."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Protocol

from lab.demo.curve import Chapter, Curve
from lab.demo.objects import HIGH, LOW, OURS, PULLED_OUT, STOCK
from lab.demo.observe import Observation
from lab.demo.reasons import Reason, Reasoner
from lab.demo.sharing import serving, to_pull_out
from lab.demo.story import Narrator, Rescale
from lab.demo.timeline import Mark, Side, Tick, Timeline

_EVERY = 1.0
LEVELS = Timeline(HIGH, LOW, target=HIGH)
"""An empty timeline."""


class Reader(Protocol):
    """What a player reads of a stage."""

    def observe(self) -> Observation:
        """Everything at this moment."""

    def rescale_message(self, name: str, count: int) -> str:
        """The message of the HPA's event for this count."""


class Scene(Protocol):
    """What a player needs of a stage: `stage.Stage` on a control plane, `model.ModelStage` without one."""

    namespace: str
    pulled_out: dict[str, set[str]]

    @property
    def reader(self) -> Reader:
        """Reads both services."""

    def load(self, observation: Observation, demand: int) -> None:
        """Sets each pod's share of the demand."""

    def pull_out(self, name: str, pods: list[str], annotation: str) -> None:
        """Stops requests to these pods."""


@dataclass
class Player:
    """Plays one curve on one stage; `timeline` holds the observations so far."""

    stage: Scene
    curve: Curve
    narrator: Narrator
    print_lines: Callable[[list[str]], None]
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    timeline: Timeline = LEVELS
    kept: list[tuple[Rescale, Reason]] = field(default_factory=list)
    _counts: dict[str, int] = field(default_factory=dict)
    _announced_until: float = -1

    def __post_init__(self) -> None:
        self._reasoner = Reasoner(self.stage.namespace)

    def play(self) -> Timeline:
        """Runs to the curve's end."""
        began = self.clock()
        while (at := self.clock() - began) < self.curve.end:
            self.step(at)
            self.sleep(max(0.05, _EVERY - (self.clock() - began - at)))
        self.timeline = replace(self.timeline, end=self.curve.end)
        if self.timeline.ticks:
            self.print_lines(self.narrator.ending(self.timeline.ticks[-1]))
        return self.timeline

    def step(self, at: float) -> None:
        """Plays one second: observes, applies new chapters and the load, and prints the news."""
        chapters = list(self.curve.between(self._announced_until, at))
        self._announced_until = at
        observation = self.stage.reader.observe()
        for chapter in chapters:
            self._turn(chapter, observation, at)
        demand = self.curve.demand(at)
        self.stage.load(observation, demand)
        self._reasoner.consider(observation)
        tick = self._tick(observation, at, demand)
        self.timeline = replace(self.timeline, ticks=(*self.timeline.ticks, tick), end=at)
        self.print_lines(self.narrator.narrate(tick, chapters, self._rescales(observation)))

    def _turn(self, chapter: Chapter, observation: Observation, at: float) -> None:
        if not chapter.pull_out:
            return
        for name in (OURS, STOCK):
            pods = to_pull_out(observation.replicas(name), chapter.pull_out, self.stage.pulled_out[name])
            self.stage.pull_out(name, pods, PULLED_OUT)
        mark = Mark(round(at, 1), f"{chapter.pull_out} pods pulled out")
        self.timeline = replace(self.timeline, marks=(*self.timeline.marks, mark))

    def _tick(self, observation: Observation, at: float, demand: int) -> Tick:
        milli_replicas = observation.figures.get("desired_replicas")
        return Tick(
            at=round(at, 1),
            demand=demand,
            ours=self._side(
                observation, OURS, observation.figures.get("effective_cpu"), observation.figures.get("raw_cpu")
            ),
            stock=self._side(observation, STOCK, observation.stock_average(), None),
            asked=None if milli_replicas is None else -(-milli_replicas // 1000),
        )

    def _side(self, observation: Observation, name: str, seen: int | None, raw: int | None) -> Side:
        staying = [one for one in observation.replicas(name) if not one.leaving]
        out = self.stage.pulled_out[name]
        return Side(
            replicas=observation.count(name),
            pods=len(staying),
            serving=len(serving(staying, out)),
            out=sum(1 for one in staying if one.name in out),
            seen=seen,
            raw=raw,
        )

    def _rescales(self, observation: Observation) -> list[Rescale]:
        rescales = []
        for name in (OURS, STOCK):
            before, after = self._counts.get(name), observation.count(name)
            self._counts[name] = after
            if before is not None and before != after:
                rescales.append(self._rescale(name, before, after))
        return rescales

    def _rescale(self, name: str, before: int, after: int) -> Rescale:
        message = self.stage.reader.rescale_message(name, after)
        reason = self._reasoner.behind(before, after) if name == OURS else None
        rescale = Rescale(name, before, after, message, reason.sentences if reason else ())
        if reason:
            self.kept.append((rescale, reason))
        return rescale
