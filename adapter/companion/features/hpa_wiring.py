"""HPA wiring: what is unwise about a policy's HPA is told; what may be set is set, unless others have it their way."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from adapter.companion.context import Context, PolicyCondition, State, Wired
from adapter.companion.writes.actions import ActionResult, AskTolerance, WireHpa
from adapter.load.explanation import swallowed
from adapter.load.spec import HpaWiring, Mode, Policy
from adapter.policy.behavior import BehaviorField, permits, required_behavior
from adapter.policy.conformance import Flaw, Wiring, flaws
from adapter.policy.hpa import Hpa
from adapter.runtime.backoff import exponential

CONDITION = "HPAConformant"
ASK_AGAIN_SECONDS = 600.0
"""So long a cluster's answer about the tolerance field holds."""
MISSED_SECONDS = 10.0
FIRST_WAIT_SECONDS = 600.0
LONGEST_WAIT_SECONDS = 86_400.0
"""After each time that somebody undid what was set, the wait before it is set again is six times as long."""


def plan(situation: Context) -> Iterator[AskTolerance | WireHpa]:
    """Learn whether HPAs have a tolerance here, and set what is not as it should be."""
    hpa, field = situation.hpa, situation.tolerance_field
    if hpa is None:
        return
    is_old = field.asked_at is None or situation.now - field.asked_at >= ASK_AGAIN_SECONDS
    # An HPA that has a tolerance keeps it even where new ones are dropped.
    if is_old and hpa.scale_up.tolerance is None and hpa.asks_for(situation.view.policy.name):
        yield AskTolerance(key=situation.key, hpa=hpa.name)
        return
    behavior = _behavior(situation, hpa)
    if _is_enforced(situation) and _open(situation, hpa) and not _waits(situation, behavior):
        yield WireHpa(key=situation.key, hpa=hpa.name, uid=hpa.uid, version=hpa.resource_version, behavior=behavior)


def after(past: State, action: AskTolerance | WireHpa, now: float) -> State:
    """The past once an HPA was wired."""
    if not isinstance(action, WireHpa):
        return past
    return replace(
        past,
        wired=Wired(at=now, times=_times(past.wired, action, now), version=action.version, behavior=action.behavior),
    )


def missed(past: State, action: AskTolerance | WireHpa, outcome: ActionResult, now: float) -> State:
    """The past once that was tried in vain."""
    if not isinstance(action, WireHpa):
        return past
    return replace(past, wired=replace(past.wired, missed_at=now, refused=outcome is ActionResult.REFUSED))


def findings(situation: Context) -> Iterator[PolicyCondition]:
    """The condition that tells all there is to say of how policy and HPA are joined."""
    hpa = situation.hpa
    if hpa is None:
        return
    found = (*_own(situation, hpa), *flaws(_wiring(situation, hpa)))
    if found:
        yield PolicyCondition(CONDITION, False, found[0].reason, "; ".join(one.message for one in found))
    elif hpa.asks_for(situation.view.policy.name):
        yield PolicyCondition(CONDITION, True, "Conformant", f"HPA {hpa.name} sets the count that is decided")
    else:
        yield PolicyCondition(
            CONDITION, True, "OnlyObserved", f"HPA {hpa.name} is left as it is: the policy only observes"
        )


def _wiring(situation: Context, hpa: Hpa) -> Wiring:
    decision, bounds = situation.decision, situation.view.bounds
    return Wiring(
        policy=situation.view.policy,
        hpa=hpa,
        neighbours=situation.neighbours,
        has_tolerance=situation.tolerance_field.known,
        swallowed=swallowed(decision, bounds) if decision is not None and bounds is not None else "",
    )


def _own(situation: Context, hpa: Hpa) -> Iterator[Flaw]:
    """What stands in the way of enforcing, where that is asked for."""
    if not _wants_it(situation.view.policy):
        return
    if not situation.settings.features.hpa_wiring:
        yield Flaw("WiringOff", "hpaWiring is Enforce, and companion.features.hpaWiring of the settings is off")
        return
    wired = situation.past.wired
    if wired.refused and _open(situation, hpa):
        yield Flaw("WiringRefused", f"the companion lacks the right to patch HPA {hpa.name}")
    if _undone(situation, hpa):
        names = ", ".join(one.name for one in _open(situation, hpa))
        yield Flaw(
            "WiringUndone",
            f"what was set of HPA {hpa.name} ({names}) was undone, most likely by {hpa.managers.last or 'somebody'}; "
            f"it is set again in {_wait(wired) / 60:.0f} min at the earliest",
        )
    for one in _foreign(situation, hpa):
        owners = ", ".join(hpa.managers.others(one.name))
        yield Flaw("WiringConflict", f"{owners} owns behavior.{one.name} of HPA {hpa.name}, so it is left as it is")


def _wants_it(policy: Policy) -> bool:
    """Whether the policy has its HPA set; while it only observes, nothing is changed."""
    return policy.hpa_wiring is HpaWiring.ENFORCE and policy.mode is not Mode.OBSERVE


def _is_enforced(situation: Context) -> bool:
    return _wants_it(situation.view.policy) and not situation.neighbours.policies


def _wanted(situation: Context, hpa: Hpa) -> tuple[BehaviorField, ...]:
    policy = situation.view.policy
    if not hpa.asks_for(policy.name):
        return ()
    return tuple(required_behavior(policy, hpa, tolerance=situation.tolerance_field.known is not False))


def _open(situation: Context, hpa: Hpa) -> list[BehaviorField]:
    """What is not as it should be, and may be set."""
    return [one for one in _wanted(situation, hpa) if not one.is_set and not hpa.managers.others(one.name)]


def _foreign(situation: Context, hpa: Hpa) -> Iterator[BehaviorField]:
    """What others own and have in a way that stands between the policy and the count."""
    for one in _wanted(situation, hpa):
        direction, _, name = one.name.partition(".")
        if one.is_set or not hpa.managers.others(one.name):
            continue
        if name == "tolerance" or not permits(situation.view.policy, hpa, direction):
            yield one


def _behavior(situation: Context, hpa: Hpa) -> dict[str, Any]:
    """All that nobody else owns: what were left out of it would be taken away."""
    behavior: dict[str, Any] = {}
    for one in _wanted(situation, hpa):
        if not hpa.managers.others(one.name):
            direction, _, name = one.name.partition(".")
            behavior.setdefault(direction, {})[name] = one.value
    return behavior


def _undone(situation: Context, hpa: Hpa) -> bool:
    """Whether somebody changed the HPA after it was set, and it is not as it was set."""
    wired = situation.past.wired
    if wired.at is None or hpa.resource_version == wired.version or not _is_enforced(situation):
        return False
    return wired.behavior == _behavior(situation, hpa) and bool(_open(situation, hpa))


def _waits(situation: Context, behavior: dict[str, Any]) -> bool:
    wired, now = situation.past.wired, situation.now
    if wired.missed_at is not None and now - wired.missed_at < MISSED_SECONDS:
        return True
    # What is wanted now is something else than what was set: that is nobody's undoing.
    return wired.at is not None and wired.behavior == behavior and now - wired.at < _wait(wired)


def _wait(wired: Wired) -> float:
    """How long after one setting the next one waits (seconds)."""
    return exponential(wired.times - 1, FIRST_WAIT_SECONDS, LONGEST_WAIT_SECONDS, factor=6.0)


def _times(wired: Wired, action: WireHpa, now: float) -> int:
    """How often in a row the same was set, as soon as that was possible: it did not stand long in between."""
    again = wired.at is not None and wired.behavior == action.behavior and now - wired.at < 2 * _wait(wired)
    return wired.times + 1 if again else 1
