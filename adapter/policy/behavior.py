"""An HPA's `behavior`: the fields that a policy needs in it, and the HPA that follows a policy. Pure."""

from collections.abc import Iterable, Iterator
from fractions import Fraction
from typing import Any, NamedTuple

import msgspec

from adapter.load.spec import Bounds, Policy
from adapter.policy.hpa import DESIRED_REPLICAS, DIRECTIONS, CrossVersionReference, Hpa, ScalingPolicy, ScalingRules
from adapter.policy.watermark_policy import API_VERSION, KIND, Object

PERIOD = 1
"""Seconds: shorter than any sync of the HPA, so that every sync has the full limit."""
LOOSE = 15
"""Seconds: scaling policies of others with a period of at most this renew with each sync of the HPA."""
MAX, DISABLED = "Max", "Disabled"
Objects = Iterable[Object]
Behavior = dict[str, dict[str, Any]]
"""`behavior` as an HPA has it, by direction."""
SHIPPED_PACE = ScalingRules(stabilization=120, policies=(ScalingPolicy("Percent", 10, 60),))
"""The pace downwards that docs, examples and `migrate` recommend."""


class BehaviorField(NamedTuple):
    """One field of behavior (`scaleUp.tolerance`, …), the value it needs, and whether the HPA has that value."""

    name: str
    value: Any
    is_set: bool


def required_behavior(policy: Policy, hpa: Hpa, *, tolerance: bool) -> Iterator[BehaviorField]:
    """The fields that an HPA needs to follow the policy: limits no tighter than the policy's own, and tolerance 0.

    The tolerances only where the cluster's HPAs have that field (`tolerance`).
    """
    for direction, rules in zip(DIRECTIONS, (hpa.scale_up, hpa.scale_down), strict=True):
        limits = _limits(policy, hpa.bounds.maximum, direction)
        if tolerance:
            yield BehaviorField(f"{direction}.tolerance", "0", rules.tolerance == Fraction(0))
        yield BehaviorField(f"{direction}.policies", msgspec.to_builtins([*limits]), rules.policies == limits)
        # The API server defaults selectPolicy to Max.
        yield BehaviorField(f"{direction}.selectPolicy", MAX, rules.select == MAX)


def behavior_of(fields: Iterable[BehaviorField]) -> Behavior:
    """The behavior that has these fields."""
    behavior: Behavior = {}
    for one in fields:
        direction, _, name = one.name.partition(".")
        behavior.setdefault(direction, {})[name] = one.value
    return behavior


def permits(policy: Policy, hpa: Hpa, direction: str) -> bool:
    """Whether scaling policies of another manager let the count go as far as the policy ever does."""
    rules = hpa.rules(direction)
    loose = [one for one in rules.policies if one.period <= LOOSE]
    return rules.select in {"", MAX} and all(
        any(one.kind == limit.kind and one.value >= limit.value for one in loose)
        for limit in _limits(policy, hpa.bounds.maximum, direction)
    )


def _limits(policy: Policy, maximum: int, direction: str) -> tuple[ScalingPolicy, ...]:
    """The policy's velocity in percent, and the pods that a schedule or the fallback may add at once."""
    is_up, at_once = direction == DIRECTIONS[0], [1]
    percent = policy.velocity.up if is_up else policy.velocity.down
    if percent is None:
        return (ScalingPolicy("Pods", maximum, PERIOD) if is_up else ScalingPolicy("Percent", 100, PERIOD),)
    if is_up:
        at_once += [schedule.minimum for schedule in policy.schedules if schedule.minimum is not None]
        at_once += [policy.fallback.replicas] if policy.fallback else []
    pods = ScalingPolicy("Pods", max(at_once), PERIOD)
    return (pods, ScalingPolicy("Percent", percent, PERIOD)) if percent else (pods,)


def count_metric(policy: str) -> dict[str, Any]:
    """The metric by which an HPA asks a policy for the replica count: value / pods × pods is the count itself."""
    described = {"apiVersion": API_VERSION, "kind": KIND, "name": policy}
    target = {"type": "AverageValue", "averageValue": "1"}
    return {
        "type": "Object",
        "object": {"describedObject": described, "metric": {"name": DESIRED_REPLICAS}, "target": target},
    }


def hpa_manifest(
    metadata: Object, policy: str, target: CrossVersionReference, bounds: Bounds, behavior: Object, kept: Objects = ()
) -> dict[str, Any]:
    """The HPA that takes its count from a policy, within these bounds; `kept` are metrics beside the policy's."""
    reference = {"apiVersion": target.api_version, "kind": target.kind, "name": target.name}
    spec = {"scaleTargetRef": reference, "minReplicas": bounds.minimum, "maxReplicas": bounds.maximum}
    spec |= {"behavior": dict(behavior), "metrics": [count_metric(policy), *kept]}
    named = {"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": dict(metadata)}
    return {**named, "spec": spec}


def following_behavior(policy: Policy, maximum: int, down: ScalingRules | None = None) -> Behavior:
    """The behavior with which an HPA without limits of its own follows a policy: tolerance 0, and no tighter rate.

    `down`: the pace of the way down (its window, and its policies unless the policy has a velocity downwards);
    without it, and on the way up, nothing waits.
    """
    behavior: Behavior = {}
    for direction, pace in zip(DIRECTIONS, (None, down), strict=True):
        limits = pace.policies if pace and policy.velocity.down is None else _limits(policy, maximum, direction)
        window = (pace and pace.stabilization) or 0
        rules = {"stabilizationWindowSeconds": window, "tolerance": "0", "policies": msgspec.to_builtins([*limits])}
        behavior[direction] = {**rules, "selectPolicy": MAX}
    return behavior
