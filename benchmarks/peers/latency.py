"""Latency and cost of metric requests, asked directly as the aggregator does."""

import time
from typing import Any

from benchmarks.attribution import Meter
from benchmarks.measure import Trace, measure
from benchmarks.peers.contenders import (
    Contender,
    OfKeda,
    OfKedaCached,
    OfPrometheusAdapter,
    Ours,
    OursQuery,
    alone,
    announce,
)
from benchmarks.prometheus_scene import PrometheusScene

RATE = 20.0
"""Requests a second: those of a stock controller with 300 HPAs."""
SECONDS = 30.0
"""Two of our polls, and one of KEDA's."""
SETTLE_SECONDS = 8.0
FULL_SPEED_SECONDS = 4.0

Figures = dict[str, Any]


def run() -> Figures:
    """Measures one adapter after the other on one Prometheus."""
    with PrometheusScene(wait=False) as stage:
        live = OfKeda(stage)
        cached = OfKedaCached(stage, programs=live.keda)
        others: list[Contender] = [OursQuery(stage), OfPrometheusAdapter(stage)]
        ours = Ours(stage)
        every = [*others, ours, live, cached]
        try:
            live.install()
            live.pause()
            stage.remove_only_hpas()  # the operator makes its own again
            stage.wait_rates()
            rest = _rest(stage)
            figures = {"rest": rest, "contenders": {}}
            for contender in (*others, ours):
                contender.start()
            for contender in every:
                figures["contenders"][contender.name] = _measured(contender, every, rest)
        finally:
            for contender in every:
                contender.kill()
    return figures


def _rest(stage: PrometheusScene) -> Figures:
    """What Prometheus and the API server use while nobody asks."""
    meter = Meter(stage.processes, stage.prometheus.url)
    before = meter.read()
    time.sleep(10)
    return meter.since(before)


def _measured(contender: Contender, every: list[Contender], rest: Figures) -> Figures:
    announce(contender.name)
    alone(contender, every)
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
        "cost": {**shares(cost, contender, rest), "prometheus_per_second": cost["prometheus_per_second"]},
        "full_speed": _full_speed(full.trace, full.seconds, meter.since(before), contender),
        "mib": contender.mib(),
    }


def shares(cost: Figures, contender: Contender, rest: Figures) -> Figures:
    """Shares of a processor: the adapter's own, and what Prometheus and the API server use beyond their rest."""
    cpu, idle = cost["cpu_share"], rest["cpu_share"]
    beyond = {name: cpu[name] - idle[name] for name in idle}
    own = sum(cpu[name] for name in contender.processes())
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
