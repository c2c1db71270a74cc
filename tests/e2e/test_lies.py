"""Wrong or outdated samples of sources, which must not shrink a service."""

from lab.harness.prometheus import Exporter, Prometheus
from lab.harness.workloads import Workloads, until
from tests.e2e.conftest import MakeAdapter
from tests.e2e.kit import prometheus_settings, query_watermarks


def test_half_of_the_exporters_down_keeps_the_count(make_adapter: MakeAdapter, workloads: Workloads) -> None:
    """Two report half of a queue each, and half of each pod's load: the half that is left would shrink services."""
    with Exporter() as one, Exporter() as other, Prometheus([one, other]) as server:
        make_adapter(prometheus_settings(server))
        for name in ("web", "pods"):
            workloads.deployment(name, 8)
        pods = workloads.pod_names("pods")

        def report(exporter: Exporter, queue: float, each: float) -> None:
            labels = f'namespace="{workloads.namespace}"'
            loads = {f'load{{{labels},pod="{pod}"}}': each for pod in pods}
            exporter.set({f'queue{{{labels},workload="web"}}': queue, **loads})

        for exporter in (one, other):
            report(exporter, 2.4, 0.3)
        server.wait_value("sum(queue)", 4.8)  # the adapter holds against what it has seen
        server.wait_value("sum by (pod) (load)", 0.6)
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
