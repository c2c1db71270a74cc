"""Writes the inputs of a decision as the document that `decide` reads, in pieces that are short work each.

Without secrets: an instance of a registry keeps only the metadata that names its pod, and nothing of the settings is in
it but what a policy's conditions and errors say too.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import msgspec

from adapter.kube.objects import DELETION_COST_ANNOTATION, PULLED_OUT_ANNOTATION
from adapter.load.assessment import AssessmentInputs
from adapter.load.pods import Container, Pod, PodCondition
from adapter.load.quantity import NANO, nano_text
from adapter.load.samples import Point, QuerySamples, ResourceSamples, Usage
from adapter.load.spec import Bounds, Policy, Scale, Target
from adapter.policy import status_memory
from adapter.policy.behavior import hpa_manifest
from adapter.policy.hpa import DIRECTIONS, CrossVersionReference
from adapter.policy.instance_json import instance_object, list_object
from adapter.policy.watermark_policy import API_VERSION, HOLD_UNTIL, KIND
from adapter.runtime.times import format_micro_time

_encode = msgspec.json.Encoder().encode

Object = dict[str, Any]


class _Members(NamedTuple):
    """A mapping that is written member by member; an iterator is written as a list, item by item."""

    pairs: Iterable[tuple[str, object]]


def pieces(inputs: AssessmentInputs, spec: bytes, scale: Scale, now: float) -> Iterator[bytes]:
    """The document as pieces of JSON; each takes a fraction of a millisecond.

    `inputs` are those of the assessment, with a target; `spec` is the policy's (JSON), `scale` the live one, `now` the
    time of the decision.
    """
    return _written(_Members(_document(inputs, spec, scale, now)))


def _written(value: object) -> Iterator[bytes]:
    if isinstance(value, _Members):
        opening = b"{"
        for key, member in value.pairs:
            yield opening + _encode(key) + b":"
            yield from _written(member)
            opening = b","
        yield b"{}" if opening == b"{" else b"}"
    elif isinstance(value, Iterator):
        opening = b"["
        for item in value:
            yield opening + _encode(item)
            opening = b","
        yield b"[]" if opening == b"[" else b"]"
    else:
        yield _encode(value)


def _document(inputs: AssessmentInputs, spec: bytes, scale: Scale, now: float) -> Iterator[tuple[str, object]]:
    policy, memory = inputs.policy, inputs.memory
    assert inputs.target is not None
    yield "now", format_micro_time(now)
    metadata = {"name": policy.name, "namespace": policy.namespace, "generation": policy.generation}
    held = None if policy.hold_until is None else {HOLD_UNTIL: format_micro_time(policy.hold_until)}
    metadata |= _present(uid=policy.uid or None, annotations=held)
    yield "policy", {"apiVersion": API_VERSION, "kind": KIND, "metadata": metadata, "spec": msgspec.Raw(spec)}
    yield "hpa", hpa_object(policy, inputs.target, inputs.bounds)
    yield "target", target_object(inputs.target, policy.namespace)
    yield "scale", scale_object(scale)
    assessed: dict[str, Any] = {"at": format_micro_time(inputs.now)}
    if any(pod.endpoints_silent for pod in inputs.pods):
        assessed["endpointSlicesSilent"] = True
    yield "assessed", assessed | {"scale": scale_object(inputs.scale)}
    yield "endpointSlices", [endpoint_slice(inputs.pods, policy.namespace)]
    yield "pods", map(pod_object, inputs.pods)
    resources = inputs.samples.resources
    if any(metric.resource for metric in policy.metrics):
        usages = ((pod.name, resources.pods.get(pod.name)) for pod in inputs.pods)
        yield "usage", (usage_object(name, usage) for name, usage in usages if usage is not None)
        yield "usageSource", _source(resources)
    yield "samples", _Members(_queries(inputs))
    pod_name_key = policy.registry.pod_name_key if policy.registry is not None else ""
    if inputs.roster is not None:
        instances = (instance_object(instance, pod_name_key) for instance in inputs.roster.instances)
        yield "instances", _Members([*list_object(inputs.roster).items(), ("instances", instances)])
    yield "memory", {**status_memory.to_status(memory), "observed": memory}


def _source(samples: ResourceSamples | QuerySamples) -> dict[str, Any]:
    """When a source last answered, how long its samples count, and why its last answer failed."""
    answered_at = _time(samples.fetched_at)
    return _present(
        maxAgeSeconds=samples.max_age,
        intervalSeconds=samples.interval,
        answeredAt=answered_at,
        error=samples.error or None,
    )


def _present(**values: Any) -> Object:
    return {key: value for key, value in values.items() if value is not None}


def _time(at: float | None) -> str | None:
    return None if at is None else format_micro_time(at)


def _queries(inputs: AssessmentInputs) -> Iterator[tuple[str, object]]:
    """The samples of each query metric, of the target's pods only."""
    for name, samples in inputs.samples.queries.items():
        by_pod = samples.by_pod if samples.by_pod is not None or not samples.pods else True
        data = _source(samples) | {"windowSeconds": samples.window, "offsetSeconds": samples.behind}
        total = None if samples.total is None else _point(samples.total)
        reads = [pod.name for pod in inputs.pods if pod.name in samples.reads]
        counts = {pod.name: samples.counts[pod.name] for pod in inputs.pods if pod.name in samples.counts}
        data |= _present(byPod=by_pod, total=total, readsPods=reads or None, counts=counts or None)
        if by_pod is not None:
            points = ((pod.name, samples.pods.get(pod.name)) for pod in inputs.pods)
            data["pods"] = _Members((pod, _point(point)) for pod, point in points if point is not None)
        yield name, _Members(data.items())


def _point(point: Point) -> Object:
    value = {"at": format_micro_time(point.at), "value": nano_text(point.value)}
    return value | _present(count=point.count)


def hpa_object(policy: Policy, target: Target, bounds: Bounds) -> Object:
    """The HPA with its target, bounds, effective tolerance and last scaling. It asks for the policy's count."""
    # HPAs hold tolerances as quantities, so nano-units are exact.
    behavior = {
        direction: {"tolerance": nano_text(ratio * NANO)}
        for direction, ratio in zip(DIRECTIONS, bounds.tolerance or (), strict=False)
    }
    reference = CrossVersionReference(target.api_version, target.kind, target.name)
    metadata = {"name": policy.hpa, "namespace": policy.namespace}
    status = {"status": _present(lastScaleTime=_time(bounds.last_scale))}
    return hpa_manifest(metadata, policy.name, reference, bounds, behavior) | status


def target_object(target: Target, namespace: str) -> Object:
    """The scale target with its rollout."""
    conditions = []
    if target.progressing:
        progressing = {"type": "Progressing", "status": "True", "reason": target.progressing}
        conditions = [progressing | _present(lastUpdateTime=_time(target.progressing_since))]
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
    owner = pod.owner
    owners = owner and [{"controller": True, "kind": owner.kind, "name": owner.name, "uid": owner.uid}]
    marks = {PULLED_OUT_ANNOTATION: pod.pulled_out_annotation and "true", DELETION_COST_ANNOTATION: pod.deletion_cost}
    created = format_micro_time(pod.created_at)
    metadata = _present(
        name=pod.name,
        namespace=pod.namespace,
        uid=pod.uid,
        creationTimestamp=created,
        labels=dict(pod.labels),
        deletionTimestamp=created if pod.deleting else None,
        ownerReferences=owners,
        annotations={name: str(value) for name, value in marks.items() if value} or None,
    )
    containers = [
        {"name": container.name, "resources": _resources(container.requests, container.limits)}
        | _present(ports=[{"containerPort": port} for port in container.ports] or None)
        for container in pod.containers
    ]
    spec = _present(
        containers=containers,
        readinessGates=[{"conditionType": gate} for gate in pod.gates] or None,
        hostNetwork=pod.host_network or None,
        resources=_resources(pod.pod_requests, pod.pod_limits) or None,
    )
    conditions = [_condition("Ready", pod.ready)] if pod.ready is not None else []
    if pod.containers_ready:
        conditions.append(_condition("ContainersReady", PodCondition(status=True)))
    given_types = {condition["type"] for condition in conditions}
    conditions += [
        _condition(gate, PodCondition(is_true)) for gate, is_true in pod.gates.items() if gate not in given_types
    ]
    status = _present(
        phase=pod.phase,
        conditions=conditions,
        containerStatuses=list(_states(pod.containers, pod.restarted_at)),
        startTime=_time(pod.started_at),
        podIPs=[{"ip": ip} for ip in pod.ips] or None,
        hostIP=pod.host_ip or None,
        resources=_resources(pod.pod_requests_in_force or {}, pod.pod_limits_in_force or {}) or None,
    )
    return {"metadata": metadata, "spec": spec, "status": status}


def _resources(requests: Mapping[str, int], limits: Mapping[str, int]) -> Object:
    return {
        key: {name: nano_text(amount) for name, amount in amounts.items()}
        for key, amounts in (("requests", requests), ("limits", limits))
        if amounts
    }


def _condition(kind: str, condition: PodCondition) -> Object:
    data = {"type": kind, "status": "True" if condition.status else "False"}
    return data | _present(lastTransitionTime=_time(condition.since))


def _states(containers: Iterable[Container], restarted_at: float | None) -> Iterable[Object]:
    """The statuses of the containers that have one, those that run with the last restart."""
    running: Object = {"running": {}}
    restarts: Object = {}
    if restarted_at is not None:
        running, restarts = {"running": {"startedAt": format_micro_time(restarted_at)}}, {"restartCount": 1}
    for container in containers:
        in_force = {}
        if container.requests_in_force is not None or container.limits_in_force is not None:
            in_force = {"resources": _resources(container.requests_in_force or {}, container.limits_in_force or {})}
        if container.crash_looping:
            yield {"name": container.name, "state": {"waiting": {"reason": "CrashLoopBackOff"}}} | in_force
        elif container.running is not None:
            state = {"name": container.name, "state": running if container.running else {}}
            yield state | in_force | (restarts if container.running else {})


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


def usage_object(name: str, usage: Usage) -> Object:
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
