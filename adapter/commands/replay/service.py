"""A service that is replayed: what it carried over time, how its pods behave, and what an autoscaler sees of it."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from fractions import Fraction
from math import inf
from pathlib import Path
from typing import NamedTuple, Protocol, runtime_checkable

from adapter.load.pods import Pod


class Tick(NamedTuple):
    """One moment of a history. `at` is in seconds since the epoch; the next tick says how long it lasts.

    `load` is that of the whole service, by metric name, in nano-units (for a metric with `relativeTo`: of the plain
    usage). `pulled_out` pods are alive and Ready, but carry nothing. `replicas` is the count that was observed, None
    where nobody recorded it.
    """

    at: float
    load: Mapping[str, int]
    pulled_out: int = 0
    replicas: int | None = None


History = Iterable[Tick]
"""Ticks in order of time, read once: a history is never in memory as a whole."""
OpenHistory = Callable[[], AbstractContextManager[History]]
"""Opens the history anew, from its beginning; it is pickled, so it is a module's function or a partial of one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """How a service and its controllers behave in a replay; durations are in seconds.

    `replicas` is the count at the first tick. A new pod is Ready, and carries load, `starts` after its creation; a
    deleted one is gone `stops` later and carries nothing meanwhile. The HPA syncs every `sync`; a sample is `delay`
    old when it is read, and was measured over `window` (None: a single moment). `capacity` is what one pod can carry of
    each metric (nano-units; a metric without one is not judged). `requests` and `limits` are those of a pod (nano-units
    by resource).
    `idle` is what a pod that carries nothing still uses, by metric (nano-units), `starting` what one uses before it is
    Ready. `throttles`: a pod's samples never show more than this, by metric (nano-units), as CPU is throttled at its
    limit. A tick holds until the next one, but at most for `lasts` or two and a half steps of the history
    (`simulation.with_gaps`): after that nobody knows the load, and samples grow old.
    """

    replicas: int
    starts: float = 30.0
    stops: float = 5.0
    sync: float = 15.0
    delay: float = 0.0
    window: float | None = None
    capacity: Mapping[str, int] = field(default_factory=dict)
    requests: Mapping[str, int] = field(default_factory=dict)
    limits: Mapping[str, int] = field(default_factory=dict)
    idle: Mapping[str, int] = field(default_factory=dict)
    starting: Mapping[str, int] = field(default_factory=dict)
    throttles: Mapping[str, int] = field(default_factory=dict)
    lasts: float = 90.0


class View(NamedTuple):
    """What an autoscaler sees at a sync. Times in seconds, samples in nano-units.

    `replicas` is the scale's spec, `status_replicas` its status. `pods` are those of the target as the API shows them:
    a pulled-out one has the annotation. `samples` are by metric and pod name, taken at `sampled_at`; a pod that had not
    begun to serve by then has none. `load` is the load of the whole service then. Samples cover the `window` before
    `sampled_at` (None: a single moment). A metric that was not known then is in neither.
    """

    now: float
    replicas: int
    status_replicas: int
    pods: Sequence[Pod]
    samples: Mapping[str, Mapping[str, int]]
    load: Mapping[str, int]
    sampled_at: float
    window: float | None = None


class Autoscaler(Protocol):
    """Anything that sets the count of a service; it may remember what it saw."""

    @property
    def name(self) -> str:
        """How reports call it."""

    def sync(self, view: View) -> int:
        """The count that it sets now, the current one where it changes nothing."""


UNBOUNDED = 1 << 100
"""A load beyond any quantity (nano-units)."""


class RestingRange(NamedTuple):
    """Loads of a service in nano-units. From `least` to `most` the metric keeps the count.

    From `floor` to below `least` it asks for less, the less the smaller the load is. Below `floor` nothing is sure,
    since zeros are doubted.
    """

    floor: int
    least: int
    most: int


class Rest(NamedTuple):
    """Which of the next syncs surely keep the count, while no pod changes and before `until` (seconds).

    `loads` are those of the service in nano-units, by metric: `floor`, `least` and `most`. No sync may leave them out
    where a load is beyond `most` or below `floor`. Where any is at least `least`, a sync recommends the count itself.
    Where all are smaller, it recommends less, the less the smaller they are; the count is kept for as long as the last
    sync that recommended it, at `held_at`, is less than `sinking` seconds ago.
    """

    loads: Mapping[str, RestingRange]
    held_at: float
    sinking: float = 0.0
    until: float = inf


@runtime_checkable
class RestingAutoscaler(Autoscaler, Protocol):
    """An autoscaler whose syncs may be left out while they keep the count. Those that matter later are made up for:
    the last one, and those that recommended more than all later ones.
    """

    def rest(self, view: View) -> Rest | None:
        """How it rests after its sync at this view, which kept the count; None where that is not sure."""


@runtime_checkable
class WatchingAutoscaler(Autoscaler, Protocol):
    """An autoscaler that watches the pods: it learns of a change of the count when it happens, not at its next sync."""

    def watch(self, view: View) -> None:
        """The pods changed."""


class Judge(NamedTuple):
    """What runs are judged by: the high watermarks of a pod by metric, in nano-units of plain usage.

    `minimum`: the pods that are kept whatever the load.
    """

    high: Mapping[str, Fraction]
    minimum: int = 1


@dataclass(slots=True)
class Bucket:
    """A stretch of a run for a chart, from `at` until `end`; a run has at most a fixed number of them.

    `least` and `most` replicas; then sums over its `seconds`: of `served` and of `out` (pulled-out) pods, and of the
    load that a serving pod `carried` (nano-units of the first metric) in the `carrying` seconds in which one served.
    `highest` is the highest such load, None where no pod served.
    """

    at: float
    end: float
    least: int
    most: int
    seconds: float = 0.0
    served: float = 0.0
    out: float = 0.0
    carried: float = 0.0
    carrying: float = 0.0
    highest: float | None = None

    @property
    def serving(self) -> float:
        """The average number of serving pods."""
        return self.served / (self.seconds or 1.0)

    @property
    def pulled_out(self) -> float:
        """The average number of pulled-out pods."""
        return self.out / (self.seconds or 1.0)

    @property
    def average(self) -> float | None:
        """The average load of a serving pod (nano-units); None where no pod served."""
        return self.carried / self.carrying if self.carrying else None

    def add(self, other: "Bucket") -> None:
        """Merge the bucket that follows."""
        self.end = other.end
        self.least, self.most = min(self.least, other.least), max(self.most, other.most)
        self.seconds += other.seconds
        self.served += other.served
        self.out += other.out
        self.carried += other.carried
        self.carrying += other.carrying
        self.highest = max((highest for highest in (self.highest, other.highest) if highest is not None), default=None)


class Summary(NamedTuple):
    """The figures of one run of `seconds`, of which the load was `unknown` for some: those are not judged.

    `over_high`: seconds in which a serving pod carried more than a high watermark of the policy. `shortfall`: the share
    of the load beyond the pods' capacity (0 to 1), None where no capacity is known. `lost`: that load times seconds
    (nano-units), of the first metric with a capacity. `changes` of the count, of which `flaps` turned back within
    ten minutes. `overshoot`: the most replicas beyond what the high watermark asked for at that moment. `pod_seconds`
    counts every pod that exists. `peak`, `least` and `final` are counts, `recovery` the longest time over the high
    watermark in a row (seconds).
    """

    seconds: float
    over_high: float
    recovery: float
    shortfall: float | None
    lost: int
    changes: int
    flaps: int
    overshoot: int
    pod_seconds: float
    peak: int
    final: int
    least: int = 0
    unknown: float = 0.0

    @property
    def pod_hours(self) -> float:
        """The hours of all pods together."""
        return self.pod_seconds / 3600

    @property
    def minutes_over(self) -> float:
        """The minutes over a high watermark."""
        return self.over_high / 60

    @property
    def share_over(self) -> float:
        """The share of the time over a high watermark (0 to 1)."""
        return self.over_high / self.seconds if self.seconds else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A change of the count, at a time (seconds since the epoch)."""

    at: float
    before: int
    after: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """What one autoscaler would have done. `changes` are the first ones, at most `score.CHANGES_KEPT`."""

    name: str
    summary: Summary
    buckets: Sequence[Bucket] = ()
    changes: Sequence[Change] = ()


def spooled(history: History, file: Path) -> Iterator[Tick]:
    """The ticks of a history, each written to the file as it passes. Exact: numbers come back as they were."""
    with file.open("w", encoding="utf-8") as lines:
        for tick in history:
            lines.write(json.dumps(tick) + "\n")
            yield tick


@contextmanager
def open_spool(file: Path) -> Iterator[History]:
    """The ticks of such a file."""
    with file.open(encoding="utf-8") as lines:
        yield (Tick(*json.loads(line)) for line in lines)
