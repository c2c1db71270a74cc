"""Which policies a request for a policy object or a scale target means."""

from collections.abc import Iterator

from adapter.apiserver.directory import Directory
from adapter.apiserver.policy_figures import labels, not_assessed, offers
from adapter.apiserver.routes import EVERY, POLICIES, Route
from adapter.apiserver.status import StatusError, not_found
from adapter.apiserver.wire import Described
from adapter.kube.api import WATERMARK_POLICIES
from adapter.policy.watermark_policy import API_VERSION, KIND
from adapter.snapshot import PolicyView, TargetKey


def chosen(directory: Directory, route: Route) -> tuple[PolicyView, ...]:
    """The policies behind the objects asked for: exactly one for a name, any number for `*`.

    Raises StatusError 404 where the named object has no policy, or the metric's series is not selected.
    """
    if not route.namespace or route.resource == "metrics":
        raise not_found(f"{route.resource} have no metrics here; policies, their scale targets and pods have")
    if route.name == EVERY:
        return tuple(view for view in _every(directory, route) if offers(view, route.metric) and _selected(view, route))
    view = _named(directory, route)
    if route.series is not None and offers(view, route.metric) and not _selected(view, route):
        shown = ", ".join(f"{key}={value}" for key, value in labels(view, route.metric).items())
        raise not_found(f"metricLabelSelector {route.series} does not select {route.metric} of {route.name} ({shown})")
    return (view,)


def described(view: PolicyView, route: Route) -> Described:
    """The object that the answer is about."""
    policy = view.policy
    if route.resource == POLICIES:
        return Described(KIND, policy.namespace, policy.name, API_VERSION)
    target = view.target
    if target is None:  # a target that is gone has left its name in the request
        return Described("", policy.namespace, route.name, "")
    return Described(target.kind, policy.namespace, target.name, target.api_version)


def _selected(view: PolicyView, route: Route) -> bool:
    return route.series is None or route.series.matches(labels(view, route.metric))


def _every(directory: Directory, route: Route) -> Iterator[PolicyView]:
    for view in directory.policies(route.namespace):
        is_policy = route.resource == POLICIES
        if not is_policy and (view.target is None or view.target_resource != route.resource):
            continue
        if route.labels is None or route.labels.matches(view.labels if is_policy else view.target_labels):
            yield view


def _named(directory: Directory, route: Route) -> PolicyView:
    snapshot = directory.snapshot
    if route.resource == POLICIES:
        view = directory.policy(route.namespace, route.name)
        if view is None:
            raise _no_policy(route)
        return view
    key = snapshot.by_target.get(TargetKey(route.namespace, route.resource, route.name))
    target = snapshot.policies.get(key) if key else None
    if target is None:
        raise _unknown_target(directory, route)
    return target


def _no_policy(route: Route) -> StatusError:
    hint = f"`kubectl get watermarkpolicies -n {route.namespace}` lists those that exist"
    return not_found(
        f"there is no WatermarkPolicy {route.name} in namespace {route.namespace}; {hint}",
        kind=WATERMARK_POLICIES.plural,
        group=WATERMARK_POLICIES.group,
        name=route.name,
    )


def _unknown_target(directory: Directory, route: Route) -> StatusError:
    """What the policy of a target says that cannot be found; 503 too while some policy may yet turn out to be its."""
    views = [view for view in directory.policies(route.namespace) if view.target is None]
    for view in views:
        if view.target_name == route.name and view.problem is not None:
            return StatusError(*view.problem)
    for view in views:
        if view.problem is None:
            return not_assessed(view)
    return _no_target(route)


def _no_target(route: Route) -> StatusError:
    resource, _, group = route.resource.partition(".")
    return not_found(
        f"no WatermarkPolicy in namespace {route.namespace} scales {route.resource} {route.name}; "
        "a policy names an HPA, and the HPA its scaleTargetRef",
        kind=resource,
        group=group,
        name=route.name,
    )
