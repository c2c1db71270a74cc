"""Failures change no count, and the HPA's condition gives the reason."""

from lab.harness.prometheus import Exporter, Prometheus
from lab.harness.workloads import Workloads
from tests.e2e.conftest import MakeAdapter
from tests.e2e.kit import Load, prometheus_settings, query_watermarks

ACTIVE = "ScalingActive"


def test_no_count_changes_while_the_adapter_is_gone(
    make_adapter: MakeAdapter, workloads: Workloads, exporter: Exporter, prometheus: Prometheus
) -> None:
    load = Load(exporter, workloads)
    load.queue("web", 450)
    adapter = make_adapter(prometheus_settings(prometheus))
    workloads.deployment("web", 5)
    workloads.policy("web", [query_watermarks("queue", "100", "40")])
    workloads.hpa("web")
    workloads.wait_condition("web", ACTIVE)
    adapter.kill()
    load.queue("web", 50)
    workloads.wait_condition("web", ACTIVE, status="False")
    workloads.hold_replicas("web", 5)
    adapter.restart()
    workloads.wait_replicas("web", 1)


def test_a_rollout_with_full_surge_changes_no_count(
    make_adapter: MakeAdapter, workloads: Workloads, exporter: Exporter, prometheus: Prometheus
) -> None:
    load = Load(exporter, workloads)
    make_adapter(prometheus_settings(prometheus))
    workloads.deployment("web", 6, max_surge="100%", ready_after="4s")
    load.each("web", 0.8)
    workloads.policy("web", [query_watermarks("load", "1200m", "400m")])
    workloads.hpa("web")
    workloads.wait_condition("web", ACTIVE)
    workloads.rollout("web")
    for _ in range(4):
        load.each("web", 0.8)
        workloads.hold_replicas("web", 6, syncs=1)
    workloads.wait_ready("web", 6)
    load.each("web", 0.8)
    workloads.hold_replicas("web", 6)
