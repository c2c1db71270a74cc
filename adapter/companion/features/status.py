"""A policy's status: what was found and decided, for people and for whoever takes over."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from adapter.companion.context import Context, PolicyCondition, State, Written
from adapter.companion.features import deletion_cost, fast_scale_up, hpa_wiring, modes, notices, versions
from adapter.companion.writes.actions import WriteStatus
from adapter.load.assessment import Decision, MetricAssessment, Outcome
from adapter.load.explanation import headline, is_share, value_text
from adapter.load.pods import PodState
from adapter.load.spec import Policy
from adapter.policy import status_memory
from adapter.runtime.times import format_micro_time
from adapter.snapshot import WATCH_SILENT

REFRESH_SECONDS = 120.0
"""A status that says the same is written again after so long, for its times and its memory."""
SHORTEST_SECONDS = 10.0
"""No policy's status is written more often."""
LONGEST = 1024
LONGEST_MESSAGE = 4096

_UNCHANGING = {"assessedAt", "effective", "raw", "metrics", "memory", "decision"}
"""What moves with every sample is no reason to write by itself."""
_TROUBLES = {
    "InputsFresh": ("SamplesFresh", "InputsMissing", "every metric has fresh samples"),
    "RegistryTrusted": ("RegistryAnswers", "RegistryDistrusted", "the registry's answers are valid and recent"),
}
"""Conditions that are True unless the assessment found trouble: reason of True, reason of False, sentence of True."""
_FINDINGS = ("ReplacementIneffective", "UndersizedByUnready")
"""Conditions that are shown while they are found, as True."""


def plan(situation: Context) -> Iterator[WriteStatus]:
    """Write the status where it says something new, else every two minutes."""
    past, policy = situation.past.written, situation.view.policy
    if not policy.uid or (past.at is not None and situation.now - past.at < SHORTEST_SECONDS):
        return
    status = status_of(situation)
    is_old = past.at is None or situation.now - past.at >= REFRESH_SECONDS
    if is_old or _news(status) != _news(past.status):
        over = str(past.status.get("assessedAt", ""))
        yield WriteStatus(key=situation.key, uid=policy.uid, status=status, over=over)


def after(past: State, action: WriteStatus, now: float) -> State:
    """The past once the status was written."""
    return replace(past, written=Written(status=action.status, at=now))


def _news(status: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in status.items() if key not in _UNCHANGING} | {
        "conditions": [(one["type"], one["status"], one["reason"]) for one in status.get("conditions", ())],
        "memory": status_memory.durable_part(status.get("memory") or {}),
        # Who stands in the way of an HPA's wiring, and with what, is in the sentences only.
        "wiring": [one["message"] for one in status.get("conditions", ()) if one["type"] == hpa_wiring.CONDITION],
        # Nothing was assessed, so the sentence moves with no sample: another one tells of another trouble.
        "problem": "metrics" not in status and status.get("decision"),
    }


def status_of(situation: Context) -> dict[str, Any]:
    """The whole status, as the API takes it; what is not known is left out."""
    view, decision = situation.view, situation.decision
    assessment = view.assessment
    status: dict[str, Any] = {
        "observedGeneration": view.policy.generation,
        "assessedAt": format_micro_time(assessment.at if assessment else situation.now),
        "conditions": _conditions(situation),
    }
    if view.scale is not None:
        status["current"] = view.scale.replicas
    if told := notices.told(situation):
        status["notified"] = told
    if assessment is None or decision is None:
        status |= {"verdict": "Error", "decision": _shortened(_problem(situation))}
        # What could not be looked at must not be forgotten.
        memory = situation.past.written.status.get("memory")
        return status | {"memory": memory} if memory else status
    status |= {
        "verdict": decision.verdict.value,
        "decision": _shortened(headline(assessment, decision)),
        "pods": {state.value: assessment.counts.get(state, 0) for state in PodState},
        "metrics": [_metric(metric, _outcome(decision, metric), assessment.policy) for metric in assessment.metrics],
        "memory": status_memory.to_status(assessment.memory),
    }
    if decision.desired is not None:
        status["desired"] = decision.desired
    if decision.held_by is not None:
        status["heldBy"] = decision.held_by.value
    if decision.outcome is not None:
        status |= {"metric": decision.outcome.metric.name, **_figures(decision.outcome.metric, assessment.policy)}
    return status


def _problem(situation: Context) -> str:
    problem = situation.view.problem
    return problem.message if problem is not None else "it has not been assessed yet"


def _conditions(situation: Context) -> list[dict[str, Any]]:
    known = {one["type"]: one for one in situation.past.written.status.get("conditions", ())}
    return [_condition(situation, finding, known.get(finding.type)) for finding in findings(situation)]


def findings(situation: Context) -> Iterator[PolicyCondition]:
    """Every condition as it stands; what says nothing of its own is left out."""
    yield _ready(situation)
    yield from modes.findings(situation)
    yield from hpa_wiring.findings(situation)
    yield from notices.findings(situation)
    if situation.silent:
        yield PolicyCondition("InputsFresh", False, WATCH_SILENT, _problem(situation))
    assessment = situation.view.assessment
    if assessment is None:
        return
    for name, (well, ill, sentence) in _TROUBLES.items():
        trouble = assessment.conditions.get(name)
        yield PolicyCondition(name, trouble is None, ill if trouble else well, trouble or sentence)
    for name in _FINDINGS:
        if name in assessment.conditions:
            yield PolicyCondition(name, True, name, assessment.conditions[name])
    yield from fast_scale_up.findings(situation)
    yield from deletion_cost.findings(situation)
    yield from versions.findings(situation)


def _ready(situation: Context) -> PolicyCondition:
    decision, problem = situation.decision, situation.view.problem
    if decision is None:
        return PolicyCondition("Ready", False, problem.reason if problem else "NotAssessed", _problem(situation))
    if decision.error is not None:
        return PolicyCondition("Ready", False, "NoDecision", decision.error)
    return PolicyCondition("Ready", True, "Decided", "a count is decided")


def _condition(situation: Context, finding: PolicyCondition, known: Mapping[str, Any] | None) -> dict[str, Any]:
    status = "True" if finding.is_true else "False"
    unchanged = known is not None and known.get("status") == status
    since = known["lastTransitionTime"] if known is not None and unchanged else format_micro_time(situation.now)
    return {
        "type": finding.type,
        "status": status,
        "observedGeneration": situation.view.policy.generation,
        "lastTransitionTime": since,
        "reason": finding.reason,
        "message": _shortened(finding.message, LONGEST_MESSAGE),
    }


def _outcome(decision: Decision, metric: MetricAssessment) -> Outcome | None:
    return next((one for one in decision.outcomes if one.metric.name == metric.name), None)


def _metric(metric: MetricAssessment, outcome: Outcome | None, policy: Policy) -> dict[str, Any]:
    figures = _figures(metric, policy)
    known: dict[str, Any] = {"name": metric.name, **figures, "sampled": metric.n, "missing": metric.missing}
    if metric.window is not None:
        known["windowSeconds"] = metric.window
    if outcome is not None:
        known |= {"verdict": outcome.reading.verdict.value, "proposal": outcome.proposal}
    if metric.error is not None:
        known["error"] = _shortened(metric.error)
    return known


def _figures(metric: MetricAssessment, policy: Policy) -> dict[str, str]:
    figures = {"effective": metric.usage, "raw": metric.raw, "high": metric.high, "low": metric.low}
    share = is_share(policy, metric.name)
    return {name: value_text(value, share=share) for name, value in figures.items() if value is not None}


def _shortened(text: str, longest: int = LONGEST) -> str:
    return text if len(text) <= longest else text[: longest - 1] + "…"
