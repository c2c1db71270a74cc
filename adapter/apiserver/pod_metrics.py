"""Pods metrics of policies: values with which the HPA's own sum over pods is right.

Serving and doubtful pods have their measured value. A pulled-out pod is reported at the target average T of the HPA:
its ceil((Σ serving + P·T) / T) is then the pods needed plus the P pulled-out pods. If they were omitted, the HPA would
treat them as missing and stop scaling up. Starting, unready, terminating and finished pods, and pods without a sample,
are omitted: the HPA's own conservative estimate is right for them.
"""

from collections.abc import Iterable, Iterator
from fractions import Fraction

from adapter.apiserver.policy_figures import (
    EFFECTIVE_PREFIX,
    base_metric,
    require_assessment,
    require_metric,
    series_labels,
)
from adapter.apiserver.request_info import ALL_OBJECTS, RequestInfo
from adapter.apiserver.snapshot_index import SnapshotIndex
from adapter.apiserver.status import StatusError, not_found
from adapter.apiserver.wire import DescribedObject, MetricValue, Value
from adapter.load.assessment import Assessment, MetricAssessment, PodAssessment
from adapter.load.effective_usage import MetricReader
from adapter.load.pod_assessments import without_usage
from adapter.load.pods import Pod, PodState
from adapter.load.quantity import NANO, nano_text
from adapter.load.samples import Samples
from adapter.load.spec import Metric
from adapter.snapshot import Key, PolicyView

_MEASURED = frozenset({PodState.SERVING, PodState.DOUBTFUL})


def of_policies(index: SnapshotIndex, request: RequestInfo) -> list[MetricValue] | None:
    """The pods' values of `effective_<metric>`; None if no policy of the namespace has that metric.

    Raises StatusError: 503 if the metric is in error, 404 if no requested pod has a value.
    """
    if not request.metric.startswith(EFFECTIVE_PREFIX):
        return None
    items, _ = _of_views(index, _views_with_pods(index, request), request)
    if items:
        return list(items.values())
    # No value among the policies with selected pods: look at every policy for other pods, or for the error.
    views = [view for view in index.policies(request.namespace) if _serves(view, request)]
    if not views:
        return None
    items, unknown = _of_views(index, views, request)
    if not items:
        raise unknown or _no_value(request, views)
    return list(items.values())


def _views_with_pods(index: SnapshotIndex, request: RequestInfo) -> list[PolicyView]:
    """The policies that own a pod selected by the request's labels, by name; empty for requests without labels."""
    if request.name != ALL_OBJECTS or request.labels is None:
        return []
    snapshot = index.snapshot
    owners = snapshot.by_pods.get(request.namespace)
    keys = sorted(owners.selected(request.labels)) if owners is not None else ()
    return [view for key in keys if (view := snapshot.policies.get(key)) is not None and _serves(view, request)]


def _of_views(
    index: SnapshotIndex, views: Iterable[PolicyView], request: RequestInfo
) -> tuple[dict[str, MetricValue], StatusError | None]:
    """The items of all views by pod, and the first error of a view without assessment.

    Raises StatusError 503 if a metric is in error.
    """
    items: dict[str, MetricValue] = {}
    unknown: StatusError | None = None
    for view in views:
        try:
            assessment = require_assessment(view)
        except StatusError as error:  # its pods are not known
            unknown = unknown or error
            continue
        for item in _items(index, view, assessment, request):
            items.setdefault(item.described.name, item)
    return items, unknown


def pod_reference(pod: Pod) -> DescribedObject:
    """The reference of a value to its pod."""
    return DescribedObject("Pod", pod.namespace, pod.name, "v1")


def _selects_pod(pod: Pod, request: RequestInfo) -> bool:
    """Whether the request's name or label selector selects this pod."""
    if request.name != ALL_OBJECTS:
        return pod.name == request.name
    return request.labels is None or request.labels.matches(pod.labels)


def _serves(view: PolicyView, request: RequestInfo) -> bool:
    if base_metric(view, request.metric) is None:
        return False
    return request.series is None or request.series.matches(series_labels(view, request.metric))


def _items(
    index: SnapshotIndex, view: PolicyView, assessment: Assessment, request: RequestInfo
) -> Iterator[MetricValue]:
    bare = without_usage(assessment.pods)
    pods = [assessment.pods[place] for place, one in enumerate(bare) if _selects_pod(one.pod, request)]
    if not pods:
        return
    name = base_metric(view, request.metric) or ""
    result = require_metric(view, assessment, name)
    metric = next(own for own in view.policy.metrics if own.name == name)
    some_out = any(pod.state is PodState.PULLED_OUT for pod in pods)
    pulled_out_value = _pulled_out_value(index, view, result, request.metric) if some_out else None
    for pod in pods:
        nano = pulled_out_value if pod.state is PodState.PULLED_OUT else _measured_value(metric, pod, assessment.at)
        if nano is not None:
            at = assessment.at if result.sampled_at is None else result.sampled_at
            value = Value(text=nano_text(nano), at=at, window=result.window)
            yield MetricValue(described=pod_reference(pod.pod), metric=request.metric, value=value)


def _measured_value(metric: Metric, pod: PodAssessment, now: float) -> Fraction | None:
    """The pod's value in nano-units; for a utilization, its usage divided by its own capacity, in nano-units."""
    usage = pod.usage.get(metric.name) if pod.state in _MEASURED else None
    if usage is None or metric.of is None:
        return None if usage is None else Fraction(usage)
    capacity = MetricReader(metric, Samples(), now).sample(pod.pod).capacity
    return Fraction(usage * NANO, capacity) if capacity else None


def _pulled_out_value(index: SnapshotIndex, view: PolicyView, result: MetricAssessment, metric: str) -> Fraction | None:
    """The value reported for a pulled-out pod in nano-units: the HPA's target average, else the effective average."""
    snapshot = index.snapshot
    key = Key(view.policy.namespace, view.policy.name)
    targets = [
        target
        for target in snapshot.pods_metric_targets.get(key.namespace, ())
        if target.metric == metric and target.target is not None and snapshot.by_target.get(target.target) == key
    ]
    if not targets:
        return result.usage
    preferred = min(targets, key=lambda target: (target.hpa != view.policy.hpa, target.hpa))
    return Fraction(preferred.average)


def _no_value(request: RequestInfo, views: Iterable[PolicyView]) -> StatusError:
    for view in views:
        result = (
            require_assessment(view).metric(base_metric(view, request.metric) or "") if view.problem is None else None
        )
        if result is not None and result.total:
            return not_found(
                f"{request.metric} is one number for the whole service, no pod has one of its own; "
                f"read it from WatermarkPolicy {view.policy.name}"
            )
    if request.name != ALL_OBJECTS:
        return not_found(
            f"pod {request.name} has no value of {request.metric}: no policy counts it, or it does not serve"
        )
    chosen = f" that {str(request.labels)!r} selects" if request.labels else ""
    return not_found(f"no pod{chosen} in namespace {request.namespace} has a value of {request.metric}")
