"""Whether a policy acts, as a condition: a mode of rest and a hold are to be seen as well as trouble is."""

from collections.abc import Iterator

from adapter.companion.situation import Finding, Situation
from adapter.load.spec import Policy, Stance
from adapter.policy.memory import time_text
from adapter.policy.parse import HOLD_UNTIL

CONDITION = "Active"
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


def findings(situation: Situation) -> Iterator[Finding]:
    """Whether the policy decides, and if not, by what and until when."""
    policy = situation.view.policy
    if not policy.metrics:
        return  # what is not valid has no mode
    stance = policy.stance(situation.now)
    message = _held(policy) if stance is Stance.HELD else _SENTENCES[stance]
    yield Finding(CONDITION, stance is Stance.ACTIVE, _REASONS[stance], message)


def _held(policy: Policy) -> str:
    assert policy.hold_until is not None
    until = time_text(policy.hold_until).replace(".000000", "")
    return f"held until {until} by the annotation {HOLD_UNTIL}: the current count is asked for"
