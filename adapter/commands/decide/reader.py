"""Reads the `decide` file, a document with a policy and the inputs of its decision as Kubernetes gives them; decides.

Names every fault of a document at once, with its path.
"""

import contextlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Annotated, Any, NamedTuple

import msgspec
from msgspec import Meta

from adapter.apiserver import decision_document as written
from adapter.apiserver.decision_document import with_observed
from adapter.kube.objects import EndpointSlice
from adapter.kube.pods import PodDecoder
from adapter.kube.scale import decode_scale, target_decoder
from adapter.kube.selectors import SelectorError, parse_selector
from adapter.load.assess import assess
from adapter.load.assessment import AssessmentInputs
from adapter.load.decide import decide
from adapter.load.memory import Memory
from adapter.load.pods import Pod
from adapter.load.quantity import parse_number
from adapter.load.samples import UNCOUNTED, PodUsage, Point, QuerySamples, ResourceSamples, Samples
from adapter.load.spec import Query, Scale, Target
from adapter.policy.documents import type_fault
from adapter.policy.hpa import parse_hpa
from adapter.policy.instance_json import InstanceList, Time
from adapter.policy.linking import target_pods
from adapter.policy.status_memory import from_status
from adapter.policy.watermark_policy import parse_policy
from adapter.registries.kubernetes import Endpoints, listing
from adapter.runtime import document_text
from adapter.runtime.decoding import Decoder
from adapter.runtime.faults import Fault, FaultyDocument, closest
from adapter.runtime.times import parse_time
from adapter.usage.promql import PromqlError, QueryInputs, parse_inputs
from adapter.usage.resource_metrics import decode_usage

_TITLE = "the document cannot be decided on"
_LATEST = 221_845_392_000.0
"""The year 9000, so that later times derived from it can still be written."""


class DocumentError(FaultyDocument):
    """The document cannot be decided on; `faults` lists every fault."""


class DecisionCase(NamedTuple):
    """A decision to make: the inputs of the assessment, then the scale and the time (seconds) to decide for."""

    inputs: AssessmentInputs
    scale: Scale
    now: float


def decision_json(case: DecisionCase) -> dict[str, Any]:
    """The decision that the server makes of these inputs, with its reasons as JSON data."""
    assessment, bounds = assess(case.inputs), case.inputs.bounds
    return written.decision_json(assessment, decide(assessment, case.scale, bounds, case.now), bounds, case.now)


# --- values ---


class _Number(int):
    """Nano-units, written as a quantity."""


def _time(value: object) -> float:
    """A time in seconds."""
    seconds = parse_time(value)
    if seconds is None or not 0 <= seconds < _LATEST:
        advice = "must be a time from 1970 to the year 9000 with its offset, such as 2026-01-01T12:00:00Z"
        raise DocumentError([Fault("", value, advice)])
    return seconds


def _hook(kind: type, value: object) -> Any:
    """A time, or a quantity; NaN and infinity, which are no samples, become -1."""
    try:
        if kind is Time:
            return Time(_time(value))
        return _Number(-1 if str(value).lower().lstrip("+-.") in {"nan", "inf"} else parse_number(str(value)))
    except DocumentError as error:
        raise ValueError(str(error)) from error


def _convert(kind: Any) -> Callable[[object], Any]:
    return lambda value: msgspec.convert(value, kind, dec_hook=_hook)


def _watched(decode: Callable[[bytes], Any]) -> Callable[[object], Any]:
    """A reader of an object as the watches read it: from JSON."""
    return lambda value: decode(json.dumps(value, allow_nan=False).encode())


def _scale(body: bytes) -> Scale:
    scale = decode_scale(body)
    try:
        parse_selector(scale.selector)
    except SelectorError as error:
        raise DocumentError([Fault("status.selector", scale.selector, str(error))]) from error
    return scale


def _pod(body: bytes) -> Pod:
    """A pod; one without a UID is identified by its name."""
    pod = _POD(body)
    if not pod.name:
        raise DocumentError([Fault("metadata.name", None, "is required")])
    return pod if pod.uid else replace(pod, uid=pod.name)


def _memory(value: Mapping[str, Any]) -> Callable[[Iterable[Pod]], Memory]:
    """That of the status, for these pods, or all that a process `observed`."""
    status = from_status({key: one for key, one in value.items() if key != "observed"})
    try:
        observed = msgspec.convert(value.get("observed"), Memory | None)
    except msgspec.ValidationError as error:
        raise DocumentError([type_fault(error).within("observed")]) from error
    return status.of if observed is None else lambda _: observed


def _samples(value: Mapping[str, Any]) -> "_Query":
    """The samples of a query; a value may stand alone, without a time of its own."""

    def point(given: object) -> object:
        return given if isinstance(given, Mapping) or given is None else {"value": given}

    pods = value.get("pods")
    pods = {name: point(one) for name, one in pods.items()} if isinstance(pods, Mapping) else pods
    query: _Query = _convert(_Query)({**value, "pods": pods, "total": point(value.get("total"))})
    return query


# --- the document ---

_POD = PodDecoder()
_Seconds = Annotated[float, Meta(ge=0, le=366 * 86_400)]
_Count = Annotated[int, Meta(ge=UNCOUNTED, le=10**9)]


class _Section(msgspec.Struct, rename="camel", forbid_unknown_fields=True, kw_only=True):
    pass


class _Point(_Section):
    value: _Number
    at: Time | None = None
    count: _Count | None = None


class _Source(_Section):
    max_age_seconds: _Seconds = 90.0
    interval_seconds: _Seconds = 15.0
    error: str | None = None

    def state(self, latest: float | None) -> dict[str, Any]:
        """The fields of samples, of which the `latest` came with the last answer."""
        times = {"max_age": self.max_age_seconds, "interval": self.interval_seconds}
        return {**times, "error": self.error or None, "fetched_at": None if self.error else latest}


class _Query(_Source):
    at: Time | None = None
    pods: dict[str, _Point] | None = None
    total: _Point | None = None
    counts: dict[str, _Count] = {}
    window_seconds: _Seconds | None = None
    by_pod: bool | None = None
    targets: dict[str, _Count] = {}


class _Assessed(_Section):
    endpoint_slices_silent: bool = False


_SINGLE: Mapping[str, Callable[[Any], Any]] = {
    "now": _time,
    "policy": parse_policy,
    "hpa": parse_hpa,
    "scale": _watched(_scale),
    "target": _convert(dict[str, Any]),
    "instances": lambda value: _convert(InstanceList)(value).roster(),
    "memory": _memory,
    "usageSource": _convert(_Source),
    "assessed": _convert(_Assessed),
}
_EACH: Mapping[str, Callable[[Any], Any]] = {
    "pods": _watched(_pod),
    "endpointSlices": _watched(Decoder(EndpointSlice).decode),
    "usage": _watched(decode_usage),
}
"""Readers of the document's keys: of whole values, and of each item in a list."""
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
        raise DocumentError(error.faults, _TITLE) from error
    if not isinstance(data, Mapping):
        raise DocumentError([Fault("", data, f"must be a mapping with {', '.join(_REQUIRED)}")])
    return read_data(data)


def read_data(data: Mapping[str, Any]) -> DecisionCase:
    """Read the data of one document. Raises DocumentError with every fault in it."""
    given = dict(data)
    observed = given.pop("observed", None)
    if observed is None:
        return _read(given)
    case = _read({"pods": [], **given})  # a server wrote the document
    try:
        return case._replace(inputs=with_observed(case.inputs, observed))
    except msgspec.ValidationError as error:
        raise DocumentError([type_fault(error).within("observed")], _TITLE) from error


def _read(given: Mapping[str, Any]) -> DecisionCase:
    faults = [Fault(key, None, f"is required: {what}") for key, what in _REQUIRED.items() if given.get(key) is None]
    read = {key: _value(key, value, faults) for key, value in given.items() if value is not None}
    if read.get("target") and (hpa := read.get("hpa")):
        decode = _watched(target_decoder(hpa.target.api_version, hpa.target.kind, None))
        read["target"] = _tried(decode, read["target"], "target", faults)
    if not faults:
        faults += _cross_faults(read)
    if faults:
        raise DocumentError(faults, _TITLE)
    return _case(read)


def _value(key: str, value: Any, faults: list[Fault]) -> Any:
    """The value of a key of the document; what cannot be read is None, and its faults are added."""
    if key in _SINGLE:
        return _tried(_SINGLE[key], value, key, faults)
    if key == "samples" and isinstance(value, Mapping):
        return {name: _tried(_samples, one, f"{key}.{name}", faults) for name, one in value.items()}
    items = value.get("items") if isinstance(value, Mapping) else value  # of a List, as kubectl prints it
    if key in _EACH and isinstance(items, list):
        return [_tried(_EACH[key], one, f"{key}[{index}]", faults) for index, one in enumerate(items)]
    kinds = {"samples": "mapping"} | dict.fromkeys(_EACH, "list")
    known = f"is unknown here{closest(str(key), [*_SINGLE, *kinds])}"
    faults.append(Fault(str(key), value, f"must be a {kinds[key]}" if key in kinds else known))
    return None


def _tried(parse: Callable[[Any], Any], value: object, path: str, faults: list[Fault]) -> Any:
    """The value as it is read; None, with its faults, where it cannot be."""
    try:
        return parse(value)
    except FaultyDocument as error:
        found = error.faults
    except msgspec.ValidationError as error:
        found = (type_fault(error),)
    except (msgspec.MsgspecError, ValueError, TypeError, OverflowError, AttributeError) as error:
        is_mapping = isinstance(value, Mapping)
        found = (Fault("", None, str(error)) if is_mapping else Fault("", value, "must be a mapping"),)
    faults += [fault.within(path, "" if fault.path.startswith("[") else ".") for fault in found]
    return None


def _cross_faults(read: Mapping[str, Any]) -> Iterator[Fault]:
    """Faults that no single value shows: a pod that occurs twice, samples of no metric, samples without a time."""
    seen = dict[str, int]()
    for index, pod in enumerate(read["pods"]):
        if (first := seen.setdefault(pod.uid, index)) != index:
            yield Fault(f"pods[{index}].metadata.uid", None, f"is a duplicate of pods[{first}]; keep one of them")
    queries = sorted(metric.name for metric in read["policy"].metrics if metric.query is not None)
    for name, given in read.get("samples", {}).items():
        if name not in queries:
            yield Fault(f"samples.{name}", None, f"is not a query metric of the policy; those are {queries}")
        points = {"total": given.total, **{f"pods.{pod}": point for pod, point in (given.pods or {}).items()}}
        for place, point in points.items():
            if point is not None and given.at is None and point.at is None:
                advice = "has no time: give `at` beside `pods`, or write {at: …, value: …}"
                yield Fault(f"samples.{name}.{place}", None, advice)


def _case(read: Mapping[str, Any]) -> DecisionCase:
    """The decision to make."""
    now, policy, hpa, scale = (read[key] for key in ("now", "policy", "hpa", "scale"))
    api_version, kind, name = hpa.target
    target = Target(api_version=api_version, kind=kind, name=name)
    if read.get("target") is not None:
        target = replace(read["target"].target, name=name)
    endpoints = Endpoints()
    for number, one in enumerate(read.get("endpointSlices", ())):
        endpoints.change(None, listing(one, policy.namespace, str(number)))
    pods = tuple(
        replace(
            pod,
            endpoint_serving=endpoints.endpoint_serving(pod.namespace, pod.name, pod.uid),
            endpoints_silent=(read.get("assessed") or _Assessed()).endpoint_slices_silent,
        )
        for pod in target_pods(read["pods"], parse_selector(scale.selector).matches, target, partial=True)
    )
    usage: dict[str, PodUsage] = dict(read.get("usage", ()))
    answered_at = min(max(one.at for one in usage.values()), now) if usage else None
    source = read.get("usageSource") or _Source()
    queries = {metric.name: metric.query for metric in policy.metrics if metric.query is not None}
    samples = Samples(
        ResourceSamples(pods=usage, **source.state(answered_at)),
        {name: _query(query, queries[name], now) for name, query in read.get("samples", {}).items()},
    )
    inputs = AssessmentInputs(
        policy=policy, pods=pods, samples=samples, roster=read.get("instances"), scale=scale, bounds=hpa.bounds,
        target=target, memory=read["memory"](pods) if read.get("memory") else Memory(), now=now,
    )  # fmt: skip
    return DecisionCase(inputs, scale, now)


def _query(given: _Query, query: Query, now: float) -> QuerySamples:
    """The samples of one query."""
    inputs = QueryInputs()  # of a named query, and of PromQL that cannot be read
    with contextlib.suppress(PromqlError):
        inputs = parse_inputs(query.prom_ql)
    pods = {name: _point(one, given.at, given.counts.get(name)) for name, one in (given.pods or {}).items()}
    fewest = min(given.counts.values(), default=None)
    total = None if given.total is None else _point(given.total, given.at, fewest)
    has_answer = not (given.pods is None and given.total is None)
    return QuerySamples(
        pods={name: point for name, point in pods.items() if point is not None},
        total=total,
        window=inputs.window if given.window_seconds is None else given.window_seconds,
        shortest=inputs.shortest,
        by_pod=given.pods is not None if given.by_pod is None and has_answer else given.by_pod,
        counts={} if total is None else given.counts,
        targets=given.targets,
        **given.state(None if given.at is None else min(float(given.at), now)),
    )


def _point(given: _Point, moment: float | None, count: int | None) -> Point | None:
    """A sample; None for one that is no number."""
    at = given.at if given.at is not None else moment
    if given.value < 0 or at is None:
        return None
    return Point(float(at), int(given.value), count if given.count is None else given.count)
