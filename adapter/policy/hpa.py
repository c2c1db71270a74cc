"""A HorizontalPodAutoscaler (autoscaling/v2), as far as a policy needs it: target, bounds, behavior and metrics."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from fractions import Fraction
from typing import Annotated, Any, Generic, Literal, NamedTuple, TypeVar, get_args

import msgspec

from adapter.load.quantity import NANO, parse_nano
from adapter.load.spec import Bounds, HpaTolerance
from adapter.policy.documents import MAX_NAME_LENGTH, Metadata, PolicyError, mapping_at, type_fault, without_nulls
from adapter.policy.watermark_policy import API_VERSION, KIND
from adapter.runtime.decoding import Decoder, remembered

S = TypeVar("S")
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
MetricSourceType = Literal["Object", "Pods", "External", "Resource", "ContainerResource"]
MetricTargetType = Literal["Value", "AverageValue", "Utilization"]
SOURCES: Mapping[str, str] = {kind: f"{kind[0].lower()}{kind[1:]}" for kind in get_args(MetricSourceType)}
"""The field of a metric of each type that has the rest of it."""
_AIMS: Mapping[str, str] = {"Value": "value", "AverageValue": "averageValue", "Utilization": "averageUtilization"}


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
        if self.kind == "External":
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Hpa:
    """An HPA. `scaling_active`: its condition of that type; None before its first sync.

    `has_behavior`: whether `spec.behavior` exists; without it the controller limits the pace in another way.
    `last_step`: the count that its last sync found, and the one that it set (equal where it set none); None before.
    `owners`: the managers of behavior's fields by name (`scaleUp.tolerance`, …) other than the companion, and
    `last_writer` the one of them that wrote the spec last.
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
    owners: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    last_writer: str = ""
    has_behavior: bool = False
    last_step: tuple[int, int] | None = None

    @property
    def active(self) -> bool:
        """Whether it acted at its last sync."""
        return self.scaling_active is not None and self.scaling_active.status == "True"

    @property
    def inactive(self) -> str:
        """Why it does not act, in its own words; empty where it does, has not synced yet, or its target is at 0."""
        condition = self.scaling_active
        if condition is None or condition.status != "False" or condition.reason == "ScalingDisabled":
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

    def rules(self, direction: str) -> ScalingRules:
        """The rules of `scaleUp` or `scaleDown`."""
        return self.scale_up if direction == DIRECTIONS[0] else self.scale_down

    def asks_for(self, policy: str) -> tuple[HpaMetric, ...]:
        """The metrics that ask that policy for the replica count, by the policy's name or by the scale target."""
        return tuple(one for one in self.desired_metrics if one.names(policy) or one.describes(self.target))

    def depends_on(self, policy: str) -> bool:
        """Whether any of its metrics is of that policy, under a misspelt name too."""
        return bool(self.asks_for(policy)) or any(metric.names(policy) for metric in self.metrics)


def parse_hpa(document: Mapping[str, Any], tolerance: Fraction = Fraction(0)) -> Hpa:
    """Read the parts of an HPA that a policy needs. Raises PolicyError with the first fault in them.

    `tolerance` is the ratio for HPAs that set none themselves; 0 where it is unknown.
    """
    try:
        read = msgspec.convert(without_nulls(document), _Object[_Spec], dec_hook=_hook)
    except msgspec.ValidationError as error:
        named = mapping_at(document, "metadata")
        title = f"HPA {named.get('namespace') or 'default'}/{named.get('name') or ''}".rstrip("/")
        raise PolicyError([type_fault(error)], title) from None
    return _hpa(read, read.spec, tolerance)


def decode_hpa(body: bytes | msgspec.Raw, tolerance: Fraction = Fraction(0)) -> Hpa:
    """Read an HPA as a watch sends it. Raises msgspec.MsgspecError.

    Its status changes with every sync, its spec hardly ever: that is read once (30 instead of 100 µs an event).
    """
    read = _WATCHED.decode(body)
    return _hpa(read, _spec(bytes(read.spec)), tolerance)


def _hpa(read: "_Object[Any]", spec: "_Spec", tolerance: Fraction) -> Hpa:
    metadata, status, behavior = read.metadata, read.status, spec.behavior or _Behavior()
    up, down = behavior.scale_up, behavior.scale_down
    ratios = [tolerance if one.tolerance is None else one.tolerance for one in (up, down)]
    metrics = tuple(metric.read for metric in spec.metrics)
    follows = any(metric.name == DESIRED_REPLICAS for metric in metrics)
    last_scale, after = status.last_scale_time, status.desired_replicas
    owners, last_writer = _managers(metadata.managed_fields)
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
            tolerance=HpaTolerance(*ratios) if follows and any(ratios) else None,
        ),
        metrics=metrics,
        scale_up=up,
        scale_down=down,
        scaling_active=next((one for one in status.conditions or () if one.type == "ScalingActive"), None),
        owners=owners,
        last_writer=last_writer,
        has_behavior=spec.behavior is not None,
        last_step=None if after is None else (status.current_replicas, after),
    )


def _managers(entries: Iterable[Mapping[str, Any]]) -> tuple[dict[str, tuple[str, ...]], str]:
    """The owners of behavior's fields, and the last writer of the spec."""
    owners: dict[str, tuple[str, ...]] = {}
    last = ("", "")
    for one in entries:
        spec, manager = mapping_at(one, "fieldsV1", "f:spec"), str(one.get("manager") or "unknown")
        if not spec or one.get("subresource") or manager == FIELD_MANAGER:
            continue
        for direction in DIRECTIONS:
            for name in mapping_at(spec, "f:behavior", f"f:{direction}"):
                key = f"{direction}.{name.removeprefix('f:')}"
                owners[key] = (*owners.get(key, ()), manager)
        last = max((str(one.get("time") or ""), manager), last, key=lambda each: each[0])
    return owners, last[1]


def _reference(written: Mapping[str, Any]) -> CrossVersionReference:
    """A reference in any form: `linking.reference_faults` judges it, so that the policy can report the fault."""
    return CrossVersionReference(*(str(written.get(key) or "") for key in ("apiVersion", "kind", "name")))


def _hook(kind: type, written: object) -> object:
    """A metric, or a quantity, which the API server takes with quotes and without. Raises ValueError."""
    return _Metric(written) if kind is _Metric else Fraction(parse_nano(str(written)), NANO)


class _Metric:
    """A metric as autoscaling/v2 has it. Raises ValueError with what is wrong."""

    def __init__(self, written: object) -> None:
        kind: Any = mapping_at({"": written}, "").get("type")
        if (key := SOURCES.get(str(kind))) is None:
            raise ValueError(f"{kind!r} is not a type of metric; write one of {', '.join(SOURCES)}")
        source, target = mapping_at(written, key), mapping_at(written, key, "target")
        name = source.get("name") or mapping_at(source, "metric").get("name")
        if not name:
            raise ValueError(f"{key} needs the name of the metric")
        of: Any = target.get("type")
        if of is not None and str(of) not in _AIMS:
            raise ValueError(f"{of!r} is not a type of target; write one of {', '.join(_AIMS)}")
        aim = target.get(_AIMS[of]) if of else None  # the API server admits fields of other types beside it
        self.read = HpaMetric(
            kind=kind,
            name=str(name),
            described=_reference(mapping_at(source, "describedObject")) if kind == "Object" else None,
            match_labels=mapping_at(source, "metric", "selector", "matchLabels"),
            target=of,
            aim=None if aim is None else int(aim) if of == "Utilization" else parse_nano(str(aim)),
            container=str(source.get("container", "")),
        )


class _Behavior(msgspec.Struct, frozen=True, rename="camel"):
    scale_up: ScalingRules = ScalingRules()
    scale_down: ScalingRules = ScalingRules()


class _Spec(msgspec.Struct, frozen=True, rename="camel"):
    scale_target_ref: dict[str, Any]
    max_replicas: Annotated[int, msgspec.Meta(ge=1, lt=2**31)]
    min_replicas: _Count = 1
    behavior: _Behavior | None = None
    metrics: Annotated[tuple[_Metric, ...], _LIST] = ()

    def __post_init__(self) -> None:
        if self.min_replicas > self.max_replicas:
            raise ValueError(f"minReplicas {self.min_replicas} must be at most maxReplicas {self.max_replicas}")


class _Status(msgspec.Struct, frozen=True, rename="camel"):
    last_scale_time: Annotated[datetime, msgspec.Meta(tz=True)] | None = None
    current_replicas: _Count = 0
    desired_replicas: _Count | None = None
    conditions: Annotated[tuple[ScalingActive, ...], _LIST] | None = None


class _Metadata(Metadata, frozen=True, kw_only=True, rename="camel"):
    name: Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_NAME_LENGTH)]
    resource_version: str = ""
    managed_fields: tuple[dict[str, Any], ...] = ()


class _Object(msgspec.Struct, Generic[S], frozen=True):
    metadata: _Metadata
    spec: S
    status: _Status = _Status()


_WATCHED: Decoder["_Object[msgspec.Raw]"] = Decoder(_Object[msgspec.Raw])
_spec = remembered(Decoder(_Spec, _hook).decode)
