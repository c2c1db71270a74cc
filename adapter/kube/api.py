"""The Kubernetes API's resources, paths and media types that this process uses.

Paths are built from segments: a value that an object carries can never become another path.
"""

from dataclasses import dataclass
from urllib.parse import quote

from adapter.kube.errors import KubeError
from adapter.policy import watermark_policy

JSON = "application/json"
JSON_PATCH = "application/json-patch+json"
MERGE_PATCH = "application/merge-patch+json"
APPLY_PATCH = "application/apply-patch+yaml"

_RELATIVE, _FORBIDDEN = {"", ".", ".."}, frozenset("/%")


def path(*segments: str) -> str:
    """`/a/b/c`, each segment percent-encoded. Raises KubeError for one that Kubernetes takes for no path segment.

    The rule is `IsValidPathSegmentName` of k8s.io/apimachinery: neither `.` nor `..`, and without `/` and `%`.
    """
    for segment in segments:
        if segment in _RELATIVE or not _FORBIDDEN.isdisjoint(segment):
            raise KubeError(f"{segment[:80]!r} cannot be part of a path of the Kubernetes API")
    return "".join(f"/{quote(segment, safe='')}" for segment in segments)


def group_version(api_version: str) -> str:
    """`/apis/apps/v1`, or `/api/v1` for the core group. Raises KubeError."""
    group, slash, version = api_version.partition("/")
    return path("apis", group, version) if slash else path("api", api_version)


@dataclass(frozen=True, slots=True)
class GroupVersionResource:
    """A resource as the API serves it: `apps/v1` (`v1` for the core group) and `deployments`."""

    api_version: str
    plural: str

    @property
    def group(self) -> str:
        """`apps`; empty for the core group."""
        return self.api_version.rpartition("/")[0]

    @property
    def name(self) -> str:
        """`deployments.apps`: the plural with its group, as the metrics API and CRDs write it."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    def collection(self, namespace: str = "") -> str:
        """The path of all objects, or of those in a namespace. Raises KubeError."""
        scope = path("namespaces", namespace) if namespace else ""
        return f"{group_version(self.api_version)}{scope}{path(self.plural)}"

    def path(self, namespace: str, name: str) -> str:
        """The path of one object; `namespace` is empty for cluster-scoped ones. Raises KubeError."""
        return self.collection(namespace) + path(name)


PODS = GroupVersionResource("v1", "pods")
SECRETS = GroupVersionResource("v1", "secrets")
CONFIG_MAPS = GroupVersionResource("v1", "configmaps")
ENDPOINT_SLICES = GroupVersionResource("discovery.k8s.io/v1", "endpointslices")
HPAS = GroupVersionResource("autoscaling/v2", "horizontalpodautoscalers")
WATERMARK_POLICIES = GroupVersionResource(watermark_policy.API_VERSION, "watermarkpolicies")
EVENTS = GroupVersionResource("events.k8s.io/v1", "events")
LEASES = GroupVersionResource("coordination.k8s.io/v1", "leases")
POD_METRICS = GroupVersionResource("metrics.k8s.io/v1beta1", "pods")
API_SERVICES = GroupVersionResource("apiregistration.k8s.io/v1", "apiservices")
CUSTOM_RESOURCE_DEFINITIONS = GroupVersionResource("apiextensions.k8s.io/v1", "customresourcedefinitions")
SUBJECT_ACCESS_REVIEWS = GroupVersionResource("authorization.k8s.io/v1", "subjectaccessreviews")
DEPLOYMENTS = GroupVersionResource("apps/v1", "deployments")
