"""An explained decision without a cluster: a service with pods pulled out, above its band."""

import json
from pathlib import Path
from typing import Any

import yaml

from adapter.commands.decide.decision import decided
from adapter.commands.decide.reader import read_document
from adapter.commands.explain.reading import Explained, HpaStatus, Served
from adapter.kube.objects import Condition
from adapter.load.quantity import milli_text
from adapter.policy.behavior import count_metric
from adapter.policy.hpa import parse_hpa
from adapter.runtime.times import format_time

VECTORS = Path(__file__).parents[1] / "vectors"


def document(name: str = "08-overloaded-and-out") -> dict[str, Any]:
    """The document of a test vector."""
    given: dict[str, Any] = yaml.safe_load((VECTORS / f"{name}.yaml").read_text())
    return given


def hpa_object(**spec: Any) -> dict[str, Any]:
    """An HPA that asks for the policy's count."""
    exact = {"tolerance": "0", "stabilizationWindowSeconds": 0}
    known = {
        "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
        "minReplicas": 1,
        "maxReplicas": 50,
        "metrics": [count_metric("web")],
        "behavior": {"scaleUp": exact, "scaleDown": {**exact, "stabilizationWindowSeconds": 60}},
    }
    return {"metadata": {"name": "web", "namespace": "shop"}, "spec": known | spec}


def explained(given: dict[str, Any] | None = None, hpa: dict[str, Any] | None = None, **changes: Any) -> Explained:
    """What `explain` shows of a document that a server of this version served."""
    text = json.dumps(given or document())
    case = read_document(text)
    _, decision = decided(case)
    value = None if decision.served is None else milli_text(decision.served)
    served = Served(
        current=decision.current, desired_replicas=decision.desired, served=value, error=decision.error, held_by=None
    )
    condition = Condition(type="ScalingActive", status="True", reason="ValidMetricFound", message="it found a metric")
    scaled = format_time(case.now - 300)
    status = HpaStatus(current_replicas=10, desired_replicas=10, last_scale_time=scaled, conditions=(condition,))
    known: dict[str, Any] = {
        "namespace": "shop", "name": "web", "at": case.now, "served": served, "server_version": "0.1.0", "case": case,
        "document": text.encode(), "hpa": parse_hpa(hpa or hpa_object()), "hpa_status": status,
    }  # fmt: skip
    return Explained(**(known | changes))
