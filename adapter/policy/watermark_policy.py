"""Reads a WatermarkPolicy object into the `Policy` that the arithmetic takes.

Types, bounds and defaults are the CRD's own (`adapter.policy.schema`). The rules across fields are here once more: the
CRD has them in CEL, and tests compare both.
"""

import math
import re
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from fractions import Fraction
from typing import Any
from zoneinfo import ZoneInfo

import msgspec
from cronsim import CronSim, CronSimError

from adapter.load.quantity import NANO, QuantityError, parse_quantity
from adapter.load.spec import Algorithm, Policy, Strategy
from adapter.load.states import KUBERNETES
from adapter.policy.documents import MAX_NAME_LENGTH, PolicyError, Source, as_mapping, mapping_at
from adapter.policy.schema import conform, spec_schema
from adapter.runtime.faults import Fault
from adapter.runtime.times import parse_time

GROUP = "effective-load.io"
API_VERSION = f"{GROUP}/v1alpha1"
KIND = "WatermarkPolicy"
HOLD_UNTIL = f"{GROUP}/hold-until"
"""The annotation that holds a policy until a time."""

MOST_METRICS = 10
MOST_REPLICAS = 2**31 - 1
_LONGEST_LABEL = 63
_LARGEST = 2**60
_LARGEST_RATIO = 10
_NAME = re.compile(r"(?!pods$)[a-z0-9]([-a-z0-9_]*[a-z0-9])?", re.ASCII)
_TOLERANCE = {Strategy.WATERMARK: Fraction(1, 100), Strategy.RATIO: Fraction(1, 10), Strategy.STEP: Fraction(0)}
_COOLDOWN = {Strategy.STEP: {"up": 180, "down": 300}}
_CAPITAL = re.compile("([A-Z])")
_SPEC = spec_schema()
"""Read at import: a file is not read on the event loop."""
_MARKS = {"highWatermark", "lowWatermark", "target"}
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
Broken = Iterator[tuple[str, Any, str]]
"""Broken rules of a part: the field (empty: the part itself), the value, and the remedy."""


def parse_policy(source: Source) -> Policy:
    """Read a policy, with every default filled in. Raises PolicyError with every fault.

    The rules across the fields of a part are tried once the fields themselves are right.
    """
    document, faults = as_mapping(source), list[Fault]()
    given = _metadata(document, mapping_at(document, "metadata"), faults)
    spec: dict[str, Any] = {}
    if document.get("spec") is None:
        faults.append(Fault("spec", None, "Required value: write the policy's spec"))
    else:
        spec = conform(_SPEC, document["spec"], "spec", faults) or {}
        _judge(spec, faults)
    if faults:
        raise PolicyError(faults, f"policy {given['namespace']}/{given['name']}".rstrip("/"))
    delay, strategy = spec.pop("delay", {}), Strategy(spec["strategy"])
    for metric in spec["metrics"]:
        metric["delay"] = {} if metric.get("floor") else delay | metric.get("delay", {})
    read = {"hpa": given["name"], "tolerance": _TOLERANCE[strategy]} | given | _attributes(spec)
    read["cooldown"] = _COOLDOWN.get(strategy, {}) | read.get("cooldown", {})
    return msgspec.convert(read, Policy, dec_hook=lambda _, value: value)


def _metadata(document: Object, metadata: Object, faults: list[Fault]) -> dict[str, Any]:
    """The part of a policy that its metadata gives."""
    for key, value in document.items():
        expected = {"apiVersion": API_VERSION, "kind": KIND}.get(key)
        if expected and value not in (None, "", expected):
            faults.append(Fault(key, value, f"must be {expected}"))
        elif key not in {"apiVersion", "kind", "metadata", "spec", "status"}:
            faults.append(Fault(str(key), value, "unknown field; known are apiVersion, kind, metadata, spec, status"))
    read = {"namespace": metadata.get("namespace") or "default", "uid": metadata.get("uid") or ""}
    read = {"name": metadata.get("name") or "", **read}
    for key, value in read.items():
        if not isinstance(value, str) or len(value) > MAX_NAME_LENGTH:
            faults.append(Fault(f"metadata.{key}", value, f"write a text of at most {MAX_NAME_LENGTH} characters"))
        elif key == "name" and not 0 < len(value) <= _LONGEST_LABEL:
            advice = (
                f"a policy needs a name of at most {_LONGEST_LABEL} characters, which is also used as a label value"
            )
            faults.append(Fault("metadata.name", value or None, advice))
    generation, text = metadata.get("generation") or 0, mapping_at(metadata, "annotations").get(HOLD_UNTIL)
    if not isinstance(generation, int):
        faults.append(Fault("metadata.generation", generation, "write an integer"))
    until = None if text is None else parse_time(text)
    if text is not None and until is None:
        advice = "is no time; write one with its offset, such as 2026-01-01T12:00:00Z, or take the annotation away"
        faults.append(Fault(f"metadata.annotations[{HOLD_UNTIL}]", text, advice))
    return {**read, "generation": generation, "hold_until": until}


def _attributes(value: Any) -> Any:
    """Fields by their attributes in `adapter.load.spec`."""
    if isinstance(value, list):
        return [_attributes(item) for item in value]
    if not isinstance(value, dict):
        return value
    names = {key: _ATTRIBUTES.get(key) or _CAPITAL.sub(r"_\1", key).lower() for key in value}
    return {names[key]: _attributes(item) for key, item in value.items()}


def _judge(spec: dict[str, Any], faults: list[Fault]) -> None:
    """Try every rule; texts that stand for numbers and times are replaced by what they stand for."""
    for key, read in (("tolerance", _tolerance), ("saturationFactor", _saturation_factor)):
        if key in spec:
            spec[key] = _converted(read, spec[key], f"spec.{key}", faults)
    for index, metric in enumerate(spec.get("metrics", ())):
        place = f"spec.metrics[{index}]"
        # Where its source is faulty, nobody knows whether percentages are right.
        marks = () if any(fault.path.startswith(place) for fault in faults) else metric.keys() & _MARKS
        for key in sorted(marks):
            noun = "target" if key == "target" else "watermark"
            most = _LARGEST_RATIO if _is_share(metric) else _LARGEST
            metric[key] = _converted(_nano, metric[key], f"{place}.{key}", faults, noun, most)
        _try(_metric_rules, metric, place, faults)
        _try(_query_rules, (metric or {}).get("query"), f"{place}.query", faults)
    _try(_registry_rules, spec.get("registry"), "spec.registry", faults)
    for index, schedule in enumerate(spec.get("schedules", ())):
        place = f"spec.schedules[{index}]"
        for key, parse in _TIMES.items():
            if schedule and key in schedule:
                schedule[key] = _converted(parse, schedule[key], f"{place}.{key}", faults)
        _try(_schedule_rules, schedule, place, faults)
    _try(_spec_rules, spec, "spec", faults)


def _try(rules: Callable[[Any], Broken], part: Object | None, place: str, faults: list[Fault]) -> None:
    """Try the rules of a part that has no fault yet."""
    if part is None or any(fault.path.startswith(place) for fault in faults):
        return
    for key, value, advice in rules(part):
        faults.append(Fault(f"{place}.{key}".rstrip("."), value, advice))


class _ValueError(Exception):
    """The value is wrong; the text is the remedy."""


def _converted(read: Callable[..., Any], value: Any, place: str, faults: list[Fault], *more: Any) -> Any:
    try:
        return read(str(value), *more)
    except _ValueError as error:
        faults.append(Fault(place, value, str(error)))
        return None


def _ratio(text: str) -> Fraction:
    try:
        # The exact number that the CRD's rules compute.
        return parse_quantity(text.replace("%", "e-2"))
    except QuantityError:
        raise _ValueError('is neither a percentage such as "80%" nor a ratio such as "0.8"') from None


def _tolerance(text: str) -> Fraction:
    tolerance = _ratio(text)
    if not 0 <= tolerance < 1:
        raise _ValueError('tolerance is "1%" or a ratio from 0 to below 1, such as "0.01"')
    return tolerance


def _saturation_factor(text: str) -> Fraction:
    factor = _ratio(text)
    if not 1 <= factor <= _LARGEST_RATIO:
        raise _ValueError(f'saturationFactor is a number from 1 (off) to {_LARGEST_RATIO}, such as "1.25"')
    return factor


def _nano(text: str, noun: str, most: int) -> Fraction:
    """A watermark or target in nano-units, rounded up as the API server rounds quantities."""
    try:
        value = parse_quantity(text.replace("%", "e-2"))
    except QuantityError:
        raise _ValueError("is not a quantity; write a number such as 1200m, 0.5 or 300Mi") from None
    if value <= 0:
        raise _ValueError(f"a {noun} must be more than 0")
    if value > _LARGEST:
        raise _ValueError(f"a {noun} must be at most 1Ei")
    if value > most:
        raise _ValueError('a ratio above 10 is 1000 %; for eighty per cent write "80%" or "0.8"')
    if text.endswith("%") and most != _LARGEST_RATIO:
        raise _ValueError("a percentage needs relativeTo: Limit or Request; without it write a quantity such as 1200m")
    return Fraction(math.ceil(value * NANO))


def _cron(text: str) -> str:
    fields = [field for field in text.split(" ") if field]
    reason = "it has not five fields" if len(fields) != 5 or fields != text.split() else ""
    try:
        if not reason and next(CronSim(text, datetime(2000, 1, 1, tzinfo=UTC)), None) is None:
            reason = "it never comes"
    except CronSimError as error:
        reason = str(error)
    if reason:
        raise _ValueError(f"is no cron expression ({reason}); write five fields, such as 0 11 * * 1-5")
    return text


def _zone(text: str) -> ZoneInfo:
    try:
        return ZoneInfo(text)
    except (ValueError, OSError, LookupError):
        raise _ValueError("is not a time zone; write a name of the IANA database, such as Asia/Shanghai") from None


_TIMES: Mapping[str, Callable[[str], Any]] = {"cron": _cron, "timeZone": _zone}


def _is_share(metric: Object) -> bool:
    """Whether its values are compared with limits or requests."""
    return any("relativeTo" in mapping_at(metric, key) for key in ("resource", "query"))


def _metric_rules(metric: Object) -> Broken:
    name, high, low = metric["name"], metric.get("highWatermark"), metric.get("lowWatermark")
    if not _NAME.fullmatch(name):
        advice = "a metric name is lower case letters, digits, - and _, begins and ends with a letter or digit, and is "
        yield "name", name, f"{advice}not pods (effective_pods is a metric of its own)"
    if ("resource" in metric) == ("query" in metric):
        yield "", name, "give exactly one of resource (metrics.k8s.io) and query (Prometheus)"
    if not metric.keys() & _MARKS:
        yield "", name, "give highWatermark, lowWatermark, or both; strategies Ratio and Step take target"
    if high is not None and low is not None and low >= high:
        yield "lowWatermark", None, "lowWatermark must be below highWatermark"
    if metric.get("floor"):
        if "query" not in metric or _is_share(metric):
            yield "", name, "a floor is a query that gives one number for the service, without relativeTo"
        if not metric.keys() & {"highWatermark", "target"} or low is not None:
            its_fields = "highWatermark (strategies Ratio and Step: target), the load of one pod, and no lowWatermark"
            yield "", name, f"a floor has {its_fields}"
        if "delay" in metric:
            yield "", name, "a floor has no delay; take it away"


def _query_rules(query: Object) -> Broken:
    if ("name" in query) == ("promQL" in query):
        yield "", None, "give exactly one of name (a query of the settings) and promQL"
    if ("promQL" in query) != ("server" in query):
        yield "", None, "promQL and server go together; a named query knows its server"
    if ("relativeTo" in query) != ("resource" in query):
        yield "", None, "relativeTo and resource go together: whose limits or requests the query is compared with"
    if "containers" in query and "relativeTo" not in query:
        yield "", None, "containers only matters together with relativeTo"


def _registry_rules(registry: Object) -> Broken:
    if registry["name"] != KUBERNETES and "service" not in registry:
        yield "", registry["name"], "a registry needs service, the name the pods register under"
    foreign = ("service", "namespace", "group", "port", "podNameKey")
    if registry["name"] == KUBERNETES and registry.keys() & set(foreign):
        yield "", KUBERNETES, f"registry kubernetes reads the pods themselves; leave {', '.join(foreign)} away"


def _schedule_rules(schedule: Object) -> Broken:
    least, most = schedule.get("minReplicas"), schedule.get("maxReplicas")
    if least is None and most is None:
        yield "", schedule["name"], "a schedule needs minReplicas, maxReplicas or both"
    elif least is not None and most is not None and least > most:
        yield "minReplicas", least, "minReplicas must be at most maxReplicas"


def _spec_rules(spec: Object) -> Broken:
    metrics, strategy = spec["metrics"], spec["strategy"]
    if all(metric.get("floor") for metric in metrics):
        yield "metrics", None, "a floor only keeps the count up; give a metric without floor as well"
    yield from _strategy_rules(spec)
    if strategy == Strategy.STEP:
        yield from _step_rules(spec)
    elif "step" in spec:
        yield "step", None, "step is for strategy Step; remove it, or write strategy: Step"
    towards = spec.get("convergeTowards")
    if towards and strategy != Strategy.WATERMARK:
        advice = "convergeTowards moves the count between two watermarks; strategies Ratio and Step have one target"
        yield "convergeTowards", towards, advice
    elif towards:
        key = f"{towards.lower()}Watermark"
        if not any(key in metric and not metric.get("floor") for metric in metrics):
            yield "convergeTowards", towards, f"convergeTowards {towards} needs a metric with {key}"


def _strategy_rules(spec: Object) -> Broken:
    """What the strategy and the algorithm take of each metric."""
    is_watermark = spec["strategy"] == Strategy.WATERMARK
    for index, metric in enumerate(spec["metrics"]):
        place, name = f"metrics[{index}]", metric["name"]
        if is_watermark and "target" in metric:
            advice = "target is for strategies Ratio and Step; strategy Watermark takes highWatermark and lowWatermark"
            yield f"{place}.target", None, advice
        if not is_watermark and metric.keys() & {"highWatermark", "lowWatermark"}:
            yield place, name, "strategies Ratio and Step take target, and neither highWatermark nor lowWatermark"
        if spec["algorithm"] == Algorithm.ABSOLUTE and _is_share(metric):
            advice = "algorithm Absolute adds up usage; a metric with relativeTo is a ratio and needs algorithm Average"
            yield place, name, advice


def _step_rules(spec: Object) -> Broken:
    step = conform(_SPEC["properties"]["step"], spec.get("step", {}), "", [])
    tolerance, is_ratio = step["tolerance"], step["toleranceUnit"] == "Percent"
    if spec["algorithm"] == Algorithm.ABSOLUTE:
        yield "algorithm", "Absolute", "strategy Step compares pods or their average, and needs algorithm Average"
    if "tolerance" in spec:
        yield "tolerance", None, "strategy Step has step.tolerance instead of tolerance"
    if spec["replicaMultiple"] > step["down"]:
        advice = (
            f"step.down must be at least replicaMultiple, or a step down ({step['down']}) would be rounded up again"
        )
        yield "replicaMultiple", spec["replicaMultiple"], advice
    advice = "step.tolerance must be less than the target, or no pod would ever be removed; write a smaller one"
    if is_ratio and tolerance >= 100:
        yield "step.tolerance", tolerance, advice
    for metric in () if is_ratio else spec["metrics"]:
        points = Fraction(tolerance, 100 if _is_share(metric) else 1)
        if "resource" in metric and not _is_share(metric):
            advice = "step.tolerance in Points is for queries and for shares of limits or requests; for plain cpu or "
            yield "metrics", metric["name"], f"{advice}memory write step.toleranceUnit Percent"
        elif not metric.get("floor") and metric.get("target", math.inf) <= points * NANO:
            advice += f", or step.toleranceUnit Percent (metric {metric['name']})"
            yield "step.tolerance", tolerance, advice
