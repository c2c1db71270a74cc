"""The demo's Kubernetes objects: two equal Deployments, an HPA for each, and the policy of the first."""

from collections.abc import Sequence
from typing import Any

Object = dict[str, Any]

OURS, STOCK = "checkout", "checkout-stock"
PODS_AT_FIRST, FEWEST, MOST = 5, 3, 20
HIGH, LOW = 1200, 900
"""The watermarks in millicores, as in README's policy; the stock HPA's target is the high one."""
AT_FIRST = 1100
"""A new pod's usage until the demo sets its share: the share at the beginning of the story."""
REPLACE_AFTER = 5
CALM_DOWN = 10
"""Scale-down stabilization of both HPAs in seconds; the default of 300 is longer than the story."""
USAGE = "kwok.x-k8s.io/usage-cpu"
PULLED_OUT = "effective-load.io/pulled-out"
KWOK_NODE = "kwok.x-k8s.io/node"
_POLICY = {"apiVersion": "effective-load.io/v1alpha1", "kind": "WatermarkPolicy"}


def manifests(namespace: str, nodes: Sequence[str] = ()) -> list[Object]:
    """All objects but the namespace, workloads first; pods are bound to `nodes`, or to any node if it is empty."""
    return [*workloads(namespace, nodes), *scaling(namespace)]


def workloads(namespace: str, nodes: Sequence[str] = ()) -> list[Object]:
    """The two Deployments; only their names differ."""
    return [_deployment(namespace, name, nodes) for name in (OURS, STOCK)]


def scaling(namespace: str) -> list[Object]:
    """The policy with its HPA, and the stock HPA of the second Deployment."""
    cpu = {"name": "cpu", "resource": {"name": "cpu"}, "highWatermark": f"{HIGH}m", "lowWatermark": f"{LOW}m"}
    pulled_out = {"replace": True, "replaceAfterSeconds": REPLACE_AFTER}
    policy = {**_POLICY, "metadata": _named(namespace, OURS), "spec": {"metrics": [cpu], "pulledOut": pulled_out}}
    described = {**_POLICY, "name": OURS}
    target = {"type": "AverageValue", "averageValue": "1"}
    metric = {"describedObject": described, "metric": {"name": "desired_replicas"}, "target": target}
    stock = {"name": "cpu", "target": {"type": "AverageValue", "averageValue": f"{HIGH}m"}}
    return [
        policy,
        _hpa(namespace, OURS, {"type": "Object", "object": metric}, {"tolerance": "0"}),
        _hpa(namespace, STOCK, {"type": "Resource", "resource": stock}, {}),
    ]


def _named(namespace: str, name: str) -> Object:
    return {"name": name, "namespace": namespace}


def _deployment(namespace: str, name: str, nodes: Sequence[str]) -> Object:
    resources = {"requests": {"cpu": "100m", "memory": "64Mi"}}
    spec: Object = {"containers": [{"name": "app", "image": "example.invalid/app:1", "resources": resources}]}
    if nodes:
        spec |= _on(nodes)
    notes = {USAGE: f"{AT_FIRST}m"}
    template = {"metadata": {"labels": {"app": name}, "annotations": notes}, "spec": spec}
    selector = {"matchLabels": {"app": name}}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": _named(namespace, name),
        "spec": {"replicas": PODS_AT_FIRST, "selector": selector, "template": template},
    }


def _on(nodes: Sequence[str]) -> Object:
    """Affinity to nodes that KWOK simulates: a real node would pull an image that does not exist."""
    # One term for each node: matchFields allows one value only.
    terms = [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]} for node in nodes]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    return {"affinity": {"nodeAffinity": required}, "tolerations": [{"key": KWOK_NODE, "operator": "Exists"}]}


def _hpa(namespace: str, name: str, metric: Object, tolerance: Object) -> Object:
    behavior = {
        "scaleUp": {"stabilizationWindowSeconds": 0, **tolerance},
        "scaleDown": {"stabilizationWindowSeconds": CALM_DOWN, **tolerance},
    }
    spec = {
        "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": name},
        "minReplicas": FEWEST,
        "maxReplicas": MOST,
        "behavior": behavior,
        "metrics": [metric],
    }
    return {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": _named(namespace, name),
        "spec": spec,
    }
