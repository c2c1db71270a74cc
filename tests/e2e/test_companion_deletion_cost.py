"""deleteFirst on the real ReplicaSet controller: it deletes pulled-out pods and keeps serving ones."""

from typing import Any

import pytest

from lab.harness.client import condition_true
from lab.harness.workloads import Workloads, until
from tests.e2e.kit import PULLED_OUT, Load, query_watermarks, wait_desired, wait_finding

COST = "controller.kubernetes.io/pod-deletion-cost"
LOWEST = "-2147483648"
RESTING = {"scaleUp": {"tolerance": "0"}, "scaleDown": {"tolerance": "0", "selectPolicy": "Disabled"}}
"""An HPA that does not scale down, so that a test can read the decision in the policy's status."""


pytestmark = pytest.mark.usefixtures("adapter", "companion")


def pull_out(workloads: Workloads, pods: list[str]) -> None:
    for pod in pods:
        workloads.annotate(pod, {PULLED_OUT: "true"})


def follow(workloads: Workloads, **hpa: Any) -> None:
    """Creates the policy `web` with deleteFirst, and its HPA."""
    workloads.policy("web", [query_watermarks("load", "1200m", "400m")], pulledOut={"deleteFirst": True})
    workloads.hpa("web", **hpa)


def costs(workloads: Workloads, name: str = "web") -> dict[str, str]:
    """The deletion costs of a workload's pods that have one."""
    notes = {pod["metadata"]["name"]: pod["metadata"].get("annotations", {}) for pod in workloads.pods(name)}
    return {pod: found[COST] for pod, found in notes.items() if COST in found}


def wait_costs(workloads: Workloads, expected: dict[str, str]) -> None:
    until(lambda: costs(workloads) == expected, 30, lambda: f"{costs(workloads)} instead of {expected}")


def test_pulled_out_pods_are_deleted_first_and_not_kept_in_the_count(workloads: Workloads, load: Load) -> None:
    workloads.deployment("web", 10)
    names = workloads.pod_names("web")
    out, serving = names[2:6], [*names[:2], *names[6:]]
    load.each("web", 0.8, but=dict.fromkeys(out, 0))
    follow(workloads, minimum=6)
    pull_out(workloads, out)
    wait_costs(workloads, dict.fromkeys(out, LOWEST))
    wait_finding(workloads, "DeletionCostApplied", "Marked")
    wait_desired(workloads, 10)
    mark = workloads.cluster.hpa_log.mark()
    load.each("web", 0.3, but=dict.fromkeys(out, 0))  # 6 x 300m are worth 4 pods
    workloads.wait_replicas("web", 6)
    workloads.wait_ready("web", 6)
    remaining = {pod["metadata"]["name"] for pod in workloads.pods("web") if is_live(pod)}
    load.each("web", 0.6)
    assert remaining <= set(serving)
    assert len(remaining) == 6
    assert workloads.rescaled("web", mark)[:1] == [6]


def test_with_two_replica_sets_marked_pods_stay_in_the_count(workloads: Workloads, load: Load) -> None:
    workloads.deployment("web", 10, max_surge=0, max_unavailable=1)
    # The first new pod is Ready but not available for an hour, so the rollout stays where it is.
    workloads.client.patch(workloads.path("web"), {"spec": {"minReadySeconds": 3600, "progressDeadlineSeconds": 7200}})
    workloads.rollout("web")
    until(
        lambda: len(hashes(workloads)) == 10 and len(set(hashes(workloads).values())) == 2,
        30,
        lambda: str(hashes(workloads)),
    )
    until(lambda: all(condition_true(pod, "Ready") for pod in workloads.pods("web")), 30, lambda: "not ready")
    old = [pod for pod, template in hashes(workloads).items() if list(hashes(workloads).values()).count(template) > 1]
    out = old[:4]
    load.each("web", 0.3, but=dict.fromkeys(out, 0))
    pull_out(workloads, out)
    follow(workloads, behavior=RESTING)
    wait_costs(workloads, dict.fromkeys(out, LOWEST))
    wait_finding(workloads, "DeletionCostApplied", "SeveralReplicaSets")
    wait_desired(workloads, 8)


def hashes(workloads: Workloads) -> dict[str, str]:
    """The template hash of each live pod."""
    live = [pod["metadata"] for pod in workloads.pods("web") if is_live(pod)]
    return {metadata["name"]: metadata["labels"]["pod-template-hash"] for metadata in live}


def is_live(pod: dict[str, Any]) -> bool:
    """Whether a pod is not being deleted; the Deployment's status does not count pods that are."""
    return "deletionTimestamp" not in pod["metadata"]
