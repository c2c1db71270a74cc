"""Wrong or outdated samples of sources, which must not shrink a service."""

from lab.harness.prometheus import Exporter, Prometheus
from lab.harness.workloads import Workloads
from tests.e2e.conftest import MakeAdapter
from tests.e2e.kit import Load, prometheus_settings, query_watermarks


def test_a_source_that_reports_zeros_for_some_pods_shrinks_nothing(
    make_adapter: MakeAdapter, workloads: Workloads, exporter: Exporter, prometheus: Prometheus, exhaustive: bool
) -> None:
    load = Load(exporter, workloads)
    make_adapter(prometheus_settings(prometheus))
    workloads.deployment("web", 10)
    load.each("web", 1.19)
    workloads.policy("web", [query_watermarks("load", "1200m", "400m")])
    workloads.hpa("web")
    workloads.wait_condition("web", "ScalingActive")
    workloads.hold_replicas("web", 10, syncs=1)
    seconds = 15 if exhaustive else 8
    broken = workloads.pod_names("web")[:9]
    load.each("web", 1.19, but=dict.fromkeys(broken, 0.0))
    workloads.hold_replicas("web", 10, seconds)
    load.each("web", 0.5, but=dict.fromkeys(broken, 0.0))
    workloads.hold_replicas("web", 10, seconds)
