"""Answers metric requests from the snapshot in memory; only `desired_replicas` waits, for the live replica count."""

import asyncio
import weakref
from collections.abc import Callable, Iterable
from typing import NamedTuple

from adapter.apiserver import pod_metrics, policy_selection, query_metrics, wire
from adapter.apiserver.policy_figures import (
    EFFECTIVE_PREFIX,
    desired_replicas,
    metric_value,
    require_assessment,
    series_labels,
)
from adapter.apiserver.request_info import ALL_OBJECTS, PODS_RESOURCE, POLICIES_RESOURCE, RequestInfo
from adapter.apiserver.snapshot_index import SnapshotIndex
from adapter.apiserver.status import StatusError, not_found, unavailable
from adapter.apiserver.wire import ExternalMetricValue, MetricValue, Value
from adapter.kube.errors import KubeError
from adapter.kube.scale import ScaleReader
from adapter.load.assessment import Assessment, Decision
from adapter.load.pipeline import decide
from adapter.load.spec import Bounds, Scale
from adapter.policy.hpa import DESIRED_REPLICAS
from adapter.snapshot import Key, PolicyView, SnapshotStore

_MAX_SCALE_READS = 16  # concurrent live scale reads of one listing
_MAX_ASSESSMENT_AGE = 90.0
_MAX_BODIES = 4096

Decide = Callable[[Assessment, Scale, Bounds, float], Decision]


class LiveDecision(NamedTuple):
    """A decision, and what it was made from: the policy's view, the live scale and the time (seconds)."""

    view: PolicyView
    scale: Scale
    now: float
    decision: Decision


class MetricsProvider:
    """Answers metric requests.

    `stale_reason` returns why a policy must not be decided on, or None; with an empty name it answers for all policies
    of the namespace. `unsynced_reason` says which caches are still being filled. `now` is the API server's time. An
    assessment older than 90 s is not served.
    """

    def __init__(
        self,
        snapshots: SnapshotStore,
        scales: ScaleReader,
        stale_reason: Callable[[Key], str | None],
        unsynced_reason: Callable[[], str],
        now: Callable[[], float],
        *,
        decide: Decide = decide,
    ) -> None:
        self._snapshots = snapshots
        self._scales = scales
        self._stale_reason = stale_reason
        self._unsynced_reason = unsynced_reason
        self._now = now
        self._decide = decide

        self._index: SnapshotIndex | None = None
        snapshots.subscribe(self._drop_index)
        self._bodies: dict[RequestInfo, tuple[weakref.ref[PolicyView], bytes]] = {}
        """Bodies of answers, each with the view that it was made from: every evaluation makes a new one."""

    @property
    def index(self) -> SnapshotIndex:
        """The index of the current snapshot."""
        if self._index is None or self._index.snapshot is not self._snapshots.current:
            self._index = SnapshotIndex(self._snapshots.current)
        return self._index

    def _drop_index(self, _changed: Iterable[Key]) -> None:
        self._index = None

    async def custom(self, request: RequestInfo) -> bytes:
        """A MetricValueList. Raises StatusError."""
        index = self._fresh_index(request.namespace)
        if request.resource == PODS_RESOURCE:
            return wire.metric_value_list(request.version, self._on_pods(index, request))
        if (body := self._kept_body(index, request)) is not None:
            return body
        views = policy_selection.policies_of_objects(index, request)
        if request.name != ALL_OBJECTS:
            return await self._of_object(views[0], request)
        values = await self._listing(views, request.metric)
        return wire.metric_value_list(request.version, [_item(view, request, value) for view, value in values])

    def _kept_body(self, index: SnapshotIndex, request: RequestInfo) -> bytes | None:
        """The body of the last answer while the object's policy was not evaluated again; None without one."""
        kept = self._bodies.get(request)
        if kept is None:
            return None
        view_of, body = kept
        view = policy_selection.policy_of_object(index, request)
        if view is None or view_of() is not view:
            return None
        self._check_fresh(view)
        return body

    async def _of_object(self, view: PolicyView, request: RequestInfo) -> bytes:
        """One object's value. Except for `desired_replicas` its body is kept until the policy's next evaluation."""
        self._check_fresh(view)
        if request.metric == DESIRED_REPLICAS:
            # The HPA shows the policy's name beside the error if it asked by that name.
            value = await self._desired(view, names_policy=request.resource == POLICIES_RESOURCE)
            return wire.metric_value_list(request.version, [_item(view, request, value)])
        body = wire.metric_value_list(request.version, [_item(view, request, metric_value(view, request.metric))])
        if request.is_cacheable:
            if len(self._bodies) >= _MAX_BODIES:
                self._bodies.clear()
            self._bodies[request] = (weakref.ref(view), body)
        return body

    async def external(self, request: RequestInfo) -> bytes:
        """An ExternalMetricValueList. Raises StatusError; one error fails all, because the HPA sums the series."""
        # Queries come first: no policy has a metric of a query's name, and a query needs no watch.
        items = query_metrics.as_external(self._synced_index(request.namespace).snapshot, request, self._now())
        if items is not None:
            return wire.external_metric_value_list(items)
        index = self._fresh_index(request.namespace)
        views = policy_selection.policies_of_series(index, request)
        if not views:
            raise policy_selection.unknown_external_metric(index, request)
        values = [(view, await self._value(view, request.metric)) for view in views]
        return wire.external_metric_value_list(
            ExternalMetricValue(metric=request.metric, labels=series_labels(view, request.metric), value=value)
            for view, value in values
        )

    def _synced_index(self, namespace: str) -> SnapshotIndex:
        index = self.index
        if not index.snapshot.synced:
            cause = self._stale_reason(Key(namespace, ""))
            raise unavailable(
                f"the Kubernetes caches are still being filled: {cause}" if cause else self._unsynced_reason()
            )
        return index

    def _fresh_index(self, namespace: str) -> SnapshotIndex:
        index = self._synced_index(namespace)
        if sentence := self._stale_reason(Key(namespace, "")):
            raise unavailable(sentence)
        return index

    def _on_pods(self, index: SnapshotIndex, request: RequestInfo) -> list[MetricValue]:
        if not request.namespace:
            raise not_found("pods have metrics in a namespace only")
        items = pod_metrics.of_policies(index, request)
        if items is None:
            items = query_metrics.on_pods(index.snapshot, request, self._now())
        if items is None:
            raise _unknown_on_pods(index, request)
        return items

    async def _listing(self, views: tuple[PolicyView, ...], metric: str) -> list[tuple[PolicyView, Value]]:
        """The values of a listing, without policies in error; HPAs never request listings of policies or targets."""
        gate = asyncio.Semaphore(_MAX_SCALE_READS)

        async def one(view: PolicyView) -> tuple[PolicyView, Value] | None:
            async with gate:
                try:
                    return view, await self._value(view, metric)
                except StatusError:
                    return None

        return [pair for pair in await asyncio.gather(*map(one, views)) if pair]

    async def _value(self, view: PolicyView, metric: str) -> Value:
        self._check_fresh(view)
        return await self._desired(view) if metric == DESIRED_REPLICAS else metric_value(view, metric)

    def _check_fresh(self, view: PolicyView) -> None:
        if sentence := self._stale_reason(Key(view.policy.namespace, view.policy.name)):
            raise unavailable(sentence)
        if view.assessment is not None and (age := self._now() - view.assessment.at) > _MAX_ASSESSMENT_AGE:
            raise unavailable(
                f"WatermarkPolicy {view.policy.namespace}/{view.policy.name} was last assessed {age:.0f} s ago"
            )

    async def live_decision(self, request: RequestInfo) -> LiveDecision:
        """The decision that the policy of the request has at this moment, with what it is made from.

        Raises StatusError as a request for `desired_replicas` does, but for a decision that is an error.
        """
        index = self._fresh_index(request.namespace)
        view, *_ = policy_selection.policies_of_objects(index, request)
        self._check_fresh(view)
        return await self._decision(view)

    async def _desired(self, view: PolicyView, *, names_policy: bool = False) -> Value:
        return desired_replicas(view, (await self._decision(view)).decision, names_policy=names_policy)

    async def _decision(self, view: PolicyView) -> LiveDecision:
        assessment = require_assessment(view)
        if view.bounds is None or not view.scale_path:
            raise unavailable(
                f"the HPA or the scale target of {view.policy.namespace}/{view.policy.name} is not known yet"
            )
        try:
            scale = await self._scales.read(view.scale_path, view.scale, view.scale_proven_at)
        except KubeError as error:
            raise unavailable(f"the live replica count cannot be read: {error.public}") from error
        now = self._now()
        return LiveDecision(view, scale, now, self._decide(assessment, scale, view.bounds, now))


def _item(view: PolicyView, request: RequestInfo, value: Value) -> MetricValue:
    return MetricValue(described=policy_selection.described_object(view, request), metric=request.metric, value=value)


def _unknown_on_pods(index: SnapshotIndex, request: RequestInfo) -> StatusError:
    names = {EFFECTIVE_PREFIX + own.name for view in index.policies(request.namespace) for own in view.policy.metrics}
    if request.metric in names:
        return not_found(f"metricLabelSelector {request.series} selects no policy with {request.metric}")
    names.update(name for name, query in index.snapshot.queries.items() if query.by_pod)
    known = f"there are {', '.join(sorted(names))}" if names else "no policy and no query is here"
    return not_found(
        f"no metric {request.metric} on pods in namespace {request.namespace}; {known}", name=request.metric
    )
