"""Latency and cost of metric requests, asked directly as the aggregator does."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from lab.benchmarks.attribution import Meter
from lab.benchmarks.measure import Trace, measure
from lab.benchmarks.peers.contenders import (
    Contender,
    OfKeda,
    OfPrometheusAdapter,
    Ours,
    OursQuery,
    announce,
)
from lab.benchmarks.prometheus_scene import PrometheusScene

RATE = 20.0
"""Requests a second: those of a stock controller with 300 HPAs."""
SECONDS = 30.0
"""Two of our polls, and one of KEDA's."""
SETTLE_SECONDS = 5.0
FULL_SPEED_SECONDS = 3.0

Figures = dict[str, Any]


def run() -> Figures:
    """Measures one adapter after the other on one Prometheus."""
    with PrometheusScene(wait=False) as stage, ready(stage) as contenders:
        rows = {}
        for contender in contenders:
            rows[contender.name] = _measured(contender)
            contender.done()
        return with_shares(rows, contenders, rest(stage))


@contextmanager
def ready(stage: PrometheusScene) -> Iterator[list[Contender]]:
    """The adapters, started and paused, on a scene whose rates are right."""
    keda = OfKeda(stage)
    contenders: list[Contender] = [OursQuery(stage), OfPrometheusAdapter(stage), Ours(stage)]
    try:
        keda.install()
        stage.wait_rates()
        keda.wait_right()
        for contender in contenders:
            contender.start()
            contender.wait_ready()
            contender.pause()
        yield [keda, *contenders]
    finally:
        for contender in (*contenders, keda):
            contender.kill()


def rest(stage: PrometheusScene) -> Figures:
    """What the scene uses while nobody asks."""
    announce("rest")
    meter = Meter(stage.processes, stage.prometheus.url)
    before = meter.read()
    time.sleep(10)
    return meter.since(before)


def _measured(contender: Contender) -> Figures:
    announce(contender.name)
    contender.resume()
    contender.prepare()
    contender.wait_right()
    time.sleep(SETTLE_SECONDS)
    stage = contender.scene
    meter = Meter(lambda: {**stage.processes(), **contender.processes()}, stage.prometheus.url)
    paths = [contender.path(service) for service in stage.scaled]
    pid = next(iter(contender.processes().values()))
    before = meter.read()
    steady = measure(stage.plan(contender.port, paths, seconds=SECONDS, rate=RATE), pid)
    cost = meter.since(before)
    before = meter.read()
    full = measure(stage.plan(contender.port, paths, seconds=FULL_SPEED_SECONDS, rate=0), pid)
    contender.wait_right(30)
    return {
        "title": contender.title,
        "steady": {**steady.trace.summary, "refused": steady.refused},
        "cost": cost,
        "full_speed": _full_speed(full.trace, full.seconds, meter.since(before), contender),
        "mib": contender.mib(),
    }


def with_shares(rows: Figures, contenders: list[Contender], at_rest: Figures) -> Figures:
    """The whole result; the cost of each adapter is beyond that of the scene at rest."""
    for contender in contenders:
        row = rows[contender.name]
        per_second = row["cost"]["prometheus_per_second"]
        row["cost"] = {**_shares(row["cost"], contender, at_rest), "prometheus_per_second": per_second}
    return {"contenders": rows, "rest": at_rest}


def _shares(cost: Figures, contender: Contender, at_rest: Figures) -> Figures:
    """Shares of a processor: the adapter's own, and what Prometheus and the API server use beyond their rest."""
    cpu, idle = cost["cpu_share"], at_rest["cpu_share"]
    beyond = {name: cpu[name] - idle[name] for name in idle}
    own = sum(cpu[name] for name in contender.components)
    api = sum(share for name, share in beyond.items() if name != "prometheus")
    return {
        "adapter": round(own, 4),
        "prometheus": round(beyond["prometheus"], 4),
        "api_server": round(api, 4),
        "adapter_and_prometheus": round(own + beyond["prometheus"], 4),
        "milliseconds_for_an_answer": round(1000 * (own + beyond["prometheus"]) / RATE, 2),
    }


def _full_speed(trace: Trace, seconds: float, cost: Figures, contender: Contender) -> Figures:
    requests = len(trace.latencies)
    cpu = sum(cost["cpu_share"][name] for name in (*contender.processes(), "prometheus")) * cost["seconds"]
    return {
        "per_second": round(requests / seconds),
        "per_cpu_second_with_source": round(requests / cpu),
        "p50_ms": trace.milliseconds(0.5),
        "p99_ms": trace.milliseconds(0.99),
    }
