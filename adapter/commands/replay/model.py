"""The data of a replay: ticks of a history, a service's setup, what an autoscaler sees, and the figures of a run."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from adapter.load.pods import Pod

TITLE = "this cannot be replayed"


class Tick(NamedTuple):
    """One moment of a history. `at` is in seconds since the epoch.

    `load` is that of the whole service, by metric name, in nano-units (for a metric with `relativeTo`: of the plain
    usage); without a metric, its load is unknown. `pulled_out` pods are Ready, but carry nothing. `replicas` is the
    recorded count, None where there is none.
    """

    at: float
    load: Mapping[str, float]
    pulled_out: int = 0
    replicas: int | None = None


class Stretch(NamedTuple):
    """A part of a history, from `at` to `end` (seconds), in which the load and the pull-outs do not change.

    `load` is None where it is unknown.
    """

    at: float
    end: float
    load: Mapping[str, float] | None
    pulled_out: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """How a service and its controllers behave in a replay; durations are in seconds.

    `replicas` is the count at the first tick. A new pod serves `pod_startup` after its creation; a deleted one is gone
    `pod_shutdown` later and carries nothing meanwhile. The HPA syncs every `sync`. A sample is `sample_age` old and
    covers `window` (0: a single moment). `capacity` is what one pod can carry, by metric; `requests` and `limits` are
    those of a pod, by resource; a pod's samples never show more than `throttles`, by metric (all in nano-units).
    A load is known until the next tick, but for at most `lasts` or two and a half steps of the history.
    """

    replicas: int = 0
    pod_startup: float = 30.0
    pod_shutdown: float = 5.0
    sync: float = 15.0
    sample_age: float = 0.0
    window: float = 0.0
    capacity: Mapping[str, int] = field(default_factory=dict)
    requests: Mapping[str, int] = field(default_factory=dict)
    limits: Mapping[str, int] = field(default_factory=dict)
    throttles: Mapping[str, int] = field(default_factory=dict)
    lasts: float = 90.0


class View(NamedTuple):
    """What an autoscaler sees at a sync; times in seconds, amounts in nano-units.

    `replicas` is the scale's spec, and its status: the ReplicaSet controller acts at once. `samples` are by metric and
    pod name, `load` is that of the service by metric; both end at `sampled_at` and cover the `window` before.
    """

    now: float
    replicas: int
    pods: Sequence[Pod]
    samples: Mapping[str, Mapping[str, int]]
    load: Mapping[str, int]
    sampled_at: float
    window: float


Ranges = Mapping[str, tuple[float, float]]
"""By metric the smallest and the largest load of a serving pod (nano-units) at which an autoscaler keeps the count."""


class Autoscaler:
    """Anything that sets the count of a service; it may remember what it saw. `name` is how reports call it."""

    name = ""
    deletes_pulled_out_first = False

    def sync(self, view: View) -> int:
        """The count that it sets now, the current one where it changes nothing."""
        raise NotImplementedError

    def watch(self, view: View) -> None:
        """The count was changed: autoscalers that watch the pods learn of it before their next sync."""

    def resting(self, view: View) -> Ranges | None:  # noqa: ARG002  for those that override it
        """The loads at which further syncs keep the count while no pod changes; None where that is not certain."""
        return None


@dataclass(slots=True)
class Bucket:
    """A part of a run for a chart, from `at`, with the smallest and largest count (`least`, `most`).

    The others are sums over `seconds`: of serving pods and of pulled-out ones, and of the load that a serving pod
    `carried` (nano-units of the first metric) in the `carrying` seconds. `highest` is the highest such load.
    """

    at: float
    least: int
    most: int
    seconds: float = 0.0
    served: float = 0.0
    out: float = 0.0
    carried: float = 0.0
    carrying: float = 0.0
    highest: float = 0.0

    @property
    def average(self) -> float | None:
        """The average load of a serving pod (nano-units); None where no pod served."""
        return self.carried / self.carrying if self.carrying else None

    def add(self, other: "Bucket") -> None:
        """Merge the bucket that follows."""
        for name in ("seconds", "served", "out", "carried", "carrying"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.least, self.most = min(self.least, other.least), max(self.most, other.most)
        self.highest = max(self.highest, other.highest)


class Change(NamedTuple):
    """A change of the count at a time (seconds since the epoch)."""

    at: float
    before: int
    after: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """The figures of one run of `seconds`. The load was `unknown` for some of them, which are not judged.

    `over_high`: seconds with more than a high watermark on a serving pod; `longest`: in a row. `shortfall`: the share
    of the load beyond the pods' capacity (0 to 1), None where no capacity is known; `lost` is that load times seconds
    (nano-units). `flaps` are changes that turned back the one before within ten minutes. `overshoot`: the most
    replicas beyond what the high watermark needed at that moment. `pod_seconds` counts every pod that exists.
    `least`, `most` and `final` are counts.
    """

    seconds: float
    unknown: float
    over_high: float
    longest: float
    shortfall: float | None
    lost: float
    changes: int
    flaps: int
    overshoot: int
    pod_seconds: float
    least: int
    most: int
    final: int

    @property
    def average(self) -> float:
        """The average number of pods that exist."""
        return self.pod_seconds / self.seconds if self.seconds else 0.0

    @property
    def pod_hours(self) -> float:
        """The hours of all pods together."""
        return self.pod_seconds / 3600

    @property
    def risk(self) -> float:
        """The shortfall; without a capacity, the share of the time over a high watermark (0 to 1)."""
        if self.shortfall is not None:
            return self.shortfall
        return self.over_high / self.seconds if self.seconds else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """What one autoscaler would have done. `changes` are the first 10,000."""

    name: str
    summary: Summary
    buckets: Sequence[Bucket] = ()
    changes: Sequence[Change] = ()
