"""The settings' named queries, served without a policy: by pod as Pods metrics, otherwise as External metrics.

Samples count until they are too old, as they do for policies, whatever the last poll said; why it failed is told once
nothing fresh is left. A stale series is an error where it would be missing from a sum (External), and leaves its pod
out where pods are listed (the HPA then fills conservatively). NaN never gets this far: such a point is no sample.
"""

from collections.abc import Iterable

from adapter.apiserver.pod_metrics import described
from adapter.apiserver.routes import EVERY, Route
from adapter.apiserver.status import StatusError, not_found, unavailable
from adapter.apiserver.wire import ExternalItem, Item, Value
from adapter.kube.label_index import PodStore
from adapter.load.pods import Pod
from adapter.load.quantity import nano_text
from adapter.snapshot import Snapshot
from adapter.usage.series import NamedQueryResult, Series, SeriesList


def on_pods(snapshot: Snapshot, route: Route, now: float) -> list[Item] | None:
    """The values of a query by pod; None where no such query exists. Raises StatusError 503 and 404."""
    query = snapshot.queries.get(route.metric)
    if query is None or not query.by_pod:
        return None
    _refuse_stale(query, now)
    series = query.series.get(route.namespace, SeriesList())
    _refuse_ambiguous(query, series, route, now)
    items: list[Item] = []
    for pod in _wanted(snapshot.pods.get(route.namespace, PodStore()), route):
        # at most one counts
        items.extend(_item(query, pod, each) for each in series.of_pod(pod.name) if _counts(query, each, route, now))
    if not items:
        raise _nothing(query, route, "pod")
    return items


def as_external(snapshot: Snapshot, route: Route, now: float) -> list[ExternalItem] | None:
    """The series of a query in the namespace; None where no such query exists. Raises StatusError 503 and 404."""
    query = snapshot.queries.get(route.metric)
    if query is None:
        return None
    _refuse_stale(query, now)
    chosen = query.series.get(route.namespace, SeriesList()).selected(route.labels)
    if not chosen:
        raise _nothing(query, route, "series")
    oldest = now - min(series.at for series in chosen)
    if oldest > query.max_age:
        raise _old(query, f"query {query.name}: a series that counts was sampled {oldest:.0f} s ago")
    return [ExternalItem(metric=query.name, labels=series.labels, value=_value(series)) for series in chosen]


def _refuse_stale(query: NamedQueryResult, now: float) -> None:
    if query.fetched_at is None:
        why = f": {query.error}" if query.error else ""
        raise unavailable(f"query {query.name} has not been answered yet{why}")
    age = now - query.fetched_at
    if age > query.max_age:
        raise _old(query, f"query {query.name} was last answered {age:.0f} s ago")


def _old(query: NamedQueryResult, what: str) -> StatusError:
    why = f"; {query.error}" if query.error else ""
    return unavailable(f"{what}, the limit is {query.max_age:g} s{why}")


def _refuse_ambiguous(query: NamedQueryResult, series: SeriesList, route: Route, now: float) -> None:
    """Raises StatusError 503 where two series of a pod count, whichever pod it is."""
    found: set[str] = set()
    for each in series.of_repeated_pods(route.series):
        if now - each.at <= query.max_age:
            name = each.labels[query.pod_label]
            if name in found:
                raise _ambiguous(query, name)
            found.add(name)


def _counts(query: NamedQueryResult, series: Series, route: Route, now: float) -> bool:
    return now - series.at <= query.max_age and (route.series is None or route.series.matches(series.labels))


def _wanted(pods: PodStore, route: Route) -> Iterable[Pod]:
    if route.name != EVERY:
        return [pods[route.name]] if route.name in pods else []
    return pods.selected(route.labels)


def _item(query: NamedQueryResult, pod: Pod, series: Series) -> Item:
    return Item(described=described(pod), metric=query.name, value=_value(series))


def _value(series: Series) -> Value:
    return Value(text=nano_text(series.value), at=series.at)


def _ambiguous(query: NamedQueryResult, pod: str) -> StatusError:
    by = f"sum by ({query.namespace_label}, {query.pod_label})"
    return unavailable(f"query {query.name} has several series of pod {pod}; write it as `{by} (…)`, or select one")


def _nothing(query: NamedQueryResult, route: Route, what: str) -> StatusError:
    if query.error is not None:
        return unavailable(f"query {query.name}: {query.error}")
    selectors = " and ".join(repr(str(chosen)) for chosen in (route.labels, route.series) if chosen)
    chosen = f" that {selectors} selects" if selectors else ""
    return not_found(f"query {query.name} has no fresh sample of a {what}{chosen} in namespace {route.namespace}")
