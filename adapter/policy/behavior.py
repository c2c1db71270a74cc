"""An HPA's `behavior`: the fields that a policy needs in it, and how far up it lets the replica count go. Pure."""

import math
from collections.abc import Callable, Iterable, Iterator
from fractions import Fraction
from typing import Any, NamedTuple

from adapter.load.spec import Policy
from adapter.policy.hpa import Hpa, ScalingPolicy, ScalingRules
from adapter.policy.managed_fields import DIRECTIONS

PERIOD = 1
"""Seconds: shorter than any sync of the HPA, so that every sync has the full limit."""
LOOSE = 15
"""Seconds: scaling policies of others with a period of at most this renew with each sync of the HPA."""
MAX, DISABLED = "Max", "Disabled"
_MIN = "Min"
_PERCENT = "Percent"
_LEGACY_FACTOR, _LEGACY_FLOOR = 2, 4
"""Without `behavior` the HPA may double the count, and always go up to four pods."""


class BehaviorField(NamedTuple):
    """One field of behavior (`scaleUp.tolerance`, …), the value it needs, and whether the HPA has that value."""

    name: str
    value: Any
    is_set: bool


class ReplicaChange(NamedTuple):
    """A change of the replica count: when (seconds), and by how many."""

    at: float
    by: int


def required_behavior(policy: Policy, hpa: Hpa, *, tolerance: bool) -> Iterator[BehaviorField]:
    """The fields that an HPA needs to follow the policy: limits no tighter than the policy's own, and tolerance 0.

    The tolerances only where the cluster's HPAs have that field (`tolerance`).
    """
    for direction, rules, limits in zip(
        DIRECTIONS, (hpa.scale_up, hpa.scale_down), (_up(policy, hpa), _down(policy)), strict=True
    ):
        if tolerance:
            yield BehaviorField(f"{direction}.tolerance", "0", rules.tolerance == Fraction(0))
        yield BehaviorField(f"{direction}.policies", [_as_json(one) for one in limits], rules.policies == limits)
        # The API server defaults selectPolicy to Max.
        yield BehaviorField(f"{direction}.selectPolicy", MAX, rules.select == MAX)


def permits(policy: Policy, hpa: Hpa, direction: str) -> bool:
    """Whether scaling policies that somebody else set let the count go as far as the policy ever does."""
    rules, limits = (hpa.scale_up, _up(policy, hpa)) if direction == DIRECTIONS[0] else (hpa.scale_down, _down(policy))
    return rules.select in {"", MAX} and all(_covers(rules, limit) for limit in limits)


def _up(policy: Policy, hpa: Hpa) -> tuple[ScalingPolicy, ...]:
    """The policy's velocity in percent, and the pods that a schedule or the fallback may add at once."""
    percent = policy.velocity.up
    if percent is None:
        return (ScalingPolicy("Pods", hpa.bounds.maximum, PERIOD),)
    floors = [schedule.minimum for schedule in policy.schedules if schedule.minimum is not None]
    pods = max([1, *floors, *([policy.fallback.replicas] if policy.fallback else [])])
    return (ScalingPolicy("Pods", pods, PERIOD), *_percent(percent))


def _down(policy: Policy) -> tuple[ScalingPolicy, ...]:
    percent = policy.velocity.down
    if percent is None:
        return (ScalingPolicy(_PERCENT, 100, PERIOD),)
    return (ScalingPolicy("Pods", 1, PERIOD), *_percent(percent))


def _percent(percent: int) -> tuple[ScalingPolicy, ...]:
    return (ScalingPolicy(_PERCENT, percent, PERIOD),) if percent else ()


def _covers(rules: ScalingRules, limit: ScalingPolicy) -> bool:
    return any(own.kind == limit.kind and own.value >= limit.value and own.period <= LOOSE for own in rules.policies)


def _as_json(policy: ScalingPolicy) -> dict[str, Any]:
    return {"type": policy.kind, "value": policy.value, "periodSeconds": policy.period}


def highest_allowed(current: int, rules: ScalingRules, changes: Iterable[ReplicaChange], now: float) -> int:
    """The highest count that scale-up rules allow now, regardless of maxReplicas; never below `current`.

    Computed as the stock HPA controller does: percentages in binary floating point, rounded up. `changes` are the HPA's
    own, in either direction. Stabilization is not considered.
    """
    if rules.select == DISABLED:
        return current
    if not rules.policies:
        return max(_LEGACY_FACTOR * current, _LEGACY_FLOOR, current)
    made = tuple(changes)
    choose: Callable[[Iterable[int]], int] = min if rules.select == _MIN else max
    return max(current, choose([_limit(current, policy, made, now) for policy in rules.policies]))


def _limit(current: int, policy: ScalingPolicy, changes: Iterable[ReplicaChange], now: float) -> int:
    """The highest count that one scaling policy allows, from the count at the start of its period."""
    start = current - sum(change.by for change in changes if change.at > now - policy.period)
    if policy.kind == _PERCENT:
        return math.ceil(start * (1 + policy.value / 100))
    return start + policy.value
