"""Whether a policy is answered and acts: conditions Ready and Active, and those of its inputs and its pods."""

from collections.abc import Iterator
from http import HTTPStatus

from adapter.companion.context import Context, PolicyCondition
from adapter.load.conditions import TRUE_IS_TROUBLE, ConditionType, Reason
from adapter.load.spec import Policy, Stance
from adapter.policy.watermark_policy import HOLD_UNTIL
from adapter.runtime.times import format_micro_time

_STANCES = {
    Stance.ACTIVE: (Reason.DECIDING, "the count is decided by the metrics"),
    Stance.OBSERVE: (Reason.OBSERVED, "mode Observe: everything is computed, and the current count is asked for"),
    Stance.PAUSED: (Reason.PAUSED, "mode Paused: the current count is asked for"),
}
_INPUTS = {
    ConditionType.INPUTS_FRESH: (Reason.SAMPLES_FRESH, Reason.INPUTS_MISSING, "every metric has fresh samples"),
    ConditionType.REGISTRY_TRUSTED: (
        Reason.REGISTRY_ANSWERS,
        Reason.REGISTRY_DISTRUSTED,
        "the registry's answers are valid and recent",
    ),
}
"""Conditions that are True unless the assessment found trouble: reason of True, reason of False, message of True."""


def problem_text(context: Context) -> str:
    """Why the policy has no decision."""
    problem = context.view.problem
    return problem.message if problem is not None else "it has not been assessed yet"


def conditions(context: Context) -> Iterator[PolicyCondition]:
    """Ready always; Active for every valid policy; those of inputs and pods once the policy is assessed."""
    yield _ready(context)
    if context.view.policy.metrics:
        yield _active(context)
    if context.silent:
        yield PolicyCondition(ConditionType.INPUTS_FRESH, False, Reason.WATCH_SILENT, problem_text(context))
    assessment = context.view.assessment
    if assessment is None:
        return
    for type_, (well, ill, message) in _INPUTS.items():
        trouble = assessment.conditions.get(type_)
        yield PolicyCondition(type_, trouble is None, ill if trouble else well, trouble or message)
    for type_, trouble in assessment.conditions.items():
        if type_ in TRUE_IS_TROUBLE:
            yield PolicyCondition(type_, True, Reason(type_.value), trouble)


def _ready(context: Context) -> PolicyCondition:
    decision, problem = context.decision, context.view.problem
    if decision is None:
        reason = problem.reason if problem else Reason.NOT_ASSESSED
        return PolicyCondition(ConditionType.READY, False, reason, problem_text(context))
    if decision.error is not None:
        return PolicyCondition(ConditionType.READY, False, Reason.NO_DECISION, decision.error)
    return PolicyCondition(ConditionType.READY, True, Reason.DECIDED, "a count is decided")


def _active(context: Context) -> PolicyCondition:
    """Whether the metrics decide. What stands in the way outside of the policy is in condition Ready."""
    policy, problem = context.view.policy, context.view.problem
    if problem is not None and context.hpa is None and problem.code == HTTPStatus.NOT_FOUND:
        message = f"no HPA acts for the policy: there is no HorizontalPodAutoscaler {policy.hpa}"
        return PolicyCondition(ConditionType.ACTIVE, False, Reason.HPA_MISSING, message)
    if problem is not None:
        message = "nothing is decided; condition Ready says why"
        return PolicyCondition(ConditionType.ACTIVE, False, Reason.NOT_DECIDING, message)
    stance = policy.stance(context.now)
    reason, message = _held(policy) if stance is Stance.HELD else _STANCES[stance]
    return PolicyCondition(ConditionType.ACTIVE, stance is Stance.ACTIVE, reason, message)


def _held(policy: Policy) -> tuple[Reason, str]:
    assert policy.hold_until is not None
    until = format_micro_time(policy.hold_until).replace(".000000", "")
    return Reason.HELD, f"held until {until} by the annotation {HOLD_UNTIL}: the current count is asked for"
