"""Closed loops for tests of sources: pods at a constant load, and a fast HPA without stabilization."""

import json
from dataclasses import replace

from adapter.load.spec import Bounds, Policy
from adapter.policy import status_memory
from tests.load.kit import NOW
from tests.simulation.closed_loop import ClosedLoop, Habits, Step, rule_of
from tests.simulation.sources import Kind, Source
from tests.simulation.stock_hpa import StockHpa

HIGH, LOW = 1200, 400
MINUTE = 60
STEADY = Habits()
BY_POD = [Kind.RESOURCE, Kind.QUERY]


def service(
    replicas: int,
    load: int,
    *,
    kind: Kind = Kind.RESOURCE,
    refresh: int = 15,
    window: int = 15,
    delay: int = 0,
    sync: int = 3,
    rule: Policy | None = None,
    habits: Habits = STEADY,
) -> ClosedLoop:
    """A loop with pods at this load each (milli), without scale-down stabilization, with a short sync period."""
    return ClosedLoop(
        replicas,
        lambda _: replicas * load,
        rule if rule is not None else rule_of(kind, HIGH, LOW),
        Source(kind, refresh=refresh, window=window, delay=delay),
        StockHpa(bounds=Bounds(minimum=1, maximum=200), sync=sync, down_window=0),
        habits,
    )


def counts(steps: list[Step]) -> list[int]:
    return [step.after for step in steps]


def restart(loop: ClosedLoop) -> None:
    """Restarts the adapter: it reads its memory from the policy's status."""
    known = status_memory.from_status(json.loads(json.dumps(status_memory.to_status(loop.memory))))
    loop.memory = replace(known, observing_since=NOW + loop.now)
    loop.assess_anew()
