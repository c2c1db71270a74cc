"""Sources of samples for the closed loop: averages over a window, taken at intervals, delivered late; their faults."""

import math
from bisect import bisect_right
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from enum import StrEnum

from adapter.load.samples import PodUsage, Point, QuerySamples, ResourceSamples, Samples
from tests.load.kit import NOW

BEFORE = 600
"""Seconds of load history before the beginning of a loop."""


class Kind(StrEnum):
    """The kind of a source."""

    RESOURCE = "resource metrics"
    QUERY = "query by pod"
    TOTAL = "service total"


class LoadHistory:
    """Demand and the load of a pod of weight 1 (nano-units), as running sums over whole seconds."""

    def __init__(self, demand: float, weight: float) -> None:
        self._served: list[float] = [0.0]
        self._asked: list[float] = [0.0]
        for _ in range(BEFORE):
            self.add(demand, weight)

    def add(self, demand: float, weight: float) -> None:
        """Adds a second: its demand, and the sum of the weights of the pods that share it."""
        self._asked.append(self._asked[-1] + demand)
        self._served.append(self._served[-1] + (demand / weight if weight else 0.0))

    def per_weight(self, begin: int, end: int) -> float:
        """The integral of the load of a pod of weight 1 between two seconds."""
        return self._served[end + BEFORE] - self._served[max(0, begin + BEFORE)]

    def demand(self, begin: int, end: int) -> float:
        """The integral of the demand."""
        return self._asked[end + BEFORE] - self._asked[max(0, begin + BEFORE)]


@dataclass(slots=True)
class Measured:
    """A pod as a source sees it. From second `since` on it shares the load, except in its `away` periods.

    `burn` is its usage (nano-units) from its creation until it is `ready`.
    """

    name: str
    weight: float
    created: int
    ready: int
    since: int
    burn: float = 0.0
    away: list[tuple[int, int]] = field(default_factory=list)


@dataclass
class Generation:
    """One measurement of the source by pod: the time of each value (second) and nano-units."""

    values: dict[str, tuple[int, int]]
    total: tuple[int, int]


@dataclass
class Source:
    """Samples every `refresh` seconds the average of the last `window`, available `delay` seconds later.

    With `own_life` a young pod's average is over the part of the window in which it served (a gauge's average),
    otherwise over all of it (a counter's rate). Faults: `frozen` (the same samples for ever; `freezes` if it may
    become so), `zeros` (reports these pods as 0), `lost` (omits these pods), `ahead` (seconds by which samples are
    dated in the future), `moves` (each poll of a frozen source counts as a new answer).
    """

    kind: Kind
    refresh: int = 15
    window: int = 15
    delay: int = 0
    phase: int = 0
    jitter: int = 0
    own_life: bool = False
    max_age: float = 90.0
    freezes: bool = False
    frozen: bool = False
    moves: bool = False
    ahead: int = 0
    zeros: set[str] = field(default_factory=set)
    lost: Callable[[str], bool] = lambda _: False
    _coming: list[tuple[int, Generation]] = field(default_factory=list)
    _newest: Generation | None = None
    _answered: int = 0

    @property
    def lag(self) -> int:
        """The maximum seconds from a moment that a sample covers to a decision based on it."""
        stays = math.ceil(self.max_age) if self.freezes else self.refresh + self.delay
        return stays + self.jitter + self.window + self.refresh + 1

    def advance(self, pods: Iterable[Measured], load: LoadHistory, now: int) -> bool:
        """Advances to this second; returns whether an answer has arrived."""
        if (now - self.phase) % self.refresh == 0 and not self.frozen:
            self._coming.append((now + self.delay, self._generation(pods, load, now)))
        due = bisect_right([at for at, _ in self._coming], now)
        if due:
            self._newest, self._answered = self._coming[due - 1][1], now
            del self._coming[:due]
        elif self.frozen and self.moves:
            self._answered = now
        return bool(due)

    def samples(self) -> Samples:
        """The newest answer."""
        newest, at = self._newest, NOW + self._answered
        if newest is None:
            return Samples()
        if self.kind is Kind.RESOURCE:
            return Samples(
                ResourceSamples(
                    pods={
                        name: PodUsage(NOW + taken + self.ahead, float(self.window), {"app": {"cpu": value}})
                        for name, (taken, value) in newest.values.items()
                    },
                    max_age=self.max_age,
                    fetched_at=at,
                )
            )
        points = {name: Point(NOW + taken + self.ahead, value) for name, (taken, value) in newest.values.items()}
        taken, value = newest.total
        total = Point(NOW + taken + self.ahead, value) if self.kind is Kind.TOTAL else None
        answer = QuerySamples(
            pods=points if total is None else {},
            total=total,
            window=float(self.window),
            by_pod=total is None,
            max_age=self.max_age,
            fetched_at=at,
        )
        return Samples(queries={"load": answer})

    def _generation(self, pods: Iterable[Measured], load: LoadHistory, now: int) -> Generation:
        values = {}
        if self.kind is not Kind.TOTAL:
            for index, pod in enumerate(pods):
                at = now - (index * 7 % (self.jitter + 1))
                if at > pod.created and not self.lost(pod.name):
                    values[pod.name] = at, 0 if pod.name in self.zeros else self._value(pod, load, at)
        width = max(1, self.window)
        return Generation(values, (now, math.ceil(load.demand(now - width, now) / width)))

    def _value(self, pod: Measured, load: LoadHistory, at: int) -> int:
        """The pod's sample, rounded up so that rounding never lowers the need by a pod."""
        width = max(1, self.window)
        begin = at - width
        served = load.per_weight(max(begin, pod.since), at) if pod.since < at else 0.0
        for left, back in pod.away:
            if left < at and back > begin:
                served -= load.per_weight(max(begin, left), min(at, back))
        started = pod.burn * max(0, min(at, pod.ready) - max(begin, pod.created))
        lived = max(1, min(width, at - pod.since)) if self.own_life and pod.since < at else width
        return math.ceil((pod.weight * served + started) / lived)
