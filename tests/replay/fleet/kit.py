"""Rows and workers for tests of many services."""

import os
import time
from typing import Any

from adapter.commands.replay.fleet.runner import Task
from adapter.commands.replay.fleet.services import Figures, ServiceRow

RUN = {"from": "2026-11-01T00:00:00Z", "to": "2026-11-08T00:00:00Z", "step": "15s"}


def figures(hours: float = 100.0, over: float = 0.0, shortfall: float | None = None, cost: float | None = None):
    return Figures(pod_hours=hours, over_high=over, shortfall=shortfall, cost=cost)


def row(name: str, stock: dict[str, Any], policy: dict[str, Any]) -> ServiceRow:
    return ServiceRow(namespace="shop", name=name, figures=(figures(**stock), figures(**policy)))


def die_if_asked(task: Task) -> ServiceRow:
    """A worker that the kernel may end: with the service `doomed`."""
    if task.service.name == "doomed":
        time.sleep(0.1)
        os._exit(9)
    return ServiceRow(namespace=task.service.namespace, name=task.service.name)
