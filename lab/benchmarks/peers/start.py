"""Seconds and processor time from the start of the processes to right answers, with 300 services set up before."""

import statistics
import time
from typing import Any

from lab.benchmarks.peers.contenders import Contender, OfKeda, OfPrometheusAdapter, Ours, OursQuery, announce
from lab.benchmarks.prometheus_scene import PrometheusScene

ROUNDS = 3
EVERY_SECONDS = 0.05
_PATIENCE_SECONDS = 60

Figures = dict[str, Any]


def run() -> Figures:
    """Starts each adapter three times on one scene."""
    figures: Figures = {"contenders": {}}
    with PrometheusScene(wait=False) as stage:
        keda = OfKeda(stage)
        keda.install()
        stage.wait_rates()
        keda.wait_right()
        keda.kill()
        figures["contenders"][keda.name] = _measured(keda)
        stage.remove_hpas()
        for contender in (OfPrometheusAdapter(stage), OursQuery(stage), Ours(stage)):
            contender.prepare()
            figures["contenders"][contender.name] = _measured(contender)
    return figures


def _measured(contender: Contender) -> Figures:
    announce(contender.name)
    rounds = []
    try:
        for _ in range(ROUNDS):
            rounds.append(_start(contender))
            contender.kill()
    finally:
        contender.kill()
    middle = {key: round(statistics.median(one[key] for one in rounds), 2) for key in rounds[0]}
    return {"title": contender.title, **middle, "rounds": rounds}


def _start(contender: Contender) -> Figures:
    """The first right answer, for a service in the middle, and those for all services."""
    service, client = contender.services[len(contender.services) // 2], contender.client()
    began = time.monotonic()
    contender.start()
    while not contender.asks(client, service):
        if time.monotonic() - began > _PATIENCE_SECONDS:
            raise TimeoutError(f"no right answer of {contender.name} in {_PATIENCE_SECONDS} s: {contender.last}")
        time.sleep(EVERY_SECONDS)
    first, cpu = time.monotonic() - began, contender.cpu()
    contender.wait_right(_PATIENCE_SECONDS)
    return {
        "first_seconds": round(first, 2),
        "first_cpu_seconds": round(cpu, 2),
        "all_seconds": round(time.monotonic() - began, 2),
        "all_cpu_seconds": round(contender.cpu(), 2),
    }
