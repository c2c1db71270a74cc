"""A decision with its reasons as JSON data: the answer of the server, of `explain` and of `decide`."""

from collections.abc import Mapping
from typing import Any

from adapter.load.assessment import Assessment, Decision, MetricAssessment, Outcome
from adapter.load.explanation import explain
from adapter.load.pod_samples import PodSample
from adapter.load.pods import PodAssessment
from adapter.load.quantity import milli_text, nano_text
from adapter.load.spec import Bounds
from adapter.policy import status_memory
from adapter.runtime.times import format_time


def decision_json(assessment: Assessment, decision: Decision, bounds: Bounds, now: float) -> dict[str, Any]:
    """The decision at `now` (seconds). `desiredReplicas` and `served` are null where `error` is set."""
    outcomes = {outcome.metric.name: outcome for outcome in decision.outcomes}
    explanation = list(explain(assessment, decision, bounds, now))
    if decision.current == 0 and bounds.minimum > 0:
        explanation.append(
            f"the target was scaled to 0 by hand: an HPA with minReplicas {bounds.minimum} rests there until somebody "
            "scales it to 1 or more"
        )
    samples: dict[str, dict[str, PodSample]] = {}
    for metric in assessment.metrics:
        for sample in metric.samples:
            samples.setdefault(sample.pod.uid, {})[metric.name] = sample
    return {
        "desiredReplicas": decision.desired,
        "served": None if decision.served is None else milli_text(decision.served),
        "error": decision.error,
        "verdict": decision.verdict.value,
        "heldBy": decision.held_by.value if decision.held_by else None,
        "current": decision.current,
        "lowerBound": decision.lower_bound,
        "upperBound": decision.upper_bound,
        "pods": [_pod(each, samples) for each in assessment.pods],
        "counts": {state.value: count for state, count in assessment.counts.items() if count},
        "metrics": [_metric(metric, outcomes.get(metric.name)) for metric in assessment.metrics],
        "conditions": dict(assessment.conditions),
        "explanation": explanation,
        "memory": status_memory.to_status(assessment.memory),
    }


def _pod(assessed: PodAssessment, samples: Mapping[str, Mapping[str, PodSample]]) -> dict[str, Any]:
    by_metric = samples.get(assessed.pod.uid, {})
    missing = {name: sample.missing for name, sample in by_metric.items() if sample.usage is None}
    used = {name: nano_text(sample.usage) for name, sample in by_metric.items() if sample.usage is not None}
    return {
        "name": assessed.pod.name,
        "state": assessed.state.value,
        "reason": assessed.reason,
        "evidence": assessed.evidence or None,
        "usage": used,
        **({"missing": missing} if missing else {}),
    }


def _metric(metric: MetricAssessment, outcome: Outcome | None) -> dict[str, Any]:
    values = {name: getattr(metric, name) for name in ("usage", "raw", "high", "low", "target")}
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
        "staleAt": None if metric.stale_at is None else format_time(metric.stale_at),
        "error": metric.error,
    }
