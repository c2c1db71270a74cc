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
from adapter.policy.documents import Metadata, PolicyError, mapping_at, type_fault, without_nulls
from adapter.policy.watermark_policy import API_VERSION, KIND

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


MetricSourceType = StrEnum(
    "MetricSourceType",
    {
        "OBJECT": "Object",
        "PODS": "Pods",
        "EXTERNAL": "External",
        "RESOURCE": "Resource",
        "CONTAINER_RESOURCE": "ContainerResource",
    },
)
MetricTargetType = StrEnum(
    "MetricTargetType", {"VALUE": "Value", "AVERAGE_VALUE": "AverageValue", "UTILIZATION": "Utilization"}
)


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


def parse_hpa(document: Mapping[str, Any], tolerance: Fraction = Fraction(0)) -> Hpa:
    """Read the parts of an HPA that a policy needs. Raises PolicyError with the first fault in them.

    `tolerance` is the ratio for HPAs that set none themselves; 0 where it is unknown.
    """
    try:
        read = msgspec.convert(without_nulls(document), _Object, dec_hook=_hook)
    except msgspec.ValidationError as error:
        named = mapping_at(document, "metadata")
        title = f"HPA {named.get('namespace') or 'default'}/{named.get('name') or ''}".rstrip("/")
        raise PolicyError([type_fault(error)], title) from None
    metadata, spec, status, behavior = read.metadata, read.spec, read.status, read.spec.behavior or _Behavior()
    up, down = (
        tolerance if one.tolerance is None else one.tolerance for one in (behavior.scale_up, behavior.scale_down)
    )
    metrics = tuple(metric.read for metric in spec.metrics)
    follows = any(metric.name == DESIRED_REPLICAS for metric in metrics)
    last_scale, after = status.last_scale_time, status.desired_replicas
    return Hpa(
        namespace=metadata.namespace or "default",
        name=metadata.name,
        uid=metadata.uid,
        resource_version=metadata.resource_version,
        target=_reference(spec.scale_target_ref),
        bounds=Bounds(
            minimum=spec.min_replicas,
            maximum=spec.max_replicas,
            last_scale=None if last_scale is None else last_scale.timestamp(),
            tolerance=HpaTolerance(up, down) if follows and (up or down) else None,
        ),
        metrics=metrics,
        scale_up=behavior.scale_up,
        scale_down=behavior.scale_down,
        scaling_active=next((one for one in status.conditions if one.type == "ScalingActive"), None),
        managers=read_field_managers(metadata.managed_fields),
        ambiguous=next((one.message for one in status.conditions if one.reason == "AmbiguousSelector"), ""),
        has_behavior=spec.behavior is not None,
        last_step=None if after is None else LastStep(status.current_replicas, after),
    )


def read_field_managers(managed_fields: object) -> FieldManagers:
    """Read metadata.managedFields; entries of another form are skipped."""
    owners: dict[str, tuple[str, ...]] = {}
    last = ("", "")
    for entry in managed_fields if isinstance(managed_fields, list) else ():
        spec = mapping_at(entry, "fieldsV1", "f:spec")
        if not spec or entry.get("subresource") or entry.get("manager") == FIELD_MANAGER:
            continue
        manager = str(entry.get("manager") or "unknown")
        for direction in DIRECTIONS:
            for name in mapping_at(spec, "f:behavior", f"f:{direction}"):
                key = f"{direction}.{name.removeprefix('f:')}"
                owners[key] = (*owners.get(key, ()), manager)
        last = max((str(entry.get("time") or ""), manager), last, key=lambda one: one[0])
    return FieldManagers(owners, last[1])


def _reference(written: Mapping[str, Any]) -> CrossVersionReference:
    """A reference in any form: `linking.reference_faults` judges it, so that the policy can report the fault."""
    return CrossVersionReference(*(str(written.get(key) or "") for key in ("apiVersion", "kind", "name")))


def _key(name: str) -> str:
    """The field of the API with the value of this name: `averageValue` of `AverageValue`."""
    return f"{name[0].lower()}{name[1:]}"


def _hook(kind: type, written: object) -> object:
    """A metric, or a quantity, which the API server takes with quotes and without. Raises ValueError."""
    return _Metric(written) if kind is _Metric else Fraction(parse_nano(str(written)), NANO)


class _Metric:
    """A metric as autoscaling/v2 has it. Raises ValueError with what is wrong."""

    def __init__(self, written: object) -> None:
        kind = MetricSourceType(str(mapping_at({"": written}, "").get("type")))
        key = _key(kind)
        source, target = mapping_at(written, key), mapping_at(written, key, "target")
        name = source.get("name") or mapping_at(source, "metric").get("name")
        if not name:
            raise ValueError(f"{key} needs the name of the metric")
        of = MetricTargetType(target["type"]) if "type" in target else None
        is_percent = of is MetricTargetType.UTILIZATION
        aim = target.get("averageUtilization" if is_percent else _key(of)) if of else None
        self.read = HpaMetric(
            kind=kind,
            name=str(name),
            described=_reference(mapping_at(source, "describedObject")) if kind is MetricSourceType.OBJECT else None,
            match_labels=mapping_at(source, "metric", "selector", "matchLabels"),
            target=of,
            aim=None if aim is None else int(aim) if is_percent else parse_nano(str(aim)),
            container=str(source.get("container", "")),
        )


class _Part(msgspec.Struct, rename="camel", frozen=True):
    """A part of an HPA as the API has it."""


class _Behavior(_Part, frozen=True):
    scale_up: ScalingRules = ScalingRules()
    scale_down: ScalingRules = ScalingRules()


class _Spec(_Part, frozen=True):
    scale_target_ref: dict[str, Any]
    max_replicas: _Positive
    min_replicas: _Count = 1
    behavior: _Behavior | None = None
    metrics: Annotated[tuple[_Metric, ...], _LIST] = ()

    def __post_init__(self) -> None:
        if not (self.scale_target_ref.get("kind") and self.scale_target_ref.get("name")):
            raise ValueError("scaleTargetRef needs kind and name")
        if self.min_replicas > self.max_replicas:
            raise ValueError(f"minReplicas {self.min_replicas} must be at most maxReplicas {self.max_replicas}")


class _Status(_Part, frozen=True):
    last_scale_time: Annotated[datetime, msgspec.Meta(tz=True)] | None = None
    current_replicas: _Count = 0
    desired_replicas: _Count | None = None
    conditions: Annotated[tuple[ScalingActive, ...], _LIST] = ()


class _Object(_Part, frozen=True):
    metadata: Metadata
    spec: _Spec
    status: _Status = _Status()

    def __post_init__(self) -> None:
        if not self.metadata.name:
            raise ValueError("metadata needs a name")
