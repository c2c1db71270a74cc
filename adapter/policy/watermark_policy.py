"""Reads a WatermarkPolicy object into the `Policy` that the arithmetic takes.

Types, bounds, defaults and messages are the CRD's own (`adapter.policy.schema`). RULES has the conditions that the CRD
has in CEL; tests compare both.
"""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from fractions import Fraction
from typing import Any
from zoneinfo import ZoneInfo

import msgspec
from cronsim import CronSim, CronSimError

from adapter.load.quantity import NANO, QuantityError, parse_quantity
from adapter.load.spec import Algorithm, Policy, Strategy
from adapter.load.states import KUBERNETES
from adapter.policy.documents import PolicyError, PolicyMetadata, Source, as_mapping, mapping_at, type_fault
from adapter.policy.schema import SPEC, Rules, conform
from adapter.runtime.faults import Fault
from adapter.runtime.times import parse_time

GROUP = "effective-load.io"
API_VERSION = f"{GROUP}/v1alpha1"
KIND = "WatermarkPolicy"
HOLD_UNTIL = f"{GROUP}/hold-until"
"""The annotation that holds a policy until a time."""

MOST_REPLICAS = 2**31 - 1
_LONGEST_LABEL = 63
_LARGEST_RATIO = 10
_NAME = re.compile(r"(?!pods$)[a-z0-9]([-a-z0-9_]*[a-z0-9])?", re.ASCII)
_TOLERANCE = {Strategy.WATERMARK: Fraction(1, 100), Strategy.RATIO: Fraction(1, 10), Strategy.STEP: Fraction(0)}
_COOLDOWN = {Strategy.STEP: {"up": 180, "down": 300}}
_STEP = {"tolerance": 15, "toleranceUnit": "Points", "down": 2}
_CAPITAL = re.compile("([A-Z])")
_MARKS = ("highWatermark", "lowWatermark", "target")
_ATTRIBUTES = {
    "scaleUpSeconds": "up",
    "scaleDownSeconds": "down",
    "scaleUpPercent": "up",
    "scaleDownPercent": "down",
    "highWatermark": "high",
    "lowWatermark": "low",
    "promQL": "prom_ql",
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


def parse_policy(source: Source) -> Policy:
    """Read a policy, with every default filled in. Raises PolicyError with every fault."""
    document, faults = as_mapping(source), list[Fault]()
    given = _metadata(document, faults)
    spec: dict[str, Any] = {}
    if document.get("spec") is None:
        faults.append(Fault("spec", None, "Required value: write the policy's spec"))
    else:
        spec = conform(SPEC, document["spec"], "spec", RULES, faults) or {}
    for index, schedule in enumerate(spec.get("schedules", ())):
        _judge_times(schedule or {}, f"spec.schedules[{index}]", faults)
    if faults:
        raise PolicyError(faults, f"policy {given['namespace']}/{given['name']}".rstrip("/"))
    delay, strategy = spec.pop("delay", {}), Strategy(spec["strategy"])
    for metric in spec["metrics"]:
        metric["delay"] = {} if metric.get("floor") else delay | metric.get("delay", {})
        # Nano-units, rounded up as the API server rounds quantities.
        metric |= {key: Fraction(math.ceil(_number(metric[key]) * NANO)) for key in _MARKS if key in metric}
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
    for key, value in document.items():
        expected = {"apiVersion": API_VERSION, "kind": KIND}.get(key)
        if expected and value not in (None, "", expected):
            faults.append(Fault(key, value, f"must be {expected}"))
        elif key not in {"apiVersion", "kind", "metadata", "spec", "status"}:
            faults.append(Fault(str(key), value, "unknown field; known are apiVersion, kind, metadata, spec, status"))
    written = {key: value for key, value in mapping_at(document, "metadata").items() if value is not None}
    metadata, text = PolicyMetadata(), mapping_at(written, "annotations").get(HOLD_UNTIL)
    try:
        metadata = msgspec.convert(written, PolicyMetadata)
    except msgspec.ValidationError as error:
        faults.append(type_fault(error).within("metadata"))
    else:
        if not 0 < len(metadata.name) <= _LONGEST_LABEL:
            label = f"a name of at most {_LONGEST_LABEL} characters, which is also used as a label value"
            faults.append(Fault("metadata.name", metadata.name or None, f"a policy needs {label}"))
    until = None if text is None else parse_time(text)
    if text is not None and until is None:
        advice = "is not a time with an offset, such as 2026-01-01T12:00:00Z; write one, or remove the annotation"
        faults.append(Fault(f"metadata.annotations[{HOLD_UNTIL}]", text, advice))
    given = {"name": metadata.name, "namespace": metadata.namespace or "default", "uid": metadata.uid}
    return {**given, "generation": metadata.generation, "hold_until": until}


def _attributes(value: Any) -> Any:
    """Fields by their attributes in `adapter.load.spec`."""
    if isinstance(value, list):
        return [_attributes(item) for item in value]
    if not isinstance(value, dict):
        return value
    names = {key: _ATTRIBUTES.get(key) or _CAPITAL.sub(r"_\1", key).lower() for key in value}
    return {names[key]: _attributes(item) for key, item in value.items()}


def _judge_times(schedule: Object, place: str, faults: list[Fault]) -> None:
    """What the CRD cannot judge of a schedule that has no other fault: the time zone, and whether it ever begins."""
    if any(fault.path.startswith(place) for fault in faults):
        return
    try:
        ZoneInfo(schedule["timeZone"])
    except (ValueError, OSError, LookupError):
        advice = "is not a time zone; write a name of the IANA database, such as Asia/Shanghai"
        faults.append(Fault(f"{place}.timeZone", schedule["timeZone"], advice))
    if next(CronSim(schedule["cron"], datetime(2000, 1, 1, tzinfo=UTC)), None) is None:
        advice = "invalid cron expression: no date matches it; write five fields, such as 0 11 * * 1-5"
        faults.append(Fault(f"{place}.cron", schedule["cron"], advice))


def _number(value: Any) -> Fraction:
    """An amount exactly, a percentage as a ratio: the number that the CRD's rules compute. Raises QuantityError."""
    return parse_quantity(str(value).replace("%", "e-2"))


def _within(value: Any, least: float, most: float, *, below: bool = False) -> bool:
    """Whether an amount is a quantity from `least` to `most`; `below`: less than that."""
    try:
        number = _number(value)
    except QuantityError:
        return False
    return least <= number < most if below else least <= number <= most


def _is_quantity(value: Any) -> bool:
    return _within(value, -math.inf, math.inf)


def _is_share(metric: Object) -> bool:
    """Whether its values are compared with limits or requests."""
    return any("relativeTo" in metric.get(key, {}) for key in ("resource", "query"))


def _marks(metric: Object) -> Mapping[str, Any]:
    return {key: metric[key] for key in _MARKS if key in metric}


def _converges(spec: Object, towards: str) -> bool:
    """Whether a metric has the watermark that the count is to converge towards."""
    key = f"{towards.lower()}Watermark"
    return spec.get("convergeTowards") != towards or any(key in one and not one.get("floor") for one in spec["metrics"])


def _leaves_band(spec: Object) -> bool:
    """Whether step.tolerance of strategy Step is less than each target."""
    step = _STEP | spec.get("step", {})
    if step["toleranceUnit"] == "Percent":
        return int(step["tolerance"]) < 100
    targets = [one for one in spec["metrics"] if "target" in one and not one.get("floor")]
    return all(_number(one["target"]) > Fraction(step["tolerance"], 100 if _is_share(one) else 1) for one in targets)


def _has_five(cron: str) -> bool:
    return len([field for field in cron.split(" ") if field]) == len(cron.split()) == 5


def _ends_after_begin(cron: str) -> bool:
    """Whether every range of a cron expression ends after it begins."""
    spans = re.findall(r"([0-9]+)-([0-9]+)", cron)
    return all(int(first) <= int(last) for first, last in spans) and not _TO_SUNDAY.search(cron)


def _is_cron(cron: str) -> bool:
    try:
        CronSim(cron, datetime(2000, 1, 1, tzinfo=UTC))
    except CronSimError:
        return False
    return True


_TO_SUNDAY = re.compile(r"(MON|TUE|WED|THU|FRI|SAT|[1-7])-SUN", re.IGNORECASE)
_MARK: Sequence[Callable[[Any], bool]] = (
    _is_quantity,
    lambda mark: not _is_quantity(mark) or _number(mark) > 0,
    lambda mark: not _is_quantity(mark) or _number(mark) <= 2**60,
)
RULES: Rules = {
    "spec": (
        lambda spec: spec["algorithm"] != Algorithm.ABSOLUTE or not any(map(_is_share, spec["metrics"])),
        lambda spec: _converges(spec, "Low"),
        lambda spec: spec["strategy"] == Strategy.WATERMARK or "convergeTowards" not in spec,
        lambda spec: spec["strategy"] != Strategy.WATERMARK or not any("target" in one for one in spec["metrics"]),
        lambda spec: (
            spec["strategy"] == Strategy.WATERMARK or all([*_marks(one)] == ["target"] for one in spec["metrics"])
        ),
        lambda spec: spec["strategy"] == Strategy.STEP or "step" not in spec,
        lambda spec: spec["strategy"] != Strategy.STEP or "tolerance" not in spec,
        lambda spec: spec["strategy"] != Strategy.STEP or spec["algorithm"] != Algorithm.ABSOLUTE,
        lambda spec: (
            spec["strategy"] != Strategy.STEP
            or (_STEP | spec.get("step", {}))["toleranceUnit"] == "Percent"
            or all("query" in one or _is_share(one) for one in spec["metrics"])
        ),
        lambda spec: spec["strategy"] != Strategy.STEP or _leaves_band(spec),
        lambda spec: (
            spec["strategy"] != Strategy.STEP or spec["replicaMultiple"] <= (_STEP | spec.get("step", {}))["down"]
        ),
        lambda spec: _converges(spec, "High"),
        lambda spec: not all(one.get("floor") for one in spec["metrics"]),
    ),
    "spec.tolerance": (lambda amount: _within(amount, 0, 1, below=True),),
    "spec.saturationFactor": (lambda amount: _within(amount, 1, _LARGEST_RATIO),),
    "spec.metrics[]": (
        lambda metric: ("resource" in metric) != ("query" in metric),
        lambda metric: bool(_marks(metric)),
        lambda metric: (
            not metric.keys() >= {"highWatermark", "lowWatermark"}
            or _number(metric["lowWatermark"]) < _number(metric["highWatermark"])
        ),
        lambda metric: _is_share(metric) or not any(str(mark).endswith("%") for mark in _marks(metric).values()),
        lambda metric: (
            not _is_share(metric) or all(_number(mark) <= _LARGEST_RATIO for mark in _marks(metric).values())
        ),
        lambda metric: not metric.get("floor") or ("query" in metric and not _is_share(metric)),
        lambda metric: (
            not metric.get("floor")
            or (bool(metric.keys() & {"highWatermark", "target"}) and "lowWatermark" not in metric)
        ),
        lambda metric: not metric.get("floor") or "delay" not in metric,
    ),
    "spec.metrics[].name": (lambda name: _NAME.fullmatch(name) is not None,),
    "spec.metrics[].query": (
        lambda query: ("name" in query) != ("promQL" in query),
        lambda query: ("promQL" in query) == ("server" in query),
        lambda query: ("relativeTo" in query) == ("resource" in query),
        lambda query: "containers" not in query or "relativeTo" in query,
    ),
    **{f"spec.metrics[].{key}": _MARK for key in _MARKS},
    "spec.registry": (
        lambda registry: registry["name"] == KUBERNETES or "service" in registry,
        lambda registry: (
            registry["name"] != KUBERNETES
            or not registry.keys() & {"service", "namespace", "group", "port", "podNameKey"}
        ),
    ),
    "spec.schedules[]": (
        lambda schedule: bool(schedule.keys() & {"minReplicas", "maxReplicas"}),
        lambda schedule: schedule.get("minReplicas", 0) <= schedule.get("maxReplicas", MOST_REPLICAS),
    ),
    "spec.schedules[].cron": (
        _has_five,
        lambda cron: not _has_five(cron) or _ends_after_begin(cron),
        lambda cron: not _has_five(cron) or not _ends_after_begin(cron) or _is_cron(cron),
    ),
}
"""Whether a part that is right by itself keeps each of the CRD's rules, in the order in which the CRD has them."""
