"""Typed objects of a decision as the Kubernetes objects that `decide` reads: what has no bearing is left out."""

from collections.abc import Iterable, Mapping
from fractions import Fraction
from typing import Any

from adapter.kube.pods import DELETION_COST_ANNOTATION, PULLED_OUT_ANNOTATION
from adapter.load.pods import Container, Pod, PodCondition
from adapter.load.quantity import NANO, nano_text
from adapter.load.samples import PodUsage
from adapter.load.spec import Bounds, Policy, Scale, Target
from adapter.policy.hpa import DESIRED_REPLICAS, MetricSourceType, MetricTargetType
from adapter.policy.watermark_policy import API_VERSION, HOLD_UNTIL, KIND
from adapter.runtime.times import format_micro_time

Object = dict[str, Any]


def policy_metadata(policy: Policy) -> Object:
    """The metadata of a WatermarkPolicy."""
    held = {} if policy.hold_until is None else {"annotations": {HOLD_UNTIL: format_micro_time(policy.hold_until)}}
    known = {"name": policy.name, "namespace": policy.namespace, "generation": policy.generation}
    return known | ({"uid": policy.uid} if policy.uid else {}) | held


def hpa_object(policy: Policy, target: Target, bounds: Bounds) -> Object:
    """The HPA with its target, bounds, effective tolerance and last scaling. It asks for the policy's count."""
    tolerance = bounds.tolerance
    behavior = {}
    if tolerance is not None:
        behavior = {
            "scaleUp": {"tolerance": _decimal(tolerance.up)},
            "scaleDown": {"tolerance": _decimal(tolerance.down)},
        }
    described = {"apiVersion": API_VERSION, "kind": KIND, "name": policy.name}
    aim = {"type": MetricTargetType.AVERAGE_VALUE.value, "averageValue": "1"}
    source = {"describedObject": described, "metric": {"name": DESIRED_REPLICAS}, "target": aim}
    scaled = {} if bounds.last_scale is None else {"lastScaleTime": format_micro_time(bounds.last_scale)}
    return {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": policy.hpa, "namespace": policy.namespace},
        "spec": {
            "scaleTargetRef": {"apiVersion": target.api_version, "kind": target.kind, "name": target.name},
            "minReplicas": bounds.minimum,
            "maxReplicas": bounds.maximum,
            "metrics": [{"type": MetricSourceType.OBJECT.value, "object": source}],
            "behavior": behavior,
        },
        "status": scaled,
    }


def target_object(target: Target, namespace: str) -> Object:
    """The scale target with its rollout."""
    conditions = []
    if target.progressing:
        progressing = {"type": "Progressing", "status": "True", "reason": target.progressing}
        since = target.progressing_since
        conditions = [progressing | ({} if since is None else {"lastUpdateTime": format_micro_time(since)})]
    return {
        "apiVersion": target.api_version,
        "kind": target.kind,
        "metadata": {"name": target.name, "namespace": namespace, "uid": target.uid},
        "status": {"conditions": conditions},
    }


def scale_object(scale: Scale) -> Object:
    """The scale subresource."""
    status = {"replicas": scale.status_replicas, "selector": scale.selector}
    return {"spec": {"replicas": scale.replicas}, "status": status}


def pod_object(pod: Pod) -> Object:
    """A pod with the fields that a decision uses."""
    metadata: Object = {
        "name": pod.name,
        "namespace": pod.namespace,
        "uid": pod.uid,
        "creationTimestamp": format_micro_time(pod.created_at),
        "labels": dict(pod.labels),
    }
    if pod.deleting:
        metadata["deletionTimestamp"] = format_micro_time(pod.created_at)
    if pod.owner is not None:
        owner = {"controller": True, "kind": pod.owner.kind, "name": pod.owner.name, "uid": pod.owner.uid}
        metadata["ownerReferences"] = [owner]
    if annotations := _annotations(pod):
        metadata["annotations"] = annotations
    return {"metadata": metadata, "spec": _pod_spec(pod), "status": _pod_status(pod)}


def _annotations(pod: Pod) -> dict[str, str]:
    annotations = {PULLED_OUT_ANNOTATION: "true"} if pod.pulled_out_annotation else {}
    return annotations | ({DELETION_COST_ANNOTATION: str(pod.deletion_cost)} if pod.deletion_cost else {})


def _pod_spec(pod: Pod) -> Object:
    spec: Object = {"containers": [_container(one) for one in pod.containers]}
    if pod.gates:
        spec["readinessGates"] = [{"conditionType": gate} for gate in pod.gates]
    if pod.host_network:
        spec["hostNetwork"] = True
    if pod.pod_requests or pod.pod_limits:
        spec["resources"] = _resources(pod.pod_requests, pod.pod_limits)
    return spec


def _container(container: Container) -> Object:
    known: Object = {"name": container.name, "resources": _resources(container.requests, container.limits)}
    return known | ({"ports": [{"containerPort": port} for port in container.ports]} if container.ports else {})


def _resources(requests: Mapping[str, int], limits: Mapping[str, int]) -> Object:
    return {
        key: {name: nano_text(amount) for name, amount in amounts.items()}
        for key, amounts in (("requests", requests), ("limits", limits))
        if amounts
    }


def _pod_status(pod: Pod) -> Object:
    conditions = [_condition("Ready", pod.ready)] if pod.ready is not None else []
    if pod.containers_ready:
        conditions.append(_condition("ContainersReady", PodCondition(status=True)))
    told = {one["type"] for one in conditions}
    conditions += [_condition(gate, PodCondition(is_true)) for gate, is_true in pod.gates.items() if gate not in told]
    status: Object = {"phase": pod.phase, "conditions": conditions, "containerStatuses": list(_states(pod.containers))}
    if pod.started_at is not None:
        status["startTime"] = format_micro_time(pod.started_at)
    if pod.ips:
        status["podIPs"] = [{"ip": ip} for ip in pod.ips]
    return status | ({"hostIP": pod.host_ip} if pod.host_ip else {})


def _condition(kind: str, condition: PodCondition) -> Object:
    known = {"type": kind, "status": "True" if condition.status else "False"}
    return known | ({} if condition.since is None else {"lastTransitionTime": format_micro_time(condition.since)})


def _states(containers: Iterable[Container]) -> Iterable[Object]:
    """The statuses of the containers that have one."""
    for one in containers:
        if one.crash_looping:
            yield {"name": one.name, "state": {"waiting": {"reason": "CrashLoopBackOff"}}}
        elif one.running is not None:
            yield {"name": one.name, "state": {"running": {}} if one.running else {}}


def endpoint_slice(pods: Iterable[Pod], namespace: str) -> Object:
    """An EndpointSlice with the pods that no slice has as serving."""
    endpoints = [
        {
            "conditions": {"ready": False, "serving": False},
            "targetRef": {"kind": "Pod", "namespace": namespace, "name": pod.name, "uid": pod.uid},
        }
        for pod in pods
        if pod.endpoint_serving is False
    ]
    return {"metadata": {"name": "not-serving", "namespace": namespace}, "endpoints": endpoints}


def usage_object(name: str, usage: PodUsage) -> Object:
    """A pod's PodMetrics."""
    containers = [
        {"name": container, "usage": {resource: nano_text(amount) for resource, amount in amounts.items()}}
        for container, amounts in usage.containers.items()
    ]
    return {
        "metadata": {"name": name},
        "timestamp": format_micro_time(usage.at),
        "window": f"{usage.window:.9f}s",
        "containers": containers,
    }


def _decimal(ratio: Fraction) -> str:
    """A ratio as a quantity: HPAs hold tolerances as quantities, so nano-units are exact."""
    return nano_text(ratio * NANO)
