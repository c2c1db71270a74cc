"""The metrics of one policy: names, labels, current values, or the error instead of a value."""

from collections.abc import Callable, Mapping, Sequence

from adapter.apiserver.status import StatusError, not_found, unavailable
from adapter.apiserver.wire import Value
from adapter.load.assessment import Assessment, Decision, MetricAssessment
from adapter.load.pods import PodState
from adapter.load.quantity import milli_text, nano_text
from adapter.policy.hpa import DESIRED_REPLICAS
from adapter.runtime.concurrency import Slices
from adapter.snapshot import PolicyView

EFFECTIVE_PREFIX = "effective_"
RAW_PREFIX = "raw_"
POD_COUNTS: Mapping[str, PodState] = {
    "effective_pods": PodState.SERVING,
    "pulled_out_pods": PodState.PULLED_OUT,
}
COMMON_METRICS = (DESIRED_REPLICAS, *POD_COUNTS)
"""Metrics that every policy has."""


_RUN = 32
"""Policies that are looked at in one step."""


async def selected(views: Sequence[PolicyView], is_selected: Callable[[PolicyView], bool]) -> tuple[PolicyView, ...]:
    """Those of a namespace's policies that are selected, of which there may be thousands: many are read in slices."""
    found, slices = list[PolicyView](), Slices()
    for begin in range(0, len(views), _RUN):
        if begin:
            await slices.breathe()
        found += filter(is_selected, views[begin : begin + _RUN])
    return tuple(found)


def require_assessment(view: PolicyView) -> Assessment:
    """The policy's assessment. Raises StatusError with the policy's problem, or 503 before the first assessment."""
    if view.problem is not None:
        raise StatusError(view.problem.code, view.problem.message, reason=view.problem.reason)
    if view.assessment is None:
        raise not_assessed(view)
    return view.assessment


def not_assessed(view: PolicyView) -> StatusError:
    """503 for a policy that has not been assessed yet."""
    return unavailable(f"{_name(view)} has not been assessed yet")


def metric_names(view: PolicyView) -> tuple[str, ...]:
    """All metrics of the policy."""
    names = (prefix + metric.name for metric in view.policy.metrics for prefix in (EFFECTIVE_PREFIX, RAW_PREFIX))
    return (*COMMON_METRICS, *names)


def has_metric(view: PolicyView, metric: str) -> bool:
    """Whether the policy has this metric."""
    return metric in COMMON_METRICS or base_metric(view, metric) is not None


def base_metric(view: PolicyView, metric: str) -> str | None:
    """The `<name>` in `effective_<name>` or `raw_<name>` if the policy's spec has a metric of that name, else None."""
    if metric in COMMON_METRICS:
        return None
    names = (own_metric.name for own_metric in view.policy.metrics)
    return next((name for name in names if metric in {EFFECTIVE_PREFIX + name, RAW_PREFIX + name}), None)


def series_labels(view: PolicyView, metric: str) -> dict[str, str]:
    """The labels of the metric's one series: `policy`, and `metric` for `effective_<name>` and `raw_<name>`."""
    name = base_metric(view, metric)
    return {"policy": view.policy.name} if name is None else {"policy": view.policy.name, "metric": name}


def metric_value(view: PolicyView, metric: str) -> Value:
    """The value of a metric other than `desired_replicas`.

    Raises StatusError: 404 for a metric that the policy does not have, 503 with the cause if it has no value.
    """
    name = base_metric(view, metric)
    if name is None and metric not in POD_COUNTS:
        raise not_found(f"{_name(view)} has no metric {metric}; it has {', '.join(metric_names(view))}", name=metric)
    assessment = require_assessment(view)
    if name is None:
        return Value(text=milli_text(1000 * assessment.counts.get(POD_COUNTS[metric], 0)), at=assessment.at)
    metric_assessment = require_metric(view, assessment, name)
    usage = metric_assessment.raw if metric.startswith(RAW_PREFIX) else metric_assessment.usage
    if usage is None:
        raise unavailable(f"metric {metric_assessment.name} of {_name(view)}: no serving pod has a sample")
    at = assessment.at if metric_assessment.sampled_at is None else metric_assessment.sampled_at
    return Value(text=nano_text(usage), at=at, window=metric_assessment.window)


def require_metric(view: PolicyView, assessment: Assessment, name: str) -> MetricAssessment:
    """The assessment of one metric. Raises StatusError 503 if it is in error or missing."""
    metric_assessment = assessment.metric(name)
    if metric_assessment is None:
        raise unavailable(f"metric {name} of {_name(view)} has not been assessed yet")
    if metric_assessment.error is not None:
        raise unavailable(f"metric {name} of {_name(view)}: {metric_assessment.error}")
    return metric_assessment


def desired_replicas(view: PolicyView, decision: Decision, *, names_policy: bool = False) -> Value:
    """The served value of `desired_replicas`. Raises StatusError 503 with the decision's error if it has none.

    `names_policy`: the request names the policy, so the message omits it.
    """
    assessment = require_assessment(view)
    if decision.served is None:
        sentence = decision.error or "no decision"
        raise unavailable(sentence if names_policy else f"{_name(view)}: {sentence}")
    at = assessment.at if assessment.sampled_at is None else assessment.sampled_at
    return Value(text=milli_text(decision.served), at=at)


def _name(view: PolicyView) -> str:
    return f"WatermarkPolicy {view.policy.namespace}/{view.policy.name}"
