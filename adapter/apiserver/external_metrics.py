"""Policies as External metrics: one series per policy, labelled `policy` (and `metric`)."""

from adapter.apiserver.directory import Directory
from adapter.apiserver.policy_figures import DESIRED, labels, metric_names, offers
from adapter.apiserver.routes import Route
from adapter.apiserver.status import StatusError, bad_request, not_found
from adapter.kube.api import WATERMARK_POLICIES
from adapter.snapshot import PolicyView

_SHOWN = 5


def chosen(directory: Directory, route: Route) -> tuple[PolicyView, ...]:
    """The policies whose series of this metric the selector selects; none where no policy has the metric.

    `desired_replicas` means one policy, for the HPA adds up what it gets.
    Raises StatusError 404 where none is selected, 400 where several are.
    """
    offering = [view for view in directory.policies(route.namespace) if offers(view, route.metric)]
    found = tuple(view for view in offering if _selected(view, route))
    if route.metric != DESIRED:
        return found
    if not found:
        raise _none(route)
    if len(found) > 1:
        raise _several(route, found)
    return found


def unknown(directory: Directory, route: Route) -> StatusError:
    """404 that says what would be known, for a metric that neither a policy nor a query has."""
    if any(offers(view, route.metric) for view in directory.policies(route.namespace)):
        return _none(route)
    names = {name for view in directory.policies(route.namespace) for name in metric_names(view)}
    names.update(directory.snapshot.queries)
    known = f"there are {', '.join(sorted(names))}" if names else "no policy and no query is here"
    return not_found(f"no external metric {route.metric} in namespace {route.namespace}; {known}", name=route.metric)


def _selected(view: PolicyView, route: Route) -> bool:
    return route.labels is None or route.labels.matches(labels(view, route.metric))


def _none(route: Route) -> StatusError:
    asked = f"{str(route.labels)!r} selects no WatermarkPolicy" if route.labels else "there is no WatermarkPolicy"
    return not_found(
        f"{asked} in namespace {route.namespace}; select one by its name: matchLabels: {{policy: NAME}}",
        kind=WATERMARK_POLICIES.plural,
        group=WATERMARK_POLICIES.group,
    )


def _several(route: Route, found: tuple[PolicyView, ...]) -> StatusError:
    names = ", ".join(view.policy.name for view in found[:_SHOWN])
    return bad_request(
        f"{len(found)} policies are selected ({names}{', …' if len(found) > _SHOWN else ''}), and the HPA would add up "
        f"their {route.metric}; select one: matchLabels: {{policy: NAME}}"
    )
