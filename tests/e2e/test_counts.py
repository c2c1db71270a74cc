"""The stock HPA sets exactly the count that two watermarks ask for, by every form of its metric."""

import pytest

from lab.harness import binaries
from lab.harness.workloads import (
    Workloads,
    cpu_watermarks,
    external_metric,
    memory_watermarks,
    pods_metric,
    policy_metric,
    target_metric,
    until,
)
from tests.e2e.kit import PULLED_OUT, Load, query_watermarks

pytestmark = [pytest.mark.versions, pytest.mark.usefixtures("adapter")]
CPU, MEMORY = cpu_watermarks("1200m", "400m"), memory_watermarks("80%", "50%", relativeTo="Limit")


def test_cpu_and_memory_set_the_count_up_and_down_and_keep_it_inside(workloads: Workloads) -> None:
    """Side by side, since each waits for two looks of metrics-server. A need is in the middle of its step."""
    workloads.deployment("overloaded", 5, usage_cpu="1560m", wait=False)
    workloads.deployment("even", 7, usage_cpu="1114m", wait=False)
    workloads.deployment("idle", 7, usage_cpu="314m", wait=False)
    # 3688 of 4096 Mi is 90 %: 4 x 0.9 / 0.8 = 4.5
    workloads.deployment("full", 4, memory_request="64Mi", memory_limit="1Gi", usage_memory="922Mi", wait=False)
    for name, count in {"overloaded": 5, "even": 7, "idle": 7, "full": 4}.items():
        workloads.wait_ready(name, count)
        workloads.policy(name, [MEMORY if name == "full" else CPU])
        workloads.hpa(name)
    wanted = {"overloaded": 7, "idle": 5, "full": 5}
    until(lambda: all(map(workloads.rescaled, wanted)), 60, lambda: "they are not scaled")
    assert {name: workloads.rescaled(name)[0] for name in wanted} == wanted
    until(lambda: workloads.asked("even") == "7", 30, lambda: workloads.asked("even"))
    workloads.hold_replicas("even", 7, syncs=1)
    assert workloads.rescaled("even") == []


def test_policy_target_and_external_form_set_the_same_count(workloads: Workloads, load: Load) -> None:
    forms = {
        "policy": policy_metric("policy"),
        "target": target_metric("Deployment", "target"),
        "external": external_metric("external"),
    }
    for name in forms:
        load.queue(name, 800)
        workloads.deployment(name, 5, wait=False)
    for name, metric in forms.items():
        workloads.wait_ready(name, 5)
        workloads.policy(name, [query_watermarks("queue", "100", "40")])
        workloads.hpa(name, metrics=[metric])
    for name in forms:
        workloads.wait_replicas(name, 8)
    for name in forms:
        workloads.hold_replicas(name, 8, syncs=1)


@pytest.mark.skipif(not binaries.HPA_TOLERANCE, reason="its HPA holds steps within 10 %")
def test_a_step_of_one_pod_is_made_in_both_directions(workloads: Workloads, load: Load) -> None:
    load.serve(100, queue=9960, marks=("100", "99"), hpa={"maximum": 200}, tolerance="0%")
    workloads.wait_condition("web", "ScalingActive")
    load.queue("web", 10050)
    workloads.wait_replicas("web", 101)
    workloads.hold_replicas("web", 101)
    load.queue("web", 9990)
    workloads.wait_replicas("web", 100)
    workloads.hold_replicas("web", 100)


def test_pulled_out_pods_neither_dilute_the_load_nor_count_as_capacity(workloads: Workloads, load: Load) -> None:
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
