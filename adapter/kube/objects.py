"""Kubernetes objects with only the fields that are used, decoded straight from bytes; absent fields have defaults.

Every room reads the API with these, so that a kind has one definition. What only one kind of reader needs is left as
`msgspec.Raw`, and a part that a reader wants narrower is a struct beside its kind.
"""

from typing import Any

import msgspec

from adapter.policy.watermark_policy import GROUP

Quantity = str | int | float
"""A quantity as on the wire; hand-written documents also hold bare numbers."""
NULL = msgspec.Raw(b"null")

PULLED_OUT_ANNOTATION = f"{GROUP}/pulled-out"
DELETION_COST_ANNOTATION = "controller.kubernetes.io/pod-deletion-cost"
MARK_ANNOTATION = f"{GROUP}/deletion-cost-set"
"""Marks the deletion costs that the companion set itself; `true` or absent."""


class KubeObject(msgspec.Struct, frozen=True, kw_only=True, rename="camel", gc=False):
    """Base of all objects and their parts. JSON has no cycles, so the garbage collector need not see them."""


class ListMeta(KubeObject, frozen=True):
    """The metadata of a list: its resource version, and the token that continues it (empty: complete)."""

    resource_version: str = ""
    token: str = msgspec.field(name="continue", default="")


class WatchedMeta(KubeObject, frozen=True):
    """The metadata by which a watch tells objects and their versions apart."""

    name: str = ""
    namespace: str = ""
    resource_version: str = ""

    @property
    def key(self) -> str:
        """`namespace/name`; `/name` of a cluster-scoped object."""
        return f"{self.namespace}/{self.name}"


class WatchedObject(KubeObject, frozen=True):
    """Any object, with the metadata of a watch alone."""

    metadata: WatchedMeta = WatchedMeta()


class WatchEvent(KubeObject, frozen=True):
    """A line of a watch."""

    type: str
    object: msgspec.Raw


class ObjectList(KubeObject, frozen=True):
    """A page of a list; its objects are decoded one by one."""

    metadata: ListMeta = ListMeta()
    items: list[msgspec.Raw] | None = None


class Status(KubeObject, frozen=True):
    """The metav1.Status of an answer outside 2xx."""

    kind: str = ""
    code: int = 0
    reason: str = ""
    message: str = ""


class ObjectMeta(KubeObject, frozen=True):
    """The metadata of any object; kinds of which there are many have a narrower one."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None


class ObjectReference(KubeObject, frozen=True):
    """A reference by kind and name; `api_version` may be empty."""

    api_version: str = ""
    kind: str = ""
    namespace: str = ""
    name: str = ""
    uid: str = ""


class Endpoint(KubeObject, frozen=True):
    """One endpoint: its conditions and the pod behind it."""

    conditions: dict[str, bool | None] | None = None
    target_ref: ObjectReference | None = None

    @property
    def is_serving(self) -> bool:
        """Whether it serves; `ready` counts where `serving` is absent, and unknown is ready as the API defines it."""
        known = [state for name in ("serving", "ready") if (state := (self.conditions or {}).get(name)) is not None]
        return not known or known[0]


class EndpointSlice(KubeObject, frozen=True):
    """A slice of a Service's endpoints."""

    metadata: ObjectMeta = ObjectMeta()
    endpoints: list[Endpoint] | None = None


class OwnerReference(ObjectReference, frozen=True):
    """An owner of an object; at most one is the controller."""

    controller: bool | None = None


class Condition(KubeObject, frozen=True):
    """A status condition of any object."""

    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""
    last_update_time: str | None = None
    last_transition_time: str | None = None


class PodAnnotations(KubeObject, frozen=True):
    """The annotations of a pod that mean something here."""

    pulled_out: str = msgspec.field(name=PULLED_OUT_ANNOTATION, default="")
    deletion_cost: str = msgspec.field(name=DELETION_COST_ANNOTATION, default="")
    mark: str = msgspec.field(name=MARK_ANNOTATION, default="")


class PodMeta(WatchedMeta, frozen=True):
    """A pod's metadata; what pods of one template have in the same bytes stays undecoded."""

    uid: str = ""
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    labels: msgspec.Raw = NULL
    annotations: PodAnnotations | None = None
    owner_references: msgspec.Raw = NULL


class Resources(KubeObject, frozen=True):
    """Requests and limits of a container or pod."""

    requests: dict[str, Quantity] | None = None
    limits: dict[str, Quantity] | None = None


class _ContainerSpec(KubeObject, frozen=True):
    name: str = ""
    restart_policy: str | None = None
    resources: msgspec.Raw = NULL
    ports: msgspec.Raw = NULL


class PodSpec(KubeObject, frozen=True):
    """A pod's spec."""

    containers: list[_ContainerSpec] | None = None
    init_containers: list[_ContainerSpec] | None = None
    readiness_gates: list[dict[str, str]] | None = None
    host_network: bool | None = None
    resources: Resources | None = None


class ContainerState(KubeObject, frozen=True):
    """The state of a container; without any it has terminated, or is unknown."""

    running: dict[str, Any] | None = None
    waiting: dict[str, Any] | None = None


class _ContainerStatus(KubeObject, frozen=True):
    name: str = ""
    state: ContainerState | None = None
    restart_count: int | None = None
    resources: msgspec.Raw = NULL


class PodStatus(KubeObject, frozen=True):
    """A pod's status."""

    phase: str | None = None
    start_time: str | None = None
    conditions: list[Condition] | None = None
    container_statuses: list[_ContainerStatus] | None = None
    init_container_statuses: list[_ContainerStatus] | None = None
    resources: Resources | None = None
    pod_ip: str | None = msgspec.field(name="podIP", default=None)
    pod_ips: list[dict[str, str]] | None = msgspec.field(name="podIPs", default=None)
    host_ip: str | None = msgspec.field(name="hostIP", default=None)


class WirePod(KubeObject, frozen=True):
    """A Pod with only the fields that are used."""

    metadata: PodMeta = PodMeta()
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()


class AnyObject(KubeObject, frozen=True):
    """An object of any kind, with plain spec and status, so that any scale path can be followed."""

    api_version: str = ""
    kind: str = ""
    metadata: ObjectMeta = ObjectMeta()
    spec: dict[str, Any] | None = None
    status: dict[str, Any] | None = None


class AnyObjectList(KubeObject, frozen=True):
    """A page of objects of any kind."""

    metadata: ListMeta = ListMeta()
    items: list[AnyObject] | None = None


class ApiServiceSpec(KubeObject, frozen=True):
    """Who serves a group (None: the API server itself), and whose certificates the aggregator trusts."""

    service: ObjectReference | None = None
    ca_bundle: str = ""


class ApiServiceStatus(KubeObject, frozen=True):
    """Whether the aggregator reaches the Service: condition Available."""

    conditions: tuple[Condition, ...] | None = None


class ApiService(KubeObject, frozen=True):
    """A version of a group that the API server may pass on to another server."""

    metadata: ObjectMeta = ObjectMeta()
    spec: ApiServiceSpec = ApiServiceSpec()
    status: ApiServiceStatus = ApiServiceStatus()


class ConfigMap(KubeObject, frozen=True):
    """A ConfigMap, or a Secret, whose values are in base64."""

    metadata: ObjectMeta = ObjectMeta()
    data: dict[str, str] | None = None


class ApiGroupList(KubeObject, frozen=True):
    """The served API groups with their versions, without the core group."""

    groups: list[dict[str, Any]] = msgspec.field(default_factory=list)

    @property
    def group_versions(self) -> tuple[str, ...]:
        """All of them as `group/version`, each group's preferred one first."""
        return tuple(version["groupVersion"] for group in self.groups for version in group["versions"])


class ApiResource(KubeObject, frozen=True):
    """One resource (`deployments`) or subresource (`deployments/scale`) of a discovery document."""

    name: str
    kind: str = ""
    namespaced: bool = False


class ApiResourceList(KubeObject, frozen=True):
    """The resources of one group version."""

    kind: str = ""
    group_version: str = ""
    resources: list[ApiResource] | None = None
