"""300 HPAs on the stock controller, which asks 20 times a second through the aggregator: what each adapter costs."""

import re
import time
from typing import Any

from benchmarks.attribution import Meter
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
from benchmarks.peers.latency import shares
from benchmarks.prometheus_scene import PrometheusScene
from harness.client import condition_true
from harness.workloads import until

SECONDS = 30.0
"""Two syncs of the controller, two of our polls, one of KEDA's."""
SETTLE_SECONDS = 15.0
_HPAS = "/apis/autoscaling/v2/horizontalpodautoscalers"
_DURATIONS = re.compile(
    r"^horizontal_pod_autoscaler_controller_metric_computation_duration_seconds_(sum|count)\{.*\} (\S+)$", re.MULTILINE
)

Figures = dict[str, Any]


def run() -> Figures:
    """Leads the HPAs of 300 services to one adapter after the other, on one Prometheus and one controller."""
    with PrometheusScene(controller=True, wait=False) as stage:
        live = OfKeda(stage)
        cached = OfKedaCached(stage, programs=live.keda)
        first: list[Contender] = [OursQuery(stage), OfPrometheusAdapter(stage), Ours(stage)]
        every = [*first, live, cached]
        try:
            live.install()
            live.pause()
            stage.remove_only_hpas()
            for contender in first:
                contender.start()
                contender.wait_ready()
                contender.pause()
            stage.wait_rates()
            rest = _rest(stage)
            figures: Figures = {"rest": rest, "contenders": {}}
            for contender in every:
                figures["contenders"][contender.name] = _measured(contender, every, rest)
        finally:
            for contender in every:
                contender.kill()
    return figures


def _rest(stage: PrometheusScene) -> Figures:
    """What the scene uses without an HPA."""
    announce("rest")
    meter = Meter(stage.processes, stage.prometheus.url)
    before = meter.read()
    time.sleep(15)
    return meter.since(before)


def _measured(contender: Contender, every: list[Contender], rest: Figures) -> Figures:
    announce(contender.name)
    stage = contender.scene
    stage.remove_policies()
    alone(contender, every)
    contender.put_hpas()
    contender.prepare()
    until(lambda: active(stage) >= len(stage.scaled), 60, lambda: f"{active(stage)} HPAs of {contender.name} active")
    time.sleep(SETTLE_SECONDS)
    meter = Meter(lambda: {**stage.processes(), **contender.processes()}, stage.prometheus.url)
    before, asked = meter.read(), _computations(stage)
    time.sleep(SECONDS)
    cost, now = meter.since(before), _computations(stage)
    count = now["count"] - asked["count"]
    return {
        "title": contender.title,
        "cost": {**shares(cost, contender, rest), "prometheus_per_second": cost["prometheus_per_second"]},
        "metrics_per_second": round(count / cost["seconds"], 1),
        "mean_ms_in_the_controller": round(1000 * (now["sum"] - asked["sum"]) / max(1, count), 1),
        "active_hpas": active(stage),
        "counts": sorted({count for name, count in stage.replicas().items()}),
        "mib": contender.mib(),
    }


def active(stage: PrometheusScene) -> int:
    """The number of HPAs that got their metric at their last sync."""
    return sum(condition_true(item, "ScalingActive") for item in stage.cluster.client.list(_HPAS))


def _computations(stage: PrometheusScene) -> dict[str, float]:
    """How many metrics the controller computed, and the seconds that took; waiting for its own limit included."""
    client = stage.cluster.anonymous(stage.cluster.layout.port("kube-controller-manager"))
    totals = {"sum": 0.0, "count": 0.0}
    for kind, value in _DURATIONS.findall(client.raw("/metrics").text):
        totals[kind] += float(value)
    return totals
