"""The `decide` file: reads a document with a policy and the inputs of its decision, and returns the decision as JSON.

Uses the server's pipeline: `assess`, then `decide`. Names every fault of a document at once, with its path.
"""

import json
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, TypeVar

import msgspec

from adapter.kube.objects import EndpointSlice, decode_scale
from adapter.kube.pods import PodDecoder
from adapter.kube.selectors import SelectorError, parse_selector
from adapter.kube.targets import TargetObject, target_decoder
from adapter.load.assessment import (
    Assessment,
    AssessmentInputs,
    Decision,
    MetricAssessment,
    Outcome,
    PodAssessment,
)
from adapter.load.explanation import explain
from adapter.load.pipeline import assess, decide
from adapter.load.pods import Pod
from adapter.load.quantity import QuantityError, milli_text, nano_text, parse_number
from adapter.load.samples import PodUsage, Point, QuerySamples, ResourceSamples, Samples
from adapter.load.spec import Policy, Query, Scale, Target
from adapter.policy import memory_json
from adapter.policy.hpa import Hpa, parse_hpa
from adapter.policy.linking import target_pods
from adapter.policy.pacing import MOST_REPLICAS
from adapter.policy.watermark_policy import parse_policy
from adapter.registries.kubernetes import endpoints_serving
from adapter.runtime import document_text
from adapter.runtime.decoding import Decoder
from adapter.runtime.faults import Fault, FaultyDocument, first_faults, path_of
from adapter.runtime.times import parse_time
from adapter.usage.promql import PromqlError, parse_inputs
from adapter.usage.resource_metrics import decode_usage, parse_go_duration

T = TypeVar("T")

_KNOWN = (
    "now", "policy", "hpa", "scale", "target", "pods", "endpointSlices", "usage", "samples", "roster", "memory",
)  # fmt: skip
_TITLE = "the document cannot be decided on"
_LONGEST_DURATION = 64
_SAMPLES_KEYS = ("at", "pods", "total", "windowSeconds")
_LONGEST_WINDOW = 366 * 86_400
_REQUIRED = {
    "now": "the moment to decide for, such as 2026-01-01T12:00:00Z",
    "policy": "a WatermarkPolicy object",
    "hpa": "a HorizontalPodAutoscaler object",
    "scale": "the target's scale, such as {spec: {replicas: 10}, status: {replicas: 10}}",
    "pods": "the target's pods (an empty list where there is none)",
}


class DocumentError(FaultyDocument):
    """The document cannot be decided on; `faults` lists every fault."""


def read_document(text: str) -> AssessmentInputs:
    """Read one YAML or JSON document. Raises DocumentError with every fault in it."""
    try:
        data = document_text.read_document(text)
    except document_text.TextError as error:
        raise DocumentError(first_faults(error.faults), _TITLE) from error
    if not isinstance(data, Mapping):
        raise DocumentError([Fault("", data, f"must be a mapping with {', '.join(_REQUIRED)}")])
    return _DocumentReader(data).inputs()


def decision_json(inputs: AssessmentInputs) -> dict[str, Any]:
    """The decision with its reasons as JSON data. `desiredReplicas` and `served` are null where `error` is set."""
    assessment = assess(inputs)
    decision = decide(assessment, inputs.scale, inputs.bounds, inputs.now)
    return {
        "desiredReplicas": decision.desired,
        "served": None if decision.served is None else milli_text(decision.served),
        "error": decision.error,
        "verdict": decision.verdict.value,
        "heldBy": decision.held_by.value if decision.held_by else None,
        "current": decision.current,
        "pods": [_pod(reading) for reading in assessment.pods],
        "counts": {state.value: count for state, count in assessment.counts.items() if count},
        "metrics": _metrics(assessment, decision),
        "conditions": dict(assessment.conditions),
        "explanation": list(explain(assessment, decision, inputs.bounds, inputs.now)),
        "memory": memory_json.memory_to_json(assessment.memory),
    }


def _pod(reading: PodAssessment) -> dict[str, Any]:
    known = {
        "name": reading.pod.name,
        "state": reading.state.value,
        "reason": reading.reason,
        "evidence": reading.evidence or None,
        "usage": {name: nano_text(value) for name, value in reading.usage.items()},
    }
    return known | ({"missing": dict(reading.missing)} if reading.missing else {})


def _metrics(assessment: Assessment, decision: Decision) -> list[dict[str, Any]]:
    outcomes = {outcome.metric.name: outcome for outcome in decision.outcomes}
    return [_metric(metric, outcomes.get(metric.name)) for metric in assessment.metrics]


def _metric(metric: MetricAssessment, outcome: Outcome | None) -> dict[str, Any]:
    reading = outcome.scenario if outcome else None
    usage = reading.usage if reading else metric.usage
    return {
        "name": metric.name,
        "n": reading.n if reading else metric.n,
        "missing": reading.missing if reading else metric.missing,
        "usage": None if usage is None else nano_text(usage),
        "raw": None if metric.raw is None else nano_text(metric.raw),
        "high": None if metric.high is None else nano_text(metric.high),
        "low": None if metric.low is None else nano_text(metric.low),
        "target": None if metric.target is None else nano_text(metric.target),
        "windowSeconds": metric.window,
        "verdict": reading.verdict.value if reading else "Error",
        "proposal": outcome.proposal if outcome else None,
        "replaced": outcome.replaced if outcome else 0,
        "error": metric.error,
    }


class _DocumentReader:
    """Reads one document; collects every fault before the decision."""

    def __init__(self, data: Mapping[str, Any]) -> None:
        self._data = data
        self._reader = memory_json.MemoryReader()
        self._faults = self._reader.faults
        self._seen: dict[tuple[str, str], str] = {}

    def inputs(self) -> AssessmentInputs:
        self._keys()
        now = self._now()
        policy, hpa = self._policy(), self._hpa()
        scale, target = self._scale(), self._target(hpa)
        pods = self._pods(scale, target)
        samples = self._samples(policy, now)
        roster = self._reader.roster(self._data["roster"], ("roster",)) if self._data.get("roster") else None
        memory = self._reader.memory(self._data.get("memory"), ("memory",))
        if self._faults or policy is None or hpa is None or scale is None:
            raise DocumentError(first_faults(self._faults), _TITLE)
        return AssessmentInputs(
            policy=policy, pods=pods, samples=samples, roster=roster, scale=scale, bounds=hpa.bounds, target=target,
            memory=memory, now=now,
        )  # fmt: skip

    def _keys(self) -> None:
        for key, value in self._data.items():
            if key not in _KNOWN:
                self._fault(key, value, f"is unknown here; known are {', '.join(_KNOWN)}")
        for key, advice in _REQUIRED.items():
            if self._data.get(key) is None:
                self._fault(key, None, f"is required: {advice}")

    def _now(self) -> float:
        return self._reader.time(self._data["now"], ("now",)) if self._data.get("now") is not None else 0.0

    def _policy(self) -> Policy | None:
        return self._parsed("policy", parse_policy)

    def _hpa(self) -> Hpa | None:
        return self._parsed("hpa", parse_hpa)

    def _parsed(self, key: str, parse: Callable[[Mapping[str, Any]], T]) -> T | None:
        data = self._data.get(key)
        if data is None:
            return None
        try:
            return parse(self._reader.mapping(data, (key,)))
        except FaultyDocument as error:
            self._faults += [replace(fault, path=f"{key}.{fault.path}".rstrip(".")) for fault in error.faults]
            return None

    def _scale(self) -> Scale | None:
        data = self._data.get("scale")
        scale = None if data is None else self._decoded(decode_scale, data, ("scale",))
        if scale is not None:
            for part, count in (("spec", scale.replicas), ("status", scale.status_replicas)):
                if not 0 <= count <= MOST_REPLICAS:
                    self._fault(f"scale.{part}.replicas", count, f"must be a number from 0 to {MOST_REPLICAS}")
        return scale

    def _target(self, hpa: Hpa | None) -> Target | None:
        """The target: its name from the HPA, its rollout from `target` where the document has it."""
        data = self._data.get("target")
        if hpa is None:
            return None
        named = Target(api_version=hpa.target.api_version, kind=hpa.target.kind, name=hpa.target.name)
        decode = target_decoder(named.api_version, named.kind, None)
        known: TargetObject | None = None if data is None else self._decoded(decode, data, ("target",))
        if known is not None:
            self._check_times(data, ("target",))
        return named if known is None else replace(known.target, name=named.name)

    def _pods(self, scale: Scale | None, target: Target | None) -> tuple[Pod, ...]:
        decode = PodDecoder()
        read = []
        for index, one in self._objects("pods"):
            pod = self._decoded(decode, one, ("pods", index))
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
        self._once("pod", f"{pod.namespace}/{pod.name}", pod.name, ("pods", index, "metadata", "name"))
        self._once("UID", pod.uid or pod.name, pod.uid or pod.name, ("pods", index, "metadata", "uid"))
        return True

    def _once(self, kind: str, key: str, shown: str, at: tuple[str | int, ...]) -> None:
        """Add a fault for a second occurrence of `key`."""
        first = self._seen.setdefault((kind, key), path_of(at))
        if first != path_of(at):
            self._fault(path_of(at), shown, f"is a duplicate of {first}; keep one of them")

    def _objects(self, key: str) -> Iterator[tuple[int, Any]]:
        """The objects of a list, with their indices."""
        yield from enumerate(self._reader.sequence(self._data.get(key), (key,)))

    def _check_times(self, data: object, at: tuple[str | int, ...]) -> None:
        """Add a fault for each time that cannot be read; a decoder would take it for absent."""
        for place in _TIMES:
            for path, value in document_text.values_at(data, place, at):
                if value not in ("", None) and parse_time(value) is None:
                    self._reader.time(value, path)

    def _slices(self) -> Mapping[str, list[EndpointSlice]]:
        """EndpointSlices by the name of the pod that each endpoint targets."""
        slices: dict[str, list[EndpointSlice]] = defaultdict(list)
        for index, item in self._objects("endpointSlices"):
            one = self._decoded(_SLICES.decode, item, ("endpointSlices", index))
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

    def _samples(self, policy: Policy | None, now: float) -> Samples:
        pods = dict(self._usage())
        given = self._reader.mapping(self._data.get("samples"), ("samples",))
        queries = {metric.name: metric.query for metric in policy.metrics if metric.query} if policy else {}
        for name in given.keys() - queries.keys() if policy else ():
            self._fault(f"samples.{name}", None, f"is no query metric of the policy; those are {sorted(queries)}")
        # An answer cannot be older than its samples, or later than now.
        answered_at = min(max((one.at for one in pods.values()), default=now), now)
        return Samples(
            ResourceSamples(pods=pods, fetched_at=answered_at if pods else None),
            {
                str(name): self._query(one, ("samples", str(name)), queries.get(name), now)
                for name, one in given.items()
            },
        )

    def _usage(self) -> Iterator[tuple[str, PodUsage]]:
        for index, one in self._objects("usage"):
            window = one.get("window") if isinstance(one, Mapping) else None
            if window and not _is_duration(window):
                self._fault(f"usage[{index}].window", window, "must be a duration such as 15s")
                continue
            found = self._decoded(decode_usage, one, ("usage", index))
            if found is not None:
                self._once("usage", found[0], found[0], ("usage", index, "metadata", "name"))
                self._reader.time(one["timestamp"], ("usage", index, "timestamp"))
                yield found

    def _query(self, data: object, at: tuple[str | int, ...], query: Query | None, now: float) -> QuerySamples:
        given = self._reader.mapping(data, at)
        for key in given.keys() - _SAMPLES_KEYS:
            self._fault(path_of((*at, key)), given[key], f"is unknown here; known are {', '.join(_SAMPLES_KEYS)}")
        moment = self._reader.time(given.get("at"), (*at, "at"))
        pods = self._reader.mapping(given.get("pods"), (*at, "pods"))
        points = {name: self._point(value, moment, (*at, "pods", str(name))) for name, value in pods.items()}
        total = given.get("total")
        return QuerySamples(
            pods={str(name): point for name, point in points.items() if point is not None},
            total=None if total is None else self._point(total, moment, (*at, "total")),
            window=self._window(given, at, query),
            by_pod=True if "pods" in given else False if "total" in given else None,
            fetched_at=min(moment, now),
        )

    def _window(self, samples: Mapping[str, Any], at: tuple[str | int, ...], query: Query | None) -> float:
        """The window of the values in seconds: from the document, else from the policy's inline PromQL."""
        given = samples.get("windowSeconds")
        if given is None:
            return _window_of(query)
        if isinstance(given, bool) or not isinstance(given, int | float) or not 0 <= given <= _LONGEST_WINDOW:
            self._fault(path_of((*at, "windowSeconds")), given, f"must be a number from 0 to {_LONGEST_WINDOW}")
            return 0.0
        return float(given)

    def _point(self, value: object, at: float, path: tuple[str | int, ...]) -> Point | None:
        """A point; None for NaN and infinity, which are no samples; anything else unreadable is a fault."""
        if str(value).lower().lstrip("+-.") in {"nan", "inf"}:
            return None
        try:
            return Point(at, parse_number(str(value)))
        except QuantityError as error:
            self._fault(path_of(path), value, str(error))
            return None

    def _decoded(self, decode: Callable[[bytes], T], data: object, at: tuple[str | int, ...]) -> T | None:
        try:
            return decode(json.dumps(data, allow_nan=False).encode())
        except (msgspec.MsgspecError, ValueError, TypeError, OverflowError) as error:
            inner, value, advice = _place_in(data, str(error))
            self._fault(path_of((*at, *inner)), value, advice)
            return None

    def _fault(self, path: str, value: object, advice: str) -> None:
        self._faults.append(Fault(path, value, advice))


def _is_duration(text: object) -> bool:
    return isinstance(text, str) and len(text) <= _LONGEST_DURATION and (text[:1] == "0" or parse_go_duration(text) > 0)


def _place_in(data: object, message: str) -> tuple[tuple[str | int, ...], object, str]:
    """The path in a decoder's message, the value there, and the message without the path."""
    advice, _, place = message.rstrip("`").partition(" - at `$")
    path = tuple(int(index) if index else key for key, index in _STEP.findall(place))
    for step in path:
        inside = isinstance(data, list) and isinstance(step, int) and step < len(data)
        if not inside and not (isinstance(data, Mapping) and step in data):
            return (), None, message
        data = data[step]  # type: ignore[index]
    return path, None if isinstance(data, Mapping | list) else data, advice


def _window_of(query: Query | None) -> float:
    """The window of inline PromQL; 0 for a named query and for one that cannot be read."""
    try:
        return parse_inputs(query.prom_ql).window if query is not None else 0.0
    except PromqlError:
        return 0.0


_SLICES = Decoder(EndpointSlice)
_STEP = re.compile(r"\.([^.\[]+)|\[([0-9]+)\]")
_TIMES = (
    ("metadata", "creationTimestamp"),
    ("metadata", "deletionTimestamp"),
    ("status", "startTime"),
    ("status", "conditions", "lastTransitionTime"),
    ("status", "conditions", "lastUpdateTime"),
)
