"""Wrong or outdated samples of sources, which must not shrink a service."""

from lab.harness.adapter import AdapterProcess
from lab.harness.prometheus import Exporter, Prometheus
from lab.harness.workloads import Workloads, cpu_watermarks
from tests.e2e.conftest import MakeAdapter
from tests.e2e.kit import Load, prometheus_settings, query_watermarks


def test_the_same_samples_of_metrics_server_shrink_a_service_once(
    adapter: AdapterProcess, workloads: Workloads
) -> None:
    """metrics-server scrapes every 10 s, the HPA syncs every 3 s, without stabilization."""
    # 20 x 310m are worth 15.5 pods; 300m would be worth 15 exactly, or 14 where the samples are a hair below.
    workloads.deployment("web", 20, usage_cpu="310m")
    workloads.wait_usage("web", cpu="310m")
    workloads.policy("web", [cpu_watermarks("1200m", "400m")])
    workloads.hpa("web")
    workloads.wait_replicas("web", 15)
    workloads.set_usage("web", cpu="413m")  # the same demand on fifteen pods
    workloads.hold_replicas("web", 15, 25)


def test_a_source_that_reports_zeros_for_some_pods_shrinks_nothing(
    make_adapter: MakeAdapter, workloads: Workloads, exporter: Exporter, prometheus: Prometheus
) -> None:
    load = Load(exporter, workloads)
    make_adapter(prometheus_settings(prometheus))
    workloads.deployment("web", 10)
    load.each("web", 1.19)
    workloads.policy("web", [query_watermarks("load", "1200m", "400m")])
    workloads.hpa("web")
    workloads.wait_condition("web", "ScalingActive")
    workloads.hold_replicas("web", 10)
    broken = workloads.pod_names("web")[:9]
    load.each("web", 1.19, but=dict.fromkeys(broken, 0.0))
    workloads.hold_replicas("web", 10, 15)
    load.each("web", 0.5, but=dict.fromkeys(broken, 0.0))
    workloads.hold_replicas("web", 10, 15)
