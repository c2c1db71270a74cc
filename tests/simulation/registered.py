"""A service with a registry in closed loop, which tests change by hand, and figures of its moments."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

from adapter.load.spec import Bounds, Policy
from tests.load.kit import REGISTRY, cpu, policy
from tests.simulation.closed_loop import ClosedLoop, Demand, Habits, Moment
from tests.simulation.sources import Kind, Source
from tests.simulation.stock_hpa import StockHpa

SYNC = 15
HIGH, LOW = 1200, 400
POLICY = policy(cpu(f"{HIGH}m", f"{LOW}m"), registry=REGISTRY, replace_after=60.0)

MINUTE = 60
LONG = 40 * MINUTE
"""Longer than any time limit of the adapter: evidence of a silent registry expires after 30 minutes."""


class Service(ClosedLoop):
    """The loop. What changed between two runs is seen at once."""

    def __init__(self, replicas: int, demand: Demand, rule: Policy = POLICY, **changes: Any) -> None:
        hpa = StockHpa(bounds=Bounds(minimum=2, maximum=500), down_window=60)
        habits = Habits(registers=10, leaves=10)
        super().__init__(replicas, demand, rule, Source(Kind.RESOURCE), hpa, habits, eager=True, **changes)

    def run(self, seconds: int) -> list[Moment]:
        self.touch()
        return super().run(seconds)

    def rolling(self, reason: str) -> None:
        self.target = replace(self.target, progressing=reason)


def running(replicas: int, load: int, **changes: Any) -> Service:
    """A service that has run for five minutes at a constant load (milli-units for all pods)."""
    service = Service(replicas, constant(load), **changes)
    service.run(5 * MINUTE)
    return service


def constant(millis: int) -> Demand:
    return lambda _: millis


def counts(moments: Sequence[Moment]) -> list[int]:
    return [moment.replicas for moment in moments]


def changes(moments: Sequence[Moment]) -> list[int]:
    """The steps of the count, +n and -n."""
    seen = counts(moments)
    return [after - before for before, after in pairwise(seen) if after != before]


def turns(moments: Sequence[Moment]) -> int:
    """The number of changes of direction of the count."""
    signs = [step > 0 for step in changes(moments)]
    return sum(1 for before, after in pairwise(signs) if before is not after)


def needed(demand: int) -> int:
    return -(-demand // HIGH)


def settled(moments: Sequence[Moment]) -> bool:
    """Whether the count was constant for the last ten minutes, with no pod above high and its tolerance."""
    last = moments[-120:]
    return len(set(counts(last))) == 1 and all(moment.load <= HIGH * 1.01 for moment in last)
