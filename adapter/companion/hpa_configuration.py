"""HPA configuration: reports the flaws of an HPA, and sets the fields that its policy needs and no one else owns."""

from collections.abc import Iterator, Mapping
from typing import Any

from adapter.companion.state import REMEMBERED_SECONDS, ActionResult, Condition, Context, Write
from adapter.kube.api import HPAS
from adapter.load.explanation import suppressed_step
from adapter.load.spec import Mode, Policy
from adapter.policy.behavior import DISABLED, BehaviorField, behavior_of, permits, required_behavior
from adapter.policy.conformance import Flaw, Wiring, flaws
from adapter.policy.hpa import Hpa

WIRE_HPA = "WireHpa"
_LOST = "and the API server kept no value, as with the gate HPAConfigurableTolerance off: set it again once that is on"


def plan(context: Context) -> Iterator[Write]:
    """Sets the fields that are not as wanted, all at once."""
    hpa = context.hpa
    if hpa is None or context.neighbours.policies:
        return
    free = _free(context, hpa)
    behavior = behavior_of(free)  # all of them: server-side apply removes those that are left out
    if not all(one.is_set for one in free) and _set_over(context, hpa, behavior) is None:
        named = {"name": hpa.name, "namespace": hpa.namespace, "uid": hpa.uid, "resourceVersion": hpa.resource_version}
        body = {"apiVersion": HPAS.api_version, "kind": "HorizontalPodAutoscaler", "metadata": named}
        path, body = HPAS.path(hpa.namespace, hpa.name), body | {"spec": {"behavior": behavior}}
        yield Write(key=context.key, kind=WIRE_HPA, path=path, body=body)


def condition(context: Context) -> Condition | None:
    """HPAConformant: every flaw of how policy and HPA are joined, one sentence each."""
    hpa = context.hpa
    if hpa is None:
        return None
    decision, bounds = context.decision, context.view.bounds
    wiring = Wiring(
        policy=context.view.policy,
        hpa=hpa,
        neighbours=context.neighbours,
        has_tolerance=context.has_tolerance,
        suppressed=suppressed_step(decision, bounds) if decision is not None and bounds is not None else "",
    )
    troubles = (*_obstacles(context, hpa), *flaws(wiring))
    if troubles:
        return Condition(False, troubles[0].reason, "; ".join(flaw.message for flaw in troubles))
    if not hpa.asks_for(context.view.policy.name):
        return Condition(True, "OnlyObserved", f"HPA {hpa.name} is left as it is: the policy only observes")
    message = f"HPA {hpa.name} sets the count that is decided"
    if hpa.scale_down.select == DISABLED:
        message += "; it never scales down, since its scaleDown.selectPolicy is Disabled"
    return Condition(True, "Conformant", message)


def _obstacles(context: Context, hpa: Hpa) -> Iterator[Flaw]:
    """What keeps the companion from wiring the HPA, where the policy asks for that."""
    policy = context.view.policy
    if _asks_for_it(policy) and not context.settings.features.hpa_configuration:
        message = "hpaConfiguration is Manage, and companion.features.hpaConfiguration of the settings is off"
        yield Flaw("WiringOff", message)
        return
    free = _free(context, hpa)
    unset = ", ".join(one.name for one in free if not one.is_set)
    if unset and context.state.is_refused(WIRE_HPA):
        yield Flaw("WiringRefused", f"the companion lacks the right to patch HPA {hpa.name}")
    elif unset and _set_over(context, hpa, behavior_of(free)) not in {None, hpa.resource_version}:
        yield Flaw(
            "WiringUndone",
            f"the companion's changes of HPA {hpa.name} ({unset}) were undone, most likely by "
            f"{hpa.last_writer or 'another client'}; they are made again in an hour at the earliest",
        )
    for wanted in _wanted(context, hpa):
        direction, _, name = wanted.name.partition(".")
        owners = hpa.owners.get(wanted.name)
        # Only of values that hold the count back before the policy does.
        if owners and not wanted.is_set and (name == "tolerance" or not permits(policy, hpa, direction)):
            is_lost = name == "tolerance" and hpa.rules(direction).tolerance is None
            effect = _LOST if is_lost else "so it is left as it is"
            owned = f"{', '.join(owners)} owns behavior.{wanted.name} of HPA {hpa.name}, {effect}"
            yield Flaw("WiringConflict", owned)


def _set_over(context: Context, hpa: Hpa, behavior: Mapping[str, Any]) -> str | None:
    """The version of the HPA over which this was last set; None if never in the last hour, or if that failed."""
    last = context.state.attempts.get((WIRE_HPA, HPAS.path(hpa.namespace, hpa.name)))
    if last is None or last.result is not ActionResult.DONE or context.now - last.at >= REMEMBERED_SECONDS:
        return None
    return str(last.body["metadata"]["resourceVersion"]) if last.body["spec"]["behavior"] == behavior else None


def _asks_for_it(policy: Policy) -> bool:
    """Whether the policy asks for its HPA to be set; in mode Observe nothing is changed."""
    return policy.hpa_configuration == "Manage" and policy.mode is not Mode.OBSERVE


def _wanted(context: Context, hpa: Hpa) -> list[BehaviorField]:
    """The fields that the policy needs. Without a velocity downwards the pace of the way down is the HPA's own."""
    policy = context.view.policy
    if not _asks_for_it(policy) or not hpa.asks_for(policy.name):
        return []
    left = () if policy.velocity.down is not None else ("scaleDown.policies", "scaleDown.selectPolicy")
    tolerance = context.has_tolerance or hpa.sets_tolerance
    return [one for one in required_behavior(policy, hpa, tolerance=tolerance) if one.name not in left]


def _free(context: Context, hpa: Hpa) -> list[BehaviorField]:
    """The wanted fields that nobody else owns."""
    return [one for one in _wanted(context, hpa) if not hpa.owners.get(one.name)]
