"""What an HPA's `behavior` is to say where a policy paces: tolerance 0, and limits outside the policy's own."""

from collections.abc import Iterator
from fractions import Fraction
from typing import Any, NamedTuple

from adapter.load.spec import Policy
from adapter.policy.hpa import Hpa, ScalingPolicy, ScalingRules
from adapter.policy.managed_fields import DIRECTIONS

PERIOD = 1
"""Seconds: shorter than any sync, so that no sync uses up what another may do."""
LOOSE = 15
"""Seconds of a foreign scaling policy's period up to which it is taken to renew with each sync of the HPA."""
MAX = "Max"


class BehaviorField(NamedTuple):
    """One field of behavior (`scaleUp.tolerance`, …), the value to set, and whether the HPA has that already."""

    name: str
    value: Any
    is_set: bool


def required_behavior(policy: Policy, hpa: Hpa, *, tolerance: bool) -> Iterator[BehaviorField]:
    """Each field that an HPA which follows the policy should have; the tolerances only where the cluster has them."""
    for direction, pace, limits in zip(
        DIRECTIONS, (hpa.scale_up, hpa.scale_down), (_up(policy, hpa), _down(policy)), strict=True
    ):
        if tolerance:
            yield BehaviorField(f"{direction}.tolerance", "0", pace.tolerance == Fraction(0))
        yield BehaviorField(f"{direction}.policies", [_written(one) for one in limits], pace.policies == limits)
        # The API server writes Max where nothing is said.
        yield BehaviorField(f"{direction}.selectPolicy", MAX, pace.select == MAX)


def permits(policy: Policy, hpa: Hpa, direction: str) -> bool:
    """Whether somebody else's scaling policies let the count go as far as the policy ever does."""
    pace, limits = (hpa.scale_up, _up(policy, hpa)) if direction == DIRECTIONS[0] else (hpa.scale_down, _down(policy))
    return pace.select in {"", MAX} and all(_covers(pace, limit) for limit in limits)


def _up(policy: Policy, hpa: Hpa) -> tuple[ScalingPolicy, ...]:
    """Percent as velocity has it, and as many pods as a schedule or the fallback may add at once."""
    percent = policy.velocity.up
    if percent is None:
        return (ScalingPolicy("Pods", hpa.bounds.maximum, PERIOD),)
    floors = [schedule.minimum for schedule in policy.schedules if schedule.minimum is not None]
    pods = max([1, *floors, *([policy.fallback.replicas] if policy.fallback else [])])
    return (ScalingPolicy("Pods", pods, PERIOD), *_percent(percent))


def _down(policy: Policy) -> tuple[ScalingPolicy, ...]:
    percent = policy.velocity.down
    if percent is None:
        return (ScalingPolicy("Percent", 100, PERIOD),)
    return (ScalingPolicy("Pods", 1, PERIOD), *_percent(percent))


def _percent(percent: int) -> tuple[ScalingPolicy, ...]:
    return (ScalingPolicy("Percent", percent, PERIOD),) if percent else ()


def _covers(pace: ScalingRules, limit: ScalingPolicy) -> bool:
    return any(own.kind == limit.kind and own.value >= limit.value and own.period <= LOOSE for own in pace.policies)


def _written(policy: ScalingPolicy) -> dict[str, Any]:
    return {"type": policy.kind, "value": policy.value, "periodSeconds": policy.period}
