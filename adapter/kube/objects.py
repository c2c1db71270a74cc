"""Kubernetes objects with only the fields that are used, decoded straight from bytes; absent fields have defaults."""

from collections.abc import Mapping
from typing import Any, Generic, TypeVar

import msgspec

from adapter.kube import selectors
from adapter.load.spec import Scale
from adapter.runtime.decoding import Decoder, decode

W = TypeVar("W")
T_co = TypeVar("T_co", covariant=True)

Quantity = str | int | float
"""A quantity as on the wire; hand-written documents also hold bare numbers."""


class _Narrow(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    pass


MOST_LABELS = 1024
"""An object with more labels counts as one without: the API server admits a hundred times as many."""


def bounded_labels(labels: Mapping[str, str] | None) -> Mapping[str, str]:
    """An object's labels; empty where there are more than MOST_LABELS."""
    return labels if labels and len(labels) <= MOST_LABELS else {}


class OwnerReference(_Narrow, frozen=True):
    """An owner of an object; at most one is the controller."""

    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool | None = None


class ListMeta(_Narrow, frozen=True):
    """The metadata of a list: its resource version, and the token that continues it (empty: complete)."""

    resource_version: str = ""
    token: str = msgspec.field(name="continue", default="")


class WatchedMeta(msgspec.Struct, frozen=True, kw_only=True, rename="camel", gc=False):
    """The metadata by which a watch tells objects and their versions apart."""

    name: str = ""
    namespace: str = ""
    resource_version: str = ""

    @property
    def key(self) -> str:
        """`namespace/name`; `/name` of a cluster-scoped object."""
        return f"{self.namespace}/{self.name}"


class ObjectDecoder(Generic[W, T_co]):
    """Decodes objects in two steps, so that a whole page of a list is read in one pass over its bytes.

    `kind` is a msgspec type with the fields that are used; its `metadata` is a WatchedMeta. `build` makes the item of
    a decoded object and copies what it needs. All raise msgspec.MsgspecError for anything else.
    """

    kind: type[W]

    def __call__(self, body: bytes | msgspec.Raw) -> T_co:
        """The item of an object's bytes."""
        return self.build(decode(body, self.kind))

    def build(self, wire: W) -> T_co:
        """The item of a decoded object."""
        raise NotImplementedError


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
    """None is unknown, which the API defines as ready."""

    ready: bool | None = None
    serving: bool | None = None


class Endpoint(_Narrow, frozen=True):
    """One endpoint: its conditions and the pod behind it."""

    conditions: EndpointConditions = EndpointConditions()
    target_ref: ObjectReference | None = None

    @property
    def is_serving(self) -> bool:
        """Whether it serves; `ready` counts where `serving` is absent."""
        conditions = self.conditions
        serving = conditions.serving if conditions.serving is not None else conditions.ready
        return serving is not False


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
    """An object of any kind, with plain spec and status, so that any scale path can be followed."""

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


# --- APIService (apiregistration.k8s.io/v1) ---


class ServiceReference(_Narrow, frozen=True):
    """A Service that serves an API group."""

    namespace: str = ""
    name: str = ""


class ApiServiceSpec(_Narrow, frozen=True):
    """Who serves a group (None: the API server itself), and whose certificates the aggregator trusts."""

    service: ServiceReference | None = None
    ca_bundle: str = ""
    insecure_skip_tls_verify: bool = msgspec.field(default=False, name="insecureSkipTLSVerify")


class ApiServiceStatus(_Narrow, frozen=True):
    """Whether the aggregator reaches the Service: condition Available."""

    conditions: tuple[Condition, ...] | None = None


class ApiService(_Narrow, frozen=True):
    """A version of a group that the API server may pass on to another server."""

    metadata: ObjectMeta = ObjectMeta()
    spec: ApiServiceSpec = ApiServiceSpec()
    status: ApiServiceStatus = ApiServiceStatus()


# --- data ---


class ConfigMap(_Narrow, frozen=True):
    """A ConfigMap without its metadata."""

    data: dict[str, str] | None = None


class Secret(_Narrow, frozen=True):
    """A Secret; its values are in base64."""

    metadata: ObjectMeta = ObjectMeta()
    data: dict[str, str] | None = None


# --- authorization.k8s.io/v1 ---


class AccessReviewStatus(_Narrow, frozen=True):
    """The answer to an access review."""

    allowed: bool = False
    denied: bool = False
    reason: str = ""


class AccessReview(_Narrow, frozen=True):
    """A SubjectAccessReview or SelfSubjectAccessReview, answered."""

    status: AccessReviewStatus = AccessReviewStatus()


# --- discovery ---


class _GroupVersion(_Narrow, frozen=True):
    group_version: str


class _ApiGroup(_Narrow, frozen=True):
    versions: list[_GroupVersion] = msgspec.field(default_factory=list)


class ApiGroupList(_Narrow, frozen=True):
    """The served API groups with their versions, without the core group."""

    groups: list[_ApiGroup] = msgspec.field(default_factory=list)

    @property
    def group_versions(self) -> frozenset[str]:
        """All of them as `group/version`."""
        return frozenset(version.group_version for group in self.groups for version in group.versions)


class ApiResource(_Narrow, frozen=True):
    """One resource (`deployments`) or subresource (`deployments/scale`) of a discovery document."""

    name: str
    kind: str = ""
    namespaced: bool = False


class ApiResourceList(_Narrow, frozen=True):
    """The resources of one group version."""

    resources: list[ApiResource] = msgspec.field(default_factory=list)


_SCALE = Decoder(_ScaleObject)


def decode_scale(body: bytes | msgspec.Raw) -> Scale:
    """The scale subresource (autoscaling/v1), its selector in canonical form. Raises msgspec.MsgspecError."""
    scale = _SCALE.decode(body)
    return Scale(
        replicas=scale.spec.replicas,
        status_replicas=scale.status.replicas,
        selector=selectors.canonical(scale.status.selector),
    )
