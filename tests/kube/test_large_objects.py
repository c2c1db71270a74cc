"""A namespace's user may write objects of 1.5 MB: the memory and time that they take are limited."""

import json
import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from adapter.evaluation.object_index import decode_hpa
from adapter.kube.pods import PodDecoder
from adapter.kube.targets import BUILT_IN, target_decoder
from adapter.load.pods import Pod
from adapter.policy.linking import MAX_SELECTOR_REQUIREMENTS
from tests.evaluation.kit import deployment
from tests.evaluation.test_evaluator import Stand

MIB = 1024 * 1024
STARTED = {"uid": "u", "creationTimestamp": "2026-01-01T00:00:00Z"}


def pod(number: int, *, labels: Any = None, owners: Any = None, **spec: Any) -> bytes:
    head = {"name": f"p{number}", "namespace": "shop", "labels": labels, "ownerReferences": owners, **STARTED}
    return json.dumps({"metadata": head, "spec": spec}).encode()


def container(number: int, **more: Any) -> dict[str, Any]:
    return {"name": f"c{number}", "image": "app:1", **more}


LARGE: dict[str, Callable[[int], bytes]] = {
    "labels": lambda i: pod(i, labels={f"k{i}-{n}": "v" for n in range(60_000)}),
    "containers": lambda i: pod(i, containers=[container(n, image=f"{i}") for n in range(20_000)]),
    "limits": lambda i: pod(i, containers=[container(0, resources={"limits": {f"{i}/{n}": 1 for n in range(60_000)}})]),
    "ports": lambda i: pod(i, containers=[container(i, ports=[{"containerPort": n + 1} for n in range(50_000)])]),
    "readiness gates": lambda i: pod(i, readinessGates=[{"conditionType": f"g{i}/{n}"} for n in range(40_000)]),
    "owners": lambda i: pod(i, owners=[{"kind": "A", "name": f"{i}-{n}", "uid": ""} for n in range(30_000)]),
}  # fmt: skip


@pytest.mark.parametrize("make", LARGE.values(), ids=LARGE.keys())
def test_pods_of_a_megabyte_take_little_memory_and_deleted_ones_none(
    make: Callable[[int], bytes],
) -> None:
    decode = PodDecoder()
    bodies = [make(number) for number in range(4)]
    decode(bodies[0])
    tracemalloc.start()
    try:
        kept: list[Pod] = [decode(body) for body in bodies]
        assert tracemalloc.get_traced_memory()[0] < MIB
        assert [one.name for one in kept] == ["p0", "p1", "p2", "p3"]
    finally:
        tracemalloc.stop()


def test_a_metrics_selector_of_a_megabyte_is_not_kept() -> None:
    """100 of them were 0.8 GB."""
    labels = {f"k{number}": "v" for number in range(60_000)}
    metric = {"name": "desired_replicas", "selector": {"matchLabels": labels}}
    asked = {
        "type": "External",
        "external": {"metric": metric, "target": {"type": "AverageValue", "averageValue": "1"}},
    }
    spec = {"scaleTargetRef": {"kind": "Deployment", "name": "web"}, "maxReplicas": 5, "metrics": [asked]}
    found = decode_hpa(json.dumps({"metadata": {"name": "web", "namespace": "shop"}, "spec": spec}).encode())
    assert [one.match_labels for one in found.metrics] == [{}]


def target(selector: Any, **head: Any) -> bytes:
    spec = {"replicas": 3, "selector": selector}
    return json.dumps({"metadata": {"name": "web", "namespace": "shop", **head}, "spec": spec}).encode()


def test_workload_labels_of_a_megabyte_are_not_kept() -> None:
    decode = target_decoder("apps/v1", "Deployment", BUILT_IN)
    head = {"labels": {f"k{number}": "v" for number in range(60_000)}}
    found = decode(target({"matchLabels": {"app": "web"}}, **head))
    assert found.labels == {}
    assert found.scale is not None


def test_each_pod_is_matched_against_a_few_requirements_only() -> None:
    """256 of them took 0.13 s of the event loop for 1,000 pods, at each evaluation."""
    stand = Stand()
    most = ",".join(["app=web", *(f"!k{number}" for number in range(MAX_SELECTOR_REQUIREMENTS - 1))])
    stand.inputs.found = deployment(5, most)
    assert stand.view().assessment is not None
    stand.inputs.found = replace(deployment(5, f"{most},!one-more"))
    code, message = stand.problem()
    assert code == 503
    assert message.startswith("Deployment web: its selector has 33 requirements; at most 32 are read")
