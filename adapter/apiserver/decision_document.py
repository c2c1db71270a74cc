"""The document of a policy's decision: everything that the count which the HPA gets is decided from.

`GET …/namespaces/NAMESPACE/watermarkpolicies.effective-load.io/NAME/decision` of custom.metrics.k8s.io, authorized as
a metric of that policy is. The inputs are written as the Kubernetes objects that `decide` reads, in a thread.

Without secrets: an instance of a registry keeps only the metadata that names its pod, and nothing of the settings is in
it but what a policy's conditions and errors say too.
"""

import asyncio
from collections.abc import Collection, Iterable, Mapping
from http import HTTPStatus
from typing import Any

import msgspec

from adapter.apiserver.decision_json import decision_json
from adapter.apiserver.policy_metrics import name_of, require_assessment
from adapter.apiserver.provider import MetricsProvider
from adapter.apiserver.request_info import ALL_OBJECTS, RequestInfo, RequestKind
from adapter.apiserver.status import StatusError, bad_request, unavailable
from adapter.kube.objects import DELETION_COST_ANNOTATION, PULLED_OUT_ANNOTATION
from adapter.load.assessment import AssessmentInputs
from adapter.load.memory import MetricMemory
from adapter.load.pods import Container, Pod, PodCondition
from adapter.load.quantity import NANO, nano_text
from adapter.load.samples import ELSEWHERE, Point, QuerySamples, ResourceSamples, Usage
from adapter.load.spec import Bounds, Policy, Scale, Target
from adapter.policy import status_memory
from adapter.policy.behavior import hpa_manifest
from adapter.policy.hpa import DIRECTIONS, CrossVersionReference
from adapter.policy.instance_json import instance_object, list_object
from adapter.policy.watermark_policy import API_VERSION, HOLD_UNTIL, KIND
from adapter.runtime.times import format_micro_time
from adapter.telemetry.metrics import package_version

DECISION = "decision"
"""The pseudo-metric under which decisions are served."""
MOST_ITEMS = 5000
"""The pods and instances of a document: as many as `decide` reads within two seconds."""

Object = dict[str, Any]


def is_decision(info: RequestInfo) -> bool:
    """Whether the request is for the document of a policy's decision."""
    return info.kind is RequestKind.POLICY and info.metric == DECISION and info.name != ALL_OBJECTS


async def answer(provider: MetricsProvider, info: RequestInfo) -> bytes:
    """The decision at this moment and its document, as JSON.

    Raises StatusError: as a request for `desired_replicas` does, and 413 for a document that would be too large. A
    decision that is an error is no StatusError.
    """
    if info.labels is not None or info.series is not None:
        raise bad_request("a decision has no series to select; leave labelSelector and metricLabelSelector away")
    live = await provider.live_decision(info)
    inputs, policy = live.view.inputs, live.view.policy
    assessment = require_assessment(live.view)
    if inputs is None or inputs.target is None or not live.view.spec:
        raise unavailable(f"the inputs of {name_of(live.view)} are not kept")
    instances = inputs.roster.instances if inputs.roster is not None else ()
    for what, count in (("pods", len(inputs.pods)), ("registered instances", len(instances))):
        if count > MOST_ITEMS:
            message = f"{name_of(live.view)} has {count} {what}; a document has at most {MOST_ITEMS} of them"
            raise StatusError(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, message)
    envelope = {
        "kind": "PolicyDecision",
        "apiVersion": f"{info.group}/{info.version}",
        "metadata": {"namespace": policy.namespace, "name": policy.name},
        "server": {"version": package_version()},
    }

    def written() -> bytes:
        decision = decision_json(assessment, live.decision, inputs.bounds, live.now)
        inner = document(inputs, live.view.spec, live.scale, live.now)
        return msgspec.json.encode({**envelope, "decision": decision, "document": inner})

    return await asyncio.to_thread(written)


def document(inputs: AssessmentInputs, spec: bytes, scale: Scale, now: float) -> Object:
    """The document that `decide` reads.

    `inputs` are those of the assessment, with a target; `spec` is the policy's (JSON), `scale` the live one, `now` the
    time of the decision.
    """
    policy, samples, roster = inputs.policy, inputs.samples, inputs.roster
    assert inputs.target is not None
    held = None if policy.hold_until is None else {HOLD_UNTIL: format_micro_time(policy.hold_until)}
    metadata = {"name": policy.name, "namespace": policy.namespace, "generation": policy.generation}
    metadata |= _present(uid=policy.uid or None, annotations=held)
    silent = any(pod.endpoints_silent for pod in inputs.pods) or None
    names = [pod.name for pod in inputs.pods]
    written: Object = {
        "now": format_micro_time(now),
        "policy": {"apiVersion": API_VERSION, "kind": KIND, "metadata": metadata, "spec": msgspec.Raw(spec)},
        "hpa": _hpa(policy, inputs.target, inputs.bounds),
        "target": _target(inputs.target, policy.namespace),
        "scale": _scale(scale),
        "assessed": _present(at=format_micro_time(inputs.now), endpointSlicesSilent=silent, scale=_scale(inputs.scale)),
        "endpointSlices": [_endpoint_slice(inputs.pods, policy.namespace)],
        "pods": [pod_object(pod) for pod in inputs.pods],
        "samples": {
            name: _query(names, query) | _targets(inputs, inputs.memory.metric(name), query)
            for name, query in samples.queries.items()
        },
        "memory": {**status_memory.to_status(inputs.memory), "observed": inputs.memory},
    }
    if any(metric.resource for metric in policy.metrics):
        usages = samples.resources.pods
        written["usage"] = [_usage(name, usages[name]) for name in names if name in usages]
        written["usageSource"] = _source(samples.resources)
    if roster is not None:
        key = policy.registry.pod_name_key if policy.registry is not None else ""
        instances = [instance_object(instance, key) for instance in roster.instances]
        written["instances"] = {**list_object(roster), "instances": instances}
    return written


def _source(samples: ResourceSamples | QuerySamples) -> Object:
    """When a source last answered, how long its samples count, and why its last answer failed."""
    return _present(
        maxAgeSeconds=samples.max_age,
        intervalSeconds=samples.interval,
        answeredAt=_time(samples.fetched_at),
        error=samples.error or None,
    )


def _query(names: Collection[str], samples: QuerySamples) -> Object:
    """The samples of a query metric, of the pods of these names only."""
    by_pod = samples.by_pod if samples.by_pod is not None or not samples.pods else True
    return _source(samples) | _present(
        windowSeconds=samples.window,
        offsetSeconds=samples.behind,
        byPod=by_pod,
        total=None if samples.total is None else _point(samples.total),
        counts={name: samples.counts[name] for name in names if name in samples.counts} or None,
        pods=None if by_pod is None else {name: _point(samples.pods[name]) for name in names if name in samples.pods},
    )


def _targets(inputs: AssessmentInputs, memory: MetricMemory, samples: QuerySamples) -> Object:
    """How many scrape targets a query reads. Those that are not the target's own pods have no name here."""
    known = memory.own.keys() | {key for pod in inputs.pods for key in (pod.name, *pod.ips)}
    own = {key: number for key, number in samples.targets.items() if key in known}
    others = sum(samples.targets.values()) - sum(own.values())
    return {"targets": own | ({ELSEWHERE: others} if others else {})} if samples.targets else {}


def _point(point: Point) -> Object:
    return _present(at=format_micro_time(point.at), value=nano_text(point.value), count=point.count)


def _present(**values: Any) -> Object:
    return {key: value for key, value in values.items() if value is not None}


def _time(at: float | None) -> str | None:
    return None if at is None else format_micro_time(at)


def _hpa(policy: Policy, target: Target, bounds: Bounds) -> Object:
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


def _target(target: Target, namespace: str) -> Object:
    """The scale target with its rollout."""
    progressing = {"type": "Progressing", "status": "True", "reason": target.progressing}
    conditions = [progressing | _present(lastUpdateTime=_time(target.progressing_since))] if target.progressing else []
    metadata = {"name": target.name, "namespace": namespace, "uid": target.uid}
    head = {"apiVersion": target.api_version, "kind": target.kind, "metadata": metadata}
    return head | {"status": {"conditions": conditions}}


def _scale(scale: Scale) -> Object:
    status = {"replicas": scale.status_replicas, "selector": scale.selector}
    return {"spec": {"replicas": scale.replicas}, "status": status}


def pod_object(pod: Pod) -> Object:
    """A pod with the fields that a decision uses."""
    owner, created = pod.owner, format_micro_time(pod.created_at)
    marks = {PULLED_OUT_ANNOTATION: pod.pulled_out_annotation and "true", DELETION_COST_ANNOTATION: pod.deletion_cost}
    metadata = _present(
        name=pod.name,
        namespace=pod.namespace,
        uid=pod.uid,
        creationTimestamp=created,
        labels=dict(pod.labels),
        deletionTimestamp=created if pod.deleting else None,
        ownerReferences=owner and [{"controller": True, "kind": owner.kind, "name": owner.name, "uid": owner.uid}],
        annotations={name: str(value) for name, value in marks.items() if value} or None,
    )
    spec = _present(
        containers=[
            {"name": each.name, "resources": _resources(each.requests, each.limits)}
            | _present(ports=[{"containerPort": port} for port in each.ports] or None)
            for each in pod.containers
        ],
        readinessGates=[{"conditionType": gate} for gate in pod.gates] or None,
        hostNetwork=pod.host_network or None,
        resources=_resources(pod.pod_requests, pod.pod_limits) or None,
    )
    conditions = {gate: PodCondition(status) for gate, status in pod.gates.items()}
    if pod.containers_ready:
        conditions["ContainersReady"] = PodCondition(status=True)
    if pod.waits_for:
        conditions["PodScheduled"] = PodCondition(status=False)
    if pod.ready is not None:
        conditions["Ready"] = pod.ready
    status = _present(
        phase=pod.phase,
        conditions=[
            {"type": kind, "status": str(found.status)}
            | _present(lastTransitionTime=_time(found.since), message=pod.waits_for if kind == "PodScheduled" else None)
            for kind, found in conditions.items()
        ],
        containerStatuses=[_container_status(each, pod.restarted_at) for each in pod.containers if _has_status(each)],
        startTime=_time(pod.started_at),
        podIPs=[{"ip": ip} for ip in pod.ips] or None,
        hostIP=pod.host_ip or None,
        resources=_resources(pod.pod_requests_in_force, pod.pod_limits_in_force) or None,
    )
    return {"metadata": metadata, "spec": spec, "status": status}


def _resources(requests: Mapping[str, int] | None, limits: Mapping[str, int] | None) -> Object:
    return {
        key: {name: nano_text(amount) for name, amount in amounts.items()}
        for key, amounts in (("requests", requests), ("limits", limits))
        if amounts
    }


def _has_status(container: Container) -> bool:
    return container.crash_looping or container.running is not None


def _container_status(container: Container, restarted_at: float | None) -> Object:
    """The status of a container; one that runs has the pod's last restart."""
    state: Object = {"waiting": {"reason": "CrashLoopBackOff"}} if container.crash_looping else {}
    restarted = container.running and not container.crash_looping and restarted_at is not None
    if container.running and not container.crash_looping:
        state = {"running": _present(startedAt=_time(restarted_at))}
    in_force = None
    if container.requests_in_force is not None or container.limits_in_force is not None:
        in_force = _resources(container.requests_in_force, container.limits_in_force)
    return _present(name=container.name, state=state, resources=in_force, restartCount=1 if restarted else None)


def _endpoint_slice(pods: Iterable[Pod], namespace: str) -> Object:
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


def _usage(name: str, usage: Usage) -> Object:
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
