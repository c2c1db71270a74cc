"""The values of the metrics of each policy."""

from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction

from adapter.load.assessment import Assessment, MetricAssessment
from adapter.load.conditions import TRUE_IS_TROUBLE, ConditionType, Reason
from adapter.load.pipeline import decide
from adapter.load.pods import PodState
from adapter.load.quantity import NANO
from adapter.snapshot import PolicyView, Snapshot
from adapter.telemetry.rows import MetricRow, PolicyRow


def policy_rows(snapshot: Snapshot, now: float) -> Iterator[PolicyRow]:
    """The metric values of each policy, by its watched scale. `now` is the API server's clock (seconds)."""
    return (_row(view, now) for view in snapshot.policies.values())


def _row(view: PolicyView, now: float) -> PolicyRow:
    known = PolicyRow(
        namespace=view.policy.namespace,
        policy=view.policy.name,
        current=None if view.scale is None else float(view.scale.replicas),
        minimum=None if view.bounds is None else float(view.bounds.minimum),
        maximum=None if view.bounds is None else float(view.bounds.maximum),
        mode=view.policy.stance(now).value if view.policy.metrics else "",
    )
    if view.problem is not None or view.assessment is None or view.scale is None or view.bounds is None:
        return replace(known, error=view.problem.reason if view.problem else Reason.NOT_ASSESSED)
    assessment = view.assessment
    decision = decide(assessment, view.scale, view.bounds, now)
    return replace(
        known,
        metrics=tuple(_metric(metric, now) for metric in assessment.metrics),
        desired=None if decision.desired is None else float(decision.desired),
        swallowed=None if view.bounds.tolerance is None else float(decision.swallowed),
        decision_age=max(0.0, now - assessment.at),
        verdict=decision.verdict.value,
        held_by=decision.held_by.value if decision.held_by else "",
        error=Reason.NO_DECISION if decision.error else "",
        pods={state.value: float(assessment.counts.get(state, 0)) for state in PodState},
        conditions=_conditions(assessment),
    )


def _conditions(assessment: Assessment) -> dict[str, bool]:
    """Whether each condition that an assessment knows of is true, by its type."""
    known = [ConditionType.INPUTS_FRESH, ConditionType.REPLACEMENT_INEFFECTIVE, ConditionType.UNDERSIZED_BY_UNREADY]
    if assessment.policy.registry is not None:
        known.append(ConditionType.REGISTRY_TRUSTED)
    if assessment.has_floors:
        known.append(ConditionType.FLOOR_MISSING)
    return {kind.value: (kind in assessment.conditions) is (kind in TRUE_IS_TROUBLE) for kind in known}


def _metric(metric: MetricAssessment, now: float) -> MetricRow:
    return MetricRow(
        name=metric.name,
        effective=_units(metric.usage),
        raw=_units(metric.raw),
        high=_units(metric.high),
        low=_units(metric.low),
        target=_units(metric.target),
        missing=metric.missing,
        sample_age=None if metric.sampled_at is None else max(0.0, now - metric.sampled_at),
    )


def _units(nano: Fraction | None) -> float | None:
    return None if nano is None else float(nano / NANO)
