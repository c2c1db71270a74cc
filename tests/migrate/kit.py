"""Originals with every field, and how tests migrate and change them."""

import copy
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from adapter.commands.migrate.migration import Migration, migrate
from adapter.commands.migrate.original import MigrationError, Note, NoteKind
from adapter.commands.migrate.pair import Style

Object = dict[str, Any]
Where = tuple[str | int, ...]

EXAMPLES = Path(__file__).parents[2] / "manifests" / "examples" / "migrate"

SELECTOR = {"matchLabels": {"app": "web"}}
WPA: Object = {
    "apiVersion": "datadoghq.com/v1alpha1",
    "kind": "WatermarkPodAutoscaler",
    "metadata": {"name": "web", "namespace": "shop", "labels": {"team": "a"}},
    "spec": {
        "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
        "minReplicas": 2,
        "maxReplicas": 20,
        "algorithm": "average",
        "tolerance": "10m",
        "scaleUpLimitFactor": 50,
        "scaleDownLimitFactor": 30,
        "upscaleForbiddenWindowSeconds": 30,
        "downscaleForbiddenWindowSeconds": 120,
        "metrics": [
            {
                "type": "Resource",
                "resource": {
                    "name": "cpu",
                    "metricSelector": SELECTOR,
                    "highWatermark": "1200m",
                    "lowWatermark": "400m",
                },
            }
        ],
    },
}
EVERYTHING_WPA: Object = {
    **WPA,
    "metadata": {
        "name": "web",
        "namespace": "shop",
        "uid": "1",
        "finalizers": ["finalizer.watermarkpodautoscaler.datadoghq.com"],
        "ownerReferences": [{"kind": "App"}],
        "labels": {"team": "a"},
        "annotations": {
            "wpa.datadoghq.com/lifecycle-control.enabled": "true",
            "wpa.datadoghq.com/skip-owner-check": "true",
            "wpa.datadoghq.com/logs-attributes": "{}",
            "example.com/note": "x",
        },
    },
    "spec": {
        **WPA["spec"],
        "upscaleDelayAboveWatermarkSeconds": 30,
        "downscaleDelayBelowWatermarkSeconds": 60,
        "replicaScalingAbsoluteModulo": 2,
        "convergeTowardsWatermark": "highwatermark",
        "tolerateZero": True,
        "minAvailableReplicaPercentage": 40,
        "readinessDelaySeconds": 10,
        "dryRun": True,
        "readinessDelay": 5,
        "metrics": [
            *WPA["spec"]["metrics"],
            {
                "type": "External",
                "external": {
                    "metricName": "queue.depth",
                    "metricSelector": {
                        "matchLabels": {"q": "a"},
                        "matchExpressions": [{"key": "z", "operator": "In", "values": ["1"]}],
                    },
                    "highWatermark": "9",
                    "lowWatermark": "5",
                },
            },
        ],
    },
    "status": {"currentReplicas": 3},
}

TARGET_REF = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}
BEHAVIOR: Object = {
    "scaleUp": {
        "stabilizationWindowSeconds": 15,
        "selectPolicy": "Min",
        "tolerance": "50m",
        "policies": [
            {"type": "Pods", "value": 4, "periodSeconds": 60},
            {"type": "Percent", "value": 50, "periodSeconds": 30},
        ],
    },
    "scaleDown": {"stabilizationWindowSeconds": 60, "tolerance": "0.2"},
}


def external(name: str, average: str = "10", **labels: str) -> Object:
    """An External metric of an HPA."""
    selector = {"selector": {"matchLabels": labels}} if labels else {}
    target = {"type": "AverageValue", "averageValue": average}
    return {"type": "External", "external": {"metric": {"name": name, **selector}, "target": target}}


def hpa(*metrics: Object, annotations: Mapping[str, str] | None = None, **spec: Any) -> Object:
    """An HPA of Deployment web."""
    return {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": "web", "namespace": "shop", "annotations": dict(annotations or {})},
        "spec": {"scaleTargetRef": TARGET_REF, "minReplicas": 2, "maxReplicas": 20, "metrics": list(metrics), **spec},
    }


EVERYTHING_KMA = hpa(
    external("rps", type="prometheus"),
    {"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 60}}},
    {
        "type": "ContainerResource",
        "containerResource": {
            "name": "memory",
            "container": "app",
            "target": {"type": "AverageValue", "averageValue": "300Mi"},
        },
    },
    {
        "type": "Object",
        "object": {
            "describedObject": {"apiVersion": "v1", "kind": "Service", "name": "web"},
            "metric": {"name": "share"},
            "target": {"type": "Value", "value": "5"},
        },
    },
    external("sqs", type="sqs-queue-length"),
    annotations={
        "metric-config.external.rps.prometheus/query": "sum by (job) (rps)",
        "metric-config.external.rps.prometheus/prometheus-server": "http://prometheus.a:9090",
        "metric-config.external.rps.prometheus/interval": "30s",
        "metric-config.object.share.prometheus/query": "sum(rps)",
        "metric-config.object.share.prometheus/per-replica": "true",
        "metric-config.external.sqs.sqs/queue": "mails",
        "metric-config.external.gone.prometheus/query": "sum(gone)",
        "example.com/note": "x",
    },
    behavior=BEHAVIOR,
)

RULES: Object = {
    "rules": [
        {
            "seriesQuery": 'http_requests_total{namespace!="",pod!=""}',
            "seriesFilters": [{"is": "^http_.*_total$"}, {"isNot": "_seconds_total$"}],
            "resources": {"overrides": {"namespace": {"resource": "namespace"}, "pod": {"resource": "pod"}}},
            "name": {"matches": "^(.*)_total$", "as": "${1}_per_second"},
            "metricsQuery": "sum(rate(<<.Series>>{<<.LabelMatchers>>}[2m])) by (<<.GroupBy>>)",
        },
        {
            "seriesQuery": '{__name__=~"^ingress_.*"}',
            "resources": {"template": "kube_<<.Resource>>"},
            "metricsQuery": "avg(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>)",
        },
    ],
    "externalRules": [
        {
            "seriesQuery": "queue_depth",
            "resources": {"namespaced": False},
            "name": {"as": "depth"},
            "metricsQuery": "max(<<.Series>>{<<.LabelMatchers>>})",
        }
    ],
}
PODS = {
    "type": "Pods",
    "pods": {
        "metric": {"name": "http_requests_per_second", "selector": {"matchLabels": {"verb": "GET"}}},
        "target": {"type": "AverageValue", "averageValue": "50"},
    },
}
EVERYTHING_PA = hpa(PODS, external("depth", queue="mails"), behavior=BEHAVIOR)

SCALED: Object = {
    "apiVersion": "keda.sh/v1alpha1",
    "kind": "ScaledObject",
    "metadata": {"name": "web", "namespace": "shop"},
    "spec": {
        "scaleTargetRef": {"name": "web"},
        "minReplicaCount": 1,
        "triggers": [
            {
                "type": "prometheus",
                "metadata": {
                    "serverAddress": "http://prometheus.a:9090",
                    "query": "sum(rate(requests[1m]))",
                    "threshold": "100",
                },
            }
        ],
    },
}
EVERYTHING_KEDA: Object = {
    **SCALED,
    "metadata": {
        "name": "web",
        "namespace": "shop",
        "labels": {"team": "a"},
        "annotations": {
            "autoscaling.keda.sh/paused": "true",
            "autoscaling.keda.sh/paused-scale-in": "true",
            "autoscaling.keda.sh/paused-scale-out": "true",
            "scaledobject.keda.sh/transfer-hpa-ownership": "true",
        },
    },
    "spec": {
        "scaleTargetRef": {
            "apiVersion": "apps/v1",
            "kind": "StatefulSet",
            "name": "web",
            "envSourceContainerName": "app",
        },
        "pollingInterval": 20,
        "cooldownPeriod": 200,
        "initialCooldownPeriod": 10,
        "idleReplicaCount": 0,
        "minReplicaCount": 2,
        "maxReplicaCount": 30,
        "fallback": {"failureThreshold": 3, "replicas": 6, "behavior": "currentReplicasIfHigher"},
        "advanced": {
            "restoreToOriginalReplicaCount": True,
            "horizontalPodAutoscalerConfig": {"name": "hpa", "behavior": BEHAVIOR},
        },
        "triggers": [
            {
                "type": "prometheus",
                "name": "requests",
                "metricType": "AverageValue",
                "useCachedMetrics": True,
                "authenticationRef": {"name": "secret"},
                "metadata": {
                    "serverAddress": "http://prometheus.a:9090",
                    "metricName": "old",
                    "query": "sum by (job) (requests)",
                    "threshold": "100.5",
                    "activationThreshold": "5",
                    "namespace": "tenant",
                    "cortexOrgID": "team-a",
                    "customHeaders": "X-Client=one,X-More=two",
                    "ignoreNullValues": "false",
                    "queryParameters": "a=b",
                    "unsafeSsl": "true",
                    "timeout": "1000",
                    "authModes": "bearer",
                    "awsRegion": "eu-west-1",
                    "identityOwner": "pod",
                },
            },
            {"type": "cpu", "metricType": "Utilization", "metadata": {"value": "60", "containerName": "app"}},
            {
                "type": "cron",
                "name": "lunch",
                "metricType": "AverageValue",
                "authenticationRef": {"name": "none"},
                "metadata": {
                    "timezone": "Asia/Shanghai",
                    "start": "0 11 * * 1-5",
                    "end": "30 13 * * 1-5",
                    "desiredReplicas": "20",
                },
            },
            {"type": "rabbitmq", "name": "orders", "metadata": {"queueName": "orders", "mode": "QueueLength"}},
        ],
    },
}
EVERYTHING = {
    "wpa": [EVERYTHING_WPA],
    "kube-metrics-adapter": [EVERYTHING_KMA],
    "prometheus-adapter": [RULES, EVERYTHING_PA],
    "keda": [EVERYTHING_KEDA],
}
"""The objects of each source, with every field that it may have."""


def text_of(*objects: Object) -> str:
    """The objects as one YAML text (each in JSON)."""
    return "\n---\n".join(json.dumps(one) for one in objects)


def migrated(*objects: Object, low_percent: int | None = None, tolerance: bool = True) -> Migration:
    """The migration of these objects."""
    style = Style(low_percent=low_percent, tolerance=tolerance)
    return migrate([("it.yaml", "---\n" + text_of(*objects))], style)


def policy_spec(*objects: Object, low_percent: int | None = None) -> Object:
    """The spec of the only policy that these objects become."""
    [pair] = migrated(*objects, low_percent=low_percent).pairs
    return dict(pair.policy["spec"])


def hpa_spec(*objects: Object) -> Object:
    """The spec of the only HPA that these objects become."""
    [pair] = migrated(*objects).pairs
    return dict(pair.hpa["spec"])


def notes_of(*objects: Object) -> tuple[Note, ...]:
    """The notes on the only pair."""
    [pair] = migrated(*objects).pairs
    return pair.notes


def note_at(field: str, *objects: Object) -> Note:
    """The only note on a field."""
    [found] = [note for note in notes_of(*objects) if note.field == field]
    return found


def kinds_at(field: str, *objects: Object) -> list[NoteKind]:
    """The kinds of the notes on a field."""
    return [note.kind for note in notes_of(*objects) if note.field == field]


def faults_of(*objects: Object) -> list[str]:
    """The faults of objects that cannot be migrated."""
    try:
        faults = migrated(*objects).faults
    except MigrationError as error:
        faults = list(error.faults)
    return [str(fault).removeprefix("it.yaml: ") for fault in faults]


def changed(data: Object, *path: str | int, to: Any = None) -> Object:
    """A copy with another value at the path; None takes it away."""
    copied = copy.deepcopy(data)
    inner: Any = copied
    for step in path[:-1]:
        inner = inner[step]
    if to is None:
        del inner[path[-1]]
    else:
        inner[path[-1]] = to
    return copied


def leaves(data: Any, at: Where = ()) -> Iterator[Where]:
    """The paths of all values that are no containers."""
    if isinstance(data, dict | list) and data:
        for key, one in data.items() if isinstance(data, dict) else enumerate(data):
            yield from leaves(one, (*at, key))
    elif at:
        yield at
