"""Metrics of pods: of policies, with which the HPA's own sum over pods is right, and of the settings' queries.

Serving and doubtful pods have their measured value. A pulled-out pod is reported at the target average T of the HPA:
its ceil((Σ serving + P·T) / T) is then the pods needed plus the P pulled-out pods. If they were omitted, the HPA would
treat them as missing and stop scaling up. Starting, unready, terminating and finished pods, and pods without a sample,
are omitted: the HPA's own conservative estimate is right for them.
"""

from collections.abc import Callable, Iterator
from fractions import Fraction

from adapter.apiserver.discovery import EFFECTIVE_PREFIX
from adapter.apiserver.policy_metrics import (
    base_metric,
    is_selected,
    known_metrics,
    require_assessment,
    require_metric,
    sampled_at,
)
from adapter.apiserver.request_info import ALL_OBJECTS, RequestInfo
from adapter.apiserver.status import StatusError, not_found, unavailable
from adapter.apiserver.wire import Row, Value, custom_row, described, external_row, in_slices
from adapter.load.assessment import MetricAssessment
from adapter.load.pods import Pod, PodState
from adapter.load.quantity import NANO, nano_text
from adapter.load.samples import time_text
from adapter.runtime.concurrency import Slices
from adapter.snapshot import Key, PodStore, PolicyView, SnapshotIndex, selecting
from adapter.usage.series import NamedQueryResult, SeriesList

_MEASURED = frozenset({PodState.SERVING, PodState.DOUBTFUL})


async def on_pods(index: SnapshotIndex, request: RequestInfo, now: float) -> list[Row]:
    """The values of a metric by pod, of policies or of a query. Raises StatusError 503 and 404."""
    if not request.namespace:
        raise not_found("pods have metrics in a namespace only")
    query = index.snapshot.queries.get(request.metric)
    if query is not None and query.by_pod:
        return await _of_query(index, query, request, now)
    rows: list[Row] = []
    if request.metric.startswith(EFFECTIVE_PREFIX):
        rows = await in_slices(_of_policies(index, request))
    if not rows:
        raise _no_value(index, request)
    return rows


def _of_policies(index: SnapshotIndex, request: RequestInfo) -> Iterator[Row | None]:
    """The rows of the policies that have the metric; None for what has no row. Raises StatusError 503."""
    seen: set[str] = set()
    selects = selecting(request.labels)
    for view in index.policies(request.namespace):
        if view.problem is not None or view.assessment is None or not _serves(view, request):
            yield None
            continue
        for row in _of_policy(index, view, request, selects):
            name = "" if row is None else row["describedObject"]["name"]
            yield None if name in seen else row
            seen.add(name)


def _serves(view: PolicyView, request: RequestInfo) -> bool:
    return base_metric(view, request.metric) is not None and is_selected(view, request.metric, request.series)


def _of_policy(
    index: SnapshotIndex, view: PolicyView, request: RequestInfo, selects: Callable[[Pod], bool]
) -> Iterator[Row | None]:
    assessment, name = require_assessment(view), base_metric(view, request.metric) or ""
    chosen = []
    for pod in assessment.pods:
        if pod.pod.name == request.name or (request.name == ALL_OBJECTS and selects(pod.pod)):
            chosen.append(pod)
        yield None
    if not chosen:
        return
    result = require_metric(view, name)
    samples = {sample.pod.uid: sample for sample in result.samples}
    for pod in chosen:
        nano: Fraction | int | None = None
        if pod.state is PodState.PULLED_OUT:
            nano = _pulled_out_value(index, view, result, request.metric)
        elif pod.state in _MEASURED and (sample := samples.get(pod.pod.uid)) is not None:
            nano = sample.usage
            if nano is not None and result.metric.relative_to is not None:  # divided by the pod's own capacity
                nano = Fraction(nano * NANO, sample.sizes.larger) if sample.sizes is not None else None
        if nano is None:
            yield None
        else:
            yield _row(request, pod.pod, Value(nano_text(nano), sampled_at(view, result), result.window))


def _row(request: RequestInfo, pod: Pod, value: Value) -> Row:
    return custom_row(request.version, described("Pod", pod.namespace, pod.name, "v1"), request.metric, value)


def _pulled_out_value(index: SnapshotIndex, view: PolicyView, result: MetricAssessment, metric: str) -> Fraction | None:
    """The value reported for a pulled-out pod in nano-units: the HPA's target average, else the effective average."""
    snapshot, key = index.snapshot, Key(view.policy.namespace, view.policy.name)
    targets = [
        target
        for target in snapshot.pods_metric_targets.get(key.namespace, ())
        if target.metric == metric and target.target is not None and snapshot.by_target.get(target.target) == key
    ]
    if not targets:
        return result.usage
    return Fraction(min(targets, key=lambda target: (target.hpa != view.policy.hpa, target.hpa)).average)


def _no_value(index: SnapshotIndex, request: RequestInfo) -> StatusError:
    """The error of a policy that may have the values, else 404 with what is missing."""
    metric, views = request.metric, index.policies(request.namespace)
    where = f"in namespace {request.namespace}"
    having = [view for view in views if metric.startswith(EFFECTIVE_PREFIX) and base_metric(view, metric)]
    serving = [view for view in having if is_selected(view, metric, request.series)]
    if not having:
        queries = (name for name, query in index.snapshot.queries.items() if query.by_pod)
        names = (EFFECTIVE_PREFIX + one.name for view in views for one in view.policy.metrics)
        return not_found(f"no metric {metric} on pods {where}; {known_metrics([*queries, *names])}", name=metric)
    if not serving:
        return not_found(f"metricLabelSelector {request.series} selects no policy with {metric}")
    for view in serving:
        result = require_assessment(view).metric(base_metric(view, metric) or "")
        if result is not None and result.total:
            sentence = f"{metric} is one number for the whole service, no pod has one of its own"
            return not_found(f"{sentence}; read it from WatermarkPolicy {view.policy.name}")
    if request.name != ALL_OBJECTS:
        return not_found(f"pod {request.name} has no value of {metric}: no policy counts it, or it does not serve")
    chosen = f" that {str(request.labels)!r} selects" if request.labels else ""
    return not_found(f"no pod{chosen} {where} has a value of {metric}")


async def _of_query(index: SnapshotIndex, query: NamedQueryResult, request: RequestInfo, now: float) -> list[Row]:
    _refuse_stale(query, now)
    series = query.series.get(request.namespace, SeriesList())
    _refuse_ambiguous(query, series, request, now)
    pods = index.snapshot.pods.get(request.namespace, PodStore())
    chosen = [pods[request.name]] if request.name in pods else []
    if request.name == ALL_OBJECTS:
        chosen = await pods.select(request.labels, Slices())

    def rows() -> Iterator[Row | None]:
        for pod in chosen:
            for each in series.of_pod(pod.name):  # at most one of a pod counts
                if now - each.at <= query.max_age and (request.series is None or request.series.matches(each.labels)):
                    yield _row(request, pod, Value(nano_text(each.value), each.at))
            yield None

    found = await in_slices(rows())
    if not found:
        raise _no_sample(query, request, "pod")
    return found


async def as_external(query: NamedQueryResult, request: RequestInfo, now: float) -> list[Row]:
    """The series of a query in the namespace. Raises StatusError 503 and 404."""
    _refuse_stale(query, now)
    chosen = await query.series.get(request.namespace, SeriesList()).select(request.labels, Slices())
    if not chosen:
        raise _no_sample(query, request, "series")
    oldest = min(series.at for series in chosen)
    if now - oldest > query.max_age:
        raise _too_old(query, f"query {query.name}: a series that counts was sampled at {time_text(oldest)}")
    return await in_slices(
        external_row(query.name, series.labels, Value(nano_text(series.value), series.at)) for series in chosen
    )


def _refuse_stale(query: NamedQueryResult, now: float) -> None:
    if query.fetched_at is None:
        raise unavailable(f"query {query.name} has not been answered yet{f': {query.error}' if query.error else ''}")
    if now - query.fetched_at > query.max_age:
        raise _too_old(query, f"query {query.name} was last answered at {time_text(query.fetched_at)}")


def _too_old(query: NamedQueryResult, event: str) -> StatusError:
    return unavailable(f"{event}, the limit is {query.max_age:g} s{f'; {query.error}' if query.error else ''}")


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
