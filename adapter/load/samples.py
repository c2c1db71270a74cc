"""Samples as the sources measured them. Values are nano-units of the metric's unit, times seconds (epoch)."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class PodUsage:
    """Usage of one pod's containers as metrics.k8s.io reports it: container → resource → nano-units.

    `at` is the end of the sample's window, `window` its length in seconds.
    """

    at: float
    window: float
    containers: Mapping[str, Mapping[str, int]]


@dataclass(frozen=True, slots=True)
class Point:
    """A value and the time of its sample."""

    at: float
    value: int


@dataclass(frozen=True, slots=True)
class ResourceSamples:
    """The answer of metrics.k8s.io for a namespace or a target: usage by pod name.

    `max_age`: how long a sample counts. `error` is the sentence of the last failed fetch (None after a success),
    `fetched_at` the time of the last success.
    """

    pods: Mapping[str, PodUsage] = field(default_factory=dict)
    max_age: float = 90.0
    error: str | None = None
    fetched_at: float | None = None


@dataclass(frozen=True, slots=True)
class QuerySamples:
    """The answer of a query for one workload: values by pod name, or one total (then `pods` is empty).

    `window`: how far back (seconds) a value reaches from its time. `behind`: how long ago its samples are because it
    asks for the past, such as last week's same hour (`offset`). `by_pod`: whether the query answers by pod; None
    where only an answer can tell.
    """

    pods: Mapping[str, Point] = field(default_factory=dict)
    total: Point | None = None
    window: float = 0.0
    behind: float = 0.0
    by_pod: bool | None = None
    max_age: float = 90.0
    error: str | None = None
    fetched_at: float | None = None


@dataclass(frozen=True, slots=True)
class Samples:
    """All samples for one policy: resource usage, and the queries' answers by metric name."""

    resources: ResourceSamples = field(default_factory=ResourceSamples)
    queries: Mapping[str, QuerySamples] = field(default_factory=dict)
