"""Samples as the sources measured them. Values are nano-units of the metric's unit, times seconds (epoch)."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Protocol


def time_text(seconds: float) -> str:
    """The time as sentences name it: UTC, whole seconds.

    Sentences reach HPAs, conditions and Events: an age would differ at each look, and each difference is a write.
    """
    return datetime.fromtimestamp(int(seconds), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


class Usage(Protocol):
    """Usage of one pod's containers as metrics.k8s.io reports it: container → resource → nano-units.

    `at` is the end of the sample's window, `window` its length in seconds.
    """

    @property
    def at(self) -> float: ...
    @property
    def window(self) -> float: ...
    @property
    def containers(self) -> Mapping[str, Mapping[str, int]]: ...

    def amount(self, container: str, resource: str) -> int | None:
        """What a container uses of a resource (nano-units); None where there is no such sample."""


@dataclass(frozen=True, slots=True)
class PodUsage:
    """The usage of one pod, held by itself."""

    at: float
    window: float
    containers: Mapping[str, Mapping[str, int]]

    def amount(self, container: str, resource: str) -> int | None:
        return self.containers[container].get(resource) if container in self.containers else None


@dataclass(frozen=True, slots=True)
class Point:
    """A value and the time of its sample; for a rate and the like how full its window is.

    `window_samples`: how many samples the window holds, None where that does not matter. `full_window`: how many one
    without a gap holds, None where that is not known (yet). A window with fewer is partial, and so is one of which
    `full_window` is not known; 0 samples say that nothing is known of the window.
    """

    at: float
    value: int
    window_samples: int | None = None
    full_window: int | None = None

    @property
    def is_partial(self) -> bool:
        """Whether its window holds fewer samples than one without a gap, or may do so."""
        c, u = self.window_samples, self.full_window
        return c is not None and (not c or u is None or c < u)

    @property
    def is_hollow(self) -> bool:
        """Whether its window is known to hold so few samples that the value says nothing: c - 1 < u/2."""
        c, u = self.window_samples, self.full_window
        return bool(c) and c is not None and u is not None and c < u and 2 * (c - 1) < u

    @property
    def bound(self) -> int | None:
        """The most that the load may have been; None where that is not known.

        A rate divides by the whole window, however few samples it holds. With c of u samples, c - 1 of the u distances
        between them are measured at least, so the load is value * u/(c - 1) at most. Not to be asked of a hollow
        window.
        """
        if not self.is_partial:
            return self.value
        if not self.window_samples or self.full_window is None:
            return None
        return -(-self.value * self.full_window // (self.window_samples - 1))

    @property
    def fullness(self) -> str:
        """What a partial window holds, as a predicate."""
        if not self.window_samples or self.full_window is None:
            return "may lack samples"
        return f"holds {self.window_samples} of {self.full_window} samples"


@dataclass(frozen=True, slots=True)
class ResourceSamples:
    """The answer of metrics.k8s.io for a namespace or a target: usage by pod name.

    `max_age`: how long a sample counts. `error` is the sentence of the last failed fetch (None after a success),
    `fetched_at` the time of the last success.
    """

    pods: Mapping[str, Usage] = field(default_factory=dict)
    max_age: float = 90.0
    error: str | None = None
    fetched_at: float | None = None


@dataclass(frozen=True, slots=True)
class QuerySamples:
    """The answer of a query for one workload: values by pod name, or one total (then `pods` is empty).

    `window`: how far back (seconds) a value reaches from its time. `behind`: how long ago its samples are because it
    asks for the past, such as last week's same hour (`offset`). `by_pod`: whether the query answers by pod; None
    where only an answer can tell. `reads`: the pods of the namespace with a sample among those that the total reads.
    `undefined`: the settings have no such query, server or permission, as `error` says; only a change ends that.
    """

    pods: Mapping[str, Point] = field(default_factory=dict)
    total: Point | None = None
    window: float = 0.0
    behind: float = 0.0
    by_pod: bool | None = None
    reads: frozenset[str] = frozenset()
    max_age: float = 90.0
    error: str | None = None
    undefined: bool = False
    fetched_at: float | None = None


@dataclass(frozen=True, slots=True)
class Samples:
    """All samples for one policy: resource usage, and the queries' answers by metric name."""

    resources: ResourceSamples = field(default_factory=ResourceSamples)
    queries: Mapping[str, QuerySamples] = field(default_factory=dict)
