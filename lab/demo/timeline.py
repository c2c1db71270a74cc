"""The observations of the story, second by second, and their totals.

Pure. Loads are in millicores, times in seconds since the story began.
"""

import dataclasses
import itertools
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from lab.demo.sharing import share


@dataclass(frozen=True)
class Side:
    """One service at one moment.

    `replicas` is the count of its HPA, `pods` the number of pods, `out` the number of pulled-out ones. `seen` is the
    average that its HPA uses: the effective one, or the stock HPA's. `raw` is the average over all running pods.
    """

    replicas: int
    pods: int
    serving: int
    out: int = 0
    seen: int | None = None
    raw: int | None = None


@dataclass(frozen=True)
class Tick:
    """Both services at one moment, under the same demand; `asked` is the count that the adapter serves."""

    at: float
    demand: int
    ours: Side
    stock: Side
    asked: int | None = None

    def carried(self, side: Side) -> int | None:
        """The load of each serving pod; None if no pod serves."""
        return share(self.demand, side.serving)


@dataclass(frozen=True)
class Mark:
    """A labelled moment, drawn as a line in the picture."""

    at: float
    text: str


@dataclass(frozen=True)
class Timeline:
    """The whole story. `high` and `low` are the watermarks, `target` is the stock HPA's."""

    high: int
    low: int
    target: int
    end: float = 0
    ticks: Sequence[Tick] = ()
    marks: Sequence[Mark] = field(default_factory=tuple)


@dataclass(frozen=True)
class Sum:
    """The totals of one service; `excess` is in core-seconds: demand beyond `high` for each serving pod."""

    overloaded: float
    longest: float
    worst: int | None
    excess: float
    pod_minutes: float
    rescales: int
    final: int
    recovery: "Recovery | None" = None


@dataclass(frozen=True)
class Recovery:
    """The time from the first mark until the serving pods carried at most `high` again; None: not before the end.

    `by_itself` is False if only a fall in demand ended the overload.
    """

    seconds: float | None
    by_itself: bool = False


def lasting(timeline: Timeline) -> Iterator[tuple[Tick, float]]:
    """Each tick with its duration in seconds; the last one lasts until the end."""
    ends = [tick.at for tick in timeline.ticks[1:]] + [timeline.end]
    for tick, end in zip(timeline.ticks, ends, strict=True) if timeline.ticks else ():
        yield tick, max(0.0, end - tick.at)


def overloaded(tick: Tick, side: Side, high: int) -> bool:
    """Whether the serving pods carry more than `high` each, or there is demand without serving pods."""
    carried = tick.carried(side)
    return tick.demand > 0 if carried is None else carried > high


def summed(timeline: Timeline, name: str) -> Sum:
    """The totals of one side, "ours" or "stock"."""
    held = [(tick, side_of(tick, name), seconds) for tick, seconds in lasting(timeline)]
    over = [(overloaded(tick, side, timeline.high), seconds) for tick, side, seconds in held]
    carried = [tick.carried(side) for tick, side, _ in held]
    excess = [max(0, tick.demand - side.serving * timeline.high) * seconds for tick, side, seconds in held]
    counts = [side.replicas for _, side, _ in held]
    return Sum(
        overloaded=sum(seconds for is_over, seconds in over if is_over),
        longest=_longest(over),
        # No serving pod is worse than any load.
        worst=None if None in carried else max((load for load in carried if load is not None), default=0),
        excess=sum(excess) / 1000,
        pod_minutes=sum(side.pods * seconds for _, side, seconds in held) / 60,
        rescales=sum(1 for before, after in itertools.pairwise(counts) if before != after),
        final=counts[-1] if counts else 0,
        recovery=recovery(timeline, name),
    )


def recovery(timeline: Timeline, name: str) -> Recovery | None:
    """The recovery of one side after the first mark; None if there is no mark or no overload after it."""
    since = timeline.marks[0].at if timeline.marks else timeline.end
    later = [tick for tick in timeline.ticks if tick.at >= since]
    states = [overloaded(tick, side_of(tick, name), timeline.high) for tick in later]
    if True not in states:
        return None
    hit = states.index(True)
    if False not in states[hit:]:
        return Recovery(None)
    over = later[states.index(False, hit)]
    return Recovery(over.at - since, by_itself=over.demand >= later[hit].demand)


def side_of(tick: Tick, name: str) -> Side:
    return tick.ours if name == "ours" else tick.stock


def counts(timeline: Timeline, name: str) -> list[int]:
    """The replica counts that one side had, "ours" or "stock", in order, each change once."""
    return [count for count, _ in itertools.groupby(side_of(tick, name).replicas for tick in timeline.ticks)]


def _longest(states: Sequence[tuple[bool, float]]) -> float:
    longest = running = 0.0
    for is_over, seconds in states:
        running = running + seconds if is_over else 0.0
        longest = max(longest, running)
    return longest


def dump(timeline: Timeline) -> str:
    """The timeline as JSON, one tick a line, so that the picture can be drawn again without a run."""
    head = {key: getattr(timeline, key) for key in ("high", "low", "target", "end")}
    marks = [dataclasses.asdict(mark) for mark in timeline.marks]
    ticks = ",\n  ".join(json.dumps(dataclasses.asdict(tick)) for tick in timeline.ticks)
    return f'{json.dumps({**head, "marks": marks})[:-1]},\n "ticks": [\n  {ticks}\n ]}}\n'


def load(text: str) -> Timeline:
    """Reads the JSON of `dump`. Raises ValueError for anything else."""
    try:
        document = json.loads(text)
        ticks = tuple(
            Tick(**{**tick, "ours": Side(**tick["ours"]), "stock": Side(**tick["stock"])})
            for tick in document.pop("ticks")
        )
        marks = tuple(Mark(**mark) for mark in document.pop("marks"))
        return Timeline(ticks=ticks, marks=marks, **document)
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"no timeline of the demo: {error}") from error
