"""The metrics of policies: which policies a request is about, their labels and values, or the error instead of one."""

from collections.abc import Iterable
from itertools import islice

from adapter.apiserver.discovery import COMMON_METRICS, EFFECTIVE_PREFIX, POD_COUNTS, RAW_PREFIX
from adapter.apiserver.request_info import ALL_OBJECTS, POLICIES_RESOURCE, RequestInfo
from adapter.apiserver.status import StatusError, bad_request, not_found, unavailable
from adapter.apiserver.wire import Row, Value, described, in_slices
from adapter.kube.api import WATERMARK_POLICIES
from adapter.kube.selectors import LabelSelector
from adapter.load.assessment import Assessment, Decision, MetricAssessment
from adapter.load.quantity import milli_text, nano_text
from adapter.policy.hpa import DESIRED_REPLICAS
from adapter.policy.watermark_policy import API_VERSION, KIND
from adapter.snapshot import PolicyView, SnapshotIndex, TargetKey

_MAX_LISTED, _MAX_LISTED_METRICS = 5, 40


def require_assessment(view: PolicyView) -> Assessment:
    """The policy's assessment. Raises StatusError with the policy's problem, or 503 before the first assessment."""
    if view.problem is not None:
        raise StatusError(view.problem.code, view.problem.message, reason=view.problem.reason)
    if view.assessment is None:
        raise unavailable(f"{name_of(view)} has not been assessed yet")
    return view.assessment


def require_metric(view: PolicyView, name: str) -> MetricAssessment:
    """The assessment of one metric. Raises StatusError 503 if it is in error or missing."""
    metric_assessment = require_assessment(view).metric(name)
    if metric_assessment is None:
        raise unavailable(f"metric {name} of {name_of(view)} has not been assessed yet")
    if metric_assessment.error is not None:
        raise unavailable(f"metric {name} of {name_of(view)}: {metric_assessment.error}")
    return metric_assessment


def base_metric(view: PolicyView, metric: str) -> str | None:
    """The `<name>` in `effective_<name>` or `raw_<name>` if the policy's spec has a metric of that name, else None."""
    names = (own_metric.name for own_metric in view.policy.metrics)
    return next((name for name in names if metric in {EFFECTIVE_PREFIX + name, RAW_PREFIX + name}), None)


def metric_names(view: PolicyView) -> tuple[str, ...]:
    """All metrics of the policy."""
    names = (prefix + metric.name for metric in view.policy.metrics for prefix in (EFFECTIVE_PREFIX, RAW_PREFIX))
    return (*COMMON_METRICS, *names)


def series_labels(view: PolicyView, metric: str) -> dict[str, str]:
    """The labels of the metric's one series: `policy`, and `metric` for `effective_<name>` and `raw_<name>`."""
    name = None if metric in COMMON_METRICS else base_metric(view, metric)
    return {"policy": view.policy.name} if name is None else {"policy": view.policy.name, "metric": name}


def metric_value(view: PolicyView, metric: str) -> Value:
    """The value of a metric other than `desired_replicas`.

    Raises StatusError: 404 for a metric that the policy does not have, 503 with the cause if it has no value.
    """
    if metric in POD_COUNTS:
        assessment = require_assessment(view)
        return Value(milli_text(1000 * assessment.counts.get(POD_COUNTS[metric], 0)), assessment.at)
    name = base_metric(view, metric)
    if name is None:
        raise not_found(f"{name_of(view)} has no metric {metric}; it has {', '.join(metric_names(view))}", name=metric)
    found = require_metric(view, name)
    usage = found.raw if metric.startswith(RAW_PREFIX) else found.usage
    if usage is None:
        raise unavailable(f"metric {name} of {name_of(view)}: no serving pod has a sample")
    return Value(nano_text(usage), sampled_at(view, found), found.window)


def desired_replicas(view: PolicyView, decision: Decision, *, names_policy: bool) -> Value:
    """The served value of `desired_replicas`. Raises StatusError 503 with the decision's error if it has none.

    `names_policy`: the request names the policy, so the message omits it.
    """
    if decision.served is None:
        sentence = decision.error or "no decision"
        raise unavailable(sentence if names_policy else f"{name_of(view)}: {sentence}")
    return Value(milli_text(decision.served), sampled_at(view, require_assessment(view)))


def sampled_at(view: PolicyView, found: MetricAssessment | Assessment) -> float:
    """The time of the oldest sample in a value, else that of the assessment."""
    return require_assessment(view).at if found.sampled_at is None else found.sampled_at


def name_of(view: PolicyView) -> str:
    """The policy in a sentence."""
    return f"WatermarkPolicy {view.policy.namespace}/{view.policy.name}"


def described_object(view: PolicyView, request: RequestInfo) -> Row:
    """The object that the answer describes."""
    policy, target = view.policy, view.target
    if request.resource == POLICIES_RESOURCE:
        return described(KIND, policy.namespace, policy.name, API_VERSION)
    if target is None:  # it was deleted; only the request still has its name
        return described("", policy.namespace, request.name, "")
    return described(target.kind, policy.namespace, target.name, target.api_version)


async def of_objects(index: SnapshotIndex, request: RequestInfo) -> list[PolicyView]:
    """The policies of the requested objects: exactly one for a name, any number for `*`.

    Raises StatusError 404 if the named object has no policy, or metricLabelSelector does not select the series.
    """
    if not request.namespace or request.resource == "metrics":
        raise not_found(f"{request.resource} have no metrics here; policies, their scale targets and pods have")
    metric = request.metric
    if request.name == ALL_OBJECTS:
        views = index.policies(request.namespace)
        return await in_slices(view if _is_listed(view, request) else None for view in views)
    view = index.policy(request.namespace, request.name)
    if request.resource != POLICIES_RESOURCE:
        key = index.snapshot.by_target.get(TargetKey(request.namespace, request.resource, request.name))
        view = index.snapshot.policies.get(key) if key else None
    if view is None:
        raise _unknown_object(index, request)
    if metric in metric_names(view) and not is_selected(view, metric, request.series):
        labels = ", ".join(f"{key}={value}" for key, value in series_labels(view, metric).items())
        raise not_found(f"metricLabelSelector {request.series} does not select {metric} of {request.name} ({labels})")
    return [view]


def is_selected(view: PolicyView, metric: str, selector: LabelSelector | None) -> bool:
    """Whether the selector selects the metric's one series."""
    return selector is None or selector.matches(series_labels(view, metric))


def _is_listed(view: PolicyView, request: RequestInfo) -> bool:
    is_policy = request.resource == POLICIES_RESOURCE
    if not is_policy and (view.target is None or view.target_resource != request.resource):
        return False
    if request.labels is not None and not request.labels.matches(view.labels if is_policy else view.target_labels):
        return False
    return request.metric in metric_names(view) and is_selected(view, request.metric, request.series)


async def of_series(index: SnapshotIndex, request: RequestInfo) -> list[PolicyView]:
    """The policies whose External series of this metric the selector selects.

    Raises StatusError 404 if none is selected. `desired_replicas` has to select one policy, because the HPA sums the
    series that it gets: 400 if several are.
    """
    metric, named = request.metric, request.labels.value("policy") if request.labels else None
    every = index.policies(request.namespace)
    candidates: Iterable[PolicyView | None] = every if named is None else (index.policy(request.namespace, named),)
    views = await in_slices(
        view if view and metric in metric_names(view) and is_selected(view, metric, request.labels) else None
        for view in candidates
    )
    if not views:
        raise _no_series(index, request)
    if metric == DESIRED_REPLICAS and len(views) > 1:
        names = ", ".join(view.policy.name for view in views[:_MAX_LISTED])
        ellipsis = ", …" if len(views) > _MAX_LISTED else ""
        raise bad_request(
            f"{len(views)} policies are selected ({names}{ellipsis}), and the HPA would add up "
            f"their {metric}; select one: matchLabels: {{policy: NAME}}"
        )
    return views


def _no_series(index: SnapshotIndex, request: RequestInfo) -> StatusError:
    """404 that says how to select, or lists the metrics of the namespace for a name that nothing has."""
    where, views = f"in namespace {request.namespace}", index.policies(request.namespace)
    if request.metric != DESIRED_REPLICAS and not any(request.metric in metric_names(view) for view in views):
        known = known_metrics([*index.snapshot.queries, *(name for view in views for name in metric_names(view))])
        return not_found(f"no external metric {request.metric} {where}; {known}", name=request.metric)
    cause = f"{str(request.labels)!r} selects no WatermarkPolicy" if request.labels else "there is no WatermarkPolicy"
    return not_found(
        f"{cause} {where}; select one by its name: matchLabels: {{policy: NAME}}",
        kind=WATERMARK_POLICIES.plural,
        group=WATERMARK_POLICIES.group,
    )


def known_metrics(names: Iterable[str]) -> str:
    """The names in a sentence, a few of many: a tenant may have ten thousand, and ask for another one all the time."""
    first = sorted(set(islice(names, 10 * _MAX_LISTED_METRICS)))
    ellipsis = ", …" if len(first) > _MAX_LISTED_METRICS else ""
    listed = ", ".join(first[:_MAX_LISTED_METRICS])
    return f"there are {listed}{ellipsis}" if first else "no policy and no query is here"


def _unknown_object(index: SnapshotIndex, request: RequestInfo) -> StatusError:
    """404 for a policy, or for a target that none has.

    Before that the problem of the policy that names the target, and 503 while a policy without known target may be its.
    """
    where = f"in namespace {request.namespace}"
    if request.resource == POLICIES_RESOURCE:
        hint = f"`kubectl get watermarkpolicies -n {request.namespace}` lists those that exist"
        message = f"there is no WatermarkPolicy {request.name} {where}; {hint}"
        resource, group = WATERMARK_POLICIES.plural, WATERMARK_POLICIES.group
    else:
        lost = [view for view in index.policies(request.namespace) if view.target is None]
        mine = [view for view in lost if view.problem is not None and view.target_name == request.name]
        for view in mine or [view for view in lost if view.problem is None]:
            require_assessment(view)
        message = (
            f"no WatermarkPolicy {where} scales {request.resource} {request.name}; "
            "a policy names an HPA, and the HPA its scaleTargetRef"
        )
        resource, _, group = request.resource.partition(".")
    return not_found(message, kind=resource, group=group, name=request.name)
