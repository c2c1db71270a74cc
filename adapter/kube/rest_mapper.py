"""Maps a kind to its resource by discovery, and a custom resource to the paths of its scale."""

import math
from dataclasses import dataclass
from typing import TypeVar

from adapter.kube.api import CUSTOM_RESOURCE_DEFINITIONS, GroupVersionResource, group_version, path
from adapter.kube.errors import Forbidden, KubeError, NotFound, UnknownKind, decode_answer
from adapter.kube.objects import ApiGroupList, ApiResource, ApiResourceList, CrdVersion, CustomResourceDefinition
from adapter.kube.session import Session
from adapter.kube.targets import BUILT_IN, ScalePaths
from adapter.policy.linking import kind_faults
from adapter.runtime.concurrency import SingleFlight
from adapter.runtime.decoding import Decoder

T = TypeVar("T")

MISS_SECONDS = 30.0
"""A kind that was not found is looked up again after this."""
HIT_SECONDS = 600.0
"""A kind that was found is looked up again after this; if that fails the old mapping stays."""
LISTING_SECONDS = 10.0
"""Kinds share a discovery document for this long, so that many unknown kinds cost no more requests than a few."""

_UNREAD = "its definition, which says where it is, may not be read: {}; manifests/base/rbac.yaml has the right for it"
_GROUPS = "/apis"
_CERTAIN = {"v1", "apps/v1"}
"""Served by every API server."""
_BUILT_IN = {"replicationcontrollers", "deployments.apps", "replicasets.apps", "statefulsets.apps"}


@dataclass(frozen=True, slots=True, kw_only=True)
class RestMapping(GroupVersionResource):
    """A kind as the API server serves it, as client-go's RESTMapping, with the paths of its scale.

    `paths` is None where the object does not hold its scale, or where that is unknown; `hint` then says why it is
    unknown.
    """

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


@dataclass(frozen=True, slots=True)
class _Finding:
    at: float
    resource: RestMapping | None
    sentence: str = ""


class _Listings:
    """Discovery documents, shared by all kinds for LISTING_SECONDS; failures are not cached."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._bodies: dict[str, tuple[float, bytes | None]] = {}
        self._flights: SingleFlight[str, bytes | None] = SingleFlight()
        self._answered: set[str] = set()

    async def of(self, api_version: str) -> list[ApiResource] | None:
        """The resources of a group version; None where it is not served: such a one is not requested by its name."""
        listing = group_version(api_version)
        if listing not in self._answered and api_version not in _CERTAIN:
            groups = await self._body(_GROUPS) if "/" in api_version else None  # the core group has one version
            if groups is None or api_version not in _decode(groups, ApiGroupList).group_versions:
                return None
        body = await self._body(listing)
        if body is None:
            self._answered.discard(listing)
            return None
        self._answered.add(listing)
        return _decode(body, ApiResourceList).resources

    def forget(self, api_version: str) -> None:
        """Drops the documents of this group version and of all groups."""
        for listing in (_GROUPS, group_version(api_version)):
            self._bodies.pop(listing, None)

    async def _body(self, listing: str) -> bytes | None:
        at, body = self._bodies.get(listing, (-math.inf, None))
        if self._session.clock.monotonic() - at < LISTING_SECONDS:
            return body
        return await self._flights.join(listing, lambda: self._fetch(listing))

    async def _fetch(self, listing: str) -> bytes | None:
        try:
            body: bytes | None = await self._session.get(listing)
        except NotFound:
            body = None
        self._bodies[listing] = self._session.clock.monotonic(), body
        return body


class RestMapper:
    """Finds the mapping of a kind, and caches it."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._listings = _Listings(session)
        self._findings: dict[tuple[str, str], _Finding] = {}
        self._flights: SingleFlight[tuple[str, str], _Finding] = SingleFlight()

    async def find(self, api_version: str, kind: str, *, anew: bool = False) -> RestMapping:
        """The mapping of a kind. Raises UnknownKind where there is none, another KubeError where discovery fails.

        `anew` ignores the cached mapping; a discovery document of the past 10 s still counts.
        """
        for fault in kind_faults(api_version, kind):
            raise UnknownKind(str(fault))
        key = (api_version, kind)
        finding = self._findings.get(key)
        keeps = MISS_SECONDS if finding is None or finding.resource is None else HIT_SECONDS
        if finding is None or anew or self._session.clock.monotonic() - finding.at >= keeps:
            # Kept by who waits for it: what was forgotten meanwhile would stay for ever.
            finding = self._findings[key] = await self._flights.join(key, lambda: self._look_up(api_version, kind))
        if finding.resource is None:
            raise UnknownKind(finding.sentence)
        return finding.resource

    async def scalable(self, api_version: str, kind: str, *, anew: bool = False) -> RestMapping:
        """As `find`; raises UnknownKind too where the kind has no scale subresource."""
        resource = await self.find(api_version, kind, anew=anew)
        if not resource.has_scale:
            raise UnknownKind(f"{kind} ({api_version}) cannot be scaled: it has no scale subresource")
        return resource

    def forget(self, api_version: str, kind: str) -> None:
        """Drops a kind and the documents it came from: it may be gone, or served in another way."""
        finding = self._findings.pop((api_version, kind), None)
        if finding is not None and finding.resource is not None:
            self._listings.forget(api_version)

    async def _look_up(self, api_version: str, kind: str) -> _Finding:
        key = (api_version, kind)
        now = self._session.clock.monotonic()
        try:
            return _Finding(now, await self._discover(api_version, kind))
        except UnknownKind as error:
            return _Finding(now, None, str(error))
        except KubeError:
            old = self._findings.get(key)
            if old is None or old.resource is None:
                raise
            return _Finding(now - HIT_SECONDS + MISS_SECONDS, old.resource)

    async def _discover(self, api_version: str, kind: str) -> RestMapping:
        served = await self._listings.of(api_version)
        if served is None:
            raise UnknownKind(f"the API server serves no {api_version}, which {kind} is said to be of")
        resource = next((each for each in served if each.kind == kind and "/" not in each.name), None)
        if resource is None:
            raise UnknownKind(f"the API server serves no kind {kind} in {api_version}")
        has_scale = f"{resource.name}/scale" in {each.name for each in served}
        paths, hint = BUILT_IN if has_scale else None, ""
        if has_scale and GroupVersionResource(api_version, resource.name).name not in _BUILT_IN:
            group, _, version = api_version.rpartition("/")
            paths, versions = None, list[CrdVersion]()
            try:
                body = await self._session.get(CUSTOM_RESOURCE_DEFINITIONS.path("", f"{resource.name}.{group}"))
                versions = _decode(body, CustomResourceDefinition).spec.versions
            except NotFound:
                pass  # served by another API server: only the live scale then
            except Forbidden as error:
                hint = _UNREAD.format(error.message.rstrip("."))
            for each in versions:
                if each.name == version and each.subresources and each.subresources.scale:
                    scale = each.subresources.scale
                    paths = ScalePaths(scale.spec_replicas_path, scale.status_replicas_path, scale.label_selector_path)
        return RestMapping(
            api_version,
            resource.name,
            namespaced=resource.namespaced,
            has_scale=has_scale,
            paths=paths,
            hint=hint,
        )


def _decode(body: bytes, kind: type[T]) -> T:
    return decode_answer(Decoder(kind).decode, body, kind.__name__)
