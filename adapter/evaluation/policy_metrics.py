"""The values of the metrics of each policy."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from fractions import Fraction

from adapter.load.assessment import Assessment, MetricAssessment
from adapter.load.decide import decide
from adapter.load.pods import PodState
from adapter.load.quantity import NANO
from adapter.load.spec import Policy
from adapter.policy.conditions import FOUND, TROUBLE_WHILE_TRUE, ConditionType
from adapter.policy.conformance import Wiring, flaws
from adapter.snapshot import Snapshot
from adapter.telemetry.series import MetricRow, PolicyRow


def policy_rows(
    snapshot: Snapshot, now: float, wiring: Callable[[Policy], Wiring | None] = lambda _: None
) -> Iterator[PolicyRow]:
    """The metric values of each policy, by its watched scale. `now` is the time in epoch seconds.

    `wiring` gives a policy with its HPA; None where there is no HPA.
    """
    for view in snapshot.policies.values():
        conditions: dict[str, bool] = {}
        if (linked := wiring(view.policy)) is not None:
            conditions[ConditionType.HPA_CONFORMANT.value] = not any(flaws(linked))
            # The HPA's own, where that depends on the policy.
            if linked.hpa.depends_on(view.policy.name) and linked.hpa.scaling_active is not None:
                conditions["ScalingActive"] = not linked.hpa.inactive
        row = PolicyRow(
            namespace=view.policy.namespace,
            policy=view.policy.name,
            current=None if view.scale is None else view.scale.replicas,
            minimum=None if view.bounds is None else view.bounds.minimum,
            maximum=None if view.bounds is None else view.bounds.maximum,
            mode=view.policy.mode_at(now) if view.policy.metrics else "",
            conditions=conditions,
        )
        if view.problem is not None or view.assessment is None or view.scale is None or view.bounds is None:
            yield replace(row, error=view.problem.reason if view.problem else "NotAssessed")
            continue
        assessment = view.assessment
        decision = decide(assessment, view.scale, view.bounds, now)
        yield replace(
            row,
            metrics=tuple(_metric(metric, now) for metric in assessment.metrics),
            desired=decision.desired,
            lower=decision.lower_bound,
            upper=decision.upper_bound,
            suppressed=None if view.bounds.tolerance is None else decision.suppressed,
            decision_age=max(0.0, now - assessment.at),
            verdict=decision.verdict.value,
            held_by=decision.held_by.value if decision.held_by else "",
            error=view.reason_of_error if decision.error else "",
            pods={state.value: assessment.counts.get(state, 0) for state in PodState},
            conditions={**conditions, **_conditions(assessment)},
        )


def _conditions(assessment: Assessment) -> dict[str, bool]:
    """Whether each condition that an assessment finds is true, by its type; none of what the policy does not have."""
    lacking = set()
    if assessment.policy.registry is None:
        lacking.add(ConditionType.REGISTRY_DATA_VALID)
    if not any(metric.floor for metric in assessment.metrics):
        lacking.add(ConditionType.FLOOR_MISSING)
    return {
        type_.value: (type_ in assessment.conditions) is (type_ in TROUBLE_WHILE_TRUE)
        for type_ in FOUND
        if type_ not in lacking
    }


def _metric(metric: MetricAssessment, now: float) -> MetricRow:
    return MetricRow(
        name=metric.name,
        effective=_units(metric.usage),
        raw=_units(metric.raw),
        high=_units(metric.high),
        low=_units(metric.low),
        target=_units(metric.metric.target),
        missing=metric.missing,
        sample_age=None if metric.sampled_at is None else max(0.0, now - metric.sampled_at),
    )


def _units(nano: Fraction | None) -> float | None:
    return None if nano is None else float(nano / NANO)
