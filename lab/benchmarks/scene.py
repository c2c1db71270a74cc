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
from typing import Any

Object = dict[str, Any]

HASH = "7c9d5b6f48"
_BORN = dt.datetime(2026, 1, 5, 8, 0, tzinfo=dt.UTC)
_SIDECAR = "proxy"


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
    counts = ("replicas", "updatedReplicas", "readyReplicas", "availableReplicas")
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": _metadata("deployment", service.namespace, service.name, generation=1),
        "spec": {
            "replicas": service.replicas,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": _pod_spec()},
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
    """A realistic pod: 6 to 7 kB of JSON with its managed fields."""
    name = service.pod_names[index]
    moment = _time(60 + index)
    ip = address(service, index)
    metadata = {
        **_metadata("pod", service.namespace, name),
        "generateName": f"{service.name}-{HASH}-",
        "labels": {
            "app.kubernetes.io/name": service.name,
            "app.kubernetes.io/part-of": "shop",
            "app.kubernetes.io/version": "2026.1.4",
            "pod-template-hash": HASH,
            "team": service.namespace,
        },
        "annotations": {
            "prometheus.io/scrape": "true",
            "prometheus.io/port": "9090",
            "checksum/config": hashlib.sha256(service.name.encode()).hexdigest(),
        },
        "ownerReferences": [
            {
                "apiVersion": "apps/v1",
                "kind": "ReplicaSet",
                "name": f"{service.name}-{HASH}",
                "uid": uid("replicaset", service.namespace, service.name),
                "controller": True,
                "blockOwnerDeletion": True,
            }
        ],
        "managedFields": _managed_fields(moment),
    }
    conditions = ("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled")
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": {**_pod_spec(), "nodeName": f"node-{index:03}"},
        "status": {
            "phase": "Running",
            "conditions": [{"type": kind, "status": "True", "lastTransitionTime": moment} for kind in conditions],
            "hostIP": f"10.0.0.{index}",
            "hostIPs": [{"ip": f"10.0.0.{index}"}],
            "podIP": ip,
            "podIPs": [{"ip": ip}],
            "startTime": _time(30 + index),
            "containerStatuses": [_container_status(service, one, name, moment) for one in ("app", _SIDECAR)],
            "qosClass": "Burstable",
        },
    }


def _container_status(service: Service, container: str, pod_name: str, moment: str) -> Object:
    digest = hashlib.sha256(container.encode()).hexdigest()
    return {
        "name": container,
        "state": {"running": {"startedAt": moment}},
        "lastState": {},
        "ready": True,
        "restartCount": 0,
        "image": f"registry.example.com/{service.namespace}/{container}:2026.1.4",
        "imageID": f"registry.example.com/{service.namespace}/{container}@sha256:{digest}",
        "containerID": f"containerd://{hashlib.sha256((container + pod_name).encode()).hexdigest()}",
        "started": True,
    }


def _pod_spec() -> Object:
    token = {"name": "kube-api-access-x7k2p", "readOnly": True, "mountPath": "/var/run/secrets/token"}
    settings = [{"name": f"SERVICE_SETTING_{index:02}", "value": f"value-of-setting-{index}"} for index in range(12)]
    probe = {
        "httpGet": {"path": "/health", "port": 8080, "scheme": "HTTP"},
        "timeoutSeconds": 1,
        "periodSeconds": 10,
        "successThreshold": 1,
        "failureThreshold": 3,
    }
    containers = [
        {
            "name": name,
            "image": f"registry.example.com/shop/{name}:2026.1.4",
            "ports": [{"name": "http", "containerPort": 8080, "protocol": "TCP"}],
            "env": environment,
            "resources": resources,
            "volumeMounts": [token],
            "livenessProbe": probe,
            "readinessProbe": probe,
            "terminationMessagePath": "/dev/termination-log",
            "terminationMessagePolicy": "File",
            "imagePullPolicy": "IfNotPresent",
        }
        for name, environment, resources in (
            ("app", settings, _resources("1", "512Mi", "2", "1Gi")),
            (_SIDECAR, settings[:4], _resources("100m", "128Mi", "500m", "256Mi")),
        )
    ]
    return {
        "containers": containers,
        "volumes": [{"name": token["name"], "projected": {"sources": [], "defaultMode": 420}}],
        "restartPolicy": "Always",
        "terminationGracePeriodSeconds": 30,
        "dnsPolicy": "ClusterFirst",
        "serviceAccountName": "default",
        "securityContext": {},
        "schedulerName": "default-scheduler",
        "tolerations": [
            {"key": f"node.kubernetes.io/{key}", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}
            for key in ("not-ready", "unreachable")
        ],
        "enableServiceLinks": True,
    }


def _resources(cpu: str, memory: str, cpu_limit: str, memory_limit: str) -> Object:
    return {"requests": {"cpu": cpu, "memory": memory}, "limits": {"cpu": cpu_limit, "memory": memory_limit}}


def _managed_fields(moment: str) -> list[Object]:
    names = ("name", "image", "env", "resources", "ports", "livenessProbe", "readinessProbe", "volumeMounts")
    spec: Object = {
        f'k:{{"name":"{container}"}}': {".": {}, **{f"f:{name}": {} for name in names}}
        for container in ("app", _SIDECAR)
    }
    status: Object = {
        f'k:{{"type":"{kind}"}}': {".": {}, "f:lastTransitionTime": {}, "f:status": {}, "f:type": {}}
        for kind in ("ContainersReady", "Initialized", "Ready", "PodScheduled")
    }
    return [
        {
            "manager": manager,
            "operation": "Update",
            "apiVersion": "v1",
            "time": moment,
            "fieldsType": "FieldsV1",
            "fieldsV1": fields,
            **({"subresource": "status"} if manager == "kubelet" else {}),
        }
        for manager, fields in (
            ("kube-controller-manager", {"f:metadata": {"f:labels": {}}, "f:spec": {"f:containers": spec}}),
            ("kubelet", {"f:status": {"f:conditions": status, "f:containerStatuses": {}, "f:podIP": {}}}),
        )
    ]


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
