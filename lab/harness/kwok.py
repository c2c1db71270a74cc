"""KWOK's nodes, and the annotations by which pods have usage and become Ready late, as CONFIGURATION reads them."""

from pathlib import Path
from typing import Any

CONFIGURATION = Path(__file__).with_name("kwok.yaml")
"""The file of kwok's --config."""
USAGE_CPU = "kwok.x-k8s.io/usage-cpu"
USAGE_MEMORY = "kwok.x-k8s.io/usage-memory"
READY_AFTER = "tests.effective-load.io/ready-after"
"""A pod with this annotation (a Go duration, "20s") runs at once and becomes Ready after that time."""


def usage_key(resource: str, namespace: str, app: str) -> str:
    """The key of the nodes' annotation with the usage of each pod of a workload, future pods included.

    It is on the nodes because a change of the pod template would start a rollout.
    """
    name = f"{namespace}.{app}"
    if len(name) > 63:
        raise ValueError(f"{name} is too long for the name of an annotation: shorten namespace or workload")
    return f"usage-{resource}.tests/{name}"


def usage_page(node: str) -> str:
    """The path of a node's page of usage at kwok."""
    return f"/metrics/nodes/{node}/metrics/resource"


def node(name: str) -> dict[str, Any]:
    """A node that kwok simulates, and whose metrics metrics-server scrapes from kwok."""
    room = {"cpu": "1k", "memory": "4Ti", "pods": "1000"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "labels": {"kubernetes.io/hostname": name, "kubernetes.io/os": "linux", "type": "kwok"},
            "annotations": {
                "kwok.x-k8s.io/node": "fake",
                "metrics.k8s.io/resource-metrics-path": usage_page(name),
            },
        },
        "status": {"allocatable": room, "capacity": room},
    }
