"""Writes the inputs of a decision as the document that `decide` reads, in pieces that are short work each.

Without secrets: an instance of a registry keeps only the metadata that names its pod, and nothing of the settings is in
it but what a policy's conditions and errors say too.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from adapter.document import objects
from adapter.load.assessment import AssessmentInputs
from adapter.load.memory import Memory
from adapter.load.quantity import nano_text
from adapter.load.roster import Instance, Roster
from adapter.load.samples import Point, QuerySamples, ResourceSamples
from adapter.load.spec import Scale
from adapter.policy import memory_json
from adapter.policy.watermark_policy import API_VERSION, KIND
from adapter.runtime.times import format_micro_time

_encode = msgspec.json.Encoder().encode


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionSource:
    """A decision to write down: the inputs of its assessment, the policy's spec (JSON), the live scale and the time.

    `inputs` must have a target.
    """

    inputs: AssessmentInputs
    spec: bytes
    scale: Scale
    now: float


def pieces(source: DecisionSource) -> Iterator[bytes]:
    """The document as pieces of JSON; each takes a fraction of a millisecond."""
    inputs = source.inputs
    yield _opened("now", format_micro_time(source.now))
    yield from _values(_head(source))
    yield from _list("pods", (objects.pod_object(pod) for pod in inputs.pods))
    names = (pod.name for pod in inputs.pods)
    resources, needs_usage = inputs.samples.resources, any(metric.resource for metric in inputs.policy.metrics)
    if needs_usage:
        usages = ((name, resources.pods.get(name)) for name in names)
        yield from _list("usage", (objects.usage_object(name, usage) for name, usage in usages if usage is not None))
        yield from _values({"usageSource": _source(resources)})
    yield b',"samples":{'
    yield from _queries(inputs)
    yield b"}"
    pod_name_key = inputs.policy.registry.pod_name_key if inputs.policy.registry is not None else ""
    if inputs.roster is not None:
        yield b',"roster":'
        yield from _roster(inputs.roster, pod_name_key)
    yield b',"memory":'
    yield from _memory(inputs.memory, pod_name_key)
    yield b"}"


def _head(source: DecisionSource) -> dict[str, Any]:
    """What there is one of: the policy, the HPA, the target, the scales, and when the server assessed."""
    inputs, policy = source.inputs, source.inputs.policy
    assert inputs.target is not None
    memory = inputs.memory
    times = {"at": inputs.now, "observingSince": memory.observing_since, "unobservedChange": memory.unobserved_change}
    assessed: dict[str, Any] = {key: format_micro_time(at) for key, at in times.items() if at is not None}
    return {
        "policy": {
            "apiVersion": API_VERSION,
            "kind": KIND,
            "metadata": objects.policy_metadata(policy),
            "spec": msgspec.Raw(source.spec),
        },
        "hpa": objects.hpa_object(policy, inputs.target, inputs.bounds),
        "target": objects.target_object(inputs.target, policy.namespace),
        "scale": objects.scale_object(source.scale),
        "assessed": assessed | {"scale": objects.scale_object(inputs.scale)},
        "endpointSlices": [objects.endpoint_slice(inputs.pods, policy.namespace)],
    }


def _source(samples: ResourceSamples | QuerySamples) -> dict[str, Any]:
    """When a source last answered, how long its samples count, and why its last answer failed."""
    known: dict[str, Any] = {"maxAgeSeconds": samples.max_age}
    if samples.fetched_at is not None:
        known["answeredAt"] = format_micro_time(samples.fetched_at)
    return known | ({"error": samples.error} if samples.error else {})


def _queries(inputs: AssessmentInputs) -> Iterator[bytes]:
    """The samples of each query metric, of the target's pods only."""
    is_first = True
    for name, samples in inputs.samples.queries.items():
        by_pod = samples.by_pod if samples.by_pod is not None or not samples.pods else True
        known = _source(samples) | {"windowSeconds": samples.window, "offsetSeconds": samples.behind}
        known |= {} if by_pod is None else {"byPod": by_pod}
        known |= {} if samples.total is None else {"total": _point(samples.total)}
        yield b"" if is_first else b","
        is_first = False
        yield _encode(name) + b":" + _encode(known)[:-1]
        if by_pod is not None:
            points = ((pod.name, samples.pods.get(pod.name)) for pod in inputs.pods)
            yield from _mapping("pods", ((pod, _point(point)) for pod, point in points if point is not None))
        yield b"}"


def _point(point: Point) -> dict[str, str]:
    return {"at": format_micro_time(point.at), "value": nano_text(point.value)}


def _roster(roster: Roster, pod_name_key: str) -> Iterator[bytes]:
    yield _encode(memory_json.roster_without_instances(roster))[:-1]
    yield from _list("instances", (_instance(one, pod_name_key) for one in roster.instances))
    yield b"}"


def _instance(instance: Instance, pod_name_key: str) -> dict[str, Any]:
    metadata = {key: value for key, value in instance.metadata.items() if key == pod_name_key}
    return memory_json.instance_to_json(replace(instance, metadata=metadata))


def _memory(memory: Memory, pod_name_key: str) -> Iterator[bytes]:
    yield _opened("rosters", memory.rosters)
    rest = {key: value for key, value in memory_json.memory_without_pods(memory).items() if key != "rosters"}
    yield from _values(rest)
    yield from _mapping("pods", memory_json.remembered_pods(memory))
    yield from _mapping("departed", memory_json.departed_pods(memory))
    if memory.last_valid is not None:
        yield b',"lastValid":'
        yield from _roster(memory.last_valid, pod_name_key)
    yield b"}"


def _opened(key: str, value: object) -> bytes:
    """The beginning of a mapping, with its first key."""
    return b"{" + _encode(key) + b":" + _encode(value)


def _values(data: Mapping[str, object]) -> Iterator[bytes]:
    """More keys of a mapping."""
    for key, value in data.items():
        yield b"," + _encode(key) + b":" + _encode(value)


def _list(key: str, items: Iterable[object]) -> Iterator[bytes]:
    """One more key of a mapping: a list."""
    yield b"," + _encode(key) + b":["
    for index, item in enumerate(items):
        yield _encode(item) if not index else b"," + _encode(item)
    yield b"]"


def _mapping(key: str, items: Iterable[tuple[str, object]]) -> Iterator[bytes]:
    """One more key of a mapping: a mapping."""
    yield b"," + _encode(key) + b":{"
    for index, (name, value) in enumerate(items):
        yield (b"," if index else b"") + _encode(name) + b":" + _encode(value)
    yield b"}"
