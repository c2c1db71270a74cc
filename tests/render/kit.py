"""What tests of `render` share: a stock HPA as kubectl prints it, and its pair."""

import json
from typing import Any

from adapter.commands.render.command import Rendered, Wanted, from_hpas, from_policies

Object = dict[str, Any]


def resource(name: str = "cpu", **target: object) -> Object:
    return {"type": "Resource", "resource": {"name": name, "target": target}}


def utilization(percent: int) -> Object:
    return resource(type="Utilization", averageUtilization=percent)


def average(value: str, name: str = "memory") -> Object:
    return resource(name, type="AverageValue", averageValue=value)


def stock(*metrics: Object, **spec: Any) -> Object:
    """An HPA on these metrics, with what only the API server writes."""
    return {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {
            "name": "web",
            "namespace": "shop",
            "uid": "1",
            "resourceVersion": "7",
            "labels": {"team": "a"},
            "annotations": {"kubectl.kubernetes.io/last-applied-configuration": "{}"},
        },
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
            "minReplicas": 2,
            "maxReplicas": 20,
            "metrics": list(metrics or (utilization(50),)),
            **spec,
        },
        "status": {"currentReplicas": 3, "desiredReplicas": 3},
    }


def policy(**spec: Any) -> Object:
    cpu = {"name": "cpu", "resource": {"name": "cpu"}, "highWatermark": "1200m", "lowWatermark": "400m"}
    return {
        "apiVersion": "effective-load.io/v1alpha1",
        "kind": "WatermarkPolicy",
        "metadata": {"name": "web"},
        "spec": {"metrics": [cpu], **spec},
    }


def pair(hpa: Object, *, tolerance: bool = True) -> Rendered:
    """What takes the place of an HPA."""
    (one,) = from_hpas("hpa.yaml", json.dumps(hpa), Wanted(tolerance=tolerance))
    return one


def hpa_of(
    written: Object,
    target: str | None = None,
    least: int | None = None,
    most: int | None = 50,
    *,
    tolerance: bool = True,
) -> Rendered:
    """The HPA of a policy."""
    wanted = Wanted(target=target, minimum=least, maximum=most, tolerance=tolerance)
    (one,) = from_policies("policy.yaml", json.dumps(written), wanted)
    return one
