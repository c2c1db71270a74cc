"""A suggested policy as a merge patch in YAML: what a person pastes, or gives to `kubectl patch --type merge`."""

from collections.abc import Mapping
from typing import Any

import yaml

from adapter.load.spec import Metric, Policy
from adapter.policy.watermark_policy import API_VERSION, KIND
from adapter.replay.suggest import watermark_text


def patch_text(present: Policy, wanted: Policy, manifest: Mapping[str, Any]) -> str:
    """What changes `present` into `wanted`. `manifest` is the present policy's object, whose metrics are kept."""
    metrics = [dict(metric) for metric in manifest["spec"]["metrics"]]
    if wanted.metrics[0] != present.metrics[0]:
        metrics[0] |= _watermarks(wanted.metrics[0])
    spec: dict[str, Any] = {"metrics": metrics}
    for key, names, before, after in (
        ("velocity", ("scaleUpPercent", "scaleDownPercent"), present.velocity, wanted.velocity),
        ("cooldown", ("scaleUpSeconds", "scaleDownSeconds"), present.cooldown, wanted.cooldown),
    ):
        if before != after:
            spec[key] = {name: _whole(value) for name, value in zip(names, (after.up, after.down), strict=True)}
    metadata = {"namespace": present.namespace, "name": present.name}
    text: str = yaml.safe_dump(
        {"apiVersion": API_VERSION, "kind": KIND, "metadata": metadata, "spec": spec},
        sort_keys=False,
        allow_unicode=True,
        default_flow_style=None,
        width=100,
    )
    return text


def _watermarks(metric: Metric) -> dict[str, str]:
    marks = {"highWatermark": metric.high, "lowWatermark": metric.low}
    return {key: watermark_text(metric, value) for key, value in marks.items() if value is not None}


def _whole(value: float | None) -> int | None:
    """A merge patch removes a field that is null."""
    return None if value is None else int(value)
