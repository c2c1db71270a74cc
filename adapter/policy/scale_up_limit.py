"""How far up an HPA's own `behavior` lets the count go at one moment, as the stock controller reckons it.

In its numbers: percentages in binary floating point, and rounded up.
"""

import math
from collections.abc import Callable, Iterable
from typing import NamedTuple

from adapter.policy.hpa import ScalingPolicy, ScalingRules

DISABLED = "Disabled"
_MINIMUM = "Min"
_PERCENT = "Percent"
_LEGACY_FACTOR, _LEGACY_FLOOR = 2, 4
"""Without any `behavior` the count may double, and four pods are always allowed."""


class ReplicaChange(NamedTuple):
    """A change of the replica count: when (seconds), and by how many."""

    at: float
    by: int


def highest_allowed(current: int, pace: ScalingRules, changes: Iterable[ReplicaChange], now: float) -> int:
    """The highest count that scale-up rules allow now, the HPA's maximum left aside; never below `current`.

    `changes` are those the HPA has made, in either direction. Stabilization is no part of it.
    """
    if pace.select == DISABLED:
        return current
    if not pace.policies:
        return max(_LEGACY_FACTOR * current, _LEGACY_FLOOR, current)
    made = tuple(changes)
    choose: Callable[[Iterable[int]], int] = min if pace.select == _MINIMUM else max
    return max(current, choose([_reach(current, policy, made, now) for policy in pace.policies]))


def _reach(current: int, policy: ScalingPolicy, changes: Iterable[ReplicaChange], now: float) -> int:
    """How far one policy reaches from the count that its period began with."""
    start = current - sum(change.by for change in changes if change.at > now - policy.period)
    if policy.kind == _PERCENT:
        return math.ceil(start * (1 + policy.value / 100))
    return start + policy.value
