"""A HorizontalPodAutoscaler (autoscaling/v2), as far as a policy needs it: target, bounds, behavior and metrics."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from fractions import Fraction
from typing import NamedTuple

from adapter.load.quantity import NANO
from adapter.load.spec import Bounds, HpaTolerance
from adapter.policy.field_reader import FieldReader, PolicyError, Source, as_mapping, mapping_at
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
"""Metrics, conditions, scaling policies and labels that are read; more would hold the event loop."""
_LARGEST = 2**31 - 1
_ADMITTED = 3 * 2**20
"""The longest text in an object: the API server bounds its requests."""


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
        """The reference with its group instead of its version: equal for all versions of one object."""
        return CrossVersionReference(self.group, self.kind, self.name)


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
    """Read the parts of an HPA that a policy needs. Raises PolicyError with every fault in them.

    `tolerance` is the ratio for HPAs that set none themselves; 0 where it is unknown.
    """
    faults: list[Fault] = []
    root = FieldReader(as_mapping(source), "", faults)
    metadata, spec, status = root.section("metadata"), root.section("spec"), root.section("status")
    behavior, target = spec.section("behavior"), spec.section("scaleTargetRef")
    scaling_active, ambiguous = None, ""
    for condition in status.sections("conditions", _MOST):
        if condition.get("type") == "ScalingActive" and scaling_active is None:
            message = condition.optional_text("message", longest=_ADMITTED)
            scaling_active = ScalingActive(
                condition.optional_text("status"), condition.optional_text("reason"), message
            )
        if condition.get("reason") == _AMBIGUOUS and not ambiguous:
            ambiguous = condition.optional_text("message")
    hpa = Hpa(
        namespace=metadata.optional_text("namespace") or "default",
        name=metadata.text("name", required="an HPA needs a name"),
        uid=metadata.optional_text("uid"),
        generation=metadata.integer("generation", 0, 0, 2**63 - 1),
        resource_version=metadata.optional_text("resourceVersion"),
        # Of any length: `linking.reference_faults` judges them, so that the policy can report the fault.
        target=CrossVersionReference(
            target.optional_text("apiVersion", longest=_ADMITTED),
            target.text("kind", required="the kind of what the HPA scales", longest=_ADMITTED),
            target.text("name", required="the name of what the HPA scales", longest=_ADMITTED),
        ),
        bounds=_bounds(spec, status),
        metrics=tuple(filter(None, map(_metric, spec.sections("metrics", _MOST)))),
        scale_up=_pace(behavior.section("scaleUp")),
        scale_down=_pace(behavior.section("scaleDown")),
        scaling_active=scaling_active,
        managers=read_field_managers(metadata.get("managedFields")),
        ambiguous=ambiguous,
        has_behavior=spec.get("behavior") is not None,
        last_step=LastStep(
            status.integer("currentReplicas", 0, 0, _LARGEST), status.integer("desiredReplicas", 0, 0, _LARGEST)
        )
        if status.has("desiredReplicas")
        else None,
    )
    if faults:
        raise PolicyError(faults, f"HPA {hpa.namespace}/{hpa.name}".rstrip("/"))
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


def _bounds(spec: FieldReader, status: FieldReader) -> Bounds:
    written = status.get("lastScaleTime")
    last_scale = parse_time(written) if written else None
    if written and last_scale is None:
        status.fault("lastScaleTime", written, "is not an RFC 3339 time; write 2026-01-01T12:00:00Z")
    minimum = spec.integer("minReplicas", 1, 0, _LARGEST)
    if not spec.has("maxReplicas"):
        spec.fault("maxReplicas", None, "is required")
    maximum = spec.integer("maxReplicas", max(1, minimum), 1, _LARGEST)
    if minimum > maximum:
        spec.fault("minReplicas", minimum, f"must be at most maxReplicas ({maximum})")
    return Bounds(minimum=minimum, maximum=maximum, last_scale=last_scale)


def _metric(fields: FieldReader) -> HpaMetric | None:
    kind = fields.choice("type", MetricSourceType)
    if kind is None:
        if not fields.has("type"):
            fields.fault("type", None, f"is required: one of {', '.join(MetricSourceType)}")
        return None
    source = fields.section(kind.value[0].lower() + kind.value[1:])
    if kind in {MetricSourceType.RESOURCE, MetricSourceType.CONTAINER_RESOURCE}:
        target, aim = _aim(source)
        container = source.optional_text("container")
        return HpaMetric(kind=kind, name=source.optional_text("name"), target=target, aim=aim, container=container)
    identifier = source.section("metric")
    selector = identifier.section("selector")
    labels = selector.get("matchLabels")
    target, aim = _aim(source)
    described = None
    if kind is MetricSourceType.OBJECT:
        reference = source.section("describedObject")
        described = CrossVersionReference(*(reference.optional_text(key) for key in ("apiVersion", "kind", "name")))
    return HpaMetric(
        kind=kind,
        name=identifier.text("name", required="the metric's name"),
        described=described,
        match_labels={key: value for key, value in labels.items() if isinstance(value, str)}
        if isinstance(labels, Mapping) and len(labels) <= _MOST
        else {},
        target=target,
        aim=aim,
    )


def _aim(source: FieldReader) -> tuple[MetricTargetType | None, int | None]:
    target = source.section("target")
    kind = target.choice("type", MetricTargetType)
    match kind:
        case MetricTargetType.UTILIZATION:
            return kind, target.optional_integer("averageUtilization", 1, _LARGEST)
        case MetricTargetType.VALUE:
            return kind, target.nano("value")
        case MetricTargetType.AVERAGE_VALUE:
            return kind, target.nano("averageValue")
        case None:
            return None, None


def _pace(rules: FieldReader) -> ScalingRules:
    tolerance = rules.nano("tolerance")
    return ScalingRules(
        tolerance=None if tolerance is None else Fraction(tolerance, NANO),
        stabilization=rules.optional_integer("stabilizationWindowSeconds", 0, 3600),
        select=rules.optional_text("selectPolicy"),
        policies=tuple(
            ScalingPolicy(
                scaling_policy.optional_text("type"),
                scaling_policy.integer("value", 0, 0, _LARGEST),
                scaling_policy.integer("periodSeconds", 0, 0, 1800),
            )
            for scaling_policy in rules.sections("policies", _MOST)
        ),
    )
