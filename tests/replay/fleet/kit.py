"""Rows, parts and workers for tests of many services."""

import os
import time
from collections.abc import Iterable
from typing import Any

from adapter.commands.replay.comparison import EFFECTIVE, RAW
from adapter.commands.replay.fleet.parts import FleetPart, PolicyName, RunRow, ServiceRow, Shard
from adapter.commands.replay.fleet.runner import Task

RUN = {"from": "2026-11-01T00:00:00Z", "to": "2026-11-08T00:00:00Z", "step": "15s"}


def run(name: str, hours: float = 100.0, over: float = 0.0, shortfall: float | None = None, cost: float | None = None):
    return RunRow(
        name=name,
        seconds=604_800.0,
        unknown_seconds=0.0,
        replicas={"least": 2, "average": 5.0, "most": 9, "final": 4},
        over_high_seconds=over,
        longest_over_high_seconds=over,
        shortfall_ratio=shortfall,
        lost_load_seconds=None,
        change_count=12,
        flaps=1,
        overshoot=2,
        pod_hours=hours,
        cost=cost,
    )


def row(name: str, stock: dict[str, Any], policy: dict[str, Any]) -> ServiceRow:
    runs = (run(RAW, **stock), run(EFFECTIVE, **stock), run(f"policy {name}", **policy))
    return ServiceRow(PolicyName("shop", name), ticks=40_320, runs=runs)


def part(index: int = 0, count: int = 1, services: Iterable[ServiceRow] = (), **changes: Any) -> FleetPart:
    return FleetPart(Shard(index, count), RUN | changes, tuple(services))


def die_if_asked(task: Task) -> ServiceRow:
    """A worker that the kernel may end: with the service `doomed`."""
    if task.service.name == "doomed":
        time.sleep(0.1)
        os._exit(9)
    return ServiceRow(PolicyName(task.service.namespace, task.service.name))
