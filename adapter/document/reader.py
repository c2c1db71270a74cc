"""Reads the `decide` file: a document with a policy and the inputs of its decision.

Names every fault of a document at once, with its path.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple, TypeVar

import msgspec

from adapter.document.fields import DocumentFields
from adapter.document.samples import SamplesReader
from adapter.kube.objects import EndpointSlice, decode_scale
from adapter.kube.pods import PodDecoder
from adapter.kube.selectors import SelectorError, parse_selector
from adapter.kube.targets import TargetObject, target_decoder
from adapter.load.assessment import (
    AssessmentInputs,
)
from adapter.load.pods import Pod
from adapter.load.spec import Policy, Scale, Target
from adapter.policy.hpa import Hpa, parse_hpa
from adapter.policy.linking import target_pods
from adapter.policy.pacing import MOST_REPLICAS
from adapter.policy.watermark_policy import parse_policy
from adapter.registries.kubernetes import endpoints_serving
from adapter.runtime import document_text
from adapter.runtime.decoding import Decoder
from adapter.runtime.faults import Fault, FaultyDocument, first_faults, path_of
from adapter.runtime.times import parse_time

T = TypeVar("T")

_KNOWN = (
    "now", "policy", "hpa", "scale", "target", "pods", "endpointSlices", "usage", "samples", "roster", "memory",
    "usageSource", "assessed",
)  # fmt: skip
_ASSESSED_KEYS = ("at", "scale", "observingSince", "unobservedChange")
_TITLE = "the document cannot be decided on"
_REQUIRED = {
    "now": "the moment to decide for, such as 2026-01-01T12:00:00Z",
    "policy": "a WatermarkPolicy object",
    "hpa": "a HorizontalPodAutoscaler object",
    "scale": "the target's scale, such as {spec: {replicas: 10}, status: {replicas: 10}}",
    "pods": "the target's pods (an empty list where there is none)",
}


class DocumentError(FaultyDocument):
    """The document cannot be decided on; `faults` lists every fault."""


class DecisionCase(NamedTuple):
    """A decision to make: the inputs of the assessment, then the scale and the time (seconds) to decide for."""

    inputs: AssessmentInputs
    scale: Scale
    now: float


def read_document(text: str) -> DecisionCase:
    """Read one YAML or JSON document. Raises DocumentError with every fault in it."""
    try:
        data = document_text.read_document(text)
    except document_text.TextError as error:
        raise DocumentError(first_faults(error.faults), _TITLE) from error
    if not isinstance(data, Mapping):
        raise DocumentError([Fault("", data, f"must be a mapping with {', '.join(_REQUIRED)}")])
    return _DocumentReader(data).case()


class _DocumentReader:
    """Reads one document; collects every fault before the decision."""

    def __init__(self, data: Mapping[str, Any]) -> None:
        self._data = data
        self._fields = DocumentFields(data)
        self._faults = self._fields.faults

    def case(self) -> DecisionCase:
        self._keys()
        now = self._now()
        policy, hpa = self._policy(), self._hpa()
        scale, target = self._scale("scale", self._data), self._target(hpa)
        assessed = self._assessed(now, scale)
        pods = self._pods(assessed.scale, target)
        samples = SamplesReader(self._fields, assessed.at).samples(policy)
        roster = self._fields.roster(self._data["roster"], ("roster",)) if self._data.get("roster") else None
        memory = self._fields.memory(self._data.get("memory"), ("memory",))
        if self._faults or policy is None or hpa is None or scale is None or assessed.scale is None:
            raise DocumentError(first_faults(self._faults), _TITLE)
        memory = replace(memory, observing_since=assessed.observing_since, unobserved_change=assessed.unobserved_change)
        inputs = AssessmentInputs(
            policy=policy, pods=pods, samples=samples, roster=roster, scale=assessed.scale, bounds=hpa.bounds,
            target=target, memory=memory, now=assessed.at,
        )  # fmt: skip
        return DecisionCase(inputs, scale, now)

    def _assessed(self, now: float, scale: Scale | None) -> "_Assessed":
        """When a server assessed these inputs, and the scale that it watched then; `now` and `scale` by default."""
        given = self._fields.mapping(self._data.get("assessed"), ("assessed",))
        self._fields.unknown(given, _ASSESSED_KEYS, ("assessed",))
        at, observing, change = (
            self._fields.optional_time(given, key, ("assessed",))
            for key in ("at", "observingSince", "unobservedChange")
        )
        watched = scale if given.get("scale") is None else self._scale("assessed.scale", given)
        return _Assessed(now if at is None else at, watched, observing, change)

    def _keys(self) -> None:
        for key, value in self._data.items():
            if key not in _KNOWN:
                self._fault(key, value, f"is unknown here; known are {', '.join(_KNOWN)}")
        for key, advice in _REQUIRED.items():
            if self._data.get(key) is None:
                self._fault(key, None, f"is required: {advice}")

    def _now(self) -> float:
        return self._fields.time(self._data["now"], ("now",)) if self._data.get("now") is not None else 0.0

    def _policy(self) -> Policy | None:
        return self._parsed("policy", parse_policy)

    def _hpa(self) -> Hpa | None:
        return self._parsed("hpa", parse_hpa)

    def _parsed(self, key: str, parse: Callable[[Mapping[str, Any]], T]) -> T | None:
        data = self._data.get(key)
        if data is None:
            return None
        try:
            return parse(self._fields.mapping(data, (key,)))
        except FaultyDocument as error:
            self._faults += [replace(fault, path=f"{key}.{fault.path}".rstrip(".")) for fault in error.faults]
            return None

    def _scale(self, path: str, within: Mapping[str, Any]) -> Scale | None:
        data = within.get("scale")
        scale = None if data is None else self._fields.decoded(decode_scale, data, tuple(path.split(".")))
        if scale is not None:
            for part, count in (("spec", scale.replicas), ("status", scale.status_replicas)):
                if not 0 <= count <= MOST_REPLICAS:
                    self._fault(f"{path}.{part}.replicas", count, f"must be a number from 0 to {MOST_REPLICAS}")
        return scale

    def _target(self, hpa: Hpa | None) -> Target | None:
        """The target: its name from the HPA, its rollout from `target` where the document has it."""
        data = self._data.get("target")
        if hpa is None:
            return None
        named = Target(api_version=hpa.target.api_version, kind=hpa.target.kind, name=hpa.target.name)
        decode = target_decoder(named.api_version, named.kind, None)
        known: TargetObject | None = None if data is None else self._fields.decoded(decode, data, ("target",))
        if known is not None:
            self._check_times(data, ("target",))
        return named if known is None else replace(known.target, name=named.name)

    def _pods(self, scale: Scale | None, target: Target | None) -> tuple[Pod, ...]:
        decode = PodDecoder()
        read = []
        for index, one in self._fields.objects("pods"):
            pod = self._fields.decoded(decode, one, ("pods", index))
            if pod is not None and self._named(pod, index):
                self._check_times(one, ("pods", index))
                # A document may leave out the UID; the name replaces it.
                read.append(pod if pod.uid else replace(pod, uid=pod.name))
        slices = self._slices()
        return tuple(
            replace(pod, endpoint_serving=endpoints_serving(slices[pod.name], pod.namespace, pod.name, pod.uid))
            for pod in self._of_target(read, scale, target)
        )

    def _named(self, pod: Pod, index: int) -> bool:
        """Whether the pod has a name; adds a fault where its name or UID is not unique."""
        if not pod.name:
            self._fault(path_of(("pods", index, "metadata", "name")), None, "is required")
            return False
        self._fields.once("pod", f"{pod.namespace}/{pod.name}", pod.name, ("pods", index, "metadata", "name"))
        self._fields.once("UID", pod.uid or pod.name, pod.uid or pod.name, ("pods", index, "metadata", "uid"))
        return True

    def _check_times(self, data: object, at: tuple[str | int, ...]) -> None:
        """Add a fault for each time that cannot be read; a decoder would take it for absent."""
        for place in _TIMES:
            for path, value in document_text.values_at(data, place, at):
                if value not in ("", None) and parse_time(value) is None:
                    self._fields.time(value, path)

    def _slices(self) -> Mapping[str, list[EndpointSlice]]:
        """EndpointSlices by the name of the pod that each endpoint targets."""
        slices: dict[str, list[EndpointSlice]] = defaultdict(list)
        for index, item in self._fields.objects("endpointSlices"):
            one = self._fields.decoded(_SLICES.decode, item, ("endpointSlices", index))
            for endpoint in (one.endpoints or ()) if one is not None else ():
                if one is not None and endpoint.target_ref is not None:
                    slices[endpoint.target_ref.name].append(msgspec.structs.replace(one, endpoints=[endpoint]))
        return slices

    def _of_target(self, pods: Iterable[Pod], scale: Scale | None, target: Target | None) -> list[Pod]:
        """The target's pods; labels and owners that the document leaves out exclude none."""
        if scale is None or target is None:
            return []
        try:
            selector = parse_selector(scale.selector)
        except SelectorError as error:
            self._fault("scale.status.selector", scale.selector, str(error))
            return []
        return list(target_pods(pods, selector, target, partial=True))

    def _fault(self, path: str, value: object, advice: str) -> None:
        self._faults.append(Fault(path, value, advice))


class _Assessed(NamedTuple):
    """When inputs were assessed, at which watched scale; and what the server alone remembered (times in seconds)."""

    at: float
    scale: Scale | None
    observing_since: float | None
    unobserved_change: float | None


_SLICES = Decoder(EndpointSlice)
_TIMES = (
    ("metadata", "creationTimestamp"),
    ("metadata", "deletionTimestamp"),
    ("status", "startTime"),
    ("status", "conditions", "lastTransitionTime"),
    ("status", "conditions", "lastUpdateTime"),
)
