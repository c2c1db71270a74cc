"""Originals, and how tests migrate them."""

import copy
import json
from pathlib import Path
from typing import Any

import yaml

from adapter.commands.files import objects_of
from adapter.commands.migrate.read import NoteKind
from adapter.commands.migrate.write import Migration, Pair, as_yaml, migrate

Object = dict[str, Any]

CASES = Path(__file__).parent / "cases"
EXAMPLES = Path(__file__).parents[2] / "manifests" / "examples" / "migrate"
TARGET = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}


def hpa(*metrics: Object, name: str = "web", **spec: Any) -> Object:
    """An HPA of Deployment web."""
    return {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": name, "namespace": "shop"},
        "spec": {
            "scaleTargetRef": TARGET,
            "minReplicas": 2,
            "maxReplicas": 20,
            "metrics": list(metrics or (resource(),)),
            **spec,
        },
    }


def resource(name: str = "cpu", **target: Any) -> Object:
    """A resource metric of an HPA; without a target cpu at 80 %."""
    target = target or {"averageUtilization": 80}
    kind = "Utilization" if "averageUtilization" in target else "AverageValue"
    return {"type": "Resource", "resource": {"name": name, "target": {"type": kind, **target}}}


def pods_metric(name: str, average: str = "10") -> Object:
    """A Pods metric of an HPA."""
    target = {"type": "AverageValue", "averageValue": average}
    return {"type": "Pods", "pods": {"metric": {"name": name}, "target": target}}


def scaled(*triggers: Object, **spec: Any) -> Object:
    """A ScaledObject of Deployment web."""
    return {
        "apiVersion": "keda.sh/v1alpha1",
        "kind": "ScaledObject",
        "metadata": {"name": "web", "namespace": "shop"},
        "spec": {
            "scaleTargetRef": {"name": "web"},
            "minReplicaCount": 2,
            "maxReplicaCount": 20,
            "triggers": list(triggers or (prometheus(),)),
            **spec,
        },
    }


def prometheus(query: str = "sum(rate(requests_total[2m]))", threshold: str = "10", **metadata: Any) -> Object:
    """A Prometheus trigger."""
    given = {"serverAddress": "http://prometheus:9090", "query": query, "threshold": threshold, **metadata}
    return {"type": "prometheus", "metadata": given}


def wpa(**spec: Any) -> Object:
    """A WatermarkPodAutoscaler of Deployment web, on cpu from 400m to 800m."""
    marks = {"name": "cpu", "metricSelector": {}, "highWatermark": "800m", "lowWatermark": "400m"}
    return {
        "apiVersion": "datadoghq.com/v1alpha1",
        "kind": "WatermarkPodAutoscaler",
        "metadata": {"name": "web", "namespace": "shop"},
        "spec": {
            "scaleTargetRef": TARGET,
            "minReplicas": 2,
            "maxReplicas": 20,
            "algorithm": "average",
            "tolerance": "10m",
            "metrics": [{"type": "Resource", "resource": marks}],
            **spec,
        },
    }


def policy(**spec: Any) -> Object:
    """A WatermarkPolicy."""
    cpu = {"name": "cpu", "resource": {"name": "cpu"}, "highWatermark": "1200m", "lowWatermark": "400m"}
    return {
        "apiVersion": "effective-load.io/v1alpha1",
        "kind": "WatermarkPolicy",
        "metadata": {"name": "web", "namespace": "shop"},
        "spec": {"metrics": [cpu], **spec},
    }


def rule(series: str = 'requests_total{namespace!="",pod!=""}', query: str = "", **name: str) -> Object:
    """A rule of prometheus-adapter."""
    overrides = {"namespace": {"resource": "namespace"}, "pod": {"resource": "pod"}}
    template = query or "sum(rate(<<.Series>>{<<.LabelMatchers>>}[2m])) by (<<.GroupBy>>)"
    return {"seriesQuery": series, "resources": {"overrides": overrides}, "name": name, "metricsQuery": template}


def rules(*custom: Object, external: tuple[Object, ...] = ()) -> Object:
    """The ConfigMap of prometheus-adapter."""
    text = yaml.safe_dump({"rules": list(custom), "externalRules": list(external)})
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "adapter"},
        "data": {"config.yaml": text},
    }


def migrated_text(text: str, **options: Any) -> Migration:
    """The migration of a text."""
    objects, faults = objects_of(text, "it.yaml")
    assert not faults
    return migrate(objects, **options)


def migrated(*objects: Object, **options: Any) -> Migration:
    """The migration of these objects."""
    return migrated_text("---\n" + "\n---\n".join(map(json.dumps, objects)), **options)


def pair(*objects: Object, **options: Any) -> Pair:
    """The only pair of these objects."""
    migration = migrated(*objects, **options)
    assert not migration.refused
    [one] = migration.pairs
    return one


def spec(*objects: Object, **options: Any) -> Object:
    """The spec of the only policy of these objects."""
    found: Object = pair(*objects, **options).objects[0]["spec"]
    return found


def query(*objects: Object) -> str:
    """The PromQL of the only metric."""
    [metric] = spec(*objects)["metrics"]
    text: str = metric["query"]["promQL"]
    return text


def notes(kind: NoteKind | None, *objects: Object, **options: Any) -> str:
    """The notes of a kind (None: of all) on the only pair, a line each."""
    return "\n".join(str(one) for one in pair(*objects, **options).notes if kind in {None, one.kind})


def refusal(*objects: Object) -> str:
    """Why nothing of these objects is migrated."""
    migration = migrated(*objects)
    assert not migration.pairs
    return "\n".join(migration.refused)


def case(name: str) -> Migration:
    """The migration of a published file."""
    return migrated_text((CASES / f"{name}.yaml").read_text())


def everything(migration: Migration) -> str:
    """All that a migration says."""
    return " ".join(as_yaml(migration).replace("\n#   ", " ").split())


def changed(data: Object, *path: str | int, to: Any) -> Object:
    """A copy with another value at the path."""
    copied = copy.deepcopy(data)
    inner: Any = copied
    for step in path[:-1]:
        inner = inner[step]
    inner[path[-1]] = to
    return copied
