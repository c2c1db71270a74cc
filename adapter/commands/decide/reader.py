"""Reads the `decide` file: a document with a policy and the inputs of its decision, as Kubernetes gives them.

Names every fault of a document at once, with its path.
"""

import contextlib
import json
import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Annotated, Any, NamedTuple

import msgspec
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PlainValidator, ValidationError, model_validator
from pydantic.alias_generators import to_camel

from adapter.apiserver.decision_document import with_observed
from adapter.kube.objects import EndpointSlice
from adapter.kube.pods import PodDecoder
from adapter.kube.scale import decode_scale
from adapter.kube.selectors import SelectorError, parse_selector
from adapter.kube.targets import target_decoder
from adapter.load.assessment import AssessmentInputs
from adapter.load.memory import Memory
from adapter.load.pods import Pod
from adapter.load.quantity import QuantityError, parse_number
from adapter.load.roster import Roster
from adapter.load.samples import UNCOUNTED, Point, QuerySamples, ResourceSamples, Samples, Usage
from adapter.load.spec import Policy, Query, Scale, Target
from adapter.policy.documents import type_fault
from adapter.policy.hpa import Hpa, parse_hpa
from adapter.policy.instance_json import InstanceList
from adapter.policy.linking import target_pods
from adapter.policy.status_memory import MemoryDecodeError, from_status
from adapter.policy.watermark_policy import MOST_REPLICAS, parse_policy
from adapter.registries.kubernetes import endpoints_serving
from adapter.runtime import document_text
from adapter.runtime.decoding import Decoder
from adapter.runtime.faults import Fault, FaultyDocument, closest, first_faults, path_of
from adapter.runtime.times import parse_time
from adapter.settings.base import RefusedError
from adapter.usage.promql import PromqlError, parse_inputs
from adapter.usage.resource_metrics import decode_usage

_TITLE = "the document cannot be decided on"
_LATEST = 221_845_392_000.0
"""The year 9000, so that later times derived from it can still be written."""
_STEP = re.compile(r"\.([^.\[]+)|\[([0-9]+)\]")


class DocumentError(FaultyDocument):
    """The document cannot be decided on; `faults` lists every fault."""


class DecisionCase(NamedTuple):
    """A decision to make: the inputs of the assessment, then the scale and the time (seconds) to decide for."""

    inputs: AssessmentInputs
    scale: Scale
    now: float


# --- values ---


def _time(value: object) -> float:
    seconds = parse_time(value)
    if seconds is None:
        raise RefusedError(Fault("", value, "must be a time with its offset, such as 2026-01-01T12:00:00Z"))
    if not 0 <= seconds < _LATEST:
        raise RefusedError(Fault("", value, "must be a time from 1970 to the year 9000"))
    return seconds


def _number(value: object) -> Any:
    """A quantity; None for NaN and infinity, which are no samples."""
    if str(value).lower().lstrip("+-.") in {"nan", "inf"}:
        return None
    try:
        return parse_number(str(value))
    except QuantityError as error:
        raise RefusedError(Fault("", value, str(error))) from error


def _decoded(decode: Callable[[bytes], Any]) -> Callable[[object], Any]:
    """A validator that reads an object as the watches do."""

    def validate(value: object) -> Any:
        try:
            return decode(json.dumps(value, allow_nan=False).encode())
        except RefusedError:
            raise
        except (msgspec.MsgspecError, ValueError, TypeError, OverflowError) as error:
            raise RefusedError(_place_in(value, str(error))) from error

    return validate


def _parsed(parse: Callable[[Mapping[str, Any]], Any]) -> Callable[[object], Any]:
    """A validator by a reader that names every fault."""

    def validate(value: object) -> Any:
        if not isinstance(value, Mapping):
            raise RefusedError(Fault("", value, "must be a mapping"))
        try:
            return parse(value)
        except FaultyDocument as error:
            raise RefusedError(*error.faults) from error

    return validate


def _scale(body: bytes) -> Scale:
    scale = decode_scale(body)
    for part, count in (("spec", scale.replicas), ("status", scale.status_replicas)):
        if not 0 <= count <= MOST_REPLICAS:
            fault = Fault(f"{part}.replicas", count, f"must be a number from 0 to {MOST_REPLICAS}")
            raise RefusedError(fault)
    return scale


def _pod(body: bytes) -> Pod:
    """A pod; one without a UID is identified by its name."""
    pod = _POD(body)
    if not pod.name:
        raise RefusedError(Fault("metadata.name", None, "is required"))
    return pod if pod.uid else replace(pod, uid=pod.name)


def _memory(value: Mapping[str, Any]) -> Memory:
    """That of the status, or all that a process observed where a server wrote the document."""
    given = dict(value)
    observed = given.pop("observed", None)
    try:
        memory = from_status(given)
        return memory if observed is None else msgspec.convert(observed, Memory)
    except MemoryDecodeError as error:
        raise RefusedError(error.fault) from error
    except msgspec.ValidationError as error:
        raise RefusedError(type_fault(error).within("observed")) from error


def _roster(value: object) -> Roster:
    faults: list[Fault] = []

    def time(text: object, *at: str | int) -> float:
        try:
            return _time(text)
        except RefusedError as error:
            faults.extend(replace(fault, path=path_of(at)) for fault in error.faults)
            return 0.0

    roster: Roster = _decoded(_LISTS.decode)(value).roster(time)
    if faults:
        raise RefusedError(*faults)
    return roster


_LISTS = Decoder(InstanceList)
_POD = PodDecoder()

Time = Annotated[float, PlainValidator(_time)]
Number = Annotated[Any, PlainValidator(_number)]
Seconds = Annotated[float, Field(strict=True, ge=0, le=366 * 86_400, allow_inf_nan=False)]
Count = Annotated[int, Field(strict=True, ge=UNCOUNTED, le=10**9)]


# --- the document ---


class _Section(BaseModel):
    """A mapping of the document: camelCase keys, no unknown ones; null is absent."""

    model_config = ConfigDict(alias_generator=to_camel, extra="forbid", arbitrary_types_allowed=True)

    @model_validator(mode="before")
    @classmethod
    def _without_nulls(cls, value: Any) -> Any:
        return {key: one for key, one in value.items() if one is not None} if isinstance(value, Mapping) else value


class _Point(_Section):
    value: Number
    at: Time | None = None
    count: Count | None = None


def _as_point(value: Any) -> Any:
    return value if isinstance(value, Mapping) else {"value": value}


_AnyPoint = Annotated[_Point, BeforeValidator(_as_point)]


class _Source(_Section):
    answered_at: Time | None = None
    max_age_seconds: Seconds = 90.0
    interval_seconds: Seconds = 15.0
    error: str | None = None

    def state(self, answered_at: float | None) -> dict[str, Any]:
        """The fields of samples; `answered_at` where the document has samples, but no word on their source."""
        return {
            "fetched_at": self.answered_at if self.model_fields_set & _Source.model_fields.keys() else answered_at,
            "max_age": self.max_age_seconds,
            "interval": self.interval_seconds,
            "error": self.error or None,
        }


class _Query(_Source):
    at: Time | None = None
    pods: dict[str, _AnyPoint] = {}
    total: _AnyPoint | None = None
    counts: dict[str, Count] = {}
    window_seconds: Seconds | None = None
    offset_seconds: Seconds = 0.0
    by_pod: bool | None = Field(None, strict=True)
    targets: dict[str, Count] = {}


class _Assessed(_Section):
    at: Time | None = None
    scale: Annotated[Scale, PlainValidator(_decoded(_scale))] | None = None
    endpoint_slices_silent: bool = Field(default=False, strict=True)


class _Document(_Section):
    now: Time
    policy: Annotated[Policy, PlainValidator(_parsed(parse_policy))]
    hpa: Annotated[Hpa, PlainValidator(_parsed(parse_hpa))]
    scale: Annotated[Scale, PlainValidator(_decoded(_scale))]
    pods: list[Annotated[Pod, PlainValidator(_decoded(_pod))]]
    target: dict[str, Any] | None = None
    endpoint_slices: list[Annotated[EndpointSlice, PlainValidator(_decoded(Decoder(EndpointSlice).decode))]] = []
    usage: list[Annotated[tuple[str, Usage], PlainValidator(_decoded(decode_usage))]] = []
    samples: dict[str, _Query] = {}
    instances: Annotated[Roster, PlainValidator(_roster)] | None = None
    memory: Annotated[Memory, PlainValidator(_parsed(_memory))] = Memory()
    usage_source: _Source = _Source()
    assessed: _Assessed = _Assessed()


_REQUIRED = {
    "now": "the moment to decide for, such as 2026-01-01T12:00:00Z",
    "policy": "a WatermarkPolicy object",
    "hpa": "a HorizontalPodAutoscaler object",
    "scale": "the target's scale, such as {spec: {replicas: 10}, status: {replicas: 10}}",
    "pods": "the target's pods (an empty list where there is none)",
}


def read_document(text: str) -> DecisionCase:
    """Read one YAML or JSON document. Raises DocumentError with every fault in it."""
    try:
        data = document_text.read_document(text)
    except document_text.TextError as error:
        raise DocumentError(first_faults(error.faults), _TITLE) from error
    if not isinstance(data, Mapping):
        raise DocumentError([Fault("", data, f"must be a mapping with {', '.join(_REQUIRED)}")])
    return read_data(data)


def read_data(data: Mapping[str, Any]) -> DecisionCase:
    """Read the data of one document. Raises DocumentError with every fault in it."""
    given = dict(data)
    observed = given.pop("observed", None)  # where a server wrote the document
    try:
        document = _Document.model_validate(given if observed is None else {"pods": [], **given})
    except ValidationError as error:
        faults = [fault for detail in error.errors() for fault in _faults(detail)]
        raise DocumentError(first_faults(faults), _TITLE) from error
    try:
        faults, case = list(_cross_faults(document)), _case(document)
        if observed is not None:
            case = case._replace(inputs=with_observed(case.inputs, observed))
    except RefusedError as error:
        faults, case = list(error.faults), None
    except msgspec.ValidationError as error:
        faults, case = [_place_in(observed, str(error)).within("observed")], None
    if faults or case is None:
        raise DocumentError(first_faults(faults), _TITLE)
    return case


def _case(document: _Document) -> DecisionCase:
    """The decision to make. Raises RefusedError for a target or selector that cannot be read."""
    at = document.now if document.assessed.at is None else document.assessed.at
    watched, hpa, target = document.assessed.scale or document.scale, document.hpa, _target(document)
    try:
        selector = parse_selector(watched.selector)
    except SelectorError as error:
        raise RefusedError(Fault("scale.status.selector", watched.selector, str(error))) from error
    slices: dict[str, list[EndpointSlice]] = defaultdict(list)
    for one in document.endpoint_slices:
        for endpoint in one.endpoints or ():
            if endpoint.target_ref is not None:
                slices[endpoint.target_ref.name].append(msgspec.structs.replace(one, endpoints=[endpoint]))
    silent = document.assessed.endpoint_slices_silent
    pods = tuple(
        replace(
            pod,
            endpoint_serving=endpoints_serving(slices[pod.name], pod.namespace, pod.name, pod.uid),
            endpoints_silent=silent,
        )
        for pod in target_pods(document.pods, selector, target, partial=True)
    )
    usage = dict(document.usage)
    answered_at = min(max((one.at for one in usage.values()), default=at), at) if usage else None
    queries = {metric.name: metric.query for metric in document.policy.metrics if metric.query is not None}
    samples = Samples(
        ResourceSamples(pods=usage, **document.usage_source.state(answered_at)),
        {name: _query(query, queries.get(name), at) for name, query in document.samples.items()},
    )
    inputs = AssessmentInputs(
        policy=document.policy, pods=pods, samples=samples, roster=document.instances, scale=watched, bounds=hpa.bounds,
        target=target, memory=document.memory, now=at,
    )  # fmt: skip
    return DecisionCase(inputs, document.scale, document.now)


def _target(document: _Document) -> Target:
    """The target: its name from the HPA, its rollout from `target` where the document has it."""
    reference = document.hpa.target
    named = Target(api_version=reference.api_version, kind=reference.kind, name=reference.name)
    if document.target is None:
        return named
    try:
        observed = _decoded(target_decoder(named.api_version, named.kind, None))(document.target)
    except RefusedError as error:
        raise RefusedError(*(fault.within("target") for fault in error.faults)) from error
    target: Target = observed.target
    return replace(target, name=named.name)


def _query(given: _Query, query: Query | None, now: float) -> QuerySamples:
    """The samples of one query."""
    window = 0.0  # of a named query, and of PromQL that cannot be read
    with contextlib.suppress(PromqlError):
        window = parse_inputs(query.prom_ql).window if query is not None else 0.0
    is_told = bool(given.model_fields_set & {"pods", "total"})
    fewest = min(given.counts.values(), default=None)
    total = None if given.total is None else _point(given.total, given.at, fewest)
    pods = {name: _point(point, given.at, given.counts.get(name)) for name, point in given.pods.items()}
    return QuerySamples(
        pods={name: point for name, point in pods.items() if point is not None},
        total=total,
        window=window if given.window_seconds is None else given.window_seconds,
        behind=given.offset_seconds,
        by_pod=given.by_pod if given.by_pod is not None or not is_told else "pods" in given.model_fields_set,
        counts={} if total is None else given.counts,
        targets=given.targets,
        **given.state(None if given.at is None else min(given.at, now)),
    )


def _point(given: _Point, moment: float | None, count: int | None) -> Point | None:
    at = given.at if given.at is not None else moment
    return (
        None
        if given.value is None or at is None
        else Point(at, given.value, given.count if given.count is not None else count)
    )


# --- faults ---


def _cross_faults(document: _Document) -> Iterator[Fault]:
    """Faults that no single value shows: what occurs twice, samples of no metric, samples without a time."""
    seen: dict[str, str] = {}
    keys = [(f"usage {name}", f"usage[{index}].metadata.name") for index, (name, _) in enumerate(document.usage)]
    for index, pod in enumerate(document.pods):
        keys.append((f"pod {pod.namespace}/{pod.name}", f"pods[{index}].metadata.name"))
        keys.append((f"UID {pod.uid}", f"pods[{index}].metadata.uid"))
    for key, place in keys:
        if (first := seen.setdefault(key, place)) != place:
            yield Fault(place, None, f"is a duplicate of {first}; keep one of them")
    queries = sorted(metric.name for metric in document.policy.metrics if metric.query is not None)
    for name, given in document.samples.items():
        if name not in queries:
            yield Fault(f"samples.{name}", None, f"is not a query metric of the policy; those are {queries}")
        points = {"total": given.total, **{f"pods.{pod}": point for pod, point in given.pods.items()}}
        for place, point in points.items():
            if point is not None and given.at is None and point.at is None:
                advice = "has no time: give `at` beside `pods`, or write {at: …, value: …}"
                yield Fault(f"samples.{name}.{place}", None, advice)


def _faults(detail: Any) -> Iterator[Fault]:
    """One of pydantic's errors as faults with path, value and remedy."""
    location, value = path_of(detail["loc"]), detail["input"]
    error = detail.get("ctx", {}).get("error")
    if isinstance(error, RefusedError):
        for fault in error.faults:
            joint = "." if location and fault.path and not fault.path.startswith("[") else ""
            yield replace(fault, path=f"{location}{joint}{fault.path}")
    elif detail["type"] == "missing":
        yield Fault(location, None, f"is required: {_REQUIRED.get(location, 'a value')}")
    elif detail["type"] == "extra_forbidden":
        sections = {
            "samples": _Query if len(detail["loc"]) == 3 else _Point,
            "assessed": _Assessed,
            "usageSource": _Source,
        }
        section = sections.get(detail["loc"][0], _Document) if len(detail["loc"]) > 1 else _Document
        known = [to_camel(name) for name in section.model_fields]
        yield Fault(
            location, value, f"is unknown here{closest(str(detail['loc'][-1]), known)}; known are {', '.join(known)}"
        )
    else:
        yield Fault(
            location, value, detail["msg"].replace("Input should be", "must be").replace("dictionary", "mapping")
        )


def _place_in(data: object, message: str) -> Fault:
    """A decoder's message as a fault: the path in it, the value there, and the message without the path."""
    advice, _, place = message.rstrip("`").partition(" - at `$")
    path = [int(index) if index else key for key, index in _STEP.findall(place)]
    for step in path:
        try:
            data = data[step]  # type: ignore[index]
        except (LookupError, TypeError):
            return Fault("", None, message)
    return Fault(path_of(path), None if isinstance(data, Mapping | list) else data, advice)
