"""300 HPAs on the stock controller, which asks 20 times a second through the aggregator: what each adapter costs."""

import re
import time
from pathlib import Path
from typing import Any

from lab.benchmarks.attribution import Meter
from lab.benchmarks.peers.contenders import Contender, Earlier, Ours, announce
from lab.benchmarks.peers.latency import ready, rest, with_shares
from lab.benchmarks.prometheus_scene import PrometheusScene
from lab.harness.client import condition_true
from lab.harness.workloads import until

SECONDS = 30.0
"""Two syncs of the controller, two of our polls, one of KEDA's."""
SETTLE_SECONDS = 5.0
BEFORE_ROUNDS = 2
REFILL_SECONDS = 90.0
"""After a pause: a window of the query and two polls, after which all windows are full again."""
_HPAS = "/apis/autoscaling/v2/horizontalpodautoscalers"
_DURATIONS = re.compile(
    r"^horizontal_pod_autoscaler_controller_metric_computation_duration_seconds_(sum|count)\{.*\} (\S+)$", re.MULTILINE
)

Figures = dict[str, Any]


def run() -> Figures:
    """Leads the HPAs to one adapter after the other."""
    with PrometheusScene(controller=True, wait=False) as stage, ready(stage) as contenders:
        rows = {}
        for contender in contenders:
            rows[contender.name] = _measured(contender)
            contender.done()
        return with_shares(rows, contenders, rest(stage))


def run_before(folder: Path) -> Figures:
    """Ours and the adapter of another checkout by turns, and the ratios of what they and Prometheus use."""
    with PrometheusScene(controller=True) as stage:
        contenders: list[Contender] = [Earlier(stage, folder), Ours(stage)]
        rounds: list[Figures] = []
        try:
            for contender in contenders:
                contender.start()
                contender.wait_ready()
                contender.pause()
            for _ in range(BEFORE_ROUNDS):
                rows = {}
                for contender in contenders:
                    rows[contender.name] = _measured(contender, settle=REFILL_SECONDS)
                    contender.done()
                rounds.append(with_shares(rows, contenders, rest(stage))["contenders"])
        finally:
            for contender in contenders:
                contender.kill()
    return {
        "rounds": rounds,
        "ratios": {
            part: [round(each["ours"]["cost"][part] / each["earlier"]["cost"][part], 3) for each in rounds]
            for part in ("adapter", "prometheus", "adapter_and_prometheus")
        },
    }


def _measured(contender: Contender, settle: float = SETTLE_SECONDS) -> Figures:
    announce(contender.name)
    stage = contender.scene
    contender.resume()
    contender.put_hpas()
    until(lambda: active(stage) >= len(stage.scaled), 180, lambda: f"{active(stage)} HPAs of {contender.name} active")
    time.sleep(settle)
    meter = Meter(lambda: {**stage.processes(), **contender.processes()}, stage.prometheus.url)
    before, asked = meter.read(), _computations(stage)
    time.sleep(SECONDS)
    cost, now = meter.since(before), _computations(stage)
    count = now["count"] - asked["count"]
    return {
        "title": contender.title,
        "cost": cost,
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
