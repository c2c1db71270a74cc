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
    selected,
    series_labels,
)
from adapter.apiserver.request_info import ALL_OBJECTS, RequestInfo
from adapter.apiserver.status import StatusError, not_found, unavailable
from adapter.apiserver.wire import DescribedObject, ExternalMetricValue, MetricValue, Value
from adapter.load.assessment import Assessment, MetricAssessment
from adapter.load.pod_samples import MetricReader
from adapter.load.pods import Pod, PodAssessment, PodState
from adapter.load.quantity import NANO, nano_text
from adapter.load.samples import Samples, time_text
from adapter.runtime.concurrency import Slices
from adapter.snapshot import Key, PodStore, PolicyView, Snapshot, SnapshotIndex
from adapter.usage.series import NamedQueryResult, SeriesList

_MEASURED = frozenset({PodState.SERVING, PodState.DOUBTFUL})


async def of_policies(index: SnapshotIndex, request: RequestInfo, slices: Slices) -> list[MetricValue] | None:
    """The pods' values of `effective_<metric>`, computed in slices; None if no policy of the namespace has that metric.

    Raises StatusError: 503 if the metric is in error, 404 if no requested pod has a value.
    """
    if not request.metric.startswith(EFFECTIVE_PREFIX):
        return None
    if request.name == ALL_OBJECTS and request.labels is not None:
        snapshot = index.snapshot
        owners = snapshot.by_pods.get(request.namespace)
        keys = sorted(await owners.select(request.labels, slices)) if owners is not None else ()
        views = [view for key in keys if (view := snapshot.policies.get(key)) is not None and _serves(view, request)]
        items, _ = await _of_views(index, views, request, slices)
        if items:
            return list(items.values())
    # No value among the policies that own a selected pod: look at every policy for other pods, or for the error.
    every = await selected(index.policies(request.namespace), lambda view: _serves(view, request))
    if not every:
        return None
    items, unknown = await _of_views(index, every, request, slices)
    if not items:
        raise unknown or _no_value(request, every)
    return list(items.values())


async def _of_views(
    index: SnapshotIndex, views: Iterable[PolicyView], request: RequestInfo, slices: Slices
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
        pods = []
        for pod in assessment.pods:
            is_all = request.name == ALL_OBJECTS and (request.labels is None or request.labels.matches(pod.pod.labels))
            if is_all or pod.pod.name == request.name:
                pods.append(pod)
            await slices.breathe()
        for item in _items(index, view, assessment, pods, request):
            items.setdefault(item.described.name, item)
            await slices.breathe()
        await slices.breathe()
    return items, unknown


def pod_reference(pod: Pod) -> DescribedObject:
    """The reference of a value to its pod."""
    return DescribedObject("Pod", pod.namespace, pod.name, "v1")


def _serves(view: PolicyView, request: RequestInfo) -> bool:
    if base_metric(view, request.metric) is None:
        return False
    return request.series is None or request.series.matches(series_labels(view, request.metric))


def _items(
    index: SnapshotIndex, view: PolicyView, assessment: Assessment, pods: list[PodAssessment], request: RequestInfo
) -> Iterator[MetricValue]:
    if not pods:
        return
    name = base_metric(view, request.metric) or ""
    result = require_metric(view, assessment, name)
    metric = next(metric for metric in view.policy.metrics if metric.name == name)
    some_out = any(pod.state is PodState.PULLED_OUT for pod in pods)
    pulled_out_value = _pulled_out_value(index, view, result, request.metric) if some_out else None
    reader = MetricReader(metric, Samples(), assessment.at)
    for pod in assessment.with_usage(pods):
        nano: Fraction | int | None = pod.usage.get(name) if pod.state in _MEASURED else None
        if pod.state is PodState.PULLED_OUT:
            nano = pulled_out_value
        elif nano is not None and metric.relative_to is not None:  # a utilization: divided by the pod's own capacity
            sizes = reader.basis(pod.pod)[0]
            nano = Fraction(nano * NANO, sizes.larger) if sizes is not None else None
        if nano is not None:
            at = assessment.at if result.sampled_at is None else result.sampled_at
            value = Value(text=nano_text(nano), at=at, window=result.window)
            yield MetricValue(described=pod_reference(pod.pod), metric=request.metric, value=value)


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


async def on_pods(snapshot: Snapshot, request: RequestInfo, now: float) -> list[MetricValue] | None:
    """The values of a query by pod; None if there is no such query. Raises StatusError 503 and 404."""
    query = snapshot.queries.get(request.metric)
    if query is None or not query.by_pod:
        return None
    _refuse_stale(query, now)
    series = query.series.get(request.namespace, SeriesList())
    _refuse_ambiguous(query, series, request, now)
    items: list[MetricValue] = []
    slices = Slices()
    pods = snapshot.pods.get(request.namespace, PodStore())
    if request.name == ALL_OBJECTS:
        chosen = await pods.select(request.labels, slices)
    else:
        chosen = [pods[request.name]] if request.name in pods else []
    for pod in chosen:
        # at most one series of a pod counts
        items.extend(
            MetricValue(
                described=pod_reference(pod), metric=query.name, value=Value(text=nano_text(each.value), at=each.at)
            )
            for each in series.of_pod(pod.name)
            if now - each.at <= query.max_age and (request.series is None or request.series.matches(each.labels))
        )
        await slices.breathe()
    if not items:
        raise _no_sample(query, request, "pod")
    return items


async def as_external(snapshot: Snapshot, request: RequestInfo, now: float) -> list[ExternalMetricValue] | None:
    """The series of a query in the namespace; None if there is no such query. Raises StatusError 503 and 404."""
    query = snapshot.queries.get(request.metric)
    if query is None:
        return None
    _refuse_stale(query, now)
    slices = Slices()
    chosen = await query.series.get(request.namespace, SeriesList()).select(request.labels, slices)
    if not chosen:
        raise _no_sample(query, request, "series")
    oldest = min(series.at for series in chosen)
    if now - oldest > query.max_age:
        raise _too_old(query, f"query {query.name}: a series that counts was sampled at {time_text(oldest)}")
    items = []
    for series in chosen:
        value = Value(text=nano_text(series.value), at=series.at)
        items.append(ExternalMetricValue(metric=query.name, labels=series.labels, value=value))
        await slices.breathe()
    return items


def _refuse_stale(query: NamedQueryResult, now: float) -> None:
    if query.fetched_at is None:
        why = f": {query.error}" if query.error else ""
        raise unavailable(f"query {query.name} has not been answered yet{why}")
    if now - query.fetched_at > query.max_age:
        raise _too_old(query, f"query {query.name} was last answered at {time_text(query.fetched_at)}")


def _too_old(query: NamedQueryResult, event: str) -> StatusError:
    why = f"; {query.error}" if query.error else ""
    return unavailable(f"{event}, the limit is {query.max_age:g} s{why}")


def _refuse_ambiguous(query: NamedQueryResult, series: SeriesList, request: RequestInfo, now: float) -> None:
    """Raises StatusError 503 if two series of any pod count."""
    names: set[str] = set()
    for each in series.of_repeated_pods(request.series):
        if now - each.at <= query.max_age:
            name = each.labels[query.pod_label]
            if name in names:
                by = f"sum by ({query.namespace_label}, {query.pod_label})"
                raise unavailable(
                    f"query {query.name} has several series of pod {name}; write it as `{by} (…)`, or select one"
                )
            names.add(name)


def _no_sample(query: NamedQueryResult, request: RequestInfo, subject: str) -> StatusError:
    if query.error is not None:
        return unavailable(f"query {query.name}: {query.error}")
    selectors = " and ".join(repr(str(chosen)) for chosen in (request.labels, request.series) if chosen)
    chosen = f" that {selectors} selects" if selectors else ""
    return not_found(f"query {query.name} has no fresh sample of a {subject}{chosen} in namespace {request.namespace}")
