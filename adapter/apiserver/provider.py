"""Answers metric requests from the snapshot in memory; only `desired_replicas` waits, for the live replica count."""

import asyncio
from collections.abc import Callable, Iterable
from itertools import chain, islice
from typing import NamedTuple

from adapter.apiserver import pod_metrics, wire
from adapter.apiserver.policy_figures import (
    EFFECTIVE_PREFIX,
    base_metric,
    desired_replicas,
    has_metric,
    metric_names,
    metric_value,
    not_assessed,
    require_assessment,
    selected,
    series_labels,
)
from adapter.apiserver.request_info import ALL_OBJECTS, PODS_RESOURCE, POLICIES_RESOURCE, RequestInfo
from adapter.apiserver.status import StatusError, bad_request, not_found, unavailable
from adapter.apiserver.wire import DescribedObject, ExternalMetricValue, MetricValue, Value
from adapter.kube.api import WATERMARK_POLICIES
from adapter.kube.errors import KubeError
from adapter.kube.scale import ScaleReader
from adapter.kube.selectors import LabelSelector
from adapter.load.assessment import Assessment, Decision
from adapter.load.decide import decide
from adapter.load.samples import time_text
from adapter.load.spec import Bounds, Scale
from adapter.policy.hpa import DESIRED_REPLICAS
from adapter.policy.watermark_policy import API_VERSION, KIND
from adapter.runtime.concurrency import Slices
from adapter.snapshot import Key, PolicyView, SnapshotIndex, SnapshotStore, TargetKey

_MAX_SCALE_READS = 16  # concurrent live scale reads of one listing
_MAX_ASSESSMENT_AGE = 90.0

Decide = Callable[[Assessment, Scale, Bounds, float], Decision]

_MAX_LISTED, _MAX_LISTED_METRICS = 5, 40


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

    @property
    def index(self) -> SnapshotIndex:
        """The index of the current snapshot."""
        return self._snapshots.index

    async def custom(self, request: RequestInfo) -> bytes:
        """A MetricValueList, made in slices. Raises StatusError."""
        index = self._fresh_index(request.namespace)
        if request.resource == PODS_RESOURCE:
            if not request.namespace:
                raise not_found("pods have metrics in a namespace only")
            items = await pod_metrics.of_policies(index, request, Slices())
            if items is None:
                items = await pod_metrics.on_pods(index.snapshot, request, self._now())
            if items is None:
                raise _unknown_on_pods(index, request)
            return await wire.metric_value_list(request.version, items)
        views = await policies_of_objects(index, request)
        if request.name == ALL_OBJECTS:
            values = await self._listing(views, request.metric)
        else:
            # The HPA shows the policy's name beside the error if it asked by that name.
            names_policy = request.resource == POLICIES_RESOURCE
            values = [(view, await self._value(view, request.metric, names_policy=names_policy)) for view in views]
        items = [
            MetricValue(described=described_object(view, request), metric=request.metric, value=value)
            for view, value in values
        ]
        return await wire.metric_value_list(request.version, items)

    async def external(self, request: RequestInfo) -> bytes:
        """An ExternalMetricValueList, made in slices.

        Raises StatusError; one error fails all, because the HPA sums the series.
        """
        # Queries come first: no policy has a metric of a query's name, and a query needs no watch.
        items = await pod_metrics.as_external(self._synced_index(request.namespace).snapshot, request, self._now())
        if items is not None:
            return await wire.external_metric_value_list(items)
        index = self._fresh_index(request.namespace)
        views = await policies_of_series(index, request)
        if not views:
            raise unknown_external_metric(index, request)
        items, slices = [], Slices()
        for view in views:
            value = await self._value(view, request.metric)
            labels = series_labels(view, request.metric)
            items.append(ExternalMetricValue(metric=request.metric, labels=labels, value=value))
            if len(views) > 1:
                await slices.breathe()
        return await wire.external_metric_value_list(items)

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

    async def _listing(self, views: tuple[PolicyView, ...], metric: str) -> list[tuple[PolicyView, Value]]:
        """The values of a listing, without policies in error; HPAs never request listings of policies or targets."""

        async def of(view: PolicyView) -> tuple[PolicyView, Value] | None:
            try:
                return view, await self._value(view, metric)
            except StatusError:
                return None

        found, slices = [], Slices()
        for begin in range(0, len(views), _MAX_SCALE_READS):
            found += await asyncio.gather(*map(of, views[begin : begin + _MAX_SCALE_READS]))
            await slices.breathe()
        return [pair for pair in found if pair]

    async def _value(self, view: PolicyView, metric: str, *, names_policy: bool = False) -> Value:
        self._check_fresh(view)
        if metric != DESIRED_REPLICAS:
            return metric_value(view, metric)
        return desired_replicas(view, (await self._decision(view)).decision, names_policy=names_policy)

    def _check_fresh(self, view: PolicyView) -> None:
        if sentence := self._stale_reason(Key(view.policy.namespace, view.policy.name)):
            raise unavailable(sentence)
        if view.assessment is not None and self._now() - view.assessment.at > _MAX_ASSESSMENT_AGE:
            name, at = f"{view.policy.namespace}/{view.policy.name}", time_text(view.assessment.at)
            raise unavailable(f"WatermarkPolicy {name} was last assessed at {at}")

    async def live_decision(self, request: RequestInfo) -> LiveDecision:
        """The decision that the policy of the request has at this moment, with what it is made from.

        Raises StatusError as a request for `desired_replicas` does, but for a decision that is an error.
        """
        index = self._fresh_index(request.namespace)
        view, *_ = await policies_of_objects(index, request)
        self._check_fresh(view)
        return await self._decision(view)

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


def _unknown_on_pods(index: SnapshotIndex, request: RequestInfo) -> StatusError:
    views = index.policies(request.namespace)
    if request.metric.startswith(EFFECTIVE_PREFIX) and any(base_metric(view, request.metric) for view in views):
        return not_found(f"metricLabelSelector {request.series} selects no policy with {request.metric}")
    queries = (name for name, query in index.snapshot.queries.items() if query.by_pod)
    existing = _known(
        chain(queries, (EFFECTIVE_PREFIX + metric.name for view in views for metric in view.policy.metrics))
    )
    return not_found(
        f"no metric {request.metric} on pods in namespace {request.namespace}; {existing}", name=request.metric
    )


def _known(names: Iterable[str]) -> str:
    """The names in a sentence, a few of many: a tenant may have ten thousand, and ask for another one all the time."""
    first = sorted(set(islice(names, 10 * _MAX_LISTED_METRICS)))
    ellipsis = ", …" if len(first) > _MAX_LISTED_METRICS else ""
    return (
        f"there are {', '.join(first[:_MAX_LISTED_METRICS])}{ellipsis}" if first else "no policy and no query is here"
    )


async def policies_of_objects(index: SnapshotIndex, request: RequestInfo) -> tuple[PolicyView, ...]:
    """The policies of the requested objects: exactly one for a name, any number for `*`.

    Raises StatusError 404 if the named object has no policy, or metricLabelSelector does not select the series.
    """
    if not request.namespace or request.resource == "metrics":
        raise not_found(f"{request.resource} have no metrics here; policies, their scale targets and pods have")
    metric = request.metric
    if request.name == ALL_OBJECTS:
        return await selected(index.policies(request.namespace), lambda view: _is_listed(view, request))
    view = policy_of_object(index, request)
    if view is None:
        raise _unknown_object(index, request)
    if has_metric(view, metric) and not _is_selected(view, metric, request.series):
        labels = ", ".join(f"{key}={value}" for key, value in series_labels(view, metric).items())
        raise not_found(f"metricLabelSelector {request.series} does not select {metric} of {request.name} ({labels})")
    return (view,)


def policy_of_object(index: SnapshotIndex, request: RequestInfo) -> PolicyView | None:
    """The policy of the object that the request names; None where it has none."""
    if request.resource == POLICIES_RESOURCE:
        return index.policy(request.namespace, request.name)
    key = index.snapshot.by_target.get(TargetKey(request.namespace, request.resource, request.name))
    return index.snapshot.policies.get(key) if key else None


def described_object(view: PolicyView, request: RequestInfo) -> DescribedObject:
    """The object that the answer describes."""
    policy = view.policy
    if request.resource == POLICIES_RESOURCE:
        return DescribedObject(KIND, policy.namespace, policy.name, API_VERSION)
    target = view.target
    if target is None:  # the target was deleted; only the request still has its name
        return DescribedObject("", policy.namespace, request.name, "")
    return DescribedObject(target.kind, policy.namespace, target.name, target.api_version)


async def policies_of_series(index: SnapshotIndex, request: RequestInfo) -> tuple[PolicyView, ...]:
    """The policies whose External series of this metric the selector selects; empty if no policy has the metric.

    `desired_replicas` has to select one policy, because the HPA sums the series that it gets: raises StatusError 404
    if none is selected, 400 if several are.
    """
    metric = request.metric
    named = None if request.policy is None else index.policy(request.namespace, request.policy)
    candidates = index.policies(request.namespace) if request.policy is None else (named,) if named is not None else ()
    views = await selected(
        candidates, lambda view: has_metric(view, metric) and _is_selected(view, metric, request.labels)
    )
    if metric != DESIRED_REPLICAS:
        return views
    if not views:
        raise _no_series(request)
    if len(views) > 1:
        names = ", ".join(view.policy.name for view in views[:_MAX_LISTED])
        ellipsis = ", …" if len(views) > _MAX_LISTED else ""
        raise bad_request(
            f"{len(views)} policies are selected ({names}{ellipsis}), and the HPA would add up "
            f"their {metric}; select one: matchLabels: {{policy: NAME}}"
        )
    return views


def unknown_external_metric(index: SnapshotIndex, request: RequestInfo) -> StatusError:
    """404 that lists the metrics of the namespace, for a metric that neither a policy nor a query has."""
    views = index.policies(request.namespace)
    if any(has_metric(view, request.metric) for view in views):
        return _no_series(request)
    existing = _known(chain(index.snapshot.queries, (name for view in views for name in metric_names(view))))
    return not_found(
        f"no external metric {request.metric} in namespace {request.namespace}; {existing}", name=request.metric
    )


def _is_selected(view: PolicyView, metric: str, selector: LabelSelector | None) -> bool:
    return selector is None or selector.matches(series_labels(view, metric))


def _is_listed(view: PolicyView, request: RequestInfo) -> bool:
    is_policy = request.resource == POLICIES_RESOURCE
    if not is_policy and (view.target is None or view.target_resource != request.resource):
        return False
    if request.labels is not None and not request.labels.matches(view.labels if is_policy else view.target_labels):
        return False
    return has_metric(view, request.metric) and _is_selected(view, request.metric, request.series)


def _unknown_object(index: SnapshotIndex, request: RequestInfo) -> StatusError:
    """404 for a policy, or for a target that none has.

    Before that the problem of the policy that names the target, and 503 while a policy without known target may be its.
    """
    if request.resource == POLICIES_RESOURCE:
        hint = f"`kubectl get watermarkpolicies -n {request.namespace}` lists those that exist"
        return not_found(
            f"there is no WatermarkPolicy {request.name} in namespace {request.namespace}; {hint}",
            kind=WATERMARK_POLICIES.plural,
            group=WATERMARK_POLICIES.group,
            name=request.name,
        )
    views = [view for view in index.policies(request.namespace) if view.target is None]
    for view in views:
        if view.target_name == request.name and view.problem is not None:
            return StatusError(view.problem.code, view.problem.message, reason=view.problem.reason)
    for view in views:
        if view.problem is None:
            return not_assessed(view)
    resource, _, group = request.resource.partition(".")
    return not_found(
        f"no WatermarkPolicy in namespace {request.namespace} scales {request.resource} {request.name}; "
        "a policy names an HPA, and the HPA its scaleTargetRef",
        kind=resource,
        group=group,
        name=request.name,
    )


def _no_series(request: RequestInfo) -> StatusError:
    cause = f"{str(request.labels)!r} selects no WatermarkPolicy" if request.labels else "there is no WatermarkPolicy"
    return not_found(
        f"{cause} in namespace {request.namespace}; select one by its name: matchLabels: {{policy: NAME}}",
        kind=WATERMARK_POLICIES.plural,
        group=WATERMARK_POLICIES.group,
    )
