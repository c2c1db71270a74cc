"""A model of the stock HPA, from a metric to a count: stabilization, the rate policies of `behavior`, bounds.

It follows the controller's source (Kubernetes 1.36): it records the raw recommendation, stabilizes it, limits it by the
policies of the direction, and bounds it by min and max. Percentages are binary floats, as in the controller.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from adapter.load.assessment import Decision, Verdict
from adapter.load.spec import Bounds

PODS, PERCENT = "Pods", "Percent"


class RatePolicy(NamedTuple):
    """A scaling policy: at most `value` pods, or percent of the count, in `period` seconds."""

    kind: str
    value: int
    period: int


class Change(NamedTuple):
    """A change of the count by the HPA."""

    at: int
    by: int


@dataclass
class StockHpa:
    """One HPA at tolerance 0. Windows and the sync period are seconds; a direction without policies has no limit."""

    bounds: Bounds = field(default_factory=lambda: Bounds(minimum=1, maximum=500))
    sync: int = 15
    up_window: int = 0
    down_window: int = 300
    up: tuple[RatePolicy, ...] = ()
    down: tuple[RatePolicy, ...] = ()
    _recommended: list[Change] = field(default_factory=list)
    _changes: list[Change] = field(default_factory=list)

    def desired(self, decision: Decision, now: int) -> int:
        """The count that one sync sets for the served metric; the current one if the metric is an error."""
        current = decision.current
        if decision.served is None or (current == 0 and self.bounds.minimum > 0):
            return current
        if current > self.bounds.maximum or current < self.bounds.minimum:
            return self._changed(current, max(self.bounds.minimum, min(self.bounds.maximum, current)), now)
        stable = self._stabilized(current, -(-decision.served // 1000), now)
        return self._changed(current, self._limited(current, stable, now), now)

    def _stabilized(self, current: int, raw: int, now: int) -> int:
        if not self._recommended:
            self._recommended.append(Change(now, current))
        highest = max([raw, *(each.by for each in self._recommended if each.at > now - self.down_window)])
        lowest = min([raw, *(each.by for each in self._recommended if each.at > now - self.up_window)])
        longest = max(self.down_window, self.up_window)
        self._recommended = [each for each in self._recommended if each.at > now - longest]
        self._recommended.append(Change(now, raw))
        return min(max(current, lowest), highest)

    def _limited(self, current: int, wanted: int, now: int) -> int:
        if wanted > current:
            reach = max([self._reach(current, rule, now, 1) for rule in self.up], default=wanted)
            return min(wanted, self.bounds.maximum, max(current, reach))
        reach = min([self._reach(current, rule, now, -1) for rule in self.down], default=wanted)
        return max(wanted, self.bounds.minimum, min(current, reach))

    def _reach(self, current: int, rule: RatePolicy, now: int, sign: int) -> int:
        start = current - sum(change.by for change in self._changes if change.at > now - rule.period)
        if rule.kind == PODS:
            return start + sign * rule.value
        return math.ceil(start * (1 + rule.value / 100)) if sign > 0 else math.trunc(start * (1 - rule.value / 100))

    def _changed(self, current: int, wanted: int, now: int) -> int:
        if wanted != current:
            longest = max((rule.period for rule in (*self.up, *self.down)), default=0)
            self._changes = [change for change in self._changes if change.at > now - longest]
            self._changes.append(Change(now, wanted - current))
        return wanted


def trace(hpa: StockHpa, start: int, wanted: Sequence[int]) -> list[int]:
    """The counts after each sync, with one raw recommendation for each sync."""
    counts, current = [], start
    for index, raw in enumerate(wanted):
        served = Decision(
            desired=raw, served=1000 * raw, error=None, verdict=Verdict.INSIDE, held_by=None, current=current
        )
        current = hpa.desired(served, index * hpa.sync)
        counts.append(current)
    return counts
