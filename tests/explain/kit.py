"""An explained decision without a cluster: a service with pods pulled out, above its band."""

import json
from pathlib import Path
from typing import Any

import msgspec
import yaml

from adapter.apiserver.decision_document import document as written_document
from adapter.commands.cluster import read_answer
from adapter.commands.decide.reader import decision_json, read_document
from adapter.commands.explain.read import Explained
from adapter.policy.behavior import count_metric
from adapter.policy.hpa import parse_hpa
from adapter.runtime.times import format_time
from tests.kube.fake import text

VECTORS = Path(__file__).parents[1] / "vectors"


def document(name: str = "08-overloaded-and-out") -> dict[str, Any]:
    """The document of a test vector."""
    given: dict[str, Any] = yaml.load((VECTORS / f"{name}.yaml").read_text(), yaml.CSafeLoader)
    return given


def answer(body: Any) -> Any:
    """An API server's answer with this JSON."""
    return text(json.dumps(body))


def items(*found: Any) -> Any:
    """Its answer with a list of objects."""
    return answer({"items": found})


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


def answered(given: dict[str, Any] | None = None) -> dict[str, Any]:
    """What a server answers whose decision is on these inputs."""
    given = given or document()
    case = read_document(json.dumps(given))
    spec = json.dumps(given["policy"]["spec"]).encode()
    written = json.loads(msgspec.json.encode(written_document(case.inputs, spec, case.scale, case.now)))
    return {"decision": decision_json(case), "document": written, "server": {"version": "0.1.0"}}


def explained(given: dict[str, Any] | None = None, hpa: dict[str, Any] | None = None, **changes: Any) -> Explained:
    """What `explain` shows of it."""
    answer = answered(given)
    now = read_document(json.dumps(answer["document"])).now
    condition = {
        "type": "ScalingActive",
        "status": "True",
        "reason": "ValidMetricFound",
        "message": "it found a metric",
    }
    known: dict[str, Any] = {
        "namespace": "shop",
        "name": "web",
        "at": now,
        "answer": read_answer(json.dumps(answer).encode()),
        "hpa": parse_hpa(hpa or hpa_object()),
        "hpa_status": {
            "currentReplicas": 10,
            "desiredReplicas": 10,
            "lastScaleTime": format_time(now - 300),
            "conditions": [condition],
        },
    }
    return Explained(**(known | changes))
