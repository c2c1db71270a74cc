"""A HorizontalPodAutoscaler (autoscaling/v2), as far as a policy needs it: target, bounds, behavior and metrics."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from fractions import Fraction
from typing import Annotated, Any, NamedTuple

import msgspec

from adapter.load.quantity import NANO, QuantityError, parse_nano
from adapter.load.spec import Bounds, HpaTolerance
from adapter.policy.documents import PolicyError, Source, as_mapping, mapping_at, type_fault
from adapter.policy.watermark_policy import API_VERSION, KIND
from adapter.runtime.faults import Fault
from adapter.runtime.times import parse_time

DESIRED_REPLICAS = "desired_replicas"
"""The metric whose value is the replica count."""
POLICY_LABEL = "policy"
"""The label of an External metric's selector that names the policy."""

DEFAULT_TOLERANCE = Fraction(1, 10)
"""The controller's own tolerance, for HPAs that set none."""

FIELD_MANAGER = "effective-load-companion"
"""The companion's own field manager."""
DIRECTIONS = ("scaleUp", "scaleDown")

_EFFECTIVE = "effective_"
_AMBIGUOUS = "AmbiguousSelector"
_MOST = 200
"""Metrics, conditions and scaling policies that are read; more would hold the event loop."""
_LARGEST = 2**31 - 1


class MetricSourceType(StrEnum):
    """The type of a metric's source."""

    OBJECT = "Object"
    PODS = "Pods"
    EXTERNAL = "External"
    RESOURCE = "Resource"
    CONTAINER_RESOURCE = "ContainerResource"


class MetricTargetType(StrEnum):
    """The type of a metric's target value."""

    VALUE = "Value"
    AVERAGE_VALUE = "AverageValue"
    UTILIZATION = "Utilization"


class CrossVersionReference(NamedTuple):
    """A CrossVersionObjectReference: an object of the HPA's namespace; `api_version` may be empty."""

    api_version: str
    kind: str
    name: str

    @property
    def group(self) -> str:
        """The API group, empty for the core one."""
        return self.api_version.rpartition("/")[0]

    @property
    def identity(self) -> "CrossVersionReference":
        """Equal for all references that the HPA controller maps to one object: whatever version, and kind's case."""
        return CrossVersionReference(self.group, self.kind.lower(), self.name)


@dataclass(frozen=True, slots=True, kw_only=True)
class HpaMetric:
    """One metric of an HPA. `described` is set for Object metrics; `match_labels` are the metric selector's.

    `container` is set for ContainerResource metrics. `aim` is the target value, in nano-units (Utilization: percent).
    """

    kind: MetricSourceType
    name: str
    described: CrossVersionReference | None = None
    match_labels: Mapping[str, str] = field(default_factory=dict)
    target: MetricTargetType | None = None
    aim: int | None = None
    container: str = ""

    def names(self, policy: str) -> bool:
        """Whether it is a metric of that policy by name: as an Object metric, or by label."""
        if self.kind is MetricSourceType.EXTERNAL:
            return self.match_labels.get(POLICY_LABEL) == policy
        return self.describes(CrossVersionReference(API_VERSION, KIND, policy))

    def describes(self, other: CrossVersionReference) -> bool:
        """Whether it is an Object metric of that object, in whatever version."""
        return self.described is not None and self.described.identity == other.identity


class ScalingPolicy(NamedTuple):
    """An HPAScalingPolicy: `kind` is `Pods` or `Percent`, `period` in seconds."""

    kind: str
    value: int
    period: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalingRules:
    """HPAScalingRules: one direction of behavior. None or empty: the HPA's default. `stabilization` is in seconds."""

    tolerance: Fraction | None = None
    stabilization: int | None = None
    select: str = ""
    policies: tuple[ScalingPolicy, ...] = ()


class ScalingActive(NamedTuple):
    """An HPA's condition ScalingActive, as its last sync left it."""

    status: str
    reason: str = ""
    message: str = ""


@dataclass(frozen=True, slots=True)
class FieldManagers:
    """`owners` of behavior's fields by name (`scaleUp.tolerance`, …); `last`: the last other writer of the spec."""

    owners: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    last: str = ""

    def others(self, name: str) -> tuple[str, ...]:
        """The owners of a field other than the companion."""
        return tuple(owner for owner in self.owners.get(name, ()) if owner != FIELD_MANAGER)


class LastStep(NamedTuple):
    """The count that an HPA found at its last sync, and the one that it set: equal where it set none."""

    before: int
    after: int


_PAUSED = "ScalingDisabled"


@dataclass(frozen=True, slots=True, kw_only=True)
class Hpa:
    """An HPA. `scaling_active`: its condition of that type; None before its first sync.

    `ambiguous` is the message of its AmbiguousSelector condition: other HPAs select the same pods. Empty otherwise.
    `has_behavior`: whether `spec.behavior` exists; without it the controller limits the pace in another way.
    `last_step`: None before its first sync.
    """

    namespace: str
    name: str
    uid: str = ""
    generation: int = 0
    resource_version: str = ""
    target: CrossVersionReference
    bounds: Bounds
    metrics: tuple[HpaMetric, ...] = ()
    scale_up: ScalingRules = field(default_factory=ScalingRules)
    scale_down: ScalingRules = field(default_factory=ScalingRules)
    scaling_active: ScalingActive | None = None
    managers: FieldManagers = field(default_factory=FieldManagers)
    ambiguous: str = ""
    has_behavior: bool = False
    last_step: LastStep | None = None

    @property
    def active(self) -> bool:
        """Whether it acted at its last sync."""
        return self.scaling_active is not None and self.scaling_active.status == "True"

    @property
    def inactive(self) -> str:
        """Why it does not act, in its own words; empty where it does, has not synced yet, or its target is at 0."""
        condition = self.scaling_active
        if condition is None or condition.status != "False" or condition.reason == _PAUSED:
            return ""
        return f"it does not act ({condition.reason}): {condition.message}"

    @property
    def desired_metrics(self) -> tuple[HpaMetric, ...]:
        """The metrics that ask for the replica count."""
        return tuple(metric for metric in self.metrics if metric.name == DESIRED_REPLICAS)

    @property
    def pods_metrics(self) -> tuple[tuple[str, int], ...]:
        """The Pods metrics named `effective_…`, each with the average (nano-units) that it aims at."""
        return tuple(
            (metric.name, metric.aim)
            for metric in self.metrics
            if metric.kind is MetricSourceType.PODS and metric.name.startswith(_EFFECTIVE) and metric.aim is not None
        )

    @property
    def sets_tolerance(self) -> bool:
        """Whether it sets a tolerance of its own, in either direction."""
        return not (self.scale_up.tolerance is None and self.scale_down.tolerance is None)

    def asks_for(self, policy: str) -> bool:
        """Whether it takes its replica count from that policy, by the policy's name or by the scale target."""
        return any(metric.names(policy) or metric.describes(self.target) for metric in self.desired_metrics)

    def depends_on(self, policy: str) -> bool:
        """Whether any of its metrics is of that policy, under a misspelt name too."""
        return self.asks_for(policy) or any(metric.names(policy) for metric in self.metrics)


def parse_hpa(source: Source, tolerance: Fraction = Fraction(0)) -> Hpa:
    """Read the parts of an HPA that a policy needs. Raises PolicyError with the faults in them.

    `tolerance` is the ratio for HPAs that set none themselves; 0 where it is unknown.
    """
    plain = as_mapping(source)
    metadata = mapping_at(plain, "metadata")
    title = f"HPA {metadata.get('namespace') or 'default'}/{metadata.get('name') or ''}".rstrip("/")
    try:
        read = msgspec.convert(plain, _Object)
    except msgspec.ValidationError as error:
        raise PolicyError([type_fault(error)], title) from None
    spec, status, faults = read.spec or _Spec(), read.status or _Status(), list[Fault]()
    behavior, conditions = spec.behavior or _Behavior(), status.conditions or []
    active, last_step = next((one for one in conditions if one.type == "ScalingActive"), None), None
    scaling_active = None
    if active is not None:
        scaling_active = ScalingActive(active.status or "", active.reason or "", active.message or "")
    if status.desired_replicas is not None:
        last_step = LastStep(status.current_replicas or 0, status.desired_replicas)
    hpa = Hpa(
        namespace=read.metadata.namespace or "default",
        name=read.metadata.name or "",
        uid=read.metadata.uid or "",
        generation=read.metadata.generation or 0,
        resource_version=read.metadata.resource_version or "",
        target=_reference(spec.scale_target_ref),
        bounds=_bounds(spec, status, faults),
        metrics=tuple(_metric(metric, f"spec.metrics[{n}]", faults) for n, metric in enumerate(spec.metrics or ())),
        scale_up=_rules(behavior.scale_up or _Rules(), "spec.behavior.scaleUp", faults),
        scale_down=_rules(behavior.scale_down or _Rules(), "spec.behavior.scaleDown", faults),
        scaling_active=scaling_active,
        managers=read_field_managers(read.metadata.managed_fields),
        ambiguous=next((one.message or "" for one in conditions if one.reason == _AMBIGUOUS), ""),
        has_behavior=spec.behavior is not None,
        last_step=last_step,
    )
    # References may have any form: `linking.reference_faults` judges them, so that the policy can report the fault.
    required = {"metadata.name": hpa.name, "spec.scaleTargetRef.kind": hpa.target.kind}
    for path, text in (required | {"spec.scaleTargetRef.name": hpa.target.name}).items():
        if not text:
            faults.append(Fault(path, None, "is required"))
    if faults:
        raise PolicyError(faults, title)
    up, down = (tolerance if pace.tolerance is None else pace.tolerance for pace in (hpa.scale_up, hpa.scale_down))
    if hpa.desired_metrics and (up or down):
        return replace(hpa, bounds=replace(hpa.bounds, tolerance=HpaTolerance(up, down)))
    return hpa


def read_field_managers(managed_fields: object) -> FieldManagers:
    """Read metadata.managedFields; entries of another form are skipped."""
    owners: dict[str, list[str]] = {}
    last, at = "", ""
    for entry in managed_fields if isinstance(managed_fields, list) else ():
        spec = mapping_at(entry, "fieldsV1", "f:spec")
        if not spec or entry.get("subresource"):
            continue
        manager, time = (value if isinstance(value := entry.get(key), str) else "" for key in ("manager", "time"))
        manager = manager or "unknown"
        for direction in DIRECTIONS:
            for name in mapping_at(spec, "f:behavior", f"f:{direction}"):
                if name.startswith("f:"):
                    owners.setdefault(f"{direction}.{name.removeprefix('f:')}", []).append(manager)
        if manager != FIELD_MANAGER and time >= at:
            last, at = manager, time
    return FieldManagers({name: tuple(managers) for name, managers in owners.items()}, last)


def _reference(read: "_Reference | None") -> CrossVersionReference:
    read = read or _Reference()
    return CrossVersionReference(read.api_version or "", read.kind or "", read.name or "")


def _bounds(spec: "_Spec", status: "_Status", faults: list[Fault]) -> Bounds:
    written, minimum, maximum = status.last_scale_time, spec.min_replicas, spec.max_replicas
    last_scale = None if written is None else parse_time(written)
    if written is not None and last_scale is None:
        advice = "is not an RFC 3339 time; write 2026-01-01T12:00:00Z"
        faults.append(Fault("status.lastScaleTime", written, advice))
    minimum = 1 if minimum is None else minimum
    if maximum is None:
        faults.append(Fault("spec.maxReplicas", None, "is required"))
    elif minimum > maximum:
        faults.append(Fault("spec.minReplicas", minimum, f"must be at most maxReplicas ({maximum})"))
    return Bounds(minimum=minimum, maximum=maximum or 1, last_scale=last_scale)


def _metric(read: "_Metric", place: str, faults: list[Fault]) -> HpaMetric:
    key = read.type.value[0].lower() + read.type.value[1:]
    sources = {"object": read.object, "pods": read.pods, "external": read.external, "resource": read.resource}
    source, place = sources.get(key, read.container_resource) or _Source(), f"{place}.{key}"
    identifier, target = source.metric or _Identifier(), source.target or _Target()
    name, selector = source.name or "", identifier.selector or _Selector()
    if "esource" not in key:
        name = identifier.name or ""
        if not name:
            faults.append(Fault(f"{place}.metric.name", None, "is required: the metric's name"))
    aim = target.average_utilization
    if target.type is not None and target.type is not MetricTargetType.UTILIZATION:
        is_value = target.type is MetricTargetType.VALUE
        written, key = (target.value, "value") if is_value else (target.average_value, "averageValue")
        aim = _nano(written, f"{place}.target.{key}", faults)
    return HpaMetric(
        kind=read.type,
        name=name,
        described=_reference(source.described_object) if read.type is MetricSourceType.OBJECT else None,
        match_labels=selector.match_labels or {},
        target=target.type,
        aim=aim,
        container=source.container or "",
    )


def _rules(rules: "_Rules", place: str, faults: list[Fault]) -> ScalingRules:
    tolerance = _nano(rules.tolerance, f"{place}.tolerance", faults)
    return ScalingRules(
        tolerance=None if tolerance is None else Fraction(tolerance, NANO),
        stabilization=rules.stabilization_window_seconds,
        select=rules.select_policy or "",
        policies=tuple(ScalingPolicy(one.type or "", one.value, one.period_seconds) for one in rules.policies or ()),
    )


def _nano(written: str | float | None, path: str, faults: list[Fault]) -> int | None:
    """A quantity in nano-units; the API server takes it with quotes and without."""
    try:
        return None if written is None else parse_nano(str(written))
    except QuantityError as error:
        faults.append(Fault(path, written, str(error)))
        return None


_Count = Annotated[int, msgspec.Meta(ge=0, le=_LARGEST)]
_Quantity = str | int | float


class _Part(msgspec.Struct, rename="camel"):
    """A part of an HPA as the API has it; None is absent."""


class _Target(_Part):
    type: MetricTargetType | None = None
    value: _Quantity | None = None
    average_value: _Quantity | None = None
    average_utilization: Annotated[int, msgspec.Meta(ge=1, le=_LARGEST)] | None = None


class _Reference(_Part):
    api_version: str | None = None
    kind: str | None = None
    name: str | None = None


class _Selector(_Part):
    match_labels: dict[str, str] | None = None


class _Identifier(_Part):
    name: str | None = None
    selector: _Selector | None = None


class _Source(_Part):
    name: str | None = None
    container: str | None = None
    metric: _Identifier | None = None
    described_object: _Reference | None = None
    target: _Target | None = None


class _Metric(_Part):
    type: MetricSourceType
    object: _Source | None = None
    pods: _Source | None = None
    external: _Source | None = None
    resource: _Source | None = None
    container_resource: _Source | None = None


class _ScalingPolicy(_Part):
    type: str | None = None
    value: _Count = 0
    period_seconds: _Count = 0


class _Rules(_Part):
    tolerance: _Quantity | None = None
    stabilization_window_seconds: Annotated[int, msgspec.Meta(ge=0, le=3600)] | None = None
    select_policy: str | None = None
    policies: Annotated[list[_ScalingPolicy], msgspec.Meta(max_length=_MOST)] | None = None


class _Behavior(_Part):
    scale_up: _Rules | None = None
    scale_down: _Rules | None = None


class _Spec(_Part):
    scale_target_ref: _Reference | None = None
    min_replicas: _Count | None = None
    max_replicas: Annotated[int, msgspec.Meta(ge=1, le=_LARGEST)] | None = None
    behavior: _Behavior | None = None
    metrics: Annotated[list[_Metric], msgspec.Meta(max_length=_MOST)] | None = None


class _Condition(_Part):
    type: str | None = None
    status: str | None = None
    reason: str | None = None
    message: str | None = None


class _Status(_Part):
    last_scale_time: str | None = None
    current_replicas: _Count | None = None
    desired_replicas: _Count | None = None
    conditions: Annotated[list[_Condition], msgspec.Meta(max_length=_MOST)] | None = None


class _Metadata(_Part):
    name: str | None = None
    namespace: str | None = None
    uid: str | None = None
    generation: int | None = None
    resource_version: str | None = None
    managed_fields: Any = None


class _Object(_Part):
    metadata: _Metadata = msgspec.field(default_factory=_Metadata)
    spec: _Spec | None = None
    status: _Status | None = None
