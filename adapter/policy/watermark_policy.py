"""Reads a WatermarkPolicy object into the `Policy` that the arithmetic takes.

Defaults and rules are those of the CRD (`manifests/crd/watermarkpolicies.yaml`), so that a policy in a file is read as
the API server reads it; tests compare both.
"""

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import UTC, datetime, tzinfo
from enum import StrEnum
from fractions import Fraction
from typing import TypeVar
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

from adapter.load.quantity import NANO, QuantityError, parse_quantity
from adapter.load.spec import (
    Algorithm,
    Capacity,
    Converge,
    Cooldown,
    Delay,
    Fallback,
    HpaConfiguration,
    Match,
    Metric,
    Mode,
    Policy,
    PulledOut,
    Query,
    Registry,
    ResourceMetric,
    Schedule,
    Step,
    Strategy,
    ToleranceUnit,
    Trigger,
    Velocity,
)
from adapter.load.states import KUBERNETES
from adapter.policy.field_reader import FieldReader, PolicyError, Source, as_mapping, percent_as_quantity
from adapter.runtime.faults import Fault
from adapter.runtime.times import parse_time

GROUP = "effective-load.io"
API_VERSION = f"{GROUP}/v1alpha1"
KIND = "WatermarkPolicy"
HOLD_UNTIL = f"{GROUP}/hold-until"
"""The annotation that holds a policy until a time."""

MOST_METRICS = 10
MOST_REPLICAS = 2**31 - 1
_MOST_SCHEDULES = 20
_MOST_CONTAINERS = 20
_MOST_ROUTES = 20
_LONGEST_LABEL = 63
_DAY = 86_400
_SECONDS = {"scaleUpSeconds": _DAY, "scaleDownSeconds": _DAY}
_PERCENT = {"scaleUpPercent": 10_000, "scaleDownPercent": 100}
_NAME = re.compile(r"[a-z0-9]([-a-z0-9_]*[a-z0-9])?", re.ASCII)
_RESERVED = ("pods",)
FORMER_NAMES = {
    "average": "algorithm; PerPod is Average, Total is Absolute",
    "hpaWiring": "hpaConfiguration; Enforce is Manage",
    "multipleOf": "replicaMultiple",
    "tolerateZero": "acceptZeroUsage",
    "stepTolerance": "step.tolerance",
    "toleranceIn": "step.toleranceUnit; Ratio is Percent",
    "trigger": "step.trigger",
    "stepUp": "step.up",
    "stepDown": "step.down",
    "minPods": "step.minPods",
    "of": "relativeTo",
    "graceSeconds": "registrationGraceSeconds",
    "absentSeconds": "absenceConfirmationSeconds",
    "unhealthyIsOut": "treatUnhealthyAsOut",
    "anyOut": "anyInstanceOut",
}
"""Fields that have another name now. The CRD refuses each with the same sentence."""
_NAME_ADVICE = (
    "a metric name is lower case letters, digits, - and _, begins and ends with a letter or digit, and is not pods "
    "(effective_pods is a metric of its own)"
)
_LARGEST = 2**60
_LARGEST_RATIO = 10
_SATURATION_FACTOR = Fraction(5, 4)

_TOLERANCE = {Strategy.WATERMARK: Fraction(1, 100), Strategy.RATIO: Fraction(1, 10), Strategy.STEP: Fraction(0)}
_COOLDOWN = {Strategy.STEP: Cooldown(up=180.0, down=300.0)}
_LARGEST_STEP = 1000
_MOST_TOLERANCE = 1000
_HUNDRED_PERCENT = 100

_Pair = TypeVar("_Pair", Cooldown, Delay, Velocity)


class _UsageResource(StrEnum):
    CPU = "cpu"
    MEMORY = "memory"


def parse_policy(source: Source) -> Policy:
    """Read a policy, with every default filled in. Raises PolicyError with every fault."""
    faults: list[Fault] = []
    root = FieldReader(as_mapping(source), "", faults)
    for key, expected in (("apiVersion", API_VERSION), ("kind", KIND)):
        value = root.get(key)
        # Compared, not hashed: it may be a list.
        if value not in (None, "", expected):
            root.fault(key, value, f"must be {expected}")
    if root.get("spec") is None:
        root.fault("spec", None, "Required value: write the policy's spec")
    root.get("status")
    root.get("metadata")
    root.close()
    metadata, spec = root.section("metadata"), root.section("spec")
    name = metadata.text("name", required="a policy needs a name")
    if len(name) > _LONGEST_LABEL:
        metadata.fault(
            "name", name, f"must be at most {_LONGEST_LABEL} characters, for it is also used as a label value"
        )
    strategy = spec.choice("strategy", Strategy) or Strategy.WATERMARK
    algorithm = spec.choice("algorithm", Algorithm) or Algorithm.AVERAGE
    if strategy is Strategy.STEP and algorithm is Algorithm.ABSOLUTE:
        advice = "strategy Step compares pods or their average, and needs algorithm Average"
        spec.fault("algorithm", algorithm.value, advice)
    metrics = _metrics(spec, strategy, algorithm)
    replica_multiple = spec.integer("replicaMultiple", 1, 1, 1000)
    policy = Policy(
        namespace=metadata.text("namespace") or "default",
        name=name,
        uid=metadata.text("uid") if metadata.has("uid") else "",
        generation=metadata.integer("generation", 0, 0, 2**63 - 1),
        hpa=spec.text("hpa") or name,
        mode=spec.choice("mode", Mode) or Mode.ACTIVE,
        hold_until=_hold_until(metadata),
        hpa_configuration=spec.choice("hpaConfiguration", HpaConfiguration) or HpaConfiguration.REPORT,
        strategy=strategy,
        algorithm=algorithm,
        tolerance=read_tolerance(spec, strategy),
        metrics=metrics,
        registry=_registry(spec.section("registry")) if spec.get("registry") is not None else None,
        pulled_out=_pulled_out(spec.section("pulledOut")),
        velocity=_directions(spec.section("velocity"), Velocity(), _PERCENT),
        cooldown=_directions(spec.section("cooldown"), _COOLDOWN.get(strategy, Cooldown())),
        schedules=_schedules(spec),
        fallback=_fallback(spec),
        min_serving_percent=spec.integer("minServingPercent", 50, 0, 100),
        accept_zero_usage=spec.optional_flag("acceptZeroUsage"),
        saturation_factor=_saturation_factor(spec),
        replica_multiple=replica_multiple,
        converge_towards=read_converge(spec, strategy, metrics),
        step=read_step(spec, strategy, metrics, replica_multiple),
        fast_scale_up=spec.flag("fastScaleUp", default=False),
        notify=spec.texts("notify", _MOST_ROUTES, longest=_LONGEST_LABEL),
    )
    spec.close(FORMER_NAMES)
    if faults:
        raise PolicyError(faults, f"policy {policy.namespace}/{policy.name}".rstrip("/"))
    return policy


def _saturation_factor(spec: FieldReader) -> Fraction:
    """How many times the load of throttled pods may be what they show."""
    factor = spec.ratio("saturationFactor")
    if factor is None:
        return _SATURATION_FACTOR
    if not 1 <= factor <= _LARGEST_RATIO:
        advice = f'saturationFactor is a number from 1 (off) to {_LARGEST_RATIO}, such as "1.25"'
        spec.fault("saturationFactor", spec.get("saturationFactor"), advice)
    return factor


def _hold_until(metadata: FieldReader) -> float | None:
    """The end of a hold by annotation, in epoch seconds; None without one."""
    annotations = metadata.get("annotations")
    text = annotations.get(HOLD_UNTIL) if isinstance(annotations, Mapping) else None
    if text is None:
        return None
    until = parse_time(text)
    if until is None:
        advice = "is no time; write one with its offset, such as 2026-01-01T12:00:00Z, or take the annotation away"
        metadata.fault(f"annotations[{HOLD_UNTIL}]", text, advice)
    return until


def _metrics(spec: FieldReader, strategy: Strategy, algorithm: Algorithm) -> tuple[Metric, ...]:
    read: list[Metric] = []
    delay = _directions(spec.section("delay"), Delay())
    for fields in spec.sections("metrics", MOST_METRICS):
        metric = _metric(fields, delay)
        if metric.name and metric.name in {earlier.name for earlier in read}:
            fields.fault("name", metric.name, "Duplicate value: metric names are unique")
        check_metric(fields, metric, strategy, algorithm)
        fields.close()
        read.append(metric)
    if not read and isinstance(spec.get("metrics"), list | tuple | None):
        spec.fault("metrics", None, "should have at least 1 items: a policy needs a metric")
    if read and all(metric.floor for metric in read):
        spec.fault("metrics", read[0].name, "a floor only keeps the count up; give a metric without floor as well")
    return tuple(read)


def _metric(fields: FieldReader, delay: Delay) -> Metric:
    name = fields.text("name", required="Required value: a metric needs a name", longest=_LONGEST_LABEL)
    if name and (not _NAME.fullmatch(name) or name in _RESERVED):
        fields.fault("name", name, _NAME_ADVICE)
    resource = _resource(fields.section("resource")) if fields.get("resource") is not None else None
    query = _query(fields.section("query")) if fields.get("query") is not None else None
    if (resource is None) == (query is None):
        fields.fault("", name, "give exactly one of resource (metrics.k8s.io) and query (Prometheus)")
    # A faulty `relativeTo` has its fault already; the watermarks are read as ratios all the same.
    sources = [fields.get(key) for key in ("resource", "query")]
    is_ratio = any(isinstance(source, Mapping) and source.get("relativeTo") for source in sources)
    high, low = (_watermark(fields, key, is_ratio=is_ratio) for key in ("highWatermark", "lowWatermark"))
    if high is not None and low is not None and low >= high:
        fields.fault("lowWatermark", fields.get("lowWatermark"), "lowWatermark must be below highWatermark")
    target = _watermark(fields, "target", is_ratio=is_ratio, noun="target")
    floor = fields.flag("floor", default=False)
    if floor:
        given = fields.get("name")
        if query is None or is_ratio:
            fields.fault("", given, "a floor is a query that gives one number for the service, without relativeTo")
        if not (fields.has("highWatermark") or fields.has("target")) or fields.has("lowWatermark"):
            its_fields = "highWatermark (strategies Ratio and Step: target), the load of one pod, and no lowWatermark"
            fields.fault("", given, f"a floor has {its_fields}")
        if fields.get("delay") is not None:
            fields.fault("", given, "a floor has no delay; take it away")
        delay = Delay()
    elif fields.get("delay") is not None:
        delay = _directions(fields.section("delay"), delay)
    return Metric(
        name=name, resource=resource, query=query, high=high, low=low, target=target, floor=floor, delay=delay
    )


def _watermark(fields: FieldReader, key: str, *, is_ratio: bool, noun: str = "watermark") -> Fraction | None:
    """A watermark or target in nano-units, rounded up as the API server rounds quantities."""
    text = fields.quantity_text(key)
    if not text:
        return None
    try:
        value = parse_quantity(percent_as_quantity(text))
    except QuantityError:
        fields.fault(key, text, "is not a quantity; write a number such as 1200m, 0.5 or 300Mi")
        return None
    advice = ""
    if value <= 0:
        advice = f"a {noun} must be more than 0"
    elif value > _LARGEST:
        advice = f"a {noun} must be at most 1Ei"
    elif is_ratio and value > _LARGEST_RATIO:
        advice = 'a ratio above 10 is 1000 %; for eighty per cent write "80%" or "0.8"'
    elif text.endswith("%") and not is_ratio:
        advice = "a percentage needs relativeTo: Limit or Request; without it write a quantity such as 1200m"
    if advice:
        fields.fault(key, text, advice)
        return None
    return Fraction(math.ceil(value * NANO))


def _resource(fields: FieldReader) -> ResourceMetric:
    name = fields.choice("name", _UsageResource)
    if fields.get("name") is None:
        fields.fault("name", None, "Required value: cpu or memory")
    resource = ResourceMetric(
        name=name.value if name else "",
        containers=fields.texts("containers", _MOST_CONTAINERS),
        relative_to=fields.choice("relativeTo", Capacity),
    )
    fields.close(FORMER_NAMES)
    return resource


def _query(fields: FieldReader) -> Query:
    query = Query(
        name=fields.text("name"),
        prom_ql=fields.text("promQL", longest=4096),
        server=fields.text("server"),
        relative_to=fields.choice("relativeTo", Capacity),
        resource=fields.text("resource", longest=_LONGEST_LABEL * 2),
        containers=fields.texts("containers", _MOST_CONTAINERS),
    )
    if fields.has("name") == fields.has("promQL"):
        fields.fault("", None, "give exactly one of name (a query of the settings) and promQL")
    if fields.has("promQL") != fields.has("server"):
        fields.fault("", None, "promQL and server go together; a named query knows its server")
    if fields.has("relativeTo") != fields.has("resource"):
        advice = "relativeTo and resource go together: whose limits or requests the query is compared with"
        fields.fault("", None, advice)
    if fields.has("containers") and not fields.has("relativeTo"):
        fields.fault("", None, "containers only matters together with relativeTo")
    fields.close(FORMER_NAMES)
    return query


def _registry(fields: FieldReader) -> Registry:
    registry = Registry(
        name=fields.text("name", required="Required value: a registry needs a name"),
        service=fields.text("service"),
        namespace=fields.text("namespace"),
        group=fields.text("group"),
        registration_grace_seconds=fields.integer("registrationGraceSeconds", 180, 0, _DAY),
        absence_confirmation_seconds=fields.integer("absenceConfirmationSeconds", 45, 0, _DAY),
        treat_unhealthy_as_out=fields.flag("treatUnhealthyAsOut", default=True),
        any_instance_out=fields.flag("anyInstanceOut", default=False),
        match=fields.choice("match", Match) or Match.IP_PORT,
        port=fields.optional_integer("port", 1, 65_535),
        pod_name_key=fields.text("podNameKey"),
    )
    if registry.name and registry.name != KUBERNETES and not registry.service:
        fields.fault("", registry.name, "a registry needs service, the name the pods register under")
    if registry.name == KUBERNETES and any(
        fields.has(key) for key in ("service", "namespace", "group", "port", "podNameKey")
    ):
        fields.fault(
            "",
            registry.name,
            "registry kubernetes reads the pods themselves; leave service, namespace, group, port and podNameKey away",
        )
    fields.close(FORMER_NAMES)
    return registry


def _pulled_out(fields: FieldReader) -> PulledOut:
    pulled_out = PulledOut(
        replace=fields.flag("replace", default=True),
        replace_after=fields.integer("replaceAfterSeconds", 60, 0, _DAY),
        min_age=fields.integer("minAgeSeconds", 600, 0, _DAY),
        delete_first=fields.flag("deleteFirst", default=False),
    )
    fields.close()
    return pulled_out


def _directions(fields: FieldReader, default: _Pair, most: Mapping[str, int] = _SECONDS) -> _Pair:
    """A velocity, cooldown or delay; an absent direction has the default's. `most`: the largest value of each key."""
    up, down = (fields.optional_integer(key, 0, largest) for key, largest in most.items())
    fields.close()
    return replace(default, up=default.up if up is None else up, down=default.down if down is None else down)


def _schedules(spec: FieldReader) -> tuple[Schedule, ...]:
    read = []
    for fields in spec.sections("schedules", _MOST_SCHEDULES):
        name = fields.text("name", required="Required value: a schedule needs a name", longest=_LONGEST_LABEL)
        cron = fields.text("cron", required="Required value: when it begins, such as 0 11 * * 1-5")
        if cron and (reason := _cron_fault(cron)):
            fields.fault("cron", cron, f"is no cron expression ({reason}); write five fields, such as 0 11 * * 1-5")
            cron = ""
        zone: tzinfo = UTC
        zone_name = fields.text("timeZone") or "UTC"
        try:
            zone = ZoneInfo(zone_name)
        except (ValueError, OSError, LookupError):
            advice = "is not a time zone; write a name of the IANA database, such as Asia/Shanghai"
            fields.fault("timeZone", zone_name, advice)
        schedule = Schedule(
            name=name,
            cron=cron or "0 0 * * *",
            zone=zone,
            duration=fields.integer("durationSeconds", 3600, 60, 7 * _DAY),
            minimum=fields.optional_integer("minReplicas", 0, MOST_REPLICAS),
            maximum=fields.optional_integer("maxReplicas", 1, MOST_REPLICAS),
        )
        if not fields.has("durationSeconds"):
            fields.fault("durationSeconds", None, "Required value: how long each time lasts")
        if schedule.minimum is None and schedule.maximum is None:
            fields.fault("", schedule.name or None, "a schedule needs minReplicas, maxReplicas or both")
        elif schedule.minimum is not None and schedule.maximum is not None and schedule.minimum > schedule.maximum:
            fields.fault("minReplicas", schedule.minimum, "minReplicas must be at most maxReplicas")
        fields.close()
        read.append(schedule)
    names = [schedule.name for schedule in read if schedule.name]
    for name in sorted({name for name in names if names.count(name) > 1}):
        spec.fault("schedules", name, "Duplicate value; name each schedule once")
    return tuple(read)


def _cron_fault(cron: str) -> str:
    fields = [field for field in cron.split(" ") if field]
    if len(fields) != 5 or fields != cron.split():
        return "it has not five fields"
    try:
        first = next(CronSim(cron, datetime(2000, 1, 1, tzinfo=UTC)), None)
    except CronSimError as error:
        return str(error)
    return "" if first is not None else "it never comes"


def _fallback(spec: FieldReader) -> Fallback | None:
    if spec.get("fallback") is None:
        return None
    fields = spec.section("fallback")
    if not fields.has("replicas"):
        fields.fault("replicas", None, "Required value: the count to have at least")
    minimum = Fallback(
        after=fields.integer("afterSeconds", 300, 0, _DAY), replicas=fields.integer("replicas", 1, 1, MOST_REPLICAS)
    )
    fields.close()
    return minimum


def read_tolerance(spec: FieldReader, strategy: Strategy) -> Fraction:
    """The policy's tolerance as a ratio. Strategy Step has its own, `step.tolerance`."""
    tolerance = spec.ratio("tolerance")
    if tolerance is None:
        return _TOLERANCE[strategy]
    if strategy is Strategy.STEP:
        spec.fault("tolerance", spec.get("tolerance"), "strategy Step has step.tolerance instead of tolerance")
    elif not 0 <= tolerance < 1:
        spec.fault("tolerance", spec.get("tolerance"), 'tolerance is "1%" or a ratio from 0 to below 1, such as "0.01"')
    return tolerance


def read_step(spec: FieldReader, strategy: Strategy, metrics: Iterable[Metric], replica_multiple: int) -> Step:
    """The parameters of strategy Step; the defaults for every other strategy, which may not have them."""
    fields = spec.section("step")
    step = Step(
        tolerance=fields.integer("tolerance", 15, 0, _MOST_TOLERANCE),
        tolerance_unit=fields.choice("toleranceUnit", ToleranceUnit) or ToleranceUnit.POINTS,
        trigger=fields.choice("trigger", Trigger) or Trigger.ANY_POD,
        up=fields.integer("up", 2, 0, _LARGEST_STEP),
        down=fields.integer("down", 2, 1, _LARGEST_STEP),
        min_pods=fields.integer("minPods", 2, 0, MOST_REPLICAS),
    )
    fields.close()
    if strategy is not Strategy.STEP:
        if spec.has("step"):
            spec.fault("step", None, "step is for strategy Step; remove it, or write strategy: Step")
        return step
    if replica_multiple > step.down:
        advice = f"step.down must be at least replicaMultiple, or a step down ({step.down}) would be rounded up again"
        spec.fault("replicaMultiple", replica_multiple, advice)
    is_ratio = step.tolerance_unit is ToleranceUnit.PERCENT
    advice = "step.tolerance must be less than the target, or no pod would ever be removed; write a smaller one"
    if is_ratio and step.tolerance >= _HUNDRED_PERCENT:
        fields.fault("tolerance", step.tolerance, advice)
    for metric in () if is_ratio else metrics:
        points = Fraction(step.tolerance, 1 if metric.relative_to is None else _HUNDRED_PERCENT)
        if metric.resource is not None and metric.relative_to is None:
            spec.fault(
                "metrics",
                metric.name,
                "step.tolerance in Points is for queries and for shares of limits or requests; for plain cpu or memory "
                "write step.toleranceUnit Percent",
            )
        elif metric.target is not None and not metric.floor and metric.target <= points * NANO:
            fields.fault("tolerance", step.tolerance, f"{advice}, or step.toleranceUnit Percent (metric {metric.name})")
    return step


def check_metric(fields: FieldReader, metric: Metric, strategy: Strategy, algorithm: Algorithm) -> None:
    """Add a fault where the metric has watermarks or a target that the strategy does not take."""
    has_watermarks = fields.has("highWatermark") or fields.has("lowWatermark")
    has_target = fields.has("target")
    if not has_watermarks and not has_target:
        advice = "give highWatermark, lowWatermark, or both; strategies Ratio and Step take target"
        fields.fault("", metric.name, advice)
    elif strategy is Strategy.WATERMARK and has_target:
        advice = "target is for strategies Ratio and Step; strategy Watermark takes highWatermark and lowWatermark"
        fields.fault("target", fields.get("target"), advice)
    elif strategy is not Strategy.WATERMARK and (has_watermarks or not has_target):
        advice = "strategies Ratio and Step take target, and neither highWatermark nor lowWatermark"
        fields.fault("", metric.name, advice)
    if algorithm is Algorithm.ABSOLUTE and metric.relative_to is not None:
        fields.fault(
            "",
            metric.name,
            "algorithm Absolute adds up usage; a metric with relativeTo is a ratio and needs algorithm Average",
        )


def read_converge(spec: FieldReader, strategy: Strategy, metrics: tuple[Metric, ...]) -> Converge | None:
    """The watermark to drift to; only strategy Watermark has any."""
    towards = spec.choice("convergeTowards", Converge)
    if towards is None:
        return None
    if strategy is not Strategy.WATERMARK:
        advice = "convergeTowards moves the count between two watermarks; strategies Ratio and Step have one target"
        spec.fault("convergeTowards", towards.value, advice)
        return None
    named = [m.high if towards is Converge.HIGH else m.low for m in metrics if not m.floor]
    if metrics and not any(named):
        key = "highWatermark" if towards is Converge.HIGH else "lowWatermark"
        spec.fault("convergeTowards", towards.value, f"convergeTowards {towards.value} needs a metric with {key}")
    return towards
