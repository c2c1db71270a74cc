"""Load as the sources measured it. Values are nano-units of the metric's own unit, times are seconds (epoch)."""

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
    """One value with the time it was sampled."""

    at: float
    value: int


@dataclass(frozen=True, slots=True)
class ResourceSamples:
    """What metrics.k8s.io knows of a namespace or of a target: usage by pod name.

    `error` is the sentence of the last failed fetch (None while fetches succeed), `fetched_at` the last success.
    """

    pods: Mapping[str, PodUsage] = field(default_factory=dict)
    max_age: float = 90.0
    error: str | None = None
    fetched_at: float | None = None


@dataclass(frozen=True, slots=True)
class QuerySamples:
    """The answer of a named query for one workload: by pod name, or one total (then `pods` is empty).

    `window`: how far back (seconds) its values reach from their time. `by_pod`: what the query answers, where that is
    known without an answer.
    """

    pods: Mapping[str, Point] = field(default_factory=dict)
    total: Point | None = None
    window: float = 0.0
    by_pod: bool | None = None
    max_age: float = 90.0
    error: str | None = None
    fetched_at: float | None = None


@dataclass(frozen=True, slots=True)
class Samples:
    """Everything measured for one policy: resource usage, and queries by the policy's metric name."""

    resources: ResourceSamples = field(default_factory=ResourceSamples)
    queries: Mapping[str, QuerySamples] = field(default_factory=dict)
