"""Public reports on other autoscalers, as documents for `decide`: what their users would meet here."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from adapter.commands.decide import reader

Object = dict[str, Any]
VECTOR = Path(__file__).parent.parent / "vectors" / "08-overloaded-and-out.yaml"
NOW = "2026-01-01T12:00:00Z"
READ = "2026-01-01T11:59:50Z"
CPU: Object = {"name": "cpu", "resource": {"name": "cpu"}, "highWatermark": "1200m", "lowWatermark": "400m"}
TASKS: Object = {"name": "tasks", "query": {"name": "tasks"}, "highWatermark": "4", "lowWatermark": "2"}
DOWN: Object = {"error": "Prometheus main: connection refused"}


def total(value: str) -> Object:
    return {"at": READ, "total": value}


def answer(
    replicas: int,
    *metrics: Object,
    cpu: list[str] | None = None,
    samples: Object | None = None,
    least: int = 1,
    more: Object | None = None,
    **spec: Any,
) -> Object:
    """What is decided for so many pods; `cpu` is the usage of the first of them."""
    made: Object = yaml.safe_load(VECTOR.read_text())
    pods, first = [], made["pods"][0]
    for n in range(replicas):
        labels = {"name": f"web-{n}", "uid": f"uid-web-{n}"}
        status = first["status"] | {"podIP": f"10.0.0.{n}"}
        pods.append(first | {"metadata": first["metadata"] | labels, "status": status})
    usage = [
        {
            "metadata": {"name": f"web-{n}", "namespace": "shop"},
            "timestamp": READ,
            "window": "15s",
            "containers": [{"name": "app", "usage": {"cpu": used}}],
        }
        for n, used in enumerate(cpu or [])
    ]
    made["policy"]["spec"] = {"metrics": list(metrics), **spec}
    made["hpa"]["spec"]["minReplicas"] = least
    made["scale"] = {"spec": {"replicas": replicas}, "status": {"replicas": replicas, "selector": "app=web"}}
    made |= {"pods": pods, "usage": usage, "samples": samples or {}} | (more or {})
    return reader.decision_json(reader.read_document(yaml.safe_dump(made)))


FALLBACK: Object = {"fallback": {"afterSeconds": 60, "replicas": 2}}
LOST: Object = {"memory": {"errorSince": "2026-01-01T11:50:00Z"}}
NACOS: Object = {"registry": {"name": "nacos", "service": "web"}}


def listed(count: int, **fields: Any) -> Object:
    """A registry's list with so many of the pods; the first of them has these fields."""
    instances = [{"ip": f"10.0.0.{n}", "port": 80} | (fields if n == 0 else {}) for n in range(count)]
    return {"instances": {"at": READ, "instances": instances}}


REPORTS: dict[str, tuple[Object, Object]] = {
    "kubernetes/kubernetes#99394: the HPA shrinks though one of its metrics is missing": (
        answer(3, CPU, TASKS, cpu=["100m"] * 3, samples={"tasks": DOWN}),
        {"desiredReplicas": 3, "heldBy": "MetricError"},
    ),
    "kubernetes/kubernetes#61007: a missing metric stops the way up": (
        answer(3, CPU, TASKS, cpu=["2400m"] * 3, samples={"tasks": DOWN}),
        {"desiredReplicas": 6},
    ),
    "kubernetes/kubernetes#30471: one pod of 70 without a sample blocks everything": (
        answer(70, CPU, cpu=["2400m"] * 69),
        {"desiredReplicas": 138},
    ),
    "kubernetes/kubernetes#127193: one pod of 160 without a sample keeps the maximum for hours": (
        answer(160, CPU, cpu=["100m"] * 159),
        {"desiredReplicas": 42},
    ),
    "kubernetes/kubernetes#116984: 41 tasks for 10 pods of 4 tasks each are within the tolerance": (
        answer(10, TASKS, samples={"tasks": total("41")}),
        {"desiredReplicas": 11},
    ),
    "kedacore/keda#6659: the fallback replaces a larger count of another trigger": (
        answer(4, CPU, TASKS, cpu=["2400m"] * 4, samples={"tasks": DOWN}, more=LOST, **FALLBACK),
        {"desiredReplicas": 8},
    ),
    "kedacore/keda#4249: the count oscillates between the minimum and the fallback": (
        answer(1, TASKS, samples={"tasks": DOWN}, more=LOST, **FALLBACK),
        {"desiredReplicas": 2, "error": None},
    ),
    "kedacore/keda#7239: the fallback does not wake a service at 0": (
        answer(0, TASKS, samples={"tasks": DOWN}, least=0, more=LOST, **FALLBACK),
        {"desiredReplicas": 2},
    ),
    "kedacore/keda#5432: a query without a result counts as 0": (
        answer(6, TASKS, samples={"tasks": {"at": READ}}),
        {"desiredReplicas": None},
    ),
    "alibaba/nacos#11835: a service vanishes with a restart of the server": (
        answer(6, CPU, cpu=["100m"] * 6, more=listed(0), **NACOS),
        {"desiredReplicas": 6},
    ),
    "alibaba/nacos#5243: an instance that was taken offline is online again": (
        answer(3, CPU, cpu=["10m", "1500m", "1500m"], more=listed(3, enabled=False), **NACOS),
        {"counts": {"pulledOut": 1, "serving": 2}},
    ),
}


@pytest.mark.parametrize("report", REPORTS)
def test_public_report_is_answered_as_its_users_expect(report: str) -> None:
    found, expected = REPORTS[report]
    for key, value in expected.items():
        shown = {name: found[key].get(name) for name in value} if isinstance(value, dict) else found[key]
        assert shown == value, found["explanation"]
