"""A HorizontalPodAutoscaler (autoscaling/v2), as far as a policy needs it: target, bounds, behavior and metrics."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from fractions import Fraction
from types import MappingProxyType
from typing import Annotated, Any, NamedTuple

import msgspec

from adapter.load.quantity import NANO, parse_nano
from adapter.load.spec import Bounds, HpaTolerance
from adapter.policy.documents import PolicyError, mapping_at, type_fault
from adapter.policy.watermark_policy import API_VERSION, KIND
from adapter.runtime.faults import Fault

DESIRED_REPLICAS = "desired_replicas"
"""The metric whose value is the replica count."""
POLICY_LABEL = "policy"
"""The label of an External metric's selector that names the policy."""

DEFAULT_TOLERANCE = Fraction(1, 10)
"""The controller's own tolerance, for HPAs that set none."""

FIELD_MANAGER = "effective-load-companion"
"""The companion's own field manager."""
DIRECTIONS = ("scaleUp", "scaleDown")

_LIST = msgspec.Meta(max_length=200)
"""Metrics, conditions and scaling policies that are read; more would hold the event loop."""
_Count = Annotated[int, msgspec.Meta(ge=0, lt=2**31)]
_Positive = Annotated[int, msgspec.Meta(ge=1, lt=2**31)]


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


class ScalingPolicy(msgspec.Struct, frozen=True, rename={"kind": "type", "period": "periodSeconds"}):
    """An HPAScalingPolicy: `kind` is `Pods` or `Percent`, `period` in seconds."""

    kind: str
    value: _Count
    period: _Count


class ScalingRules(
    msgspec.Struct, frozen=True, rename={"stabilization": "stabilizationWindowSeconds", "select": "selectPolicy"}
):
    """HPAScalingRules: one direction of behavior. None or empty: the HPA's default. `stabilization` is in seconds."""

    tolerance: Fraction | None = None
    stabilization: Annotated[int, msgspec.Meta(ge=0, le=3600)] | None = None
    select: str = ""
    policies: Annotated[tuple[ScalingPolicy, ...], _LIST] = ()


class ScalingActive(msgspec.Struct, frozen=True):
    """An HPA's condition ScalingActive (or another one), as its last sync left it."""

    status: str = ""
    reason: str = ""
    message: str = ""
    type: str = "ScalingActive"


class FieldManagers(NamedTuple):
    """The managers of an HPA's spec other than the companion.

    `owners` are those of behavior's fields by name (`scaleUp.tolerance`, …); `last` wrote the spec last.
    """

    owners: Mapping[str, tuple[str, ...]] = MappingProxyType({})
    last: str = ""


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
    def sets_tolerance(self) -> bool:
        """Whether it sets a tolerance of its own, in either direction."""
        return not (self.scale_up.tolerance is None and self.scale_down.tolerance is None)

    def asks_for(self, policy: str) -> bool:
        """Whether it takes its replica count from that policy, by the policy's name or by the scale target."""
        return any(metric.names(policy) or metric.describes(self.target) for metric in self.desired_metrics)

    def depends_on(self, policy: str) -> bool:
        """Whether any of its metrics is of that policy, under a misspelt name too."""
        return self.asks_for(policy) or any(metric.names(policy) for metric in self.metrics)


def parse_hpa(plain: Mapping[str, Any], tolerance: Fraction = Fraction(0)) -> Hpa:
    """Read the parts of an HPA that a policy needs. Raises PolicyError with the faults in them.

    `tolerance` is the ratio for HPAs that set none themselves; 0 where it is unknown.
    """
    metadata = mapping_at(plain, "metadata")
    given = {key: _without_nulls(plain.get(key)) or {} for key in ("spec", "status")}
    name, namespace = _text(metadata, "name"), _text(metadata, "namespace") or "default"
    target, title = _reference(mapping_at(plain, "spec", "scaleTargetRef")), f"HPA {namespace}/{name}".rstrip("/")
    # References may have any form: `linking.reference_faults` judges them, so that the policy can report the fault.
    required = {"metadata.name": name, "spec.scaleTargetRef.kind": target.kind, "spec.scaleTargetRef.name": target.name}
    faults = [Fault(path, None, "is required") for path, text in required.items() if not text]
    try:
        read = msgspec.convert(given, _Object, dec_hook=_quantity)
    except msgspec.ValidationError as error:
        raise PolicyError([*faults, type_fault(error)], title) from None
    metrics = []
    for index, metric in enumerate(read.spec.metrics):
        try:
            metrics.append(_metric(metric))
        except ValueError as error:
            faults.append(Fault(f"spec.metrics[{index}]", None, str(error)))
    if faults:
        raise PolicyError(faults, title)
    spec, status, behavior = read.spec, read.status, read.spec.behavior or _Behavior()
    up, down = (
        tolerance if one.tolerance is None else one.tolerance for one in (behavior.scale_up, behavior.scale_down)
    )
    follows = any(metric.name == DESIRED_REPLICAS for metric in metrics)
    return Hpa(
        namespace=namespace,
        name=name,
        uid=_text(metadata, "uid"),
        generation=metadata.get("generation") or 0,
        resource_version=_text(metadata, "resourceVersion"),
        target=target,
        bounds=Bounds(
            minimum=spec.min_replicas,
            maximum=spec.max_replicas,
            last_scale=None if status.last_scale_time is None else status.last_scale_time.timestamp(),
            tolerance=HpaTolerance(up, down) if follows and (up or down) else None,
        ),
        metrics=tuple(metrics),
        scale_up=behavior.scale_up,
        scale_down=behavior.scale_down,
        scaling_active=next((one for one in status.conditions if one.type == "ScalingActive"), None),
        managers=read_field_managers(metadata.get("managedFields")),
        ambiguous=next((one.message for one in status.conditions if one.reason == "AmbiguousSelector"), ""),
        has_behavior=spec.behavior is not None,
        last_step=None
        if status.desired_replicas is None
        else LastStep(status.current_replicas, status.desired_replicas),
    )


def read_field_managers(managed_fields: object) -> FieldManagers:
    """Read metadata.managedFields; entries of another form are skipped."""
    owners: dict[str, tuple[str, ...]] = {}
    last, at = "", ""
    for entry in managed_fields if isinstance(managed_fields, list) else ():
        spec = mapping_at(entry, "fieldsV1", "f:spec")
        if not spec or entry.get("subresource") or entry.get("manager") == FIELD_MANAGER:
            continue
        manager, time = str(entry.get("manager") or "unknown"), str(entry.get("time") or "")
        for direction in DIRECTIONS:
            for name in mapping_at(spec, "f:behavior", f"f:{direction}"):
                key = f"{direction}.{name.removeprefix('f:')}"
                owners[key] = (*owners.get(key, ()), manager)
        last, at = (manager, time) if time >= at else (last, at)
    return FieldManagers(owners, last)


def _metric(metric: object) -> HpaMetric:
    """A metric as autoscaling/v2 has it. Raises ValueError with what is wrong."""
    kind = mapping_at({"": metric}, "").get("type")
    if kind not in list(MetricSourceType):
        raise ValueError(f"type {kind} is not supported; write one of {', '.join(MetricSourceType)}")
    key = _key(kind)
    source, target = mapping_at(metric, key), mapping_at(metric, key, "target")
    name = _text(source if "Resource" in kind else mapping_at(source, "metric"), "name")
    if not name:
        raise ValueError(f"{key} needs the name of the metric")
    of = MetricTargetType(target["type"]) if target.get("type") else None
    is_percent = of is None or of is MetricTargetType.UTILIZATION
    written = target.get("averageUtilization" if is_percent else _key(str(of)))
    aim = None if written is None else int(written) if is_percent else parse_nano(str(written))
    return HpaMetric(
        kind=MetricSourceType(kind),
        name=name,
        described=_reference(mapping_at(source, "describedObject")) if kind == MetricSourceType.OBJECT else None,
        match_labels=mapping_at(source, "metric", "selector", "matchLabels"),
        target=of,
        aim=aim,
        container=_text(source, "container"),
    )


def _key(name: str) -> str:
    """The field of the API with the value of this name: `averageValue` of `AverageValue`."""
    return f"{name[0].lower()}{name[1:]}"


def _reference(written: Mapping[str, Any]) -> CrossVersionReference:
    return CrossVersionReference(*(_text(written, key) for key in ("apiVersion", "kind", "name")))


def _text(written: Mapping[str, Any], key: str) -> str:
    """The text of this key; empty without one."""
    return str(written.get(key) or "")


def _without_nulls(value: Any) -> Any:
    """The value as the API server stores it: null is absent."""
    if isinstance(value, dict):
        return {key: _without_nulls(item) for key, item in value.items() if item is not None}
    return value


def _quantity(_: type, written: object) -> Fraction:
    """A quantity, which the API server takes with quotes and without. Raises QuantityError, a ValueError."""
    return Fraction(parse_nano(str(written)), NANO)


class _Part(msgspec.Struct, rename="camel", frozen=True):
    """A part of an HPA as the API has it."""


class _Behavior(_Part, frozen=True):
    scale_up: ScalingRules = ScalingRules()
    scale_down: ScalingRules = ScalingRules()


class _Spec(_Part, frozen=True):
    max_replicas: _Positive
    min_replicas: _Count = 1
    behavior: _Behavior | None = None
    metrics: Annotated[list[Any], _LIST] = []

    def __post_init__(self) -> None:
        if self.min_replicas > self.max_replicas:
            raise ValueError(f"minReplicas {self.min_replicas} must be at most maxReplicas {self.max_replicas}")


class _Status(_Part, frozen=True):
    last_scale_time: Annotated[datetime, msgspec.Meta(tz=True)] | None = None
    current_replicas: _Count = 0
    desired_replicas: _Count | None = None
    conditions: Annotated[tuple[ScalingActive, ...], _LIST] = ()


class _Object(_Part, frozen=True):
    spec: _Spec
    status: _Status
