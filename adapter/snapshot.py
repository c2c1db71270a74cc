"""The snapshot that answers all requests: immutable, replaced atomically, and the only state that rooms share."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

from adapter.kube.selectors import LabelSelector
from adapter.load.assessment import Assessment, AssessmentInputs, MetricAssessment
from adapter.load.pods import Pod
from adapter.load.spec import Bounds, Policy, Scale, Target
from adapter.policy.conditions import Reason
from adapter.runtime.concurrency import Slices
from adapter.usage.query_results import NamedQueryResult


class Key(NamedTuple):
    """Namespace and name of an object."""

    namespace: str
    name: str


class TargetKey(NamedTuple):
    """A scale target: `resource` is the plural with its group as the metrics API writes it (`deployments.apps`)."""

    namespace: str
    resource: str
    name: str


class Problem(NamedTuple):
    """Why a policy has no answer: HTTP code, reason and message of the Status."""

    code: int
    reason: Reason
    message: str


@dataclass(frozen=True, slots=True, weakref_slot=True, kw_only=True)
class PolicyView:
    """A policy with its HPA's bounds, its scale target and its last assessment; the result of one evaluation.

    `pending`: the policy was listed, and not evaluated yet. `problem` is set if the policy cannot be answered at all.
    `inputs` are those of the assessment, `spec` is the policy's own as JSON: the decision can be made again from them.
    `target_name` is the target's name as the HPA gives it, known before `target` is resolved. `scale` comes from the
    target's watch, last proven current at `scale_proven_at` (monotonic seconds); requests read it live from
    `scale_path`, the target's scale subresource.
    """

    policy: Policy
    target: Target | None = None
    pending: bool = False
    target_name: str = ""
    target_resource: str = ""
    scale_path: str = ""
    scale: Scale | None = None
    scale_proven_at: float | None = None
    bounds: Bounds | None = None
    assessment: Assessment | None = None
    inputs: AssessmentInputs | None = None
    spec: bytes = b""
    problem: Problem | None = None

    @property
    def undefined_metrics(self) -> tuple[MetricAssessment, ...]:
        """The metrics whose query the settings lack or do not allow."""
        queries = self.inputs.samples.queries if self.inputs is not None else {}
        metrics = self.assessment.metrics if self.assessment is not None else ()
        return tuple(metric for metric in metrics if metric.name in queries and queries[metric.name].undefined)

    @property
    def reason_of_error(self) -> Reason:
        """Why nothing is decided though the policy is assessed: `Invalid` where only a change mends that."""
        return "Invalid" if self.undefined_metrics else "NoDecision"


class PodStore(dict[str, Pod]):
    """A namespace's pods by name; the last changed one comes last."""

    def put(self, pod: Pod) -> None:
        """Adds a pod or replaces the one of that name."""
        self.pop(pod.name, None)
        self[pod.name] = pod

    async def select(self, selector: LabelSelector | None, slices: Slices) -> list[Pod]:
        """The matching pods, all of them without a selector. 500 pods of one template take 0.1 ms."""
        selects, found = selecting(selector), list[Pod]()
        for pod in list(self.values()):
            if selects(pod):
                found.append(pod)
            await slices.breathe()
        return found


def selecting(selector: LabelSelector | None) -> Callable[[Pod], bool]:
    """Whether a selector selects a pod, found once for all pods that share their labels; None selects every pod."""
    matches: dict[int, bool] = {}

    def selects(pod: Pod) -> bool:
        if selector is None:
            return True
        labels = id(pod.labels)
        if labels not in matches:
            matches[labels] = selector.matches(pod.labels)
        return matches[labels]

    return selects


@dataclass(frozen=True, kw_only=True)
class Snapshot:
    """All policies, the results of all named queries, and all pods.

    `pods` are by namespace. `synced` is true once every Kubernetes cache was listed, or refused, and every policy known
    by then was evaluated. Indexes are built on first use.
    """

    policies: Mapping[Key, PolicyView] = field(default_factory=dict)
    queries: Mapping[str, NamedQueryResult] = field(default_factory=dict)
    pods: Mapping[str, PodStore] = field(default_factory=dict)
    synced: bool = False

    @cached_property
    def by_target(self) -> Mapping[TargetKey, Key]:
        """The policy of each scale target; found in 0.7 ms for 2,000 policies."""
        return {
            TargetKey(key.namespace, view.target_resource, view.target.name): key
            for key, view in self.policies.items()
            if view.target is not None
        }

    @cached_property
    def _by_namespace(self) -> Mapping[str, list[PolicyView]]:
        by_namespace: dict[str, list[PolicyView]] = {}
        for key, view in sorted(self.policies.items()):
            by_namespace.setdefault(key.namespace, []).append(view)
        return by_namespace

    def policies_in(self, namespace: str) -> Sequence[PolicyView]:
        """The namespace's policies, by name."""
        return self._by_namespace.get(namespace, ())

    @cached_property
    def metric_names(self) -> tuple[str, ...]:
        """The names of all policies' metrics, sorted."""
        return tuple(sorted({m.name for view in self.policies.values() for m in view.policy.metrics}))

    @cached_property
    def target_resources(self) -> tuple[str, ...]:
        """The resources that policies scale (`deployments.apps`), sorted."""
        return tuple(sorted({key.resource for key in self.by_target}))


class SnapshotStore:
    """Holds the current snapshot. Readers take it once per request."""

    def __init__(self) -> None:
        self.current = Snapshot()
        self._listeners: list[Callable[[Iterable[Key]], None]] = []

    def subscribe(self, listener: Callable[[Iterable[Key]], None]) -> None:
        """Call the listener after each swap with the policies whose views changed; none if something else changed."""
        self._listeners.append(listener)

    def swap(self, snapshot: Snapshot, changed: Iterable[Key] = ()) -> None:
        """Replace the current snapshot; `changed` are the policies with new views."""
        self.current = snapshot
        for listener in self._listeners:
            listener(changed)
