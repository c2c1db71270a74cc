"""An HPA's `behavior`: stabilization and rate limits over what it recommended and did before (`horizontal.go`)."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from adapter.policy.hpa import ScalingPolicy, ScalingRules

IN_RANGE = "DesiredWithinRange"
_UP_LIMIT, _DOWN_LIMIT = "ScaleUpLimit", "ScaleDownLimit"
_TOO_MANY, _TOO_FEW = "TooManyReplicas", "TooFewReplicas"

DEFAULT_UP = ScalingRules(
    stabilization=0, select="Max", policies=(ScalingPolicy("Pods", 4, 15), ScalingPolicy("Percent", 100, 15))
)
DEFAULT_DOWN = ScalingRules(select="Max", policies=(ScalingPolicy("Percent", 100, 15),))


class Rules(NamedTuple):
    """One direction with every default filled in. `window` is in seconds."""

    window: int
    select: str
    policies: tuple[ScalingPolicy, ...]


def rules(pace: ScalingRules, default: ScalingRules, window: int) -> Rules:
    """A direction as the API server and the controller complete it; `window` is the default window."""
    stabilization = pace.stabilization if pace.stabilization is not None else default.stabilization
    return Rules(
        window=window if stabilization is None else stabilization,
        select=pace.select or default.select,
        policies=pace.policies or default.policies,
    )


class _Recommendation(NamedTuple):
    replicas: int
    at: float


class ScaleEvent(NamedTuple):
    """A change of the count: by how many, in either direction, and when (seconds)."""

    change: int
    at: float


class Limited(NamedTuple):
    """A count after stabilization and limits, with the reason of the condition ScalingLimited."""

    replicas: int
    stabilized: int
    limit: str


@dataclass
class History:
    """What the controller remembers of one HPA, in its own memory only: recommendations, and changes by direction."""

    recommendations: list[_Recommendation] = field(default_factory=list)
    ups: list[ScaleEvent] = field(default_factory=list)
    downs: list[ScaleEvent] = field(default_factory=list)

    def begin(self, replicas: int, now: float) -> None:
        """The first sync of an HPA recommends the count that it finds."""
        if not self.recommendations:
            self.recommendations.append(_Recommendation(replicas, now))

    def legacy(self, current: int, desired: int, minimum: int, maximum: int, window: float, now: float) -> Limited:
        """Without `behavior`: the largest recommendation of the window, and at most twice the count or 4."""
        self._record(desired, now, now - window)
        highest = max(recommendation.replicas for recommendation in self.recommendations)
        reach = legacy_highest(current)
        ceiling, reason = (reach, _UP_LIMIT) if maximum > reach else (maximum, _TOO_MANY)
        if highest < minimum:
            return Limited(minimum, highest, _TOO_FEW)
        if highest > ceiling:
            return Limited(ceiling, highest, reason)
        return Limited(highest, highest, IN_RANGE)

    def limited(
        self, current: int, desired: int, minimum: int, maximum: int, up: Rules, down: Rules, now: float
    ) -> Limited:
        """With `behavior`: stabilized within both windows, then limited by the direction's policies."""
        stabilized = self._stabilized(current, desired, up.window, down.window, now)
        if stabilized > current:
            reach = highest(current, up, self.ups, self.downs, now)
            ceiling, reason = (reach, _UP_LIMIT) if maximum > reach else (maximum, _TOO_MANY)
            if stabilized > ceiling:
                return Limited(ceiling, stabilized, reason)
        elif stabilized < current:
            reach = min(current, _reach(current, down, self.ups, self.downs, now, upwards=False))
            floor, reason = (reach, _DOWN_LIMIT) if minimum < reach else (minimum, _TOO_FEW)
            if stabilized < floor:
                return Limited(floor, stabilized, reason)
        return Limited(stabilized, stabilized, IN_RANGE)

    def _stabilized(self, current: int, desired: int, up_window: int, down_window: int, now: float) -> int:
        up_cutoff, down_cutoff = now - up_window, now - down_window
        self._record(desired, now, min(up_cutoff, down_cutoff))
        recent = [(one.replicas, one.at) for one in self.recommendations]
        lowest = min([desired, *(replicas for replicas, at in recent if at > up_cutoff)])
        highest = max([desired, *(replicas for replicas, at in recent if at > down_cutoff)])
        return min(max(current, lowest), highest)

    def _record(self, desired: int, now: float, cutoff: float) -> None:
        """Recommendations are recorded as they were before stabilization; those before the cutoff count no more."""
        self.recommendations = [one for one in self.recommendations if one.at >= cutoff]
        self.recommendations.append(_Recommendation(desired, now))

    def changed(self, before: int, after: int, up: Rules, down: Rules, now: float) -> None:
        """Note a change that the HPA made; those before the longest period of its direction are forgotten."""
        events, policies = (self.ups, up.policies) if after > before else (self.downs, down.policies)
        cutoff = now - max((policy.period for policy in policies), default=0)
        events[:] = [*(event for event in events if event.at >= cutoff), ScaleEvent(abs(after - before), now)]


def legacy_highest(current: int) -> int:
    """The highest count that an HPA without `behavior` goes to in one sync: twice the count, and always 4 pods."""
    return max(2 * current, 4)


def highest(current: int, up: Rules, ups: Sequence[ScaleEvent], downs: Sequence[ScaleEvent], now: float) -> int:
    """The highest count that scale-up rules allow now, after these changes; never below `current`."""
    return max(current, _reach(current, up, ups, downs, now, upwards=True))


def _reach(
    current: int,
    direction: Rules,
    ups: Sequence[ScaleEvent],
    downs: Sequence[ScaleEvent],
    now: float,
    *,
    upwards: bool,
) -> int:
    """How far the policies of one direction let the count go."""
    if direction.select == "Disabled":
        return current
    choose: Callable[..., int] = max if upwards != (direction.select == "Min") else min
    return choose(
        _proposed(current - _changed(ups, one.period, now) + _changed(downs, one.period, now), one, upwards=upwards)
        for one in direction.policies
    )


def _changed(events: Sequence[ScaleEvent], period: int, now: float) -> int:
    return sum(event.change for event in events if event.at > now - period)


def _proposed(start: int, policy: ScalingPolicy, *, upwards: bool) -> int:
    """The count that one policy allows, from the count at the start of its period."""
    if policy.kind == "Pods":
        return start + policy.value if upwards else start - policy.value
    if upwards:
        return math.ceil(start * (1 + policy.value / 100))
    return math.trunc(start * (1 - policy.value / 100))
