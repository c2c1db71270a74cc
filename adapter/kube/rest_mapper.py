"""Maps a kind to its resource by discovery, and a custom resource to the paths of its scale."""

from dataclasses import dataclass

from cachetools import TTLCache

from adapter.kube.api import CUSTOM_RESOURCE_DEFINITIONS, GroupVersionResource, group_version, path
from adapter.kube.errors import Forbidden, NotFound, UnknownKind, decode_answer
from adapter.kube.objects import AnyObject, ApiGroupList, ApiResourceList
from adapter.kube.scale import BUILT_IN, ScalePaths
from adapter.kube.session import Session
from adapter.policy.linking import reference_faults
from adapter.runtime.concurrency import SingleFlight
from adapter.runtime.decoding import Decoder

LISTING_SECONDS = 10.0
"""Kinds share a discovery document for this long: 300 invented kinds cost a few requests instead of 35,000."""

_MOST_DOCUMENTS = 1000
_CERTAIN = {"": "v1", "apps": "apps/v1"}
"""Groups of which every API server serves exactly this version."""
_UNREAD = "its definition, which says where it is, may not be read: {}; manifests/base/rbac.yaml has the right for it"
_BUILT_IN = {"replicationcontrollers", "deployments.apps", "replicasets.apps", "statefulsets.apps"}
_GROUPS, _RESOURCES = Decoder(ApiGroupList), Decoder(ApiResourceList)
_CRD = Decoder(AnyObject)


@dataclass(frozen=True, slots=True, kw_only=True)
class RestMapping(GroupVersionResource):
    """A kind as the API server serves and writes it, as client-go's RESTMapping, with the paths of its scale.

    `paths` is None where the object does not hold its scale, or that is unknown; `hint` then says why it is unknown.
    """

    kind: str = ""
    namespaced: bool = True
    has_scale: bool = False
    paths: ScalePaths | None = None
    hint: str = ""

    def path(self, namespace: str, name: str) -> str:
        """The path of one object."""
        return self.collection(namespace if self.namespaced else "") + path(name)

    def scale_path(self, namespace: str, name: str) -> str:
        """The path of its scale subresource."""
        return f"{self.path(namespace, name)}/scale"


class RestMapper:
    """Finds the mapping of a kind by discovery documents, which are at most LISTING_SECONDS old."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self.known: TTLCache[str, bytes | None] = TTLCache(_MOST_DOCUMENTS, LISTING_SECONDS, session.monotonic)
        """The documents; empty it once one of them has proved wrong."""
        self._documents = SingleFlight(self.known)

    async def scalable(self, api_version: str, kind: str) -> RestMapping:
        """As `find`; raises UnknownKind too where the kind has no scale subresource."""
        resource = await self.find(api_version, kind)
        if not resource.has_scale:
            raise UnknownKind(f"{kind} ({api_version}) cannot be scaled: it has no scale subresource")
        return resource

    async def find(self, api_version: str, kind: str) -> RestMapping:
        """The mapping of a kind.

        As the HPA controller does, it maps group and kind, whatever the version; the kind may be in small letters.
        Raises UnknownKind where there is none, another KubeError where discovery fails.
        """
        for fault in reference_faults(api_version, kind):
            raise UnknownKind(str(fault))
        version = await self._served_version(api_version)
        body = await self._document(group_version(version)) if version else None
        if version is None or body is None:
            raise UnknownKind(f"the API server serves no {api_version}, which {kind} is said to be of")
        served = decode_answer(_RESOURCES.decode, body, version).resources or ()
        named = (each for each in served if kind in {each.kind, each.kind.lower()} and "/" not in each.name)
        resource = next(named, None)
        if resource is None:
            raise UnknownKind(f"the API server serves no kind {kind} in {version}")
        has_scale = f"{resource.name}/scale" in {each.name for each in served}
        paths, hint = BUILT_IN if has_scale else None, ""
        if has_scale and GroupVersionResource(version, resource.name).name not in _BUILT_IN:
            paths, hint = await self._custom_paths(resource.name, version)
        return RestMapping(
            version, resource.name, kind=resource.kind, namespaced=resource.namespaced, has_scale=has_scale,
            paths=paths, hint=hint,
        )  # fmt: skip

    async def _served_version(self, api_version: str) -> str | None:
        """The version itself if it is served, else the group's first; None where there is no such group.

        By the list of all groups: a group that a user invents is not requested by its name.
        """
        group = api_version.rpartition("/")[0]
        if group in _CERTAIN:
            return _CERTAIN[group]
        body = await self._document("/apis")
        versions = decode_answer(_GROUPS.decode, body, "/apis").group_versions if body is not None else ()
        same = [version for version in versions if version.rpartition("/")[0] == group]
        return api_version if api_version in same else next(iter(same), None)

    async def _document(self, path: str) -> bytes | None:
        """A discovery document, None where it is not there; kept for LISTING_SECONDS."""

        async def fetch() -> bytes | None:
            try:
                return await self._session.get(path)
            except NotFound:
                return None

        return await self._documents.join(path, fetch)

    async def _custom_paths(self, plural: str, api_version: str) -> tuple[ScalePaths | None, str]:
        """Where a custom resource keeps its scale by its definition, and why that is unknown."""
        group, _, version = api_version.rpartition("/")
        try:
            body = await self._session.get(CUSTOM_RESOURCE_DEFINITIONS.path("", f"{plural}.{group}"))
        except NotFound:
            return None, ""  # served by another API server: only the live scale then
        except Forbidden as error:
            return None, _UNREAD.format(error.message.rstrip("."))
        definition = decode_answer(_CRD.decode, body, "CustomResourceDefinition").spec or {}
        for each in definition.get("versions") or ():
            scale = (each.get("subresources") or {}).get("scale")
            if each.get("name") == version and scale:
                count, status = scale.get("specReplicasPath", ""), scale.get("statusReplicasPath", "")
                return ScalePaths(count, status, scale.get("labelSelectorPath", "")), ""
        return None, ""
