"""A policy's status: the assessment, the decision and the conditions, for users and for the next leader."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from adapter.companion.state import ActionResult, Context, State, Write, WrittenStatus, fenced
from adapter.kube.api import JSON_PATCH, WATERMARK_POLICIES
from adapter.load.assessment import MetricAssessment, Outcome
from adapter.load.decide import decide
from adapter.load.explanation import headline, value_texts
from adapter.load.pods import PodState
from adapter.load.spec import Mode
from adapter.policy import status_memory
from adapter.policy.conditions import ConditionType
from adapter.runtime.times import format_micro_time

WRITE_STATUS = "WriteStatus"
LONGEST_SENTENCE, LONGEST_MESSAGE = 1024, 4096
REST_INTERVALS = 6
"""Without news a status is written after so many status intervals, for its figures, times and memory: a minute."""
_NEWS = ("observedGeneration", "current", "pods")
"""Fields of which a change is news, as of a condition's status. `desired` may change with every sample."""


def plan(context: Context) -> Iterator[Write]:
    """Writes the status: with a change of the count, the pods or a condition at once, anything else within a minute.

    Whoever applies a policy waits for whether it is accepted: that is said at once.
    """
    written, policy = context.written, context.view.policy
    path, shortest = f"{WATERMARK_POLICIES.path(*context.key)}/status", context.settings.status_interval_seconds
    last = context.state.attempts.get((WRITE_STATUS, path))
    # What was read may be what this process has tried to write, without an answer: then it is as old as that write.
    at = last.at if last is not None and last.body[-1]["value"] == written.status else written.at
    # A time in the future: the clock was put back since.
    age = math.inf if at is None else abs(context.now - at)
    is_refused = not context.conditions[ConditionType.ACCEPTED].is_true
    was_refused = written.conditions.get(ConditionType.ACCEPTED, {}).get("status") == "False"
    if not policy.uid or (age < shortest and is_refused is was_refused):
        return
    status = status_of(context)
    if age >= REST_INTERVALS * shortest or _news(status) != _news(written.status):
        # The whole status at once, of the policy with this UID: a newer policy of the same name keeps its own.
        # And only over the known status: a former leader that was frozen must not undo its successor's.
        tests = {"/metadata/uid": policy.uid}
        if over := written.status.get("assessedAt"):
            tests["/status/assessedAt"] = over
        yield Write(
            key=context.key, kind=WRITE_STATUS, path=path, body=fenced(tests, "/status", status),
            content_type=JSON_PATCH, after=partial(_written, status),
        )  # fmt: skip


def _written(status: dict[str, Any], state: State, result: ActionResult) -> State:
    """A status that was overtaken, or may not have been written, is read again."""
    if result is ActionResult.DONE:
        return state.having(WrittenStatus(status=status, is_read=True))
    return state.having(replace(state.of(WrittenStatus), is_read=result is ActionResult.REFUSED))


def _news(status: Mapping[str, Any]) -> list[Any]:
    """The part of a status that says what changed in the cluster, and whether all is well."""
    # Usage near the watermark may need more than the maximum with one sample and not with the next.
    conditions = [
        (one["type"], one["status"]) for one in status.get("conditions", ()) if one["type"] != ConditionType.AT_MAXIMUM
    ]
    # Without an assessment no sample is part of the sentence: another sentence is another problem.
    return [conditions, "metrics" not in status and status.get("decision"), *(status.get(name) for name in _NEWS)]


def status_of(context: Context) -> dict[str, Any]:
    """The whole status as the API takes it; unknown fields are left out."""
    view, decision = context.view, context.decision
    assessment = view.assessment
    now = format_micro_time(context.now)
    written = context.written.conditions
    conditions: list[dict[str, Any]] = []
    for type_, one in context.conditions.items():
        value, before = "True" if one.is_true else "False", written.get(type_)
        since = before["lastTransitionTime"] if before is not None and before["status"] == value else now
        condition = {"type": type_, "status": value, "observedGeneration": view.policy.generation}
        condition |= {"lastTransitionTime": since, "reason": one.reason}
        conditions.append(condition | {"message": _shortened(one.message, LONGEST_MESSAGE)})
    status: dict[str, Any] = {
        "observedGeneration": view.policy.generation,
        "assessedAt": format_micro_time(assessment.at) if assessment else now,
        "conditions": conditions,
        "current": None if view.scale is None else view.scale.replicas,
    }
    if assessment is None or decision is None:  # the memory of the last assessment is kept
        status |= {"verdict": "Error", "decision": _shortened(context.problem_text)}
        return _given(status | {"memory": context.written.status.get("memory")})
    outcomes = {outcome.metric.name: outcome for outcome in decision.outcomes}
    sentence, desired = headline(assessment, decision), decision.desired
    if view.policy.mode is Mode.OBSERVE and desired is not None and view.scale is not None and view.bounds is not None:
        # The current count is asked for; people want to know which one the policy would ask for.
        acting = replace(assessment, policy=replace(assessment.policy, mode=Mode.ACTIVE, hold_until=None))
        would = decide(acting, view.scale, view.bounds, context.now)
        sentence, desired = f"mode Observe; in mode Active it {headline(acting, would)}", would.desired
    status |= {
        "verdict": decision.verdict.value,
        "decision": _shortened(sentence),
        "pods": {state.value: assessment.counts.get(state, 0) for state in PodState},
        "metrics": [_metric(metric, outcomes.get(metric.name)) for metric in assessment.metrics],
        "memory": status_memory.to_status(assessment.memory) or None,
        "lowerBound": decision.lower_bound,
        "upperBound": decision.upper_bound,
        "desired": desired,
        "heldBy": decision.held_by and decision.held_by.value,
    }
    if decision.outcome is not None:
        status |= {"metric": decision.outcome.metric.name, **_figures(decision.outcome.metric)}
    return _given(status)


def _metric(metric: MetricAssessment, outcome: Outcome | None) -> dict[str, Any]:
    data = {"name": metric.name, "sampled": metric.n, "missing": metric.missing, "windowSeconds": metric.window}
    data |= {"error": metric.error and _shortened(metric.error)}
    if outcome is not None:
        data |= {"verdict": outcome.verdict.value, "proposal": outcome.proposal}
    return _given(data) | _figures(metric)


def _given(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}


def _figures(metric: MetricAssessment) -> dict[str, str]:
    figures = {"effective": metric.usage, "raw": metric.raw}
    figures |= {"high": metric.high, "low": metric.low, "target": metric.metric.target}
    return value_texts(_given(figures), as_percent=metric.metric.relative_to is not None)


def _shortened(text: str, longest: int = LONGEST_SENTENCE) -> str:
    return text if len(text) <= longest else text[: longest - 1] + "…"
