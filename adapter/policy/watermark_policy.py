"""Reads a WatermarkPolicy object into the `Policy` that the arithmetic takes.

Types, bounds, defaults and messages are the CRD's own (`adapter.policy.documents`). RULES has the conditions that the
CRD has in CEL; tests compare both.
"""

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from fractions import Fraction
from typing import Any
from zoneinfo import ZoneInfo

import msgspec
from cronsim import CronSim, CronSimError

from adapter.load.quantity import NANO, QuantityError, parse_quantity
from adapter.load.spec import Algorithm, Policy, Strategy
from adapter.load.states import KUBERNETES
from adapter.policy.documents import SPEC, Metadata, PolicyError, Rules, conform, mapping_at, type_fault, without_nulls
from adapter.runtime.faults import Fault
from adapter.runtime.times import parse_time

GROUP = "effective-load.io"
API_VERSION = f"{GROUP}/v1alpha1"
KIND = "WatermarkPolicy"
HOLD_UNTIL = f"{GROUP}/hold-until"
"""The annotation that holds a policy until a time."""

_LONGEST_LABEL = 63
_LONG_AGO = datetime(2000, 1, 1, tzinfo=UTC)
_NAME = re.compile(r"(?!pods$)[a-z0-9]([-a-z0-9_]*[a-z0-9])?", re.ASCII)
_RANGE = re.compile(r"([0-9]+)-([0-9]+)")
_TO_SUNDAY = re.compile(r"(MON|TUE|WED|THU|FRI|SAT|[1-7])-SUN", re.IGNORECASE)
_TOLERANCE = {Strategy.WATERMARK: Fraction(1, 100), Strategy.RATIO: Fraction(1, 10), Strategy.STEP: Fraction(0)}
_COOLDOWN = {Strategy.STEP: {"up": 180, "down": 300}}
_STEP = {"tolerance": 15, "toleranceUnit": "Points", "down": 2}
_CAPITAL = re.compile("(?<=[a-z])([A-Z])")
_MARKS = ("highWatermark", "lowWatermark", "target")
_OF_KEYS = ("apiVersion", "kind", "metadata", "spec", "status")
_ATTRIBUTES = {
    "scaleUpSeconds": "up",
    "scaleDownSeconds": "down",
    "scaleUpPercent": "up",
    "scaleDownPercent": "down",
    "highWatermark": "high",
    "lowWatermark": "low",
    "replaceAfterSeconds": "replace_after",
    "minAgeSeconds": "min_age",
    "afterSeconds": "after",
    "durationSeconds": "duration",
    "timeZone": "zone",
    "minReplicas": "minimum",
    "maxReplicas": "maximum",
}
"""Attributes of `adapter.load.spec` that are not the field's own name in snake case."""

Object = Mapping[str, Any]


def parse_policy(document: Object) -> Policy:
    """Read a policy, with every default filled in. Raises PolicyError with every fault."""
    faults = list[Fault]()
    given = _metadata(document, faults)
    written = document.get("spec")
    spec = conform(SPEC, {} if written is None else written, "spec", RULES, faults) or {}
    faults = faults or [*_wrong_times(spec)]
    if faults:
        raise PolicyError(faults, f"policy {given['namespace']}/{given['name']}".rstrip("/"))
    delay, strategy = spec.pop("delay", {}), Strategy(spec["strategy"])
    for metric in spec["metrics"]:
        metric["delay"] = {} if metric.get("floor") else delay | metric.get("delay", {})
        # Nano-units, rounded up as the API server rounds quantities.
        metric |= {key: Fraction(math.ceil(_number(value) * NANO)) for key, value in _marks(metric).items()}
        of = metric["query"] if "query" in metric else {"resource": metric["resource"]["name"]} | metric["resource"]
        metric |= {key: of[key] for key in ("resource", "relativeTo", "containers") if key in of}
    for schedule in spec.get("schedules", ()):
        schedule["timeZone"] = ZoneInfo(schedule["timeZone"])
    spec |= {key: _number(spec[key]) for key in ("tolerance", "saturationFactor") if key in spec}
    read = {"hpa": given["name"], "tolerance": _TOLERANCE[strategy]} | given | _attributes(spec)
    read["cooldown"] = _COOLDOWN.get(strategy, {}) | read.get("cooldown", {})
    return msgspec.convert(read, Policy, dec_hook=lambda _, value: value)


def _metadata(document: Object, faults: list[Fault]) -> dict[str, Any]:
    """The part of a policy that its metadata gives."""
    advice = f"unknown field; known are {', '.join(_OF_KEYS)}"
    faults += [Fault(str(key), value, advice) for key, value in document.items() if key not in _OF_KEYS]
    for key, expected in (("apiVersion", API_VERSION), ("kind", KIND)):
        if document.get(key, expected) not in ("", None, expected):
            faults.append(Fault(key, document[key], f"must be {expected}"))
    metadata = Metadata()
    try:
        metadata = msgspec.convert(without_nulls(mapping_at(document, "metadata")), Metadata)
    except msgspec.ValidationError as error:
        faults.append(type_fault(error).within("metadata"))
    else:
        if not 0 < len(metadata.name) <= _LONGEST_LABEL:
            label = f"a name of at most {_LONGEST_LABEL} characters, which is also used as a label value"
            faults.append(Fault("metadata.name", metadata.name or None, f"a policy needs {label}"))
    text = metadata.annotations.get(HOLD_UNTIL)
    until = None if text is None else parse_time(text)
    if text is not None and until is None:
        advice = "is not a time with an offset, such as 2026-01-01T12:00:00Z; write one, or remove the annotation"
        faults.append(Fault(f"metadata.annotations[{HOLD_UNTIL}]", text, advice))
    given = {"name": metadata.name, "namespace": metadata.namespace or "default", "uid": metadata.uid}
    return {**given, "generation": metadata.generation, "hold_until": until}


def _wrong_times(spec: Object) -> Iterator[Fault]:
    """What the CRD cannot judge of schedules: their time zones, and whether they ever begin."""
    for index, schedule in enumerate(spec.get("schedules", ())):
        place, zone, cron = f"spec.schedules[{index}]", schedule["timeZone"], schedule["cron"]
        try:
            ZoneInfo(zone)
        except (ValueError, OSError, LookupError):
            advice = "is not a time zone; write a name of the IANA database, such as Asia/Shanghai"
            yield Fault(f"{place}.timeZone", zone, advice)
        if next(CronSim(cron, _LONG_AGO), None) is None:
            advice = "invalid cron expression: no date matches it; write five fields, such as 0 11 * * 1-5"
            yield Fault(f"{place}.cron", cron, advice)


def _attributes(value: Any) -> Any:
    """Fields by their attributes in `adapter.load.spec`."""
    if isinstance(value, list):
        return [_attributes(item) for item in value]
    if not isinstance(value, dict):
        return value
    names = {key: _ATTRIBUTES.get(key) or _CAPITAL.sub(r"_\1", key).lower() for key in value}
    return {names[key]: _attributes(item) for key, item in value.items()}


def _number(value: Any) -> Fraction | float:
    """An amount exactly, a percentage as a ratio: the number that the CRD's rules compute. NaN if it is no quantity."""
    try:
        return parse_quantity(str(value).replace("%", "e-2"))
    except QuantityError:
        return math.nan


def _marks(metric: Object) -> dict[str, Any]:
    return {key: metric[key] for key in _MARKS if key in metric}


def _is_share(metric: Object) -> bool:
    """Whether its values are compared with limits or requests."""
    return any("relativeTo" in metric.get(key, {}) for key in ("resource", "query"))


def _of_spec(spec: Object) -> Sequence[bool]:
    metrics, strategy, step = spec["metrics"], spec["strategy"], _STEP | spec.get("step", {})
    loads = [one for one in metrics if not one.get("floor")]
    is_step, is_percent = strategy == Strategy.STEP, step["toleranceUnit"] == "Percent"
    towards = f"{spec.get('convergeTowards', '').lower()}Watermark"
    targets = [_number(one["target"]) * (100 if _is_share(one) else 1) for one in loads if "target" in one]
    leaves_band = step["tolerance"] < 100 if is_percent else all(step["tolerance"] < target for target in targets)
    return (
        spec["algorithm"] != Algorithm.ABSOLUTE or not (is_step or any(map(_is_share, metrics))),
        "convergeTowards" not in spec or (strategy == Strategy.WATERMARK and any(towards in one for one in loads)),
        all("target" not in one if strategy == Strategy.WATERMARK else [*_marks(one)] == ["target"] for one in metrics),
        ("tolerance" if is_step else "step") not in spec,
        not is_step or is_percent or all("query" in one or _is_share(one) for one in metrics),
        not is_step or leaves_band,
        not is_step or spec["replicaMultiple"] <= step["down"],
        bool(loads),
    )


def _of_metric(metric: Object) -> Sequence[bool]:
    marks = _marks(metric)
    high, low = (_number(marks[key]) if key in marks else None for key in ("highWatermark", "lowWatermark"))
    is_floor = "query" in metric and not _is_share(metric) and low is None and "delay" not in metric
    return (
        ("resource" in metric) != ("query" in metric),
        bool(marks),
        high is None or low is None or low < high,
        _is_share(metric) or not any(str(mark).endswith("%") for mark in marks.values()),
        not _is_share(metric) or all(_number(mark) <= 10 for mark in marks.values()),
        not metric.get("floor") or (is_floor and bool(marks)),
    )


def _is_cron(cron: str) -> bool:
    """Whether it has five fields, none of them a range that ends before it begins."""
    try:
        CronSim(cron, _LONG_AGO)
    except CronSimError:
        return False
    is_spaced = len([field for field in cron.split(" ") if field]) == len(cron.split()) == 5
    spans = _RANGE.findall(cron)
    return is_spaced and all(int(first) <= int(last) for first, last in spans) and not _TO_SUNDAY.search(cron)


RULES: Rules = {
    "spec": _of_spec,
    "spec.tolerance": lambda amount: (0 <= _number(amount) < 1,),
    "spec.saturationFactor": lambda amount: (1 <= _number(amount) <= 10,),
    "spec.metrics[]": _of_metric,
    "spec.metrics[].name": lambda name: (_NAME.fullmatch(name) is not None,),
    "spec.metrics[].query": lambda query: (
        ("name" in query) != ("promQL" in query) == ("server" in query),
        ("relativeTo" in query) == ("resource" in query) and ("containers" not in query or "relativeTo" in query),
    ),
    **dict.fromkeys((f"spec.metrics[].{key}" for key in _MARKS), lambda mark: (0 < _number(mark) <= 2**60,)),
    "spec.registry": lambda registry: (
        "service" in registry
        if registry["name"] != KUBERNETES
        else registry.keys().isdisjoint({"service", "namespace", "group", "port", "podNameKey"}),
    ),
    "spec.schedules[]": lambda schedule: (
        not schedule.keys().isdisjoint({"minReplicas", "maxReplicas"}),
        schedule.get("minReplicas", 0) <= schedule.get("maxReplicas", math.inf),
    ),
    "spec.schedules[].cron": lambda cron: (_is_cron(cron),),
}
"""Whether a part that is right by itself keeps each of the CRD's rules, in the order in which the CRD has them."""
