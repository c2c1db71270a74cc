"""Selects the policies behind a request for objects (policy, scale target) or for series (External metrics)."""

from collections.abc import Iterator

from adapter.apiserver.policy_figures import (
    has_metric,
    metric_names,
    not_assessed,
    series_labels,
)
from adapter.apiserver.request_info import ALL_OBJECTS, POLICIES_RESOURCE, RequestInfo
from adapter.apiserver.snapshot_index import SnapshotIndex
from adapter.apiserver.status import StatusError, bad_request, not_found
from adapter.apiserver.wire import DescribedObject
from adapter.kube.api import WATERMARK_POLICIES
from adapter.kube.selectors import LabelSelector
from adapter.policy.hpa import DESIRED_REPLICAS
from adapter.policy.watermark_policy import API_VERSION, KIND
from adapter.snapshot import PolicyView, TargetKey

_MAX_LISTED = 5


def policies_of_objects(index: SnapshotIndex, request: RequestInfo) -> tuple[PolicyView, ...]:
    """The policies of the requested objects: exactly one for a name, any number for `*`.

    Raises StatusError 404 if the named object has no policy, or metricLabelSelector does not select the series.
    """
    if not request.namespace or request.resource == "metrics":
        raise not_found(f"{request.resource} have no metrics here; policies, their scale targets and pods have")
    metric = request.metric
    if request.name == ALL_OBJECTS:
        views = _matching_objects(index, request)
        return tuple(view for view in views if has_metric(view, metric) and _is_selected(view, metric, request.series))
    view = _named_object(index, request)
    if has_metric(view, metric) and not _is_selected(view, metric, request.series):
        labels = ", ".join(f"{key}={value}" for key, value in series_labels(view, metric).items())
        raise not_found(f"metricLabelSelector {request.series} does not select {metric} of {request.name} ({labels})")
    return (view,)


def described_object(view: PolicyView, request: RequestInfo) -> DescribedObject:
    """The object that the answer describes."""
    policy = view.policy
    if request.resource == POLICIES_RESOURCE:
        return DescribedObject(KIND, policy.namespace, policy.name, API_VERSION)
    target = view.target
    if target is None:  # the target was deleted; only the request still has its name
        return DescribedObject("", policy.namespace, request.name, "")
    return DescribedObject(target.kind, policy.namespace, target.name, target.api_version)


def policies_of_series(index: SnapshotIndex, request: RequestInfo) -> tuple[PolicyView, ...]:
    """The policies whose External series of this metric the selector selects; empty if no policy has the metric.

    `desired_replicas` has to select one policy, because the HPA sums the series that it gets: raises StatusError 404
    if none is selected, 400 if several are.
    """
    metric = request.metric
    offering = [view for view in index.policies(request.namespace) if has_metric(view, metric)]
    views = tuple(view for view in offering if _is_selected(view, metric, request.labels))
    if metric != DESIRED_REPLICAS:
        return views
    if not views:
        raise _no_series(request)
    if len(views) > 1:
        raise _several_series(request, views)
    return views


def unknown_external_metric(index: SnapshotIndex, request: RequestInfo) -> StatusError:
    """404 that lists the metrics of the namespace, for a metric that neither a policy nor a query has."""
    views = index.policies(request.namespace)
    if any(has_metric(view, request.metric) for view in views):
        return _no_series(request)
    names = {name for view in views for name in metric_names(view)} | {*index.snapshot.queries}
    known = f"there are {', '.join(sorted(names))}" if names else "no policy and no query is here"
    return not_found(
        f"no external metric {request.metric} in namespace {request.namespace}; {known}", name=request.metric
    )


def _is_selected(view: PolicyView, metric: str, selector: LabelSelector | None) -> bool:
    return selector is None or selector.matches(series_labels(view, metric))


def _matching_objects(index: SnapshotIndex, request: RequestInfo) -> Iterator[PolicyView]:
    is_policy = request.resource == POLICIES_RESOURCE
    for view in index.policies(request.namespace):
        if not is_policy and (view.target is None or view.target_resource != request.resource):
            continue
        if request.labels is None or request.labels.matches(view.labels if is_policy else view.target_labels):
            yield view


def policy_of_object(index: SnapshotIndex, request: RequestInfo) -> PolicyView | None:
    """The policy of the object that the request names; None where it has none."""
    if request.resource == POLICIES_RESOURCE:
        return index.policy(request.namespace, request.name)
    snapshot = index.snapshot
    key = snapshot.by_target.get(TargetKey(request.namespace, request.resource, request.name))
    return snapshot.policies.get(key) if key else None


def _named_object(index: SnapshotIndex, request: RequestInfo) -> PolicyView:
    view = policy_of_object(index, request)
    if view is None:
        raise _no_policy(request) if request.resource == POLICIES_RESOURCE else _unknown_target(index, request)
    return view


def _no_policy(request: RequestInfo) -> StatusError:
    hint = f"`kubectl get watermarkpolicies -n {request.namespace}` lists those that exist"
    return not_found(
        f"there is no WatermarkPolicy {request.name} in namespace {request.namespace}; {hint}",
        kind=WATERMARK_POLICIES.plural,
        group=WATERMARK_POLICIES.group,
        name=request.name,
    )


def _unknown_target(index: SnapshotIndex, request: RequestInfo) -> StatusError:
    """The problem of the policy that names this target; 503 while a policy without known target may be its."""
    views = [view for view in index.policies(request.namespace) if view.target is None]
    for view in views:
        if view.target_name == request.name and view.problem is not None:
            return StatusError(*view.problem)
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


def _several_series(request: RequestInfo, views: tuple[PolicyView, ...]) -> StatusError:
    names = ", ".join(view.policy.name for view in views[:_MAX_LISTED])
    more = ", …" if len(views) > _MAX_LISTED else ""
    return bad_request(
        f"{len(views)} policies are selected ({names}{more}), and the HPA would add up "
        f"their {request.metric}; select one: matchLabels: {{policy: NAME}}"
    )
