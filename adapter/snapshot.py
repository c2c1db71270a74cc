"""The one in-memory picture that requests are answered from: immutable, swapped atomically, the only shared state."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from adapter.kube.label_index import OwnersByLabels, Pods
from adapter.load.assessment import Assessment
from adapter.load.conditions import Reason
from adapter.load.spec import Bounds, Policy, Scale, Target
from adapter.usage.series import SeriesList


class Key(NamedTuple):
    """A namespaced object's name."""

    namespace: str
    name: str


class TargetKey(NamedTuple):
    """A scale target: `resource` is the plural with its group as the metrics API writes it (`deployments.apps`)."""

    namespace: str
    resource: str
    name: str


class Neighbours(NamedTuple):
    """Who else has to do with a policy's target: other HPAs, and other policies, by name."""

    hpas: tuple[str, ...] = ()
    policies: tuple[str, ...] = ()


class Problem(NamedTuple):
    """Why a policy has no answer: the HTTP code and reason of the Status, and the sentence.

    The reason `WatchSilent` says that a watch which the policy needs shows no sign of life.
    """

    code: int
    reason: Reason
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyView:
    """A policy with all that is known of it. `problem` is set where it cannot be answered at all.

    `announced`: it is known to exist, and has not been looked at yet. `target_name` is the name of what its HPA scales,
    known before `target` is.
    `scale` is the watched one with the moment (API server's time) it was last proven; a decision reads it live.
    `scale_path` is the path of the target's scale subresource.
    """

    policy: Policy
    labels: Mapping[str, str] = field(default_factory=dict)
    target: Target | None = None
    announced: bool = False
    target_name: str = ""
    target_resource: str = ""
    target_labels: Mapping[str, str] = field(default_factory=dict)
    scale_path: str = ""
    scale: Scale | None = None
    scale_proven_at: float | None = None
    bounds: Bounds | None = None
    assessment: Assessment | None = None
    problem: Problem | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryView:
    """A named query that needs no policy, as last answered; its samples count for `max_age` seconds.

    `error` says what failed at the last poll: the reason once no sample counts any more.
    """

    name: str
    by_pod: bool
    pod_label: str = "pod"
    namespace_label: str = "namespace"
    max_age: float = 90.0
    series: Mapping[str, SeriesList] = field(default_factory=dict)
    fetched_at: float | None = None
    error: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PodsMetricTarget:
    """An HPA that asks for a Pods metric: what it selects, and the average (nano-units) it aims at."""

    hpa: str
    target: TargetKey | None
    metric: str
    average: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """All policies and all queries, and the pods by namespace that a query's series may name.

    `by_pods` finds a namespace's policies by the labels of the pods that they have assessed; a namespace may be missing
    there only where none has any. `pods_metric_targets` is by namespace. `synced` once every Kubernetes cache has been
    filled, or refused, and every policy that was known by then assessed.
    """

    policies: Mapping[Key, PolicyView] = field(default_factory=dict)
    by_target: Mapping[TargetKey, Key] = field(default_factory=dict)
    by_pods: Mapping[str, OwnersByLabels[Key]] = field(default_factory=dict)
    queries: Mapping[str, QueryView] = field(default_factory=dict)
    pods_metric_targets: Mapping[str, tuple[PodsMetricTarget, ...]] = field(default_factory=dict)
    pods: Mapping[str, Pods] = field(default_factory=dict)
    synced: bool = False


class SnapshotStore:
    """Holds the current snapshot; `swap` replaces it. Readers take `current` once per request.

    `forget` is called when a snapshot goes, for whoever keeps what was made of it: an old one holds a lot of memory.
    """

    def __init__(self) -> None:
        self.current = Snapshot()
        self.forget: Callable[[], None] = _nothing

    def swap(self, snapshot: Snapshot) -> None:
        """Put the next picture in place of the current one."""
        self.current = snapshot
        self.forget()


def _nothing() -> None:
    pass
