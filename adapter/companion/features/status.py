"""A policy's status: the assessment, the decision and the conditions, for users and for the next leader."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from adapter.companion.actions import ActionResult, WriteStatus
from adapter.companion.features.notifications import notified_topics
from adapter.companion.features.readiness import problem_text
from adapter.companion.state import Context, State, WrittenStatus
from adapter.load.assessment import MetricAssessment, Outcome
from adapter.load.explanation import headline, is_utilization, value_text
from adapter.load.pods import PodState
from adapter.load.spec import Policy
from adapter.policy import status_memory
from adapter.policy.conditions import ConditionType
from adapter.runtime.times import format_micro_time

REFRESH_SECONDS = 120.0
"""An unchanged status is written again after this time, for its times and its memory."""
LONGEST_SENTENCE = 1024
LONGEST_MESSAGE = 4096

_UNCHANGING = {"assessedAt", "effective", "raw", "metrics", "decision"}
"""Fields that change with every sample; a change of them alone is not written at once."""


def plan(context: Context) -> Iterator[WriteStatus]:
    """Writes the status when something other than its figures changed, else every two minutes.

    Whoever applies a policy waits for whether it is accepted: that is said at once.
    """
    written, policy = context.state.written, context.view.policy
    shortest = context.settings.status_interval_seconds
    is_recent = written.at is not None and abs(context.now - written.at) < shortest
    accepted = context.conditions.get(ConditionType.ACCEPTED)
    was_refused = written.conditions.get(ConditionType.ACCEPTED, {}).get("status") == "False"
    if not policy.uid or (is_recent and was_refused is (accepted is not None and not accepted.is_true)):
        return
    status = status_of(context)
    # A time in the future: this machine's clock was put back since.
    is_old = written.at is None or abs(context.now - written.at) >= REFRESH_SECONDS
    if is_old or _lasting(status) != _lasting(written.status):
        over = str(written.status.get("assessedAt", ""))
        yield WriteStatus(key=context.key, uid=policy.uid, status=status, over=over)


def after(state: State, action: WriteStatus, result: ActionResult, now: float) -> State:
    """The state once the status was written."""
    if result is not ActionResult.DONE:
        return state
    return replace(state, written=WrittenStatus(status=action.status, at=now))


def _lasting(status: Mapping[str, Any]) -> dict[str, Any]:
    """The part of a status of which every change is written at once."""
    conditions = status.get("conditions", ())
    return {key: value for key, value in status.items() if key not in _UNCHANGING} | {
        "conditions": [(condition["type"], condition["status"], condition["reason"]) for condition in conditions],
        # Who owns a field of the HPA, and with which value, is only in the message.
        "wiring": [
            condition["message"] for condition in conditions if condition["type"] == ConditionType.HPA_CONFORMANT
        ],
        # Without an assessment no sample is part of the sentence: another sentence is another problem.
        "problem": "metrics" not in status and status.get("decision"),
    }


def status_of(context: Context) -> dict[str, Any]:
    """The whole status as the API takes it; unknown fields are left out."""
    view, decision = context.view, context.decision
    assessment = view.assessment
    now = format_micro_time(context.now)
    written = context.state.written.conditions
    conditions = []
    for condition in context.conditions.values():
        value = "True" if condition.is_true else "False"
        before = written.get(condition.type)
        unchanged = before is not None and before["status"] == value
        conditions.append(
            {
                "type": condition.type,
                "status": value,
                "observedGeneration": view.policy.generation,
                "lastTransitionTime": before["lastTransitionTime"] if before is not None and unchanged else now,
                "reason": condition.reason,
                "message": _shortened(condition.message, LONGEST_MESSAGE),
            }
        )
    status: dict[str, Any] = {
        "observedGeneration": view.policy.generation,
        "assessedAt": format_micro_time(assessment.at) if assessment else now,
        "conditions": conditions,
    }
    if view.scale is not None:
        status["current"] = view.scale.replicas
    if topics := notified_topics(context):
        status["notified"] = topics
    if assessment is None or decision is None:
        status |= {"verdict": "Error", "decision": _shortened(problem_text(context))}
        # Without an assessment, the memory of the last one is kept.
        memory = context.state.written.status.get("memory")
        return status | {"memory": memory} if memory else status
    outcomes = {outcome.metric.name: outcome for outcome in decision.outcomes}
    status |= {
        "verdict": decision.verdict.value,
        "decision": _shortened(headline(assessment, decision)),
        "pods": {state.value: assessment.counts.get(state, 0) for state in PodState},
        "metrics": [_metric(metric, outcomes.get(metric.name), assessment.policy) for metric in assessment.metrics],
        "memory": status_memory.to_status(assessment.memory),
    }
    bounds = {"lowerBound": decision.lower_bound, "upperBound": decision.upper_bound}
    status |= {name: bound for name, bound in bounds.items() if bound is not None}
    if decision.desired is not None:
        status["desired"] = decision.desired
    if decision.held_by is not None:
        status["heldBy"] = decision.held_by.value
    if decision.outcome is not None:
        status |= {"metric": decision.outcome.metric.name, **_figures(decision.outcome.metric, assessment.policy)}
    return status


def _metric(metric: MetricAssessment, outcome: Outcome | None, policy: Policy) -> dict[str, Any]:
    figures = _figures(metric, policy)
    data: dict[str, Any] = {"name": metric.name, **figures, "sampled": metric.n, "missing": metric.missing}
    if metric.window is not None:
        data["windowSeconds"] = metric.window
    if outcome is not None:
        data |= {"verdict": outcome.verdict.value, "proposal": outcome.proposal}
    if metric.error is not None:
        data["error"] = _shortened(metric.error)
    return data


def _figures(metric: MetricAssessment, policy: Policy) -> dict[str, str]:
    figures = {
        "effective": metric.usage,
        "raw": metric.raw,
        "high": metric.high,
        "low": metric.low,
        "target": metric.target,
    }
    share = is_utilization(policy, metric.name)
    return {name: value_text(value, as_percent=share) for name, value in figures.items() if value is not None}


def _shortened(text: str, longest: int = LONGEST_SENTENCE) -> str:
    return text if len(text) <= longest else text[: longest - 1] + "…"
