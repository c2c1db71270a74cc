"""HPA configuration: reports the flaws of an HPA, and sets the fields that its policy needs and no one else owns."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from adapter.companion.state import Context, PolicyCondition, Write, once_done
from adapter.kube.api import HPAS
from adapter.load.explanation import suppressed_step
from adapter.load.spec import Mode, Policy
from adapter.policy.behavior import DISABLED, BehaviorField, behavior_of, permits, required_behavior
from adapter.policy.conditions import ConditionType, Reason
from adapter.policy.conformance import Flaw, Wiring, flaws
from adapter.policy.hpa import Hpa

WIRE_HPA = "WireHpa"
REWIRE_SECONDS = 3600.0
"""How long the same is not set again: a client that undoes the wiring is not fought."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LastWiring:
    """What was last set of an HPA's behavior, over which version of it, and when (seconds)."""

    behavior: Mapping[str, Any] = field(default_factory=dict)
    version: str = ""
    at: float | None = None


def plan(context: Context) -> Iterator[Write]:
    """Sets the fields that are not as wanted, all at once."""
    hpa, wired = context.hpa, context.state.of(LastWiring)
    if hpa is None or context.neighbours.policies or (context.has_tolerance is None and not hpa.sets_tolerance):
        return  # without knowing the field, half of it would be set now and half later
    free = _free(context, hpa)
    behavior = behavior_of(free)  # all of them: server-side apply removes those that are left out
    # A change of what is wanted is not an undoing.
    is_due = wired.at is None or wired.behavior != behavior or context.now - wired.at >= REWIRE_SECONDS
    if is_due and not all(one.is_set for one in free):
        metadata = {"name": hpa.name, "namespace": hpa.namespace, "uid": hpa.uid}
        metadata["resourceVersion"] = hpa.resource_version
        body = {"apiVersion": HPAS.api_version, "kind": "HorizontalPodAutoscaler", "metadata": metadata}
        after = once_done(LastWiring(at=context.now, version=hpa.resource_version, behavior=behavior))
        path, body = HPAS.path(hpa.namespace, hpa.name), body | {"spec": {"behavior": behavior}}
        yield Write(key=context.key, kind=WIRE_HPA, path=path, body=body, after=after)


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
        has_tolerance=context.has_tolerance,
        suppressed=suppressed_step(decision, bounds) if decision is not None and bounds is not None else "",
    )
    troubles = (*_obstacles(context, hpa), *flaws(wiring))
    reason, message = Reason.CONFORMANT, f"HPA {hpa.name} sets the count that is decided"
    if troubles:
        reason, message = troubles[0].reason, "; ".join(flaw.message for flaw in troubles)
    elif not hpa.asks_for(context.view.policy.name):
        reason, message = Reason.ONLY_OBSERVED, f"HPA {hpa.name} is left as it is: the policy only observes"
    elif hpa.scale_down.select == DISABLED:
        message += "; it never scales down, since its scaleDown.selectPolicy is Disabled"
    yield PolicyCondition(ConditionType.HPA_CONFORMANT, not troubles, reason, message)


def _obstacles(context: Context, hpa: Hpa) -> Iterator[Flaw]:
    """What keeps the companion from wiring the HPA, where the policy asks for that."""
    policy, wired = context.view.policy, context.state.of(LastWiring)
    if _asks_for_it(policy) and not context.settings.features.hpa_configuration:
        message = "hpaConfiguration is Manage, and companion.features.hpaConfiguration of the settings is off"
        yield Flaw(Reason.WIRING_OFF, message)
        return
    free = _free(context, hpa)
    is_as_written = wired.at is not None and wired.behavior == behavior_of(free)
    unset = ", ".join(one.name for one in free if not one.is_set)
    if unset and WIRE_HPA in context.state.refused:
        yield Flaw(Reason.WIRING_REFUSED, f"the companion lacks the right to patch HPA {hpa.name}")
    elif unset and is_as_written and hpa.resource_version != wired.version:
        yield Flaw(
            Reason.WIRING_UNDONE,
            f"the companion's changes of HPA {hpa.name} ({unset}) were undone, most likely by "
            f"{hpa.managers.last or 'another client'}; they are made again in an hour at the earliest",
        )
    for wanted in _wanted(context, hpa):
        direction, _, name = wanted.name.partition(".")
        owners = hpa.managers.owners.get(wanted.name)
        # Only of values that hold the count back before the policy does.
        if owners and not wanted.is_set and (name == "tolerance" or not permits(policy, hpa, direction)):
            owned = f"{', '.join(owners)} owns behavior.{wanted.name} of HPA {hpa.name}, so it is left as it is"
            yield Flaw(Reason.WIRING_CONFLICT, owned)


def _asks_for_it(policy: Policy) -> bool:
    """Whether the policy asks for its HPA to be set; in mode Observe nothing is changed."""
    return policy.hpa_configuration == "Manage" and policy.mode is not Mode.OBSERVE


def _wanted(context: Context, hpa: Hpa) -> list[BehaviorField]:
    """The fields that the policy needs. Without a velocity downwards the pace of the way down is the HPA's own."""
    policy = context.view.policy
    if not _asks_for_it(policy) or not hpa.asks_for(policy.name):
        return []
    left = () if policy.velocity.down is not None else ("scaleDown.policies", "scaleDown.selectPolicy")
    tolerance = bool(context.has_tolerance) or hpa.sets_tolerance
    return [one for one in required_behavior(policy, hpa, tolerance=tolerance) if one.name not in left]


def _free(context: Context, hpa: Hpa) -> list[BehaviorField]:
    """The wanted fields that nobody else owns."""
    return [one for one in _wanted(context, hpa) if not hpa.managers.owners.get(one.name)]
