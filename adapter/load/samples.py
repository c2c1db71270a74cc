"""Samples as the sources measured them. Values are nano-units of the metric's unit, times seconds (epoch)."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime


def time_text(seconds: float) -> str:
    """The time as sentences name it: UTC, whole minutes.

    Sentences reach HPAs, conditions and Events, and each difference is a write: an age would differ at each look, and
    the time of an answer that is useless with each answer.
    """
    return datetime.fromtimestamp(int(seconds), UTC).strftime("%Y-%m-%dT%H:%MZ")


@dataclass(slots=True)  # not frozen: made in half of the time, and a poll brings up to 50,000
class PodUsage:
    """Usage of one pod's containers as metrics.k8s.io reports it: container → resource → nano-units.

    `at` is the end of the sample's window, `window` its length in seconds.
    """

    at: float
    window: float
    containers: Mapping[str, Mapping[str, int]]


ELSEWHERE = "/"
"""In place of a pod's name: all scrape targets that cannot be pods of the target."""
UNCOUNTED = -1
"""The number of samples in a window that nobody can count, such as that of a subquery."""


@dataclass(slots=True)  # as above
class Point:
    """A value and the time of its sample; for a rate and the like how many samples its window holds.

    `count` is None where that does not matter, and UNCOUNTED where the server cannot say it.
    """

    at: float
    value: int
    count: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceState:
    """The state of a source. `max_age`: how long a sample counts; `interval`: the time between two polls (seconds).

    `error` is the sentence of the last failed fetch (None after a success), `fetched_at` the time of the last success.
    """

    max_age: float = 90.0
    interval: float = 15.0
    error: str | None = None
    fetched_at: float | None = None


@dataclass(frozen=True, slots=True)
class ResourceSamples(SourceState):
    """The answer of metrics.k8s.io for a namespace or a target: usage by pod name."""

    pods: Mapping[str, PodUsage] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class QuerySamples(SourceState):
    """The answer of a query for one workload: values by pod name, or one total (then `pods` is empty).

    `window`: how far back (seconds) a value reaches from its time, `shortest` the shortest of its ranges (0: none).
    `behind`: how long ago its samples are because it asks for the past, such as last week's same hour (`offset`).
    `by_pod`: whether the query answers by pod; None where only an answer can tell. `unusable` says by pod what the
    query answers in place of a number that counts. `counts`: how many samples of each pod the windows of a total hold.
    `targets`: how many scrape targets have samples that it reads, by the name of the pod in the series (else by the
    host of their address); of a query by pod only those of pods with several. `ahead`: how many seconds the total's
    date was ahead of the answer that brought it, whose date it has then. `undefined`: the settings have no such query,
    server or permission, as `error` says; only a change ends that.
    """

    pods: Mapping[str, Point] = field(default_factory=dict)
    total: Point | None = None
    window: float = 0.0
    shortest: float = 0.0
    behind: float = 0.0
    by_pod: bool | None = None
    unusable: Mapping[str, str] = field(default_factory=dict)
    counts: Mapping[str, int] = field(default_factory=dict)
    targets: Mapping[str, int] = field(default_factory=dict)
    ahead: float = 0.0
    undefined: bool = False


@dataclass(frozen=True, slots=True)
class Samples:
    """All samples for one policy: resource usage, and the queries' answers by metric name."""

    resources: ResourceSamples = field(default_factory=ResourceSamples)
    queries: Mapping[str, QuerySamples] = field(default_factory=dict)
