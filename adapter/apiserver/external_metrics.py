"""Policies as External metrics: one series per policy, labelled `policy` (and `metric`)."""

from adapter.apiserver.policy_figures import DESIRED_REPLICAS, has_metric, metric_names, series_labels
from adapter.apiserver.request_info import RequestInfo
from adapter.apiserver.snapshot_index import SnapshotIndex
from adapter.apiserver.status import StatusError, bad_request, not_found
from adapter.snapshot import PolicyView

_SHOWN = 5


def select_series(directory: SnapshotIndex, route: RequestInfo) -> tuple[PolicyView, ...]:
    """The policies whose series of this metric the selector selects; none where no policy has the metric.

    `desired_replicas` means one policy, for the HPA adds up what it gets.
    Raises StatusError 404 where none is selected, 400 where several are.
    """
    offering = [view for view in directory.policies(route.namespace) if has_metric(view, route.metric)]
    found = tuple(view for view in offering if _selected(view, route))
    if route.metric != DESIRED_REPLICAS:
        return found
    if not found:
        raise _none(route)
    if len(found) > 1:
        raise _several(route, found)
    return found


def unknown_external_metric(directory: SnapshotIndex, route: RequestInfo) -> StatusError:
    """404 that says what would be known, for a metric that neither a policy nor a query has."""
    if any(has_metric(view, route.metric) for view in directory.policies(route.namespace)):
        return _none(route)
    names = {name for view in directory.policies(route.namespace) for name in metric_names(view)}
    names.update(directory.snapshot.queries)
    known = f"there are {', '.join(sorted(names))}" if names else "no policy and no query is here"
    return not_found(f"no external metric {route.metric} in namespace {route.namespace}; {known}", name=route.metric)


def _selected(view: PolicyView, route: RequestInfo) -> bool:
    return route.labels is None or route.labels.matches(series_labels(view, route.metric))


def _none(route: RequestInfo) -> StatusError:
    asked = f"{str(route.labels)!r} selects no WatermarkPolicy" if route.labels else "there is no WatermarkPolicy"
    return not_found(
        f"{asked} in namespace {route.namespace}; select one by its name: matchLabels: {{policy: NAME}}",
        kind="watermarkpolicies",
        group="effective-load.io",
    )


def _several(route: RequestInfo, found: tuple[PolicyView, ...]) -> StatusError:
    names = ", ".join(view.policy.name for view in found[:_SHOWN])
    return bad_request(
        f"{len(found)} policies are selected ({names}{', …' if len(found) > _SHOWN else ''}), and the HPA would add up "
        f"their {route.metric}; select one: matchLabels: {{policy: NAME}}"
    )
