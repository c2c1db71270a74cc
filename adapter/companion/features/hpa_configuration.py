"""HPA configuration: reports the flaws of an HPA, and sets the fields that its policy needs and no one else owns."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

from adapter.companion.actions import ActionResult, AskTolerance, WireHpa
from adapter.companion.state import Context, LastWiring, PolicyCondition, State
from adapter.load.explanation import suppressed_step
from adapter.load.spec import HpaConfiguration, Mode, Policy
from adapter.policy.behavior import BehaviorField, permits, required_behavior
from adapter.policy.conditions import ConditionType, Reason
from adapter.policy.conformance import Flaw, Wiring, flaws
from adapter.policy.hpa import Hpa
from adapter.runtime.backoff import exponential

PROBE_SECONDS = 600.0
"""How long a cluster's answer about the tolerance field holds."""
FIRST_REWIRE_SECONDS = 600.0
LONGEST_REWIRE_SECONDS = 86_400.0
"""Each time that another client undoes the wiring, the wait before it is set again becomes six times as long."""


def plan(context: Context) -> Iterator[AskTolerance | WireHpa]:
    """Asks whether HPAs have a tolerance here, or sets the fields that are not as wanted."""
    hpa, field, wired, now = context.hpa, context.tolerance_field, context.state.wired, context.now
    if hpa is None:
        return
    is_old = field.asked_at is None or now - field.asked_at >= PROBE_SECONDS
    # An HPA that has a tolerance keeps it even where new ones are dropped.
    if is_old and hpa.scale_up.tolerance is None and hpa.asks_for(context.view.policy.name):
        yield AskTolerance(key=context.key, hpa=hpa.name)
        return
    free = _free(context, hpa)
    if context.neighbours.policies or all(field.is_set for field in free):
        return
    behavior = _behavior(free)
    # A change of what is wanted is not an undoing.
    if wired.at is None or wired.behavior != behavior or now - wired.at >= _wait(wired):
        yield WireHpa(key=context.key, hpa=hpa.name, uid=hpa.uid, version=hpa.resource_version, behavior=behavior)


def after(state: State, action: AskTolerance | WireHpa, result: ActionResult, now: float) -> State:
    """The state once an HPA was wired, or not."""
    if not isinstance(action, WireHpa):
        return state
    wired = state.wired
    if result is not ActionResult.DONE:
        return replace(state, wired=replace(wired, refused=result is ActionResult.REFUSED))
    # Set again soon after the wait had ended: it did not last in between.
    is_same = wired.at is not None and wired.behavior == action.behavior
    again = is_same and wired.at is not None and now - wired.at < 2 * _wait(wired)
    times = wired.times + 1 if again else 1
    return replace(state, wired=LastWiring(at=now, times=times, version=action.version, behavior=action.behavior))


def conditions(context: Context) -> Iterator[PolicyCondition]:
    """HPAConformant: every flaw of how policy and HPA are joined, one sentence each."""
    hpa = context.hpa
    if hpa is None:
        return
    decision, bounds = context.decision, context.view.bounds
    wiring = Wiring(
        policy=context.view.policy,
        hpa=hpa,
        neighbours=context.neighbours,
        has_tolerance=context.tolerance_field.known,
        suppressed=suppressed_step(decision, bounds) if decision is not None and bounds is not None else "",
    )
    troubles = (*_own(context, hpa), *flaws(wiring))
    if troubles:
        message = "; ".join(flaw.message for flaw in troubles)
        yield PolicyCondition(ConditionType.HPA_CONFORMANT, False, troubles[0].reason, message)
    elif hpa.asks_for(context.view.policy.name):
        message = f"HPA {hpa.name} sets the count that is decided"
        yield PolicyCondition(ConditionType.HPA_CONFORMANT, True, Reason.CONFORMANT, message)
    else:
        message = f"HPA {hpa.name} is left as it is: the policy only observes"
        yield PolicyCondition(ConditionType.HPA_CONFORMANT, True, Reason.ONLY_OBSERVED, message)


def _own(context: Context, hpa: Hpa) -> Iterator[Flaw]:
    """What keeps the companion from wiring the HPA, where the policy asks for that."""
    policy, wired, wanted = context.view.policy, context.state.wired, _wanted(context, hpa)
    if _asks_for_it(policy) and not context.settings.features.hpa_configuration:
        yield Flaw(
            Reason.WIRING_OFF,
            "hpaConfiguration is Manage, and companion.features.hpaConfiguration of the settings is off",
        )
        return
    free = _free(context, hpa)
    unset = ", ".join(field.name for field in free if not field.is_set)
    if wired.refused and unset:
        yield Flaw(Reason.WIRING_REFUSED, f"the companion lacks the right to patch HPA {hpa.name}")
    has_changed = wired.at is not None and hpa.resource_version != wired.version and not context.neighbours.policies
    if has_changed and unset and wired.behavior == _behavior(free):
        yield Flaw(
            Reason.WIRING_UNDONE,
            f"the companion's changes of HPA {hpa.name} ({unset}) were undone, most likely by "
            f"{hpa.managers.last or 'another client'}; they are made again in {_wait(wired) / 60:.0f} min at the "
            "earliest",
        )
    for field in wanted:
        direction, _, name = field.name.partition(".")
        owners = hpa.managers.others(field.name)
        # Only of values that hold the count back before the policy does.
        if owners and not field.is_set and (name == "tolerance" or not permits(policy, hpa, direction)):
            yield Flaw(
                Reason.WIRING_CONFLICT,
                f"{', '.join(owners)} owns behavior.{field.name} of HPA {hpa.name}, so it is left as it is",
            )


def _asks_for_it(policy: Policy) -> bool:
    """Whether the policy asks for its HPA to be set; in mode Observe nothing is changed."""
    return policy.hpa_configuration is HpaConfiguration.MANAGE and policy.mode is not Mode.OBSERVE


def _wanted(context: Context, hpa: Hpa) -> list[BehaviorField]:
    """The fields that the policy needs. Without a velocity downwards the pace of the way down is the HPA's own."""
    policy = context.view.policy
    if not _asks_for_it(policy) or not hpa.asks_for(policy.name):
        return []
    left = () if policy.velocity.down is not None else ("scaleDown.policies", "scaleDown.selectPolicy")
    fields = required_behavior(policy, hpa, tolerance=context.tolerance_field.known is not False)
    return [field for field in fields if field.name not in left]


def _free(context: Context, hpa: Hpa) -> list[BehaviorField]:
    """The wanted fields that nobody else owns."""
    return [field for field in _wanted(context, hpa) if not hpa.managers.others(field.name)]


def _behavior(fields: Iterable[BehaviorField]) -> dict[str, Any]:
    """The behavior with all of these fields: server-side apply removes those that are left out."""
    behavior: dict[str, Any] = {}
    for field in fields:
        direction, _, name = field.name.partition(".")
        behavior.setdefault(direction, {})[name] = field.value
    return behavior


def _wait(wired: LastWiring) -> float:
    """How long after one setting the next one waits (seconds)."""
    return exponential(wired.times - 1, FIRST_REWIRE_SECONDS, LONGEST_REWIRE_SECONDS, factor=6.0)
