"""Whether a policy acts, as a condition: a mode of rest, a hold and a missing HPA are to be seen as trouble is."""

from collections.abc import Iterator
from http import HTTPStatus

from adapter.companion.context import Context, PolicyCondition
from adapter.load.spec import Policy, Stance
from adapter.policy.watermark_policy import HOLD_UNTIL
from adapter.runtime.times import format_micro_time

CONDITION = "Active"
HPA_MISSING = "HPAMissing"
NOT_DECIDING = "NotDeciding"
_SENTENCES = {
    Stance.ACTIVE: "the count is decided by the metrics",
    Stance.OBSERVE: "mode Observe: everything is computed, and the current count is asked for",
    Stance.PAUSED: "mode Paused: the current count is asked for",
}
_REASONS = {
    Stance.ACTIVE: "Deciding",
    Stance.OBSERVE: "Observed",
    Stance.PAUSED: "Paused",
    Stance.HELD: "Held",
}


def findings(situation: Context) -> Iterator[PolicyCondition]:
    """Whether the policy decides, and if not, by what and until when. What has no HPA decides nothing."""
    policy = situation.view.policy
    if not policy.metrics:
        return  # what is not valid has no mode
    if situation.view.problem is not None:
        yield _hindered(situation)
        return
    stance = policy.stance(situation.now)
    message = _held(policy) if stance is Stance.HELD else _SENTENCES[stance]
    yield PolicyCondition(CONDITION, stance is Stance.ACTIVE, _REASONS[stance], message)


def _hindered(situation: Context) -> PolicyCondition:
    """The policy is well, and something beside it keeps it from deciding; condition Ready has the whole sentence."""
    problem = situation.view.problem
    if situation.hpa is None and problem is not None and problem.code == HTTPStatus.NOT_FOUND:
        message = f"no HPA acts for the policy: there is no HorizontalPodAutoscaler {situation.view.policy.hpa}"
        return PolicyCondition(CONDITION, False, HPA_MISSING, message)
    return PolicyCondition(CONDITION, False, NOT_DECIDING, "nothing is decided; condition Ready says why")


def _held(policy: Policy) -> str:
    assert policy.hold_until is not None
    until = format_micro_time(policy.hold_until).replace(".000000", "")
    return f"held until {until} by the annotation {HOLD_UNTIL}: the current count is asked for"
