"""Kubernetes objects, narrow: only the fields that are used, decoded straight from bytes.

What is absent has a default.
"""

from typing import Any

import msgspec

from adapter.kube import selectors
from adapter.load.spec import Scale

Quantity = str | int | float
"""A quantity as it stands on the wire; hand-written documents also hold bare numbers."""


class _Narrow(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    pass


class OwnerReference(_Narrow, frozen=True):
    """Who owns an object; at most one owner is the controller."""

    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool | None = None


class Metadata(_Narrow, frozen=True):
    """The metadata of any object. Times are RFC 3339 texts."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    owner_references: list[OwnerReference] | None = None


class LabelExpression(_Narrow, frozen=True):
    """One of a label selector's matchExpressions."""

    key: str
    operator: str
    values: list[str] | None = None


class LabelSelector(_Narrow, frozen=True):
    """metav1.LabelSelector; empty matches everything."""

    match_labels: dict[str, str] | None = None
    match_expressions: list[LabelExpression] | None = None


class ObjectReference(_Narrow, frozen=True):
    """A reference by kind and name; `api_version` may be empty."""

    api_version: str = ""
    kind: str = ""
    namespace: str = ""
    name: str = ""
    uid: str = ""


# --- EndpointSlice (discovery.k8s.io/v1) ---


class EndpointConditions(_Narrow, frozen=True):
    """None is unknown, which the API asks to read as ready."""

    ready: bool | None = None
    serving: bool | None = None
    terminating: bool | None = None


class Endpoint(_Narrow, frozen=True):
    """One endpoint: its addresses, how it stands, and the pod behind it."""

    addresses: list[str] = msgspec.field(default_factory=list)
    conditions: EndpointConditions = EndpointConditions()
    target_ref: ObjectReference | None = None

    @property
    def is_serving(self) -> bool:
        """Whether it serves; where only readiness is told (or nothing), that stands for it."""
        conditions = self.conditions
        told = conditions.serving if conditions.serving is not None else conditions.ready
        return told is not False


class EndpointSlice(_Narrow, frozen=True):
    """A slice of a Service's endpoints."""

    metadata: Metadata = Metadata()
    endpoints: list[Endpoint] | None = None

    @property
    def service(self) -> str:
        """The name of the Service it belongs to; empty where it belongs to none."""
        return (self.metadata.labels or {}).get("kubernetes.io/service-name", "")


# --- HorizontalPodAutoscaler (autoscaling/v2) ---


class MetricTarget(_Narrow, frozen=True):
    """What an HPA aims at; `type` is Value, AverageValue or Utilization."""

    type: str = ""
    value: Quantity | None = None
    average_value: Quantity | None = None
    average_utilization: int | None = None


class MetricIdentifier(_Narrow, frozen=True):
    """A metric's name and the series of it that are meant."""

    name: str = ""
    selector: LabelSelector | None = None


class ObjectMetric(_Narrow, frozen=True):
    """A metric of one object."""

    described_object: ObjectReference = ObjectReference()
    metric: MetricIdentifier = MetricIdentifier()
    target: MetricTarget = MetricTarget()


class NamedMetric(_Narrow, frozen=True):
    """A Pods or External metric."""

    metric: MetricIdentifier = MetricIdentifier()
    target: MetricTarget = MetricTarget()


class ResourceMetric(_Narrow, frozen=True):
    """A stock resource metric, of the pods or of one container of each."""

    name: str = ""
    container: str = ""
    target: MetricTarget = MetricTarget()


class MetricSpec(_Narrow, frozen=True):
    """One metric of an HPA; the field that `type` names is set."""

    type: str = ""
    object: ObjectMetric | None = None
    pods: NamedMetric | None = None
    external: NamedMetric | None = None
    resource: ResourceMetric | None = None
    container_resource: ResourceMetric | None = None


class ScalingPolicy(_Narrow, frozen=True):
    """How much may change in a period; `type` is Pods or Percent."""

    type: str = ""
    value: int = 0
    period_seconds: int = 0


class ScalingRules(_Narrow, frozen=True):
    """One direction of an HPA's behavior; None: the HPA's own default."""

    tolerance: Quantity | None = None
    stabilization_window_seconds: int | None = None
    select_policy: str | None = None
    policies: list[ScalingPolicy] | None = None


class Behavior(_Narrow, frozen=True):
    """An HPA's pace in both directions."""

    scale_up: ScalingRules | None = None
    scale_down: ScalingRules | None = None


class AutoscalerSpec(_Narrow, frozen=True):
    """What an HPA scales, within which bounds, by which metrics."""

    scale_target_ref: ObjectReference = ObjectReference()
    min_replicas: int | None = None
    max_replicas: int = 0
    metrics: list[MetricSpec] | None = None
    behavior: Behavior | None = None


class AutoscalerStatus(_Narrow, frozen=True):
    """What an HPA last did. `last_scale_time` is an RFC 3339 text."""

    last_scale_time: str | None = None
    current_replicas: int = 0
    desired_replicas: int = 0


class HorizontalPodAutoscaler(_Narrow, frozen=True):
    """An HPA, with what decides about it."""

    metadata: Metadata = Metadata()
    spec: AutoscalerSpec = AutoscalerSpec()
    status: AutoscalerStatus = AutoscalerStatus()


# --- scale targets ---


class Condition(_Narrow, frozen=True):
    """A status condition of any object."""

    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""
    last_update_time: str | None = None
    last_transition_time: str | None = None


class AnyObject(_Narrow, frozen=True):
    """An object of any kind: its spec and status as plain dicts, so that any scale path can be followed."""

    api_version: str = ""
    kind: str = ""
    metadata: Metadata = Metadata()
    spec: dict[str, Any] | None = None
    status: dict[str, Any] | None = None


class _ScaleSpec(_Narrow, frozen=True):
    replicas: int = 0


class _ScaleStatus(_Narrow, frozen=True):
    replicas: int = 0
    selector: str = ""


class _ScaleObject(_Narrow, frozen=True):
    spec: _ScaleSpec
    status: _ScaleStatus = _ScaleStatus()


# --- CustomResourceDefinition (apiextensions.k8s.io/v1) ---


class ScaleSubresource(_Narrow, frozen=True):
    """Where a custom resource keeps its scale: JSON paths such as `.spec.replicas`."""

    spec_replicas_path: str = ""
    status_replicas_path: str = ""
    label_selector_path: str = ""


class Subresources(_Narrow, frozen=True):
    """A custom resource's subresources, as far as scaling goes."""

    scale: ScaleSubresource | None = None


class CrdVersion(_Narrow, frozen=True):
    """One version of a custom resource."""

    name: str = ""
    served: bool = True
    subresources: Subresources | None = None


class CrdNames(_Narrow, frozen=True):
    """A custom resource's names."""

    kind: str = ""
    plural: str = ""


class CrdSpec(_Narrow, frozen=True):
    """What a custom resource is called and where its scale is."""

    group: str = ""
    scope: str = "Namespaced"
    names: CrdNames = CrdNames()
    versions: list[CrdVersion] = msgspec.field(default_factory=list)


class CustomResourceDefinition(_Narrow, frozen=True):
    """A CRD without its schema."""

    metadata: Metadata = Metadata()
    spec: CrdSpec = CrdSpec()


# --- other ---


class ConfigMap(_Narrow, frozen=True):
    """A ConfigMap's text data."""

    metadata: Metadata = Metadata()
    data: dict[str, str] | None = None


class ApiResource(_Narrow, frozen=True):
    """One resource (`deployments`) or subresource (`deployments/scale`) that discovery lists."""

    name: str
    kind: str = ""
    namespaced: bool = False
    verbs: list[str] = msgspec.field(default_factory=list)


class ApiResourceList(_Narrow, frozen=True):
    """What one group version serves."""

    group_version: str = ""
    resources: list[ApiResource] = msgspec.field(default_factory=list)


_SCALE = msgspec.json.Decoder(_ScaleObject)


def decode_scale(body: bytes | msgspec.Raw) -> Scale:
    """The scale subresource (autoscaling/v1), its selector in canonical form. Raises msgspec.MsgspecError."""
    found = _SCALE.decode(body)
    return Scale(
        replicas=found.spec.replicas,
        status_replicas=found.status.replicas,
        selector=selectors.canonical(found.status.selector),
    )
