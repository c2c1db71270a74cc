"""Writes the manifest of a HorizontalPodAutoscaler that takes its replica count from a WatermarkPolicy.

The one writer of such HPAs: `render`, `migrate` and the models of `replay` use it.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from adapter.load.spec import Bounds, Policy
from adapter.policy.behavior import BehaviorField, required_behavior
from adapter.policy.hpa import DESIRED_REPLICAS, CrossVersionReference, parse_hpa
from adapter.policy.watermark_policy import API_VERSION, KIND

HPA_API_VERSION = "autoscaling/v2"
HPA_KIND = "HorizontalPodAutoscaler"

DOWN_WINDOW = 300
"""Seconds: the window of the stock HPA on the way down."""


def count_metric(policy: str) -> dict[str, Any]:
    """The metric by which an HPA asks a policy for the replica count: value / pods × pods is the count itself."""
    return {
        "type": "Object",
        "object": {
            "describedObject": {"apiVersion": API_VERSION, "kind": KIND, "name": policy},
            "metric": {"name": DESIRED_REPLICAS},
            "target": {"type": "AverageValue", "averageValue": "1"},
        },
    }


def hpa_manifest(
    metadata: Mapping[str, Any],
    policy: str,
    target: CrossVersionReference,
    bounds: Bounds,
    behavior: Mapping[str, Any],
    kept: Iterable[Mapping[str, Any]] = (),
) -> dict[str, Any]:
    """The HPA that takes its count from a policy, within these bounds; `kept` are metrics beside the policy's."""
    return {
        "apiVersion": HPA_API_VERSION,
        "kind": HPA_KIND,
        "metadata": dict(metadata),
        "spec": {
            "scaleTargetRef": {"apiVersion": target.api_version, "kind": target.kind, "name": target.name},
            "minReplicas": bounds.minimum,
            "maxReplicas": bounds.maximum,
            "behavior": dict(behavior),
            "metrics": [count_metric(policy), *kept],
        },
    }


def following_behavior(policy: Policy, manifest: Mapping[str, Any], *, down_window: int = 0) -> dict[str, Any]:
    """The behavior with which an HPA without limits of its own follows a policy: tolerance 0, and no tighter rate.

    `down_window`: the stabilization window of the way down, in seconds; on the way up there is none.
    """
    windows = {"scaleUp": 0, "scaleDown": down_window}
    behavior: dict[str, Any] = {}
    fields: Iterable[BehaviorField] = required_behavior(policy, parse_hpa(manifest), tolerance=True)
    for one in fields:
        direction, _, key = one.name.partition(".")
        rules = behavior.setdefault(direction, {"stabilizationWindowSeconds": windows[direction]})
        rules[key] = one.value
    return behavior
