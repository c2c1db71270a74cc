"""The metrics of the settings' named queries: on the pods of a namespace, and as External metrics."""

from collections.abc import Iterator
from itertools import chain

from adapter.apiserver.request_info import ALL_OBJECTS, RequestInfo
from adapter.apiserver.status import StatusError, not_found, unavailable
from adapter.apiserver.wire import Row, Value, custom_row, described, external_row, in_slices, selected_by
from adapter.load.quantity import nano_text
from adapter.load.samples import time_text
from adapter.runtime.concurrency import Slices
from adapter.snapshot import PodStore, Snapshot
from adapter.usage.query_results import NamedQueryResult


async def on_pods(snapshot: Snapshot, request: RequestInfo, now: float) -> list[Row]:
    """The values of a query by pod. Raises StatusError 503 and 404."""
    query = snapshot.queries.get(request.metric)
    if query is None or not query.by_pod or not request.namespace:
        causes = "pods of a namespace have the metrics of prometheus.queries with scope Pods, and no others"
        raise not_found(f"{request.metric} has no value on pods: {causes}", name=request.metric)
    _refuse_stale(query, now)
    pods = snapshot.pods.get(request.namespace, PodStore())
    chosen = [pods[request.name]] if request.name in pods else []
    if request.name == ALL_OBJECTS:
        chosen = await pods.select(request.labels, Slices())
    series = query.series.get(request.namespace, {})

    def rows() -> Iterator[Row | None]:
        for pod in chosen:
            fresh = [each for each in series.get(pod.name, ()) if now - each.point.at <= query.max_age]
            counting = [each for each in fresh if request.series is None or request.series.matches(each.labels)]
            if len(counting) > 1:
                by = f"sum by ({query.namespace_label}, {query.pod_label})"
                raise unavailable(
                    f"query {query.name} has several series of pod {pod.name}; write it as `{by} (…)`, or select one"
                )
            about = described("Pod", pod.namespace, pod.name, "v1")
            for each in counting:
                value = Value(nano_text(each.point.value), each.point.at)
                yield custom_row(request.version, about, request.metric, value)
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
