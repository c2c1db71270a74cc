"""The demo's Kubernetes objects: two equal Deployments, an HPA for each, and the policy of the first."""

from typing import Any

from lab.harness.kwok import USAGE_CPU
from lab.harness.workloads import container, cpu_watermarks, policy_metric, resource_metric

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
PULLED_OUT = "effective-load.io/pulled-out"


def workloads(namespace: str) -> list[Object]:
    """The two Deployments; only their names differ."""
    spec = {"containers": [container("app", {"cpu": "100m", "memory": "64Mi"})]}
    notes = {USAGE_CPU: f"{AT_FIRST}m"}
    return [
        _object(
            ("apps/v1", "Deployment", namespace, name),
            {
                "replicas": PODS_AT_FIRST,
                "selector": {"matchLabels": {"app": name}},
                "template": {"metadata": {"labels": {"app": name}, "annotations": notes}, "spec": spec},
            },
        )
        for name in (OURS, STOCK)
    ]


def scaling(namespace: str) -> list[Object]:
    """The policy with its HPA, and the stock HPA of the second Deployment."""
    pulled_out = {"replace": True, "replaceAfterSeconds": REPLACE_AFTER, "minAgeSeconds": 0}  # pods are minutes old
    metrics = [cpu_watermarks(f"{HIGH}m", f"{LOW}m")]
    return [
        _object(
            ("effective-load.io/v1alpha1", "WatermarkPolicy", namespace, OURS),
            {"metrics": metrics, "pulledOut": pulled_out},
        ),
        _hpa(namespace, OURS, policy_metric(OURS), {"tolerance": "0"}),
        _hpa(namespace, STOCK, resource_metric("cpu", average=f"{HIGH}m"), {}),
    ]


def _hpa(namespace: str, name: str, metric: Object, tolerance: Object) -> Object:
    spec = {
        "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": name},
        "minReplicas": FEWEST,
        "maxReplicas": MOST,
        "behavior": {
            "scaleUp": {"stabilizationWindowSeconds": 0, **tolerance},
            "scaleDown": {"stabilizationWindowSeconds": CALM_DOWN, **tolerance},
        },
        "metrics": [metric],
    }
    return _object(("autoscaling/v2", "HorizontalPodAutoscaler", namespace, name), spec)


def _object(head: tuple[str, str, str, str], spec: Object) -> Object:
    version, kind, namespace, name = head
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name, "namespace": namespace}, "spec": spec}
