"""The values of the metrics of each policy."""

from collections.abc import Iterator
from fractions import Fraction

from adapter.load.assessment import MetricAssessment
from adapter.load.conditions import Reason
from adapter.load.pipeline import decide
from adapter.load.pods import PodState
from adapter.load.quantity import NANO
from adapter.snapshot import PolicyView, Snapshot
from adapter.telemetry.rows import MetricRow, PolicyRow


def policy_rows(snapshot: Snapshot, now: float) -> Iterator[PolicyRow]:
    """The metric values of each policy, by its watched scale. `now` is the API server's clock (seconds)."""
    return (_row(view, now) for view in snapshot.policies.values())


def _row(view: PolicyView, now: float) -> PolicyRow:
    namespace, policy = view.policy.namespace, view.policy.name
    current = None if view.scale is None else float(view.scale.replicas)
    mode = view.policy.stance(now).value if view.policy.metrics else ""
    if view.problem is not None or view.assessment is None or view.scale is None or view.bounds is None:
        reason = view.problem.reason if view.problem else Reason.NOT_ASSESSED
        return PolicyRow(namespace=namespace, policy=policy, current=current, mode=mode, error=reason)
    assessment = view.assessment
    decision = decide(assessment, view.scale, view.bounds, now)
    return PolicyRow(
        namespace=namespace,
        policy=policy,
        metrics=tuple(_metric(metric) for metric in assessment.metrics),
        desired=None if decision.desired is None else float(decision.desired),
        current=current,
        swallowed=None if view.bounds.tolerance is None else float(decision.swallowed),
        decision_age=max(0.0, now - assessment.at),
        mode=mode,
        verdict=decision.verdict.value,
        held_by=decision.held_by.value if decision.held_by else "",
        error=Reason.NO_DECISION if decision.error else "",
        pods={state.value: float(assessment.counts.get(state, 0)) for state in PodState},
        conditions=dict.fromkeys(assessment.conditions, True),
    )


def _metric(metric: MetricAssessment) -> MetricRow:
    return MetricRow(
        name=metric.name,
        effective=_units(metric.usage),
        raw=_units(metric.raw),
        high=_units(metric.high),
        low=_units(metric.low),
        target=_units(metric.target),
        missing=metric.missing,
    )


def _units(nano: Fraction | None) -> float | None:
    return None if nano is None else float(nano / NANO)
