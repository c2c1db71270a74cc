"""The decision on a document as JSON data, by the server's pipeline: `assess`, then `decide`."""

from typing import Any

from adapter.commands.decide.reader import DecisionCase
from adapter.load.assess import assess
from adapter.load.assessment import Assessment, Decision, MetricAssessment, Outcome
from adapter.load.decide import decide
from adapter.load.explanation import explain
from adapter.load.quantity import milli_text, nano_text
from adapter.policy import status_memory


def decided(case: DecisionCase) -> tuple[Assessment, Decision]:
    """The assessment and the decision, as the server makes them."""
    assessment = assess(case.inputs)
    return assessment, decide(assessment, case.scale, case.inputs.bounds, case.now)


def decision_json(case: DecisionCase) -> dict[str, Any]:
    """The decision with its reasons as JSON data. `desiredReplicas` and `served` are null where `error` is set."""
    assessment, decision = decided(case)
    outcomes = {outcome.metric.name: outcome for outcome in decision.outcomes}
    return {
        "desiredReplicas": decision.desired,
        "served": None if decision.served is None else milli_text(decision.served),
        "error": decision.error,
        "verdict": decision.verdict.value,
        "heldBy": decision.held_by.value if decision.held_by else None,
        "current": decision.current,
        "lowerBound": decision.lower_bound,
        "upperBound": decision.upper_bound,
        "pods": [
            {
                "name": reading.pod.name,
                "state": reading.state.value,
                "reason": reading.reason,
                "evidence": reading.evidence or None,
                "usage": {name: nano_text(value) for name, value in reading.usage.items()},
                **({"missing": dict(reading.missing)} if reading.missing else {}),
            }
            for reading in assessment.with_usage(assessment.pods)
        ],
        "counts": {state.value: count for state, count in assessment.counts.items() if count},
        "metrics": [_metric(metric, outcomes.get(metric.name)) for metric in assessment.metrics],
        "conditions": dict(assessment.conditions),
        "explanation": list(explain(assessment, decision, case.inputs.bounds, case.now)),
        "memory": status_memory.to_status(assessment.memory),
    }


def _metric(metric: MetricAssessment, outcome: Outcome | None) -> dict[str, Any]:
    values = {
        "usage": metric.usage,
        "raw": metric.raw,
        "high": metric.high,
        "low": metric.low,
        "target": metric.target,
    }
    return {
        "name": metric.name,
        "n": metric.n,
        "missing": metric.missing,
        **{name: None if value is None else nano_text(value) for name, value in values.items()},
        "windowSeconds": metric.window,
        "verdict": outcome.verdict.value if outcome else "Error",
        "lowerBound": outcome.lower_bound if outcome else None,
        "upperBound": outcome.upper_bound if outcome else None,
        "proposal": outcome.proposal if outcome else None,
        "replaced": outcome.replaced if outcome else 0,
        "error": metric.error,
    }
