"""The settings' named queries, served without a policy: by pod as Pods metrics, otherwise as External metrics.

Samples count until they are too old, as for policies, even if later polls fail; a poll's error is reported only when no
fresh sample is left. A stale series is an error for External metrics, whose sum would lack it, and omits its pod from
Pods metrics, where the HPA estimates conservatively. NaN never arrives here: such a point is not a sample.
"""

from collections.abc import Iterable

from adapter.apiserver.pod_metrics import pod_reference
from adapter.apiserver.request_info import ALL_OBJECTS, RequestInfo
from adapter.apiserver.status import StatusError, not_found, unavailable
from adapter.apiserver.wire import ExternalMetricValue, MetricValue, Value
from adapter.kube.label_index import PodStore
from adapter.load.pods import Pod
from adapter.load.quantity import nano_text
from adapter.snapshot import Snapshot
from adapter.usage.series import NamedQueryResult, Series, SeriesList


def on_pods(snapshot: Snapshot, request: RequestInfo, now: float) -> list[MetricValue] | None:
    """The values of a query by pod; None if there is no such query. Raises StatusError 503 and 404."""
    query = snapshot.queries.get(request.metric)
    if query is None or not query.by_pod:
        return None
    _refuse_stale(query, now)
    series = query.series.get(request.namespace, SeriesList())
    _refuse_ambiguous(query, series, request, now)
    items: list[MetricValue] = []
    for pod in _selected_pods(snapshot.pods.get(request.namespace, PodStore()), request):
        # at most one series of a pod counts
        items.extend(_item(query, pod, each) for each in series.of_pod(pod.name) if _counts(query, each, request, now))
    if not items:
        raise _no_sample(query, request, "pod")
    return items


def as_external(snapshot: Snapshot, request: RequestInfo, now: float) -> list[ExternalMetricValue] | None:
    """The series of a query in the namespace; None if there is no such query. Raises StatusError 503 and 404."""
    query = snapshot.queries.get(request.metric)
    if query is None:
        return None
    _refuse_stale(query, now)
    chosen = query.series.get(request.namespace, SeriesList()).selected(request.labels)
    if not chosen:
        raise _no_sample(query, request, "series")
    oldest = now - min(series.at for series in chosen)
    if oldest > query.max_age:
        raise _too_old(query, f"query {query.name}: a series that counts was sampled {oldest:.0f} s ago")
    return [ExternalMetricValue(metric=query.name, labels=series.labels, value=_value(series)) for series in chosen]


def _refuse_stale(query: NamedQueryResult, now: float) -> None:
    if query.fetched_at is None:
        why = f": {query.error}" if query.error else ""
        raise unavailable(f"query {query.name} has not been answered yet{why}")
    age = now - query.fetched_at
    if age > query.max_age:
        raise _too_old(query, f"query {query.name} was last answered {age:.0f} s ago")


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
                raise _ambiguous(query, name)
            names.add(name)


def _counts(query: NamedQueryResult, series: Series, request: RequestInfo, now: float) -> bool:
    return now - series.at <= query.max_age and (request.series is None or request.series.matches(series.labels))


def _selected_pods(pods: PodStore, request: RequestInfo) -> Iterable[Pod]:
    if request.name != ALL_OBJECTS:
        return [pods[request.name]] if request.name in pods else []
    return pods.selected(request.labels)


def _item(query: NamedQueryResult, pod: Pod, series: Series) -> MetricValue:
    return MetricValue(described=pod_reference(pod), metric=query.name, value=_value(series))


def _value(series: Series) -> Value:
    return Value(text=nano_text(series.value), at=series.at)


def _ambiguous(query: NamedQueryResult, pod: str) -> StatusError:
    by = f"sum by ({query.namespace_label}, {query.pod_label})"
    return unavailable(f"query {query.name} has several series of pod {pod}; write it as `{by} (…)`, or select one")


def _no_sample(query: NamedQueryResult, request: RequestInfo, subject: str) -> StatusError:
    if query.error is not None:
        return unavailable(f"query {query.name}: {query.error}")
    selectors = " and ".join(repr(str(chosen)) for chosen in (request.labels, request.series) if chosen)
    chosen = f" that {selectors} selects" if selectors else ""
    return not_found(f"query {query.name} has no fresh sample of a {subject}{chosen} in namespace {request.namespace}")
