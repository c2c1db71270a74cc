"""The cluster of the benchmark: policies, HPAs, Deployments, EndpointSlices and pods of the size that real ones have.

Every policy has its own Deployment of equally loaded pods, whose usage lies between the watermarks: the value of each
metric is known beforehand, and `desired_replicas` is the current count.
"""

import datetime as dt
import hashlib
import json
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from string import Template
from typing import Any

import yaml

Object = dict[str, Any]

HASH = "7c9d5b6f48"
_BORN = dt.datetime(2026, 1, 5, 8, 0, tzinfo=dt.UTC)
_SIDECAR = "proxy"
_POD = Template(json.dumps(yaml.safe_load(Path(__file__).with_name("pod.yaml").read_text(encoding="utf-8"))))


@dataclass(frozen=True)
class Service:
    """One policy with its HPA, Deployment and pods; each pod uses `milli` milli-cores."""

    namespace: str
    name: str
    replicas: int
    milli: int

    @property
    def pod_names(self) -> list[str]:
        return [f"{self.name}-{HASH}-{_suffix(self.name, index)}" for index in range(self.replicas)]


def services(policies: int, pods: int, namespaces: int) -> list[Service]:
    """All services: `pods` are distributed evenly over `policies`, those over `namespaces`."""
    return [
        Service(f"team-{index % namespaces:02}", f"service-{index:04}", pods // policies, 500 + index % 9 * 50)
        for index in range(policies)
    ]


def policy(service: Service) -> Object:
    cpu = {
        "name": "cpu",
        "resource": {"name": "cpu", "containers": ["app"]},
        "highWatermark": "1200m",
        "lowWatermark": "400m",
    }
    memory = {
        "name": "memory",
        "resource": {"name": "memory", "relativeTo": "Limit"},
        "highWatermark": "80%",
        "lowWatermark": "5%",
    }
    head = {"name": service.name, "namespace": service.namespace}
    return {
        "apiVersion": "effective-load.io/v1alpha1",
        "kind": "WatermarkPolicy",
        "metadata": head,
        "spec": {"metrics": [cpu, memory]},
    }


def stored(service: Service) -> Iterator[tuple[str, Object]]:
    """The keys and objects of a service in etcd."""
    key = f"{service.namespace}/{service.name}"
    yield f"/registry/deployments/{key}", deployment(service)
    yield f"/registry/horizontalpodautoscalers/{key}", hpa(service)
    yield f"/registry/endpointslices/{key}", endpoint_slice(service)
    yield from pods(service)


def pods(service: Service) -> Iterator[tuple[str, Object]]:
    """Keys and pods of a service."""
    for index, name in enumerate(service.pod_names):
        yield f"/registry/pods/{service.namespace}/{name}", pod(service, index)


def hpa(service: Service) -> Object:
    described = {"apiVersion": "effective-load.io/v1alpha1", "kind": "WatermarkPolicy", "name": service.name}
    target = {"type": "AverageValue", "averageValue": "1"}
    metric = {
        "type": "Object",
        "object": {"describedObject": described, "metric": {"name": "desired_replicas"}, "target": target},
    }
    steps = [{"type": "Percent", "value": 100, "periodSeconds": 15}, {"type": "Pods", "value": 4, "periodSeconds": 15}]
    calm = {"tolerance": "0", "stabilizationWindowSeconds": 0, "selectPolicy": "Max", "policies": steps}
    return {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": _metadata("hpa", service.namespace, service.name),
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": service.name},
            "minReplicas": 2,
            "maxReplicas": 100,
            "metrics": [metric],
            "behavior": {"scaleUp": calm, "scaleDown": calm},
        },
        "status": {"currentReplicas": service.replicas, "desiredReplicas": service.replicas, "conditions": []},
    }


def deployment(service: Service) -> Object:
    labels = {"app.kubernetes.io/name": service.name}
    spec = {key: value for key, value in pod(service, 0)["spec"].items() if key != "nodeName"}
    counts = ("replicas", "updatedReplicas", "readyReplicas", "availableReplicas")
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": _metadata("deployment", service.namespace, service.name, generation=1),
        "spec": {
            "replicas": service.replicas,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": spec},
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": "25%", "maxUnavailable": "25%"}},
            "revisionHistoryLimit": 10,
            "progressDeadlineSeconds": 600,
        },
        "status": {"observedGeneration": 1, **dict.fromkeys(counts, service.replicas)},
    }


def endpoint_slice(service: Service) -> Object:
    endpoints = [
        {
            "addresses": [address(service, index)],
            "conditions": {"ready": True, "serving": True, "terminating": False},
            "targetRef": {
                "kind": "Pod",
                "namespace": service.namespace,
                "name": name,
                "uid": uid("pod", service.namespace, name),
            },
            "nodeName": f"node-{index:03}",
            "zone": f"zone-{'abc'[index % 3]}",
        }
        for index, name in enumerate(service.pod_names)
    ]
    labels = {
        "kubernetes.io/service-name": service.name,
        "endpointslice.kubernetes.io/managed-by": "endpointslice-controller.k8s.io",
    }
    return {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {**_metadata("slice", service.namespace, service.name), "labels": labels},
        "addressType": "IPv4",
        "endpoints": endpoints,
        "ports": [{"name": "http", "port": 8080, "protocol": "TCP"}],
    }


def pod(service: Service, index: int) -> Object:
    """A pod of `pod.yaml`: 6 to 7 kB of JSON with its managed fields."""
    name = service.pod_names[index]
    filled = _POD.substitute(
        pod=name,
        namespace=service.namespace,
        service=service.name,
        uid=uid("pod", service.namespace, name),
        owner=uid("replicaset", service.namespace, service.name),
        checksum=_digest(service.name),
        node=f"node-{index:03}",
        host=f"10.0.0.{index}",
        address=address(service, index),
        moment=_time(60 + index),
        started=_time(30 + index),
        app=_digest(f"app{name}"),
        proxy=_digest(f"{_SIDECAR}{name}"),
    )
    made: Object = json.loads(filled)
    return made


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def pod_metrics(services: list[Service], at: dt.datetime) -> bytes:
    """The PodMetricsList of some services, as metrics-server writes it."""
    time, head = at.strftime("%Y-%m-%dT%H:%M:%SZ"), {"kind": "PodMetricsList", "apiVersion": "metrics.k8s.io/v1beta1"}
    items = [
        {
            "metadata": {
                "name": name,
                "namespace": service.namespace,
                "creationTimestamp": time,
                "labels": {"app.kubernetes.io/name": service.name, "pod-template-hash": HASH},
            },
            "timestamp": time,
            "window": "15.021s",
            "containers": [
                {"name": "app", "usage": {"cpu": f"{service.milli}000000n", "memory": "262144Ki"}},
                {"name": _SIDECAR, "usage": {"cpu": "21734591n", "memory": "40960Ki"}},
            ],
        }
        for service in services
        for name in service.pod_names
    ]
    return json.dumps({**head, "metadata": {}, "items": items}, separators=(",", ":")).encode()


def _metadata(kind: str, namespace: str, name: str, **more: Any) -> Object:
    identity = {"name": name, "namespace": namespace, "uid": uid(kind, namespace, name)}
    return {**identity, "creationTimestamp": _time(0), **more}


def uid(*parts: str) -> str:
    """The UID of the object of this kind, namespace and name."""
    return str(uuid.UUID(hashlib.md5("/".join(parts).encode()).hexdigest()))  # same in every process


def _suffix(name: str, index: int) -> str:
    return hashlib.md5(f"{name}/{index}".encode()).hexdigest()[:3] + f"{index:02x}"  # unique


def address(service: Service, index: int) -> str:
    """The address of a pod."""
    number = int(service.name[-4:]) * 64 + index
    return f"10.{100 + number // 65536}.{number // 256 % 256}.{number % 256}"


def _time(seconds: int) -> str:
    return (_BORN + dt.timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%SZ")
