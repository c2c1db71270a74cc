"""The stock HPA of the closed loops, from a served metric to a count: `replay.hpa`'s stabilization and rate limits.

At tolerance 0 the controller recommends the served value rounded up; everything after that is the model's.
"""

from dataclasses import dataclass, field

from adapter.hpa.behavior import History, Rules
from adapter.load.assessment import Decision
from adapter.load.spec import Bounds
from adapter.policy.hpa import ScalingPolicy

PODS, PERCENT = "Pods", "Percent"
_UNLIMITED = (ScalingPolicy(PODS, 10**6, 15),)


@dataclass
class StockHpa:
    """One HPA at tolerance 0. Windows and the sync period are seconds; a direction without policies has no limit."""

    bounds: Bounds = field(default_factory=lambda: Bounds(minimum=1, maximum=500))
    sync: int = 15
    up_window: int = 0
    down_window: int = 300
    up: tuple[ScalingPolicy, ...] = ()
    down: tuple[ScalingPolicy, ...] = ()
    _history: History = field(default_factory=History)

    def desired(self, decision: Decision, now: int) -> int:
        """The count that one sync sets for the served metric; the current one if the metric is an error."""
        current, least, most = decision.current, self.bounds.minimum, self.bounds.maximum
        if decision.served is None or (current == 0 and least > 0):
            return current
        up = Rules(self.up_window, "Max", self.up or _UNLIMITED)
        down = Rules(self.down_window, "Max", self.down or _UNLIMITED)
        wanted = max(least, min(most, current))
        if wanted == current:
            self._history.begin(current, now)
            raw = -(-decision.served // 1000)
            wanted = self._history.limited(current, raw, least, most, up, down, now).replicas
        if wanted != current:
            self._history.changed(current, wanted, up, down, now)
        return wanted
