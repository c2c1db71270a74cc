"""Reads the `decide` file: a document with a policy and the inputs of its decision.

Names every fault of a document at once, with its path.
"""

import contextlib
import json
import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, TypeVar, cast

import msgspec

from adapter.kube.objects import EndpointSlice
from adapter.kube.pods import PodDecoder
from adapter.kube.scale import decode_scale
from adapter.kube.selectors import SelectorError, parse_selector
from adapter.kube.targets import TargetObject, target_decoder
from adapter.load.assessment import AssessmentInputs
from adapter.load.memory import Memory
from adapter.load.pods import Pod
from adapter.load.quantity import QuantityError, parse_number
from adapter.load.roster import Roster
from adapter.load.samples import UNCOUNTED, Point, QuerySamples, ResourceSamples, Samples, Usage
from adapter.load.spec import Policy, Query, Scale, Target
from adapter.policy.hpa import Hpa, parse_hpa
from adapter.policy.instance_json import InstanceList
from adapter.policy.linking import target_pods
from adapter.policy.status_memory import MemoryDecodeError, from_status
from adapter.policy.watermark_policy import MOST_REPLICAS, parse_policy
from adapter.registries.kubernetes import endpoints_serving
from adapter.runtime import document_text
from adapter.runtime.decoding import Decoder
from adapter.runtime.faults import Fault, FaultyDocument, first_faults, path_of
from adapter.runtime.times import parse_time
from adapter.usage.promql import PromqlError, parse_inputs
from adapter.usage.resource_metrics import decode_usage, parse_go_duration

T = TypeVar("T")

_KNOWN = (
    "now", "policy", "hpa", "scale", "target", "pods", "endpointSlices", "usage", "samples", "instances", "memory",
    "usageSource", "assessed",
)  # fmt: skip
_ASSESSED_KEYS = ("at", "scale", "endpointSlicesSilent")
_TITLE = "the document cannot be decided on"
_REQUIRED = {
    "now": "the moment to decide for, such as 2026-01-01T12:00:00Z",
    "policy": "a WatermarkPolicy object",
    "hpa": "a HorizontalPodAutoscaler object",
    "scale": "the target's scale, such as {spec: {replicas: 10}, status: {replicas: 10}}",
    "pods": "the target's pods (an empty list where there is none)",
}

_LONGEST_DURATION = 64
_MAX_AGE = 90.0
_SOURCE_KEYS = ("answeredAt", "maxAgeSeconds", "intervalSeconds", "error")
_INTERVAL = 15.0
_SAMPLES_KEYS = (
    "at",
    "pods",
    "total",
    "counts",
    "windowSeconds",
    "offsetSeconds",
    "byPod",
    "readsPods",
    *_SOURCE_KEYS,
)
_POINT_KEYS = ("at", "value", "count")
_MOST_WINDOW_SAMPLES = 10**9
_LONGEST_WINDOW = 366 * 86_400

Path = tuple[str | int, ...]

MOST_ITEMS = 5000
"""The pods, samples or instances that are read: as many as fit into two seconds."""
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


def read_document(text: str) -> DecisionCase:
    """Read one YAML or JSON document. Raises DocumentError with every fault in it."""
    try:
        data = document_text.read_document(text)
    except document_text.TextError as error:
        raise DocumentError(first_faults(error.faults), _TITLE) from error
    if not isinstance(data, Mapping):
        raise DocumentError([Fault("", data, f"must be a mapping with {', '.join(_REQUIRED)}")])
    return DocumentReader(data).case()


class DocumentReader:
    """Reads one document; collects every fault before the decision."""

    def __init__(self, data: Mapping[str, Any]) -> None:
        self.faults: list[Fault] = []
        self._data = data
        self._seen: dict[tuple[str, str], str] = {}

    def case(self) -> DecisionCase:
        """The decision to make. Raises DocumentError with every fault."""
        self._unknown(self._data, _KNOWN, ())
        for key, advice in _REQUIRED.items():
            if self._data.get(key) is None:
                self.fault((key,), None, f"is required: {advice}")
        now = self._optional_time(self._data, "now", ()) or 0.0
        policy, hpa = self._parsed("policy", parse_policy), self._parsed("hpa", parse_hpa)
        scale, target = self._scale(self._data, ()), self._target(hpa)
        # A server says when it assessed these inputs, and which scale it watched then.
        given = self.mapping(self._data.get("assessed"), ("assessed",))
        self._unknown(given, _ASSESSED_KEYS, ("assessed",))
        at = self._optional_time(given, "at", ("assessed",))
        at = now if at is None else at
        watched = scale if given.get("scale") is None else self._scale(given, ("assessed",))
        pods = self._pods(watched, target)
        samples = self._samples(policy, at)
        roster, memory = self._instances(), self._memory()
        if self.faults or policy is None or hpa is None or scale is None or watched is None:
            raise DocumentError(first_faults(self.faults), _TITLE)
        inputs = AssessmentInputs(
            policy=policy, pods=pods, samples=samples, roster=roster, scale=watched, bounds=hpa.bounds, target=target,
            memory=memory, now=at,
        )  # fmt: skip
        return DecisionCase(inputs, scale, now)

    def _parsed(self, key: str, parse: Callable[[Mapping[str, Any]], T]) -> T | None:
        data = self._data.get(key)
        if data is None:
            return None
        try:
            return parse(self.mapping(data, (key,)))
        except FaultyDocument as error:
            self.faults += [fault.within(key) for fault in error.faults]
            return None

    def _scale(self, given: Mapping[str, Any], at: Path) -> Scale | None:
        data = given.get("scale")
        scale = None if data is None else self._decoded(decode_scale, data, (*at, "scale"))
        if scale is not None:
            for part, count in (("spec", scale.replicas), ("status", scale.status_replicas)):
                if not 0 <= count <= MOST_REPLICAS:
                    self.fault((*at, "scale", part, "replicas"), count, f"must be a number from 0 to {MOST_REPLICAS}")
        return scale

    def _target(self, hpa: Hpa | None) -> Target | None:
        """The target: its name from the HPA, its rollout from `target` where the document has it."""
        data = self._data.get("target")
        if hpa is None:
            return None
        named = Target(api_version=hpa.target.api_version, kind=hpa.target.kind, name=hpa.target.name)
        decode = target_decoder(named.api_version, named.kind, None)
        observed: TargetObject | None = None if data is None else self._decoded(decode, data, ("target",))
        if observed is not None:
            self._check_times(data, ("target",))
        return named if observed is None else replace(observed.target, name=named.name)

    def _pods(self, scale: Scale | None, target: Target | None) -> tuple[Pod, ...]:
        """The target's pods; labels and owners that the document leaves out exclude none."""
        decode, read = PodDecoder(), []
        for index, given_pod in enumerate(self.sequence(self._data.get("pods"), ("pods",))):
            at = ("pods", index, "metadata")
            pod = self._decoded(decode, given_pod, ("pods", index))
            if pod is not None and not pod.name:
                self.fault((*at, "name"), None, "is required")
            elif pod is not None:
                self._once("pod", f"{pod.namespace}/{pod.name}", pod.name, (*at, "name"))
                self._once("UID", pod.uid or pod.name, pod.uid or pod.name, (*at, "uid"))
                self._check_times(given_pod, ("pods", index))
                # A document may leave out the UID; the name replaces it.
                read.append(pod if pod.uid else replace(pod, uid=pod.name))
        slices = self._slices()
        silent = self.mapping(self._data.get("assessed"), ("assessed",)).get("endpointSlicesSilent", False)
        if not isinstance(silent, bool):
            self.fault(("assessed", "endpointSlicesSilent"), silent, "must be true or false")
        if scale is None or target is None:
            return ()
        try:
            selector = parse_selector(scale.selector)
        except SelectorError as error:
            self.fault(("scale", "status", "selector"), scale.selector, str(error))
            return ()
        return tuple(
            replace(
                pod,
                endpoint_serving=endpoints_serving(slices[pod.name], pod.namespace, pod.name, pod.uid),
                endpoints_silent=silent is True,
            )
            for pod in target_pods(read, selector, target, partial=True)
        )

    def _instances(self) -> Roster | None:
        """The registry's latest list of instances; None where the document has none."""
        data = self._data.get("instances")
        listed = None if data is None else self._decoded(_LISTS.decode, data, ("instances",))
        return None if listed is None else listed.roster(lambda text, *at: self.time(text, ("instances", *at)))

    def _memory(self) -> Memory:
        """The memory: that of the status, or all that a process observed where a server wrote the document."""
        data = dict(self.mapping(self._data.get("memory"), ("memory",)))
        observed = data.pop("observed", None)
        try:
            memory = from_status(data)
            return memory if observed is None else msgspec.convert(observed, Memory)
        except MemoryDecodeError as error:
            self.faults.append(error.fault.within("memory"))
        except msgspec.ValidationError as error:
            self.faults.append(MemoryDecodeError.of_type(error).fault.within("memory.observed"))
        return Memory()

    def _check_times(self, data: object, at: Path) -> None:
        """Add a fault for each time that cannot be read; a decoder would take it for absent."""
        for place in _TIMES:
            for path, value in _values_at(data, place, at):
                if value not in ("", None) and parse_time(value) is None:
                    self.time(value, path)

    def _slices(self) -> Mapping[str, list[EndpointSlice]]:
        """EndpointSlices by the name of the pod that each endpoint targets."""
        slices: dict[str, list[EndpointSlice]] = defaultdict(list)
        for index, item in enumerate(self.sequence(self._data.get("endpointSlices"), ("endpointSlices",))):
            endpoint_slice = self._decoded(_SLICES.decode, item, ("endpointSlices", index))
            for endpoint in (endpoint_slice.endpoints or ()) if endpoint_slice is not None else ():
                if endpoint_slice is not None and endpoint.target_ref is not None:
                    slices[endpoint.target_ref.name].append(
                        msgspec.structs.replace(endpoint_slice, endpoints=[endpoint])
                    )
        return slices

    def _samples(self, policy: Policy | None, now: float) -> Samples:
        """The samples for this policy; None where its own faults are known already."""
        given = self.mapping(self._data.get("samples"), ("samples",))
        queries = {metric.name: metric.query for metric in policy.metrics if metric.query} if policy else {}
        for name in given.keys() - queries.keys() if policy else ():
            advice = f"is no query metric of the policy; those are {sorted(queries)}"
            self.fault(("samples", name), None, advice)
        return Samples(
            self._resources(now),
            {
                str(name): self._query(data, ("samples", str(name)), queries.get(name), now)
                for name, data in given.items()
            },
        )

    def _resources(self, now: float) -> ResourceSamples:
        pods: dict[str, Usage] = {}
        for index, one in enumerate(self.sequence(self._data.get("usage"), ("usage",))):
            window, at = one.get("window") if isinstance(one, Mapping) else None, ("usage", index)
            is_short = isinstance(window, str) and len(window) <= _LONGEST_DURATION
            if window and not (is_short and (window[:1] == "0" or parse_go_duration(window) > 0)):
                self.fault((*at, "window"), window, "must be a duration such as 15s")
            elif (usage := self._decoded(decode_usage, one, at)) is not None:
                self._once("usage", usage[0], usage[0], (*at, "metadata", "name"))
                self.time(one["timestamp"], (*at, "timestamp"))
                pods[usage[0]] = usage[1]
        # An answer cannot be older than its samples, or later than now.
        answered_at = min(max((usage.at for usage in pods.values()), default=now), now) if pods else None
        given = self.mapping(self._data.get("usageSource"), ("usageSource",))
        self._unknown(given, _SOURCE_KEYS, ("usageSource",))
        return ResourceSamples(pods=pods, **self._source(given, answered_at, ("usageSource",)))

    def _source(self, given: Mapping[str, Any], answered_at: float | None, at: Path) -> dict[str, Any]:
        """What the document says of a source, and `answered_at` where it has sources but no word on this."""
        given_time = self._optional_time(given, "answeredAt", at)
        knows = bool(given.keys() & _SOURCE_KEYS)
        max_age = self._seconds(given, "maxAgeSeconds", _MAX_AGE, _LONGEST_WINDOW, at)
        error = given.get("error")
        if error is not None and not isinstance(error, str):
            self.fault((*at, "error"), error, "must be a text")
        return {
            "fetched_at": given_time if given_time is not None or knows else answered_at,
            "max_age": max_age,
            "interval": self._seconds(given, "intervalSeconds", _INTERVAL, _LONGEST_WINDOW, at),
            "error": error if error and isinstance(error, str) else None,
        }

    def _query(self, data: object, at: Path, query: Query | None, now: float) -> QuerySamples:
        given = self.mapping(data, at)
        self._unknown(given, _SAMPLES_KEYS, at)
        # Values that the server wrote have their own times.
        moment = None
        if given.get("at") is not None or not given.keys() & _SOURCE_KEYS:
            moment = self.time(given.get("at"), (*at, "at"))
        pods = self.mapping(given.get("pods"), (*at, "pods"))
        given_counts = self.mapping(given.get("counts"), (*at, "counts"))
        counts = {name: self._count(given_counts, name, (*at, "counts")) for name in given_counts}
        points = {
            name: self._point(value, moment, (*at, "pods", str(name)), counts.get(name)) for name, value in pods.items()
        }
        held = {str(name): count for name, count in counts.items() if count is not None}
        total, fewest = given.get("total"), min(held.values(), default=None)
        whole = None if total is None else self._point(total, moment, (*at, "total"), fewest)
        window = 0.0  # of a named query, and of PromQL that cannot be read
        with contextlib.suppress(PromqlError):
            window = parse_inputs(query.prom_ql).window if query is not None else 0.0
        window = self._seconds(given, "windowSeconds", window, _LONGEST_WINDOW, at)
        behind = self._seconds(given, "offsetSeconds", 0.0, _LONGEST_WINDOW, at)
        by_pod, reads = given.get("byPod"), given.get("readsPods", [])
        if by_pod is not None and not isinstance(by_pod, bool):
            self.fault((*at, "byPod"), by_pod, "must be true or false")
        elif by_pod is None and given.keys() & {"pods", "total"}:
            by_pod = "pods" in given
        if not isinstance(reads, list) or not all(isinstance(name, str) for name in reads):
            self.fault((*at, "readsPods"), reads, "must be a list of names of pods")
            reads = []
        return QuerySamples(
            pods={str(name): point for name, point in points.items() if point is not None},
            total=whole,
            window=window,
            behind=behind,
            by_pod=by_pod,
            reads=frozenset(reads),
            counts={} if whole is None else held,
            **self._source(given, None if moment is None else min(moment, now), at),
        )

    def _point(self, data: object, moment: float | None, path: Path, held: int | None = None) -> Point | None:
        """A point; None for NaN and infinity, which are no samples; anything else unreadable is a fault."""
        value, at = data, moment
        if isinstance(data, Mapping):
            self._unknown(data, _POINT_KEYS, path)
            value = data.get("value")
            at = moment if data.get("at") is None else self.time(data["at"], (*path, "at"))
            held = self._count(data, "count", path)
        if str(value).lower().lstrip("+-.") in {"nan", "inf"}:
            return None
        try:
            number = parse_number(str(value))
        except QuantityError as error:
            self.fault(path, value, str(error))
            return None
        if at is None:
            advice = "has no time: give `at` beside `pods`, or write {at: …, value: …}"
            self.fault(path, value, advice)
            return None
        return Point(at, number, held)

    def _count(self, data: Mapping[str, Any], key: str, path: Path) -> int | None:
        """How many samples a window holds; UNCOUNTED where nobody can tell, None where the document does not say it."""
        count = data.get(key)
        if count is None:
            return None
        if isinstance(count, bool) or not isinstance(count, int) or not UNCOUNTED <= count <= _MOST_WINDOW_SAMPLES:
            range_text = f"from 0 to {_MOST_WINDOW_SAMPLES}, or {UNCOUNTED} where it cannot be counted"
            self.fault((*path, key), count, f"must be a whole number {range_text}")
            return None
        return count

    def _decoded(self, decode: Callable[[bytes], T], data: object, at: Path) -> T | None:
        """The data as a decoder of the watches reads it; None, with a fault, where it cannot."""
        try:
            return decode(json.dumps(data, allow_nan=False).encode())
        except (msgspec.MsgspecError, ValueError, TypeError, OverflowError) as error:
            inner, value, advice = _place_in(data, str(error))
            self.fault((*at, *inner), value, advice)
            return None

    def _once(self, kind: str, key: str, name: str, at: Path) -> None:
        """Add a fault for a second occurrence of `key`."""
        first = self._seen.setdefault((kind, key), path_of(at))
        if first != path_of(at):
            self.fault(at, name, f"is a duplicate of {first}; keep one of them")

    def _unknown(self, given: Mapping[str, Any], fields: tuple[str, ...], at: Path) -> None:
        """Add a fault for each key that is not known."""
        for key, value in given.items():
            if key not in fields:
                self.fault((*at, key), value, f"is unknown here; known are {', '.join(fields)}")

    def _seconds(self, given: Mapping[str, Any], key: str, default: float, most: int, at: Path) -> float:
        """A number of seconds from 0 to `most`; the default where the key is absent."""
        value = given.get(key)
        if value is None:
            return default
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= most:
            self.fault((*at, key), value, f"must be a number from 0 to {most}")
            return default
        return float(value)

    def _optional_time(self, given: Mapping[str, Any], key: str, at: Path) -> float | None:
        """Epoch seconds of a time; None where the key is absent."""
        return None if given.get(key) is None else self.time(given[key], (*at, key))

    def time(self, data: object, at: Path) -> float:
        """Epoch seconds of an RFC 3339 time."""
        seconds = parse_time(data)
        if seconds is None:
            self.fault(at, data, "must be a time with its offset, such as 2026-01-01T12:00:00Z")
        elif not 0 <= seconds < _LATEST:
            self.fault(at, data, "must be a time from 1970 to the year 9000")
            return 0.0
        return seconds or 0.0

    def mapping(self, data: object, at: Path) -> Mapping[str, Any]:
        """A mapping; empty where it is null or faulty."""
        return cast(Mapping[str, Any], self._collection(data, Mapping, {}, "a mapping", at))

    def sequence(self, data: object, at: Path) -> list[Any]:
        """A list; empty where it is null or faulty."""
        return cast(list[Any], self._collection(data, list, [], "a list", at))

    def _collection(self, data: Any, kind: Any, empty: Any, noun: str, at: Path) -> Any:
        if isinstance(data, kind) and len(data) <= MOST_ITEMS:
            return data
        if isinstance(data, kind):
            advice = f"has {len(data)} items; at most {MOST_ITEMS} are read, so leave out what is not needed"
            self.fault(at, None, advice)
        elif data is not None:
            self.fault(at, data, f"must be {noun}")
        return empty

    def fault(self, at: Path, value: object, advice: str) -> None:
        """Add a fault."""
        self.faults.append(Fault(path_of(at), value, advice))


_SLICES = Decoder(EndpointSlice)
_LISTS = Decoder(InstanceList)
_TIMES = (
    ("metadata", "creationTimestamp"),
    ("metadata", "deletionTimestamp"),
    ("status", "startTime"),
    ("status", "conditions", "lastTransitionTime"),
    ("status", "conditions", "lastUpdateTime"),
)


def _values_at(value: Any, place: Sequence[str], at: Path) -> Iterator[tuple[Path, object]]:
    """The values at a place, with their paths; lists are searched item by item."""
    if isinstance(value, list):
        for index, item in enumerate(value):
            yield from _values_at(item, place, (*at, index))
    elif not place:
        yield at, value
    elif isinstance(value, Mapping) and place[0] in value:
        yield from _values_at(value[place[0]], place[1:], (*at, place[0]))


def _place_in(data: object, message: str) -> tuple[Path, object, str]:
    """The path in a decoder's message, the value there, and the message without the path."""
    advice, _, place = message.rstrip("`").partition(" - at `$")
    path = tuple(int(index) if index else key for key, index in _STEP.findall(place))
    for step in path:
        inside = isinstance(data, list) and isinstance(step, int) and step < len(data)
        if not inside and not (isinstance(data, Mapping) and step in data):
            return (), None, message
        data = data[step]  # type: ignore[index]
    return path, None if isinstance(data, Mapping | list) else data, advice
