"""Wrong or outdated samples of sources, which must not shrink a service."""

from typing import Any

from lab.chaos.proxies import before_prometheus
from lab.harness.prometheus import Exporter, Prometheus
from lab.harness.workloads import Workloads, until
from tests.e2e.conftest import MakeAdapter
from tests.e2e.kit import Load, prometheus_settings, query_watermarks, scaled


def _some(answer: Any) -> Any:
    """The answer without the series of every second pod."""
    data = answer["data"]
    pods = sorted({one["metric"].get("pod", "") for one in data["result"]})[::2]
    result = [one for one in data["result"] if one["metric"].get("pod", "") in pods]
    return {**answer, "data": {**data, "result": result}}


def _nothing(answer: Any) -> Any:
    return {**answer, "data": {**answer["data"], "result": []}}


def test_answers_that_lack_pods_shrink_nothing(
    make_adapter: MakeAdapter, workloads: Workloads, exporter: Exporter, prometheus: Prometheus
) -> None:
    load = Load(exporter, workloads)
    with before_prometheus(prometheus.port) as proxy:
        settings = prometheus_settings(prometheus)
        settings["prometheus"]["servers"][0]["url"] = f"http://127.0.0.1:{proxy.port}"
        make_adapter(settings)
        workloads.deployment("web", 6)
        load.each("web", 0.45)
        scaled(workloads, 6)
        for fault in (_some, _nothing):
            proxy.falsify = lambda _, answer, lie=fault: lie(answer)  # type: ignore[misc]
            workloads.hold_replicas("web", 6, 2, syncs=1)  # two polls
        proxy.falsify = None
        workloads.hold_replicas("web", 6, 2, syncs=1)
        load.each("web", 0.2)
        workloads.wait_replicas("web", 3)


def test_half_of_the_exporters_down_keeps_the_count(make_adapter: MakeAdapter, workloads: Workloads) -> None:
    """Two brokers report half of the queue each, and two ports half of each pod's load: the half that is left would
    shrink the services, or send the one with a queue to 0.
    """
    with Exporter() as one, Exporter() as other, Prometheus([one, other]) as server:
        make_adapter(prometheus_settings(server))
        for name in ("web", "pods"):
            workloads.deployment(name, 8, wait=False)
        for name in ("web", "pods"):
            workloads.wait_ready(name, 8)
        pods = workloads.pod_names("pods")

        def report(exporter: Exporter, queue: float, each: float) -> None:
            labels = f'namespace="{workloads.namespace}"'
            loads = {f'load{{{labels},pod="{pod}"}}': each for pod in pods}
            exporter.set({f'queue{{{labels},workload="web"}}': queue, **loads})

        for exporter in (one, other):
            report(exporter, 2.4, 0.3)
        workloads.policy("web", [query_watermarks("queue", "1200m", "400m")])
        workloads.policy("pods", [query_watermarks("load", "1200m", "400m")])
        for name in ("web", "pods"):
            workloads.hpa(name, minimum=0)
            workloads.wait_condition(name, "ScalingActive")
        other.failing = True
        workloads.hold_replicas("web", 8, 4, syncs=1)
        report(one, 0, 0)
        for name in ("web", "pods"):
            workloads.hold_replicas(name, 8, 4, syncs=1)
        report(other, 1.2, 0.2)
        other.failing = False
        workloads.wait_replicas("web", 3)
        until(lambda: workloads.rescaled("pods"), 30, lambda: "the HPA of pods does not follow")
        assert workloads.rescaled("pods")[0] == 4
