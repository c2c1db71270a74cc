"""Kubernetes objects, narrow: only the fields that are used, decoded straight from bytes.

What is absent has a default.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from adapter.kube import selectors
from adapter.load.spec import Scale
from adapter.runtime.decoding import Decoder

Quantity = str | int | float
"""A quantity as it stands on the wire; hand-written documents also hold bare numbers."""


class _Narrow(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    pass


MOST_LABELS = 1024
"""Of an object with more labels none are kept: the API server admits a hundred times as many."""


def bounded_labels(labels: Mapping[str, str] | None) -> Mapping[str, str]:
    """An object's labels; none where they are too many."""
    return labels if labels and len(labels) <= MOST_LABELS else {}


class OwnerReference(_Narrow, frozen=True):
    """Who owns an object; at most one owner is the controller."""

    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool | None = None


class ListMeta(_Narrow, frozen=True):
    """The metadata of a list: its resource version, and the token that continues it (empty: complete)."""

    resource_version: str = ""
    token: str = msgspec.field(name="continue", default="")


class ObjectMeta(_Narrow, frozen=True):
    """The metadata of any object. Times are RFC 3339 texts.

    Pods, watch events and PodMetrics, of which there are many, have narrower ones of their own.
    """

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


class Endpoint(_Narrow, frozen=True):
    """One endpoint: how it stands, and the pod behind it."""

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

    metadata: ObjectMeta = ObjectMeta()
    endpoints: list[Endpoint] | None = None


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
    metadata: ObjectMeta = ObjectMeta()
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
    subresources: Subresources | None = None


class CrdSpec(_Narrow, frozen=True):
    """A custom resource's versions, each with where its scale is."""

    versions: list[CrdVersion] = msgspec.field(default_factory=list)


class CustomResourceDefinition(_Narrow, frozen=True):
    """A CRD without its schema."""

    spec: CrdSpec = CrdSpec()


# --- discovery ---


class _GroupVersion(_Narrow, frozen=True):
    group_version: str


class _ApiGroup(_Narrow, frozen=True):
    versions: list[_GroupVersion] = msgspec.field(default_factory=list)


class ApiGroupList(_Narrow, frozen=True):
    """The groups that are served, each with its versions; the core group is not among them."""

    groups: list[_ApiGroup] = msgspec.field(default_factory=list)

    @property
    def group_versions(self) -> frozenset[str]:
        """All of them as `group/version`."""
        return frozenset(version.group_version for group in self.groups for version in group.versions)


class ApiResource(_Narrow, frozen=True):
    """One resource (`deployments`) or subresource (`deployments/scale`) that discovery lists."""

    name: str
    kind: str = ""
    namespaced: bool = False


class ApiResourceList(_Narrow, frozen=True):
    """What one group version serves."""

    resources: list[ApiResource] = msgspec.field(default_factory=list)


_SCALE = Decoder(_ScaleObject)


def decode_scale(body: bytes | msgspec.Raw) -> Scale:
    """The scale subresource (autoscaling/v1), its selector in canonical form. Raises msgspec.MsgspecError."""
    found = _SCALE.decode(body)
    return Scale(
        replicas=found.spec.replicas,
        status_replicas=found.status.replicas,
        selector=selectors.canonical(found.status.selector),
    )
