"""The metrics of policies: which policies a request is about, their labels and values, or the error instead of one."""

from adapter.apiserver.discovery import COMMON_METRICS, EFFECTIVE_PREFIX, POD_COUNTS, RAW_PREFIX
from adapter.apiserver.request_info import POLICIES_RESOURCE, RequestInfo
from adapter.apiserver.status import StatusError, bad_request, not_found, unavailable
from adapter.apiserver.wire import Row, Value, described, in_slices, selected_by
from adapter.kube.selectors import LabelSelector
from adapter.load.assessment import Assessment, MetricAssessment
from adapter.load.quantity import milli_text, nano_text
from adapter.policy.hpa import DESIRED_REPLICAS
from adapter.policy.watermark_policy import API_VERSION, KIND
from adapter.runtime.faults import first_names
from adapter.snapshot import Key, PolicyView, Snapshot, TargetKey

_MAX_LISTED = 5


def name_of(view: PolicyView) -> str:
    """The policy in a sentence."""
    return f"WatermarkPolicy {view.policy.namespace}/{view.policy.name}"


def require_assessment(view: PolicyView) -> Assessment:
    """The policy's assessment. Raises StatusError with the policy's problem, or 503 before the first assessment."""
    if view.problem is not None:
        raise StatusError(view.problem.code, view.problem.message, reason=view.problem.reason)
    if view.assessment is None:
        raise unavailable(f"{name_of(view)} has not been assessed yet")
    return view.assessment


def require_metric(view: PolicyView, name: str) -> MetricAssessment:
    """The assessment of one metric. Raises StatusError 503 if it is in error or missing."""
    found = next((one for one in require_assessment(view).metrics if one.name == name), None)
    if found is None or found.error is not None:
        fault = "not assessed yet" if found is None else found.error
        raise unavailable(f"metric {name} of {name_of(view)}: {fault}")
    return found


def series_labels(view: PolicyView, metric: str) -> dict[str, str] | None:
    """The labels of the metric's one series, with its `metric` unless all policies have it; None if there is none."""
    if metric in COMMON_METRICS:
        return {"policy": view.policy.name}
    names = (
        each.name for each in view.policy.metrics if metric in {EFFECTIVE_PREFIX + each.name, RAW_PREFIX + each.name}
    )
    return next(({"policy": view.policy.name, "metric": name} for name in names), None)


def is_selected(view: PolicyView, metric: str, selector: LabelSelector | None) -> bool:
    """Whether the policy has the metric, and the selector selects its one series."""
    labels = series_labels(view, metric)
    return labels is not None and (selector is None or selector.matches(labels))


def metric_value(view: PolicyView, metric: str) -> Value:
    """The value of a metric other than `desired_replicas`.

    Raises StatusError: 404 for a metric that the policy does not have, 503 with the cause if it has no value.
    """
    if metric in POD_COUNTS:
        assessment = require_assessment(view)
        return Value(milli_text(1000 * assessment.counts.get(POD_COUNTS[metric], 0)), assessment.at)
    labels = series_labels(view, metric)
    if labels is None:
        prefixed = (prefix + each.name for each in view.policy.metrics for prefix in (EFFECTIVE_PREFIX, RAW_PREFIX))
        known = ", ".join((*COMMON_METRICS, *prefixed))
        raise not_found(f"{name_of(view)} has no metric {metric}; it has {known}", name=metric)
    found = require_metric(view, labels["metric"])
    usage = found.raw if metric.startswith(RAW_PREFIX) else found.usage
    if usage is None:
        raise unavailable(f"metric {labels['metric']} of {name_of(view)}: no serving pod has a sample")
    return Value(nano_text(usage), sampled_at(view, found), found.window)


def sampled_at(view: PolicyView, found: MetricAssessment | Assessment) -> float:
    """The time of the oldest sample in a value, else that of the assessment."""
    return require_assessment(view).at if found.sampled_at is None else found.sampled_at


def described_object(view: PolicyView, request: RequestInfo) -> Row:
    """The object that the answer describes."""
    policy, target = view.policy, view.target
    if request.resource == POLICIES_RESOURCE:
        return described(KIND, policy.namespace, policy.name, API_VERSION)
    assert target is not None  # it was found by its target
    return described(target.kind, policy.namespace, target.name, target.api_version)


def of_object(snapshot: Snapshot, request: RequestInfo) -> PolicyView:
    """The policy of the requested object. HPAs name it; of pods alone all (`*`) can be asked for.

    Raises StatusError 404 if the object has no policy, or metricLabelSelector does not select the series.
    """
    if not request.namespace or request.resource == "metrics":
        raise not_found(f"{request.resource} have no metrics here; policies, their scale targets and pods have")
    key: Key | None = Key(request.namespace, request.name)
    if request.resource != POLICIES_RESOURCE:
        key = snapshot.by_target.get(TargetKey(request.namespace, request.resource, request.name))
    view = snapshot.policies.get(key) if key is not None else None
    if view is None:
        raise _unknown_object(snapshot, request)
    if series_labels(view, request.metric) and not is_selected(view, request.metric, request.series):
        raise not_found(f"metricLabelSelector {request.series} does not select {request.metric} of {request.name}")
    return view


def _unknown_object(snapshot: Snapshot, request: RequestInfo) -> StatusError:
    """404 for a policy, or for a target that none has.

    Before that the problem of the policy that names the target, and 503 while a policy without known target may be its.
    """
    resource, _, group = request.resource.partition(".")
    message = f"there is no WatermarkPolicy {request.name} in namespace {request.namespace}"
    if request.resource != POLICIES_RESOURCE:
        lost = [view for view in snapshot.policies_in(request.namespace) if view.target is None]
        mine = [view for view in lost if view.problem is not None and view.target_name == request.name]
        for view in mine or [view for view in lost if view.problem is None]:
            require_assessment(view)
        message = f"no WatermarkPolicy in namespace {request.namespace} scales {request.resource} {request.name}"
    hint = (
        f"`kubectl get watermarkpolicies -n {request.namespace}` lists those that exist, with the HPA that each names"
    )
    return not_found(f"{message}; {hint}", kind=resource, group=group, name=request.name)


async def of_series(snapshot: Snapshot, request: RequestInfo) -> list[PolicyView]:
    """The policies whose External series of this metric the selector selects.

    Raises StatusError 404 if none is selected. `desired_replicas` has to select one policy, because the HPA sums the
    series that it gets: 400 if several are.
    """
    every = snapshot.policies_in(request.namespace)
    chosen = (view if is_selected(view, request.metric, request.labels) else None for view in every)
    views = await in_slices(chosen)
    how = "select one by its name: matchLabels: {policy: NAME}"
    if not views:
        asked = f"an external metric {request.metric}{selected_by(request.labels)}"
        message = f"no WatermarkPolicy in namespace {request.namespace} has {asked}; {how}"
        raise not_found(message, name=request.metric)
    if request.metric == DESIRED_REPLICAS and len(views) > 1:
        names = first_names([view.policy.name for view in views], _MAX_LISTED)
        message = f"{len(views)} policies are selected ({names}), and the HPA would add up their {request.metric}"
        raise bad_request(f"{message}; {how}")
    return views
