"""Values on pods: what makes the HPA's own sum over pods come out right.

Serving and doubtful pods have the value that was measured. Pulled-out ones stand at the very average T that the HPA
which asks aims at: its ceil((Σ live + P·T) / T) is then the pods needed plus the P that are out. Left out, they would
be taken for missing, and scale-up would stop. Starting, unready, terminating and finished pods, and pods without a
sample, are left out: the HPA's own conservative filling is right for them.
"""

from collections.abc import Iterable, Iterator
from fractions import Fraction

from adapter.apiserver.directory import Directory
from adapter.apiserver.policy_figures import EFFECTIVE, assessed, labels, measured, own_metric
from adapter.apiserver.routes import EVERY, Route
from adapter.apiserver.status import StatusError, not_found
from adapter.apiserver.wire import Described, Item, Value
from adapter.load.assessment import Assessment, MetricAssessment, PodAssessment
from adapter.load.effective_usage import MetricReader
from adapter.load.pods import Pod, PodState
from adapter.load.quantity import NANO, nano_text
from adapter.load.samples import Samples
from adapter.load.spec import Metric
from adapter.snapshot import Key, PolicyView

_OWN = frozenset({PodState.SERVING, PodState.DOUBTFUL})


def of_policies(directory: Directory, route: Route) -> list[Item] | None:
    """The pods' values of `effective_<metric>`; None where no policy of the namespace has that metric.

    Raises StatusError: 503 where the metric is in error, 404 where no pod that is asked for has a value.
    """
    if not route.metric.startswith(EFFECTIVE):
        return None
    items, _ = _of_views(directory, _views_with_pods(directory, route), route)
    if items:
        return list(items.values())
    # Nobody has one: what is wrong, or what there is, only a look at every policy says.
    views = [view for view in directory.policies(route.namespace) if _serves(view, route)]
    if not views:
        return None
    items, unknown = _of_views(directory, views, route)
    if not items:
        raise unknown or _nothing(route, views)
    return list(items.values())


def _views_with_pods(directory: Directory, route: Route) -> list[PolicyView]:
    """The policies with a pod that the route's labels select, by name; none where it asks by other means."""
    if route.name != EVERY or route.labels is None:
        return []
    snapshot = directory.snapshot
    owners = snapshot.by_pods.get(route.namespace)
    keys = sorted(owners.selected(route.labels)) if owners is not None else ()
    return [view for key in keys if (view := snapshot.policies.get(key)) is not None and _serves(view, route)]


def _of_views(
    directory: Directory, views: Iterable[PolicyView], route: Route
) -> tuple[dict[str, Item], StatusError | None]:
    """The items of all views by pod, and why a view had none. Raises StatusError 503 where a metric is in error."""
    items: dict[str, Item] = {}
    unknown: StatusError | None = None
    for view in views:
        try:
            assessment = assessed(view)
        except StatusError as error:  # nobody can say whether these pods were meant
            unknown = unknown or error
            continue
        for item in _items(directory, view, assessment, route):
            items.setdefault(item.described.name, item)
    return items, unknown


def described(pod: Pod) -> Described:
    """The pod, as the object a value is about."""
    return Described("Pod", pod.namespace, pod.name, "v1")


def wanted(pods: Iterable[Pod], route: Route) -> Iterator[Pod]:
    """The pods that the route's name and label selector mean."""
    for pod in pods:
        if is_wanted(pod, route):
            yield pod


def is_wanted(pod: Pod, route: Route) -> bool:
    """Whether the route's name and label selector mean this pod."""
    if route.name != EVERY:
        return pod.name == route.name
    return route.labels is None or route.labels.matches(pod.labels)


def _serves(view: PolicyView, route: Route) -> bool:
    if own_metric(view, route.metric) is None:
        return False
    return route.series is None or route.series.matches(labels(view, route.metric))


def _items(directory: Directory, view: PolicyView, assessment: Assessment, route: Route) -> Iterator[Item]:
    readings = [reading for reading in assessment.pods if is_wanted(reading.pod, route)]
    if not readings:
        return
    name = own_metric(view, route.metric) or ""
    found = measured(view, assessment, name)
    metric = next(own for own in view.policy.metrics if own.name == name)
    some_out = any(reading.state is PodState.PULLED_OUT for reading in readings)
    stand_in = _stand_in(directory, view, found, route.metric) if some_out else None
    for reading in readings:
        nano = stand_in if reading.state is PodState.PULLED_OUT else _own(metric, reading, assessment.at)
        if nano is not None:
            at = assessment.at if found.sampled_at is None else found.sampled_at
            value = Value(text=nano_text(nano), at=at, window=found.window)
            yield Item(described=described(reading.pod), metric=route.metric, value=value)


def _own(metric: Metric, reading: PodAssessment, now: float) -> Fraction | None:
    """The pod's own value in nano-units; of a utilization its usage of its own capacity, in nano-units of a ratio."""
    usage = reading.usage.get(metric.name) if reading.state in _OWN else None
    if usage is None or metric.of is None:
        return None if usage is None else Fraction(usage)
    capacity = MetricReader(metric, Samples(), now).sample(reading.pod).capacity
    return Fraction(usage * NANO, capacity) if capacity else None


def _stand_in(directory: Directory, view: PolicyView, found: MetricAssessment, metric: str) -> Fraction | None:
    """What a pulled-out pod is reported at: the target of the HPA that asks, else the effective average; nano-units."""
    snapshot = directory.snapshot
    key = Key(view.policy.namespace, view.policy.name)
    asking = [
        asked
        for asked in snapshot.pods_metric_targets.get(key.namespace, ())
        if asked.metric == metric and asked.target is not None and snapshot.by_target.get(asked.target) == key
    ]
    if not asking:
        return found.usage
    own = min(asking, key=lambda asked: (asked.hpa != view.policy.hpa, asked.hpa))
    return Fraction(own.average)


def _nothing(route: Route, views: Iterable[PolicyView]) -> StatusError:
    for view in views:
        found = assessed(view).metric(own_metric(view, route.metric) or "") if view.problem is None else None
        if found is not None and found.total:
            return not_found(
                f"{route.metric} is one number for the whole service, no pod has one of its own; "
                f"read it from WatermarkPolicy {view.policy.name}"
            )
    if route.name != EVERY:
        return not_found(f"pod {route.name} has no value of {route.metric}: no policy counts it, or it does not serve")
    chosen = f" that {str(route.labels)!r} selects" if route.labels else ""
    return not_found(f"no pod{chosen} in namespace {route.namespace} has a value of {route.metric}")
