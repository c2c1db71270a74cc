"""Metrics of pods: of policies, with which the HPA's own sum over pods is right, and of the settings' queries.

Serving and doubtful pods have their measured value. A pulled-out pod is reported at the target average T of the HPA:
its ceil((Σ serving + P·T) / T) is then the pods needed plus the P pulled-out pods. If they were omitted, the HPA would
treat them as missing and stop scaling up. Starting, unready, terminating and finished pods, and pods without a sample,
are omitted: the HPA's own conservative estimate is right for them.
"""

from collections.abc import Iterator
from fractions import Fraction
from itertools import chain

from adapter.apiserver.discovery import EFFECTIVE_PREFIX
from adapter.apiserver.policy_metrics import is_selected, require_assessment, require_metric, sampled_at
from adapter.apiserver.request_info import ALL_OBJECTS, RequestInfo
from adapter.apiserver.status import StatusError, not_found, unavailable
from adapter.apiserver.wire import Row, Value, custom_row, described, external_row, in_slices, selected_by
from adapter.load.assessment import MetricAssessment
from adapter.load.pod_samples import PodSample
from adapter.load.pods import Pod, PodState
from adapter.load.quantity import NANO, nano_text
from adapter.load.samples import time_text
from adapter.runtime.concurrency import Slices
from adapter.snapshot import Key, PodStore, PolicyView, Snapshot, selecting
from adapter.usage.query_results import NamedQueryResult

_MEASURED = frozenset({PodState.SERVING, PodState.DOUBTFUL})


async def on_pods(snapshot: Snapshot, request: RequestInfo, now: float) -> list[Row]:
    """The values of a metric by pod, of policies or of a query. Raises StatusError 503 and 404."""
    if not request.namespace:
        raise not_found("pods have metrics in a namespace only")
    query = snapshot.queries.get(request.metric)
    if query is not None and query.by_pod:
        return await _of_query(snapshot, query, request, now)
    views = snapshot.policies_in(request.namespace) if request.metric.startswith(EFFECTIVE_PREFIX) else ()
    having = [view for view in views if is_selected(view, request.metric, request.series)]
    if rows := await in_slices(_of_policies(snapshot, having, request)):
        return rows
    for view in having:
        require_assessment(view)
    asked = f"{request.metric} has no value on pods{selected_by(request.labels, request.series)}"
    causes = "no policy or query has this metric by pod, or the pods do not serve"
    raise not_found(f"{asked} in namespace {request.namespace}: {causes}", name=request.metric)


def _of_policies(snapshot: Snapshot, views: list[PolicyView], request: RequestInfo) -> Iterator[Row | None]:
    """The rows of the policies, one of each pod; None for what has no row. Raises StatusError 503."""
    seen: set[str] = set()
    selects = selecting(request.labels)
    for view in views:
        result: MetricAssessment | None = None
        samples: dict[str, PodSample] = {}
        for each in view.assessment.pods if view.assessment is not None and view.problem is None else ():
            pod = each.pod
            nano: Fraction | int | None = None
            if pod.name not in seen and (pod.name == request.name or (request.name == ALL_OBJECTS and selects(pod))):
                if result is None:
                    result = require_metric(view, request.metric.removeprefix(EFFECTIVE_PREFIX))
                    samples = {sample.pod.uid: sample for sample in result.samples}
                if each.state is PodState.PULLED_OUT:
                    nano = _pulled_out_value(snapshot, view, result, request.metric)
                elif each.state in _MEASURED and pod.uid in samples:
                    nano = _value(samples[pod.uid], result)
            if nano is None or result is None:
                yield None
                continue
            seen.add(pod.name)
            yield _row(request, pod, Value(nano_text(nano), sampled_at(view, result), result.window))


def _value(sample: PodSample, result: MetricAssessment) -> Fraction | int | None:
    """A pod's value in nano-units, where the metric is relative divided by the pod's own capacity."""
    if sample.usage is None or result.metric.relative_to is None:
        return sample.usage
    return Fraction(sample.usage * NANO, sample.sizes.larger) if sample.sizes is not None else None


def _row(request: RequestInfo, pod: Pod, value: Value) -> Row:
    return custom_row(request.version, described("Pod", pod.namespace, pod.name, "v1"), request.metric, value)


def _pulled_out_value(snapshot: Snapshot, view: PolicyView, result: MetricAssessment, metric: str) -> Fraction | None:
    """The value reported for a pulled-out pod in nano-units: the HPA's target average, else the effective average."""
    key = Key(view.policy.namespace, view.policy.name)
    averages = [
        (target.hpa != view.policy.hpa, target.hpa, target.average)
        for target in snapshot.pods_metric_targets.get(key.namespace, ())
        if target.metric == metric and target.target is not None and snapshot.by_target.get(target.target) == key
    ]
    return Fraction(min(averages)[-1]) if averages else result.usage


async def _of_query(snapshot: Snapshot, query: NamedQueryResult, request: RequestInfo, now: float) -> list[Row]:
    _refuse_stale(query, now)
    series = query.series.get(request.namespace, {})
    pods = snapshot.pods.get(request.namespace, PodStore())
    chosen = [pods[request.name]] if request.name in pods else []
    if request.name == ALL_OBJECTS:
        chosen = await pods.select(request.labels, Slices())

    def rows() -> Iterator[Row | None]:
        for pod in chosen:
            fresh = [each for each in series.get(pod.name, ()) if now - each.point.at <= query.max_age]
            counting = [each for each in fresh if request.series is None or request.series.matches(each.labels)]
            if len(counting) > 1:
                by = f"sum by ({query.namespace_label}, {query.pod_label})"
                raise unavailable(
                    f"query {query.name} has several series of pod {pod.name}; write it as `{by} (…)`, or select one"
                )
            for each in counting:
                yield _row(request, pod, Value(nano_text(each.point.value), each.point.at))
            yield None

    return await in_slices(rows()) or _no_sample(query, request, "pod")


async def as_external(query: NamedQueryResult, request: RequestInfo, now: float) -> list[Row]:
    """The series of a query in the namespace. Raises StatusError 503 and 404."""
    _refuse_stale(query, now)

    def rows() -> Iterator[Row | None]:
        for each in chain.from_iterable(query.series.get(request.namespace, {}).values()):
            if request.labels is None or request.labels.matches(each.labels):
                at = each.point.at
                if now - at > query.max_age:
                    raise _too_old(query, f"query {query.name}: a series that counts was sampled at {time_text(at)}")
                yield external_row(query.name, each.labels, Value(nano_text(each.point.value), at))
            else:
                yield None

    return await in_slices(rows()) or _no_sample(query, request, "series")


def _refuse_stale(query: NamedQueryResult, now: float) -> None:
    if query.fetched_at is None:
        raise unavailable(f"query {query.name} has not been answered yet{f': {query.error}' if query.error else ''}")
    if now - query.fetched_at > query.max_age:
        raise _too_old(query, f"query {query.name} was last answered at {time_text(query.fetched_at)}")


def _too_old(query: NamedQueryResult, event: str) -> StatusError:
    return unavailable(f"{event}, the limit is {query.max_age:g} s{f'; {query.error}' if query.error else ''}")


def _no_sample(query: NamedQueryResult, request: RequestInfo, subject: str) -> list[Row]:
    """Raises StatusError: 503 if the last poll failed, else 404."""
    if query.error is not None:
        raise unavailable(f"query {query.name}: {query.error}")
    chosen = f"{subject}{selected_by(request.labels, request.series)} in namespace {request.namespace}"
    raise not_found(f"query {query.name} has no fresh sample of a {chosen}")
