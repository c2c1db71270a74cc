"""The stock HPA sets exactly the count that two watermarks ask for."""

import pytest

from lab.harness import binaries
from lab.harness.adapter import AdapterProcess
from lab.harness.prometheus import Exporter, Prometheus
from lab.harness.workloads import Workloads, cpu_watermarks, memory_watermarks, pods_metric, until
from tests.e2e.conftest import MakeAdapter
from tests.e2e.kit import PULLED_OUT, Load, prometheus_settings, query_watermarks

pytestmark = pytest.mark.versions


@pytest.fixture
def services(workloads: Workloads) -> list[str]:
    """Three at once, since each waits for samples whose whole windows lie in the time in service.

    The demand is in the middle of its step: 6.5 and 5.5 pods.
    """
    made = {"overloaded": (5, "1560m"), "even": (7, "1114m"), "idle": (7, "314m")}
    for name, (count, usage) in made.items():
        workloads.deployment(name, count, usage_cpu=usage, wait=False)
    for name, (count, _) in made.items():
        workloads.wait_ready(name, count)
    return list(made)


@pytest.mark.usefixtures("adapter")
def test_five_overloaded_pods_become_seven_which_stay_with_the_same_demand_and_seven_idle_ones_five(
    workloads: Workloads, services: list[str]
) -> None:
    for name in services:
        workloads.policy(name, [cpu_watermarks("1200m", "400m")])
        workloads.hpa(name)
    until(lambda: all(map(workloads.rescaled, ("overloaded", "idle"))), 60, lambda: "they are not scaled")
    assert (workloads.rescaled("overloaded")[0], workloads.rescaled("idle")[0]) == (7, 5)
    until(lambda: workloads.asked("even") == "7", 30, lambda: workloads.asked("even"))
    workloads.hold_replicas("even", 7, syncs=1)


@pytest.mark.skipif(not binaries.HPA_TOLERANCE, reason="its HPA holds steps within 10 %")
def test_a_step_of_one_pod_is_made_in_both_directions(
    make_adapter: MakeAdapter,
    workloads: Workloads,
    exporter: Exporter,
    prometheus: Prometheus,
) -> None:
    load = Load(exporter, workloads)
    load.queue("web", 1960)
    make_adapter(prometheus_settings(prometheus))
    workloads.deployment("web", 20)
    workloads.policy("web", [query_watermarks("queue", "100", "95")], tolerance="0%")
    workloads.hpa("web", maximum=200)
    workloads.wait_condition("web", "ScalingActive")
    load.queue("web", 2050)
    workloads.wait_replicas("web", 21)
    workloads.hold_replicas("web", 21)
    load.queue("web", 1990)
    workloads.wait_replicas("web", 20)
    workloads.hold_replicas("web", 20)


def test_pulled_out_pods_neither_dilute_the_load_nor_count_as_capacity(
    make_adapter: MakeAdapter, workloads: Workloads, exporter: Exporter, prometheus: Prometheus
) -> None:
    load = Load(exporter, workloads)
    make_adapter(prometheus_settings(prometheus))
    for name in ("web", "twin"):
        workloads.deployment(name, 10)
    out = workloads.pod_names("web")[:3]
    load.each("twin", 1.44, but=dict.fromkeys(workloads.pod_names("twin")[:3]))
    load.each("web", 1.44, but=dict.fromkeys(out, 0.02))
    for pod in out:
        workloads.annotate(pod, {PULLED_OUT: "true"})
    workloads.policy(
        "web", [query_watermarks("load", "1200m", "400m")], pulledOut={"replaceAfterSeconds": 0, "minAgeSeconds": 0}
    )
    workloads.hpa("web")
    workloads.hpa("twin", metrics=[pods_metric("load", "1200m")], tolerance=None)
    workloads.wait_replicas("web", 12)
    workloads.hold_replicas("twin", 10)


def test_memory_is_compared_with_its_limit(adapter: AdapterProcess, workloads: Workloads) -> None:
    workloads.deployment("web", 4, memory_request="64Mi", memory_limit="1Gi", usage_memory="922Mi")
    workloads.wait_usage("web", memory="922Mi")
    workloads.policy("web", [memory_watermarks("80%", "50%", relativeTo="Limit")])
    workloads.hpa("web")
    workloads.wait_replicas("web", 5)  # 3688 of 4096 Mi is 90 %: 4 x 0.9 / 0.8 = 4.5
    workloads.set_usage("web", memory="700Mi")
    workloads.hold_replicas("web", 5)
