"""A suggested plan as merge patches in YAML: what a person pastes, or gives to `kubectl patch --type merge`."""

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

import yaml

from adapter.commands.replay.suggest import Plan, watermark_text
from adapter.load.spec import Metric, Policy
from adapter.policy.behavior import policies_json
from adapter.policy.watermark_policy import API_VERSION, KIND

WRITTEN = frozenset({"metrics", "saturation_factor"})
"""The fields of a policy that a patch writes."""


def patch_text(present: Policy, plan: Plan, manifest: Mapping[str, Any]) -> str:
    """What changes `present` into the plan's policy, and the behavior of its HPA if the plan has another one.

    `manifest` is the present policy's object, whose metrics are kept. Raises ValueError for a plan that changes a field
    of the policy that no patch writes: its text would not be what was played.
    """
    wanted = plan.policy
    kept = [one.name for one in fields(Policy) if one.name not in WRITTEN]
    if unwritten := [name for name in kept if getattr(wanted, name) != getattr(present, name)]:
        raise ValueError(f"a patch cannot write {', '.join(unwritten)}")
    metrics = [dict(metric) for metric in manifest["spec"]["metrics"]]
    if wanted.metrics[0] != present.metrics[0]:
        metrics[0] |= _watermarks(wanted.metrics[0])
    spec: dict[str, Any] = {"metrics": metrics}
    if wanted.saturation_factor != present.saturation_factor:
        spec["saturationFactor"] = f"{float(wanted.saturation_factor):g}"
    metadata = {"namespace": present.namespace, "name": present.name}
    patches = [{"apiVersion": API_VERSION, "kind": KIND, "metadata": metadata, "spec": spec}]
    behavior: dict[str, Any] = {}
    if plan.up is not None:
        behavior["scaleUp"] = {"stabilizationWindowSeconds": plan.up}
    if plan.down is not None:
        policies = policies_json(plan.down.policies) or None
        behavior["scaleDown"] = {"stabilizationWindowSeconds": plan.down.stabilization, "policies": policies}
    if behavior:
        patches.append(
            {
                "apiVersion": "autoscaling/v2",
                "kind": "HorizontalPodAutoscaler",
                "metadata": {**metadata, "name": present.hpa},
                "spec": {"behavior": behavior},
            }
        )
    text: str = yaml.safe_dump_all(
        patches,
        sort_keys=False,
        allow_unicode=True,
        default_flow_style=None,
        width=100,
    )
    return text


def _watermarks(metric: Metric) -> dict[str, str]:
    marks = {"highWatermark": metric.high, "lowWatermark": metric.low}
    return {key: watermark_text(metric, value) for key, value in marks.items() if value is not None}
