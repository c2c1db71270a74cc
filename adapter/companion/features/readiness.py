"""Whether a policy is valid, answered, and acts: Accepted, Ready and Active, and the conditions of inputs and pods."""

from collections.abc import Iterator
from http import HTTPStatus

from adapter.companion.state import Context, PolicyCondition
from adapter.load.explanation import metric_errors
from adapter.load.spec import HELD, Mode
from adapter.load.states import service_registry
from adapter.policy.conditions import ConditionType, Reason
from adapter.policy.watermark_policy import HOLD_UNTIL
from adapter.runtime.times import format_micro_time

_MODES = {
    Mode.ACTIVE: (Reason.DECIDING, "the count is decided by the metrics"),
    Mode.OBSERVE: (Reason.OBSERVED, "mode Observe: everything is computed, and the current count is asked for"),
    Mode.PAUSED: (Reason.PAUSED, "mode Paused: the current count is asked for"),
}


def problem_text(context: Context) -> str:
    """Why the policy has no decision."""
    problem = context.view.problem
    return problem.message if problem is not None else "it has not been assessed yet"


def conditions(context: Context) -> Iterator[PolicyCondition]:
    """Accepted and Ready always; Active for every valid policy; those of inputs and pods once it is assessed."""
    yield _accepted(context)
    yield _ready(context)
    if context.view.policy.metrics:
        yield _active(context)
    if context.silent:
        yield PolicyCondition(ConditionType.INPUTS_FRESH, False, Reason.WATCH_SILENT, problem_text(context))
    assessment = context.view.assessment
    if assessment is None:
        return
    for type_ in ConditionType:
        trouble, healthy = assessment.conditions.get(type_), type_.healthy
        if type_ is ConditionType.REGISTRY_DATA_VALID and service_registry(context.view.policy) is None:
            message = "the policy names no registry: Kubernetes says which pods serve"
            yield PolicyCondition(type_, True, Reason.NO_REGISTRY, message)
        elif healthy is not None and trouble is None:
            yield PolicyCondition(type_, True, healthy.reason, healthy.message)
        elif trouble is not None:
            reason = type_.value if healthy is None else healthy.reason_of_trouble
            yield PolicyCondition(type_, type_.is_trouble_while, reason, trouble)


def _accepted(context: Context) -> PolicyCondition:
    """Whether the policy waits for no change, of itself or of the settings; its other metrics may decide meanwhile."""
    view, problem = context.view, context.view.problem
    if problem is not None and (problem.reason is Reason.INVALID or not view.policy.metrics):
        return PolicyCondition(ConditionType.ACCEPTED, False, Reason.REFUSED, problem.message)
    if undefined := view.undefined_metrics:
        message = metric_errors(undefined)
        return PolicyCondition(ConditionType.ACCEPTED, False, Reason.REFUSED, message)
    message = "the policy is valid, and the settings have what it names"
    if context.silent:
        message = "the policy is valid by itself; whether the settings have what it names shows once it is assessed"
    return PolicyCondition(ConditionType.ACCEPTED, True, Reason.VALID, message)


def _ready(context: Context) -> PolicyCondition:
    decision, problem = context.decision, context.view.problem
    if decision is None:
        reason = problem.reason if problem else Reason.NOT_ASSESSED
        return PolicyCondition(ConditionType.READY, False, reason, problem_text(context))
    if decision.error is not None:
        return PolicyCondition(ConditionType.READY, False, context.view.reason_of_error, decision.error)
    hpa = context.hpa
    if hpa is not None and hpa.inactive and hpa.depends_on(context.view.policy.name):
        message = f"a count is decided, and HPA {hpa.name} does not follow: {hpa.inactive}"
        return PolicyCondition(ConditionType.READY, False, Reason.HPA_INACTIVE, message)
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
    mode = policy.mode_at(context.now)
    if mode == HELD:
        assert policy.hold_until is not None
        until = format_micro_time(policy.hold_until).replace(".000000", "")
        message = f"held until {until} by the annotation {HOLD_UNTIL}: the current count is asked for"
        reason = Reason.HELD
    else:
        reason, message = _MODES[policy.mode]
    return PolicyCondition(ConditionType.ACTIVE, mode == Mode.ACTIVE.value, reason, message)
