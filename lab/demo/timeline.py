"""The observations of the story, second by second, and their totals.

Pure. Loads are in millicores, times in seconds since the story began.
"""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from lab.demo.curve import share
from lab.demo.objects import HIGH


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
    """Both services at one moment, under the same demand."""

    at: float
    demand: int
    ours: Side
    stock: Side

    def carried(self, side: Side) -> int | None:
        """The load of each serving pod; None if no pod serves."""
        return share(self.demand, side.serving)


@dataclass(frozen=True)
class Mark:
    """A labelled moment."""

    at: float
    text: str


@dataclass(frozen=True)
class Timeline:
    """The whole story."""

    end: float = 0
    ticks: Sequence[Tick] = ()
    marks: Sequence[Mark] = ()


@dataclass(frozen=True)
class Sum:
    """The totals of one service.

    `overloaded` is the seconds in which a serving pod carried more than the high watermark, `worst` the highest load of
    a serving pod (None: there was demand and no serving pod).
    """

    overloaded: float
    worst: int | None
    pod_minutes: float
    rescales: int
    final: int
    recovery: "Recovery | None"


@dataclass(frozen=True)
class Recovery:
    """The return under the high watermark after the pull-out: seconds from the pull-out, None if not before the end.

    `by_itself` is False if only a fall in demand ended the overload.
    """

    seconds: float | None
    by_itself: bool = False


def overloaded(tick: Tick, side: Side, high: int) -> bool:
    """Whether the serving pods carry more than `high` each, or there is demand without serving pods."""
    carried = tick.carried(side)
    return tick.demand > 0 if carried is None else carried > high


def summed(timeline: Timeline, name: str) -> Sum:
    """The totals of one service, "ours" or "stock"."""
    ends = [*(tick.at for tick in timeline.ticks[1:]), timeline.end]
    lasting = [(tick, side_of(tick, name), end - tick.at) for tick, end in zip(timeline.ticks, ends, strict=True)]
    carried = [tick.carried(side) for tick, side, _ in lasting]
    made = counts(timeline, name)
    return Sum(
        overloaded=sum(seconds for tick, side, seconds in lasting if overloaded(tick, side, HIGH)),
        # No serving pod is worse than any load.
        worst=None if None in carried else max((load for load in carried if load is not None), default=0),
        pod_minutes=sum(side.pods * seconds for _, side, seconds in lasting) / 60,
        rescales=max(0, len(made) - 1),
        final=made[-1] if made else 0,
        recovery=recovery(timeline, name),
    )


def recovery(timeline: Timeline, name: str) -> Recovery | None:
    """The recovery of one service after the first mark; None if there is no mark or no overload after it."""
    since = timeline.marks[0].at if timeline.marks else timeline.end
    later = [tick for tick in timeline.ticks if tick.at >= since]
    states = [overloaded(tick, side_of(tick, name), HIGH) for tick in later]
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
    """The replica counts that one service had, "ours" or "stock", in order, each change once."""
    return [count for count, _ in itertools.groupby(side_of(tick, name).replicas for tick in timeline.ticks)]
