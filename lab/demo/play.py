"""Plays the story second by second: sets the load, observes, records changes, and prints the narration."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from lab.demo.curve import Chapter, Curve, serving
from lab.demo.objects import OURS, STOCK, Object
from lab.demo.observe import Observation
from lab.demo.stage import Stage
from lab.demo.story import Narrator, Rescale
from lab.demo.timeline import Mark, Side, Tick, Timeline


@dataclass
class Player:
    """Plays one curve on one stage; `timeline` holds the observations so far."""

    stage: Stage
    curve: Curve
    narrator: Narrator
    print_lines: Callable[[list[str]], None]
    timeline: Timeline = field(default_factory=Timeline)
    _counts: dict[str, int] = field(default_factory=dict)
    _decisions: list[Object] = field(default_factory=list)
    _announced_until: float = -1

    def play(self) -> Timeline:
        """Runs to the curve's end."""
        began = self.stage.clock()
        while (at := self.stage.clock() - began) < self.curve.end:
            self._step(at)
            self.stage.sleep(max(0.05, 1 - (self.stage.clock() - began - at)))
        self.timeline = replace(self.timeline, end=self.curve.end)
        self.print_lines(self.narrator.ending(self.timeline.ticks[-1]))
        return self.timeline

    def _step(self, at: float) -> None:
        """Plays one second: observes, applies new chapters and the load, and prints the news."""
        chapters = list(self.curve.between(self._announced_until, at))
        self._announced_until = at
        observation = self.stage.observe()
        for chapter in chapters:
            self._pull_out(chapter, observation, at)
        demand = self.curve.demand(at)
        self.stage.load(observation, demand)
        self._decisions = [*self._decisions[-20:], *self.stage.decision()]
        tick = self._tick(observation, at, demand)
        self.timeline = replace(self.timeline, ticks=(*self.timeline.ticks, tick), end=at)
        self.print_lines(self.narrator.narrate(tick, chapters, self._rescales(observation)))

    def _pull_out(self, chapter: Chapter, observation: Observation, at: float) -> None:
        """Pulls the oldest serving pods out; the rule is the same for both services."""
        if not chapter.pull_out:
            return
        for name in (OURS, STOCK):
            candidates = serving(observation.replicas(name), self.stage.pulled_out[name])
            oldest = sorted(candidates, key=lambda replica: (replica.created, replica.name))[: chapter.pull_out]
            self.stage.pull_out(name, [replica.name for replica in oldest])
        mark = Mark(round(at, 1), f"{chapter.pull_out} pods pulled out")
        self.timeline = replace(self.timeline, marks=(*self.timeline.marks, mark))

    def _tick(self, observation: Observation, at: float, demand: int) -> Tick:
        figures = observation.figures
        return Tick(
            at=round(at, 1),
            demand=demand,
            ours=self._side(observation, OURS, figures.get("effective_cpu"), figures.get("raw_cpu")),
            stock=self._side(observation, STOCK, observation.stock_average(), None),
        )

    def _side(self, observation: Observation, name: str, seen: int | None, raw: int | None) -> Side:
        staying = [replica for replica in observation.replicas(name) if not replica.leaving]
        out = self.stage.pulled_out[name]
        return Side(
            replicas=observation.count(name),
            pods=len(staying),
            serving=len(serving(staying, out)),
            out=sum(1 for replica in staying if replica.name in out),
            seen=seen,
            raw=raw,
        )

    def _rescales(self, observation: Observation) -> list[Rescale]:
        rescales = []
        for name in (OURS, STOCK):
            before, after = self._counts.get(name), observation.count(name)
            self._counts[name] = after
            if before is None or before == after:
                continue
            why = self._reasons(before, after) if name == OURS else []
            rescales.append(Rescale(name, before, after, self.stage.rescale_message(name, after), why))
        return rescales

    def _reasons(self, before: int, after: int) -> list[str]:
        """The adapter's sentences about its latest decision for `after` replicas at a count of `before`."""
        for decision in reversed(self._decisions):
            if (decision["current"], decision["desiredReplicas"]) == (before, after):
                out = [pod["name"] for pod in decision["pods"] if pod["state"] == "pulledOut"]
                pods = [f"pulled out: {', '.join(out)}"] if out else []
                return [*pods, *(line for line in decision["explanation"] if line.startswith("cpu"))]
        return []
