"""Discovery documents: groups, versions and resources, in legacy and aggregated form.

No resource list is empty: old clients fail on an empty one. Each parent resource has one scope, since the aggregator
fails to convert the legacy list of a whole version if one has both: all of ours are namespaced, and the others, which
an upstream adapter lists, have the scope of their first metric.
"""

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from adapter.apiserver.policy_figures import COMMON_METRICS, EFFECTIVE_PREFIX, RAW_PREFIX
from adapter.apiserver.request_info import CUSTOM, EXTERNAL, PODS_RESOURCE, POLICIES_RESOURCE, SERVED_VERSIONS
from adapter.kube.api import JSON
from adapter.runtime.concurrency import Slices
from adapter.snapshot import SnapshotIndex

_USUAL_TARGETS = ("deployments.apps", "statefulsets.apps")
_AGGREGATED_KIND = "APIGroupDiscoveryList"
_NO_KIND = {"group": "", "version": "", "kind": ""}  # a null here makes client-go 0.26.0 to 0.26.3 panic

_encode = msgspec.json.Encoder().encode

LIST_KINDS = {CUSTOM: "MetricValueList", EXTERNAL: "ExternalMetricValueList"}
_AT_ONCE = 100


@dataclass(frozen=True, slots=True)
class ListedParent:
    """The metrics of one parent resource; those of External metrics have none, so an empty name.

    `legacy` are entries of an APIResourceList; `aggregated` are subresources of an APIGroupDiscoveryList (External:
    resources). Both are JSON, joined by commas.
    """

    name: str
    namespaced: bool
    metrics: frozenset[str]
    legacy: bytes
    aggregated: bytes


def encode_parent(group: str, name: str, metrics: Sequence[str], *, namespaced: bool = True) -> ListedParent:
    """The entries of a parent's metrics, which are full names."""
    kind = LIST_KINDS[group]
    legacy = [
        {"name": metric, "singularName": "", "namespaced": namespaced, "kind": kind, "verbs": ["get"]}
        for metric in metrics
    ]
    key, scope = (
        ("subresource", {}) if group == CUSTOM else ("resource", {"scope": "Namespaced", "singularResource": ""})
    )
    response = {"responseKind": {"group": "", "version": "", "kind": kind}, "verbs": ["get"]}
    aggregated = [{key: metric.partition("/")[2] or metric, **scope, **response} for metric in metrics]
    return ListedParent(name, namespaced, frozenset(metrics), _encode(legacy)[1:-1], _encode(aggregated)[1:-1])


def by_parent(group: str, metrics: Iterable[str]) -> dict[str, list[str]]:
    """Full names by the name of their parent."""
    parents: dict[str, list[str]] = {}
    for metric in metrics:
        parents.setdefault(metric.partition("/")[0] if group == CUSTOM else "", []).append(metric)
    return parents


async def encode_in_slices(group: str, metrics: Mapping[str, bool]) -> tuple[ListedParent, ...]:
    """The entries of many metrics: whether each is namespaced, by full name. A parent has the scope of its first."""
    slices = Slices()
    encoded = []
    for parent, below in by_parent(group, metrics).items():
        namespaced = group != CUSTOM or metrics[below[0]]
        parts = []
        for start in range(0, len(below), _AT_ONCE):
            parts.append(encode_parent(group, parent, below[start : start + _AT_ONCE], namespaced=namespaced))
            await slices.breathe()
        legacy, aggregated = (b",".join(each) for each in zip(*((p.legacy, p.aggregated) for p in parts), strict=True))
        encoded.append(ListedParent(parent, namespaced, frozenset(below), legacy, aggregated))
    return tuple(encoded)


@dataclass(frozen=True, slots=True)
class DiscoveryDocument:
    """A discovery answer: JSON, its Content-Type, and (aggregated only) its entity tag."""

    body: bytes
    content_type: str = JSON
    etag: str = ""


MOST_NAMES = 10_000
"""Names of policies' metrics, and of an upstream's, that one version lists, about; all are served, listed or not. The
API server and every client hold them, and a tenant may name 10,000 metrics, and 20 kinds of targets that have them."""

_Sources = tuple[tuple[str, ...], tuple[str, ...], dict[str, bool]]
"""What the names are made from: metrics' names, targets' resources, and queries (whether they are by pod)."""

Listed = Callable[[str, str], tuple[ListedParent, ...]]
"""The metrics of a group and version that an upstream adapter adds."""


class Discovery:
    """Builds the documents and caches them until the names in them change; it keeps no reference to the snapshot."""

    def __init__(self, upstream: Listed = lambda _group, _version: ()) -> None:
        self._upstream = upstream
        self._sources: _Sources | None = None
        self._names: Mapping[str, tuple[str, ...]] = {}
        self._upstream_names: Mapping[tuple[str, str], tuple[ListedParent, ...]] = {}
        self._kept: dict[str, DiscoveryDocument] = {}

    def groups(self, index: SnapshotIndex, accept: str) -> DiscoveryDocument:
        """`/apis`: aggregated if the client accepts that, else the legacy APIGroupList."""
        version = _aggregated_version(accept)
        if version is None:
            groups = [_group(group, versions) for group, versions in SERVED_VERSIONS.items()]
            return DiscoveryDocument(_encode({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}))
        self._update(index)
        if version not in self._kept:
            self._kept[version] = self._aggregated(version)
        return self._kept[version]

    def group(self, group: str) -> DiscoveryDocument | None:
        """`/apis/<group>`; None if the group is not served."""
        if group not in SERVED_VERSIONS:
            return None
        return DiscoveryDocument(
            _encode({"kind": "APIGroup", "apiVersion": "v1", **_group(group, SERVED_VERSIONS[group])})
        )

    def resources(self, index: SnapshotIndex, group: str, version: str) -> DiscoveryDocument | None:
        """`/apis/<group>/<version>`, which the aggregator also probes; None if it is not served."""
        if version not in SERVED_VERSIONS.get(group, ()):
            return None
        self._update(index)
        kept = f"{group}/{version}"
        if kept not in self._kept:
            entries = (part.legacy for parts in self._parents(group, version).values() for part in parts)
            head = {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": f"{group}/{version}"}
            self._kept[kept] = DiscoveryDocument(_encode({**head, "resources": _array(entries)}))
        return self._kept[kept]

    def _update(self, index: SnapshotIndex) -> None:
        queries = {name: query.by_pod for name, query in sorted(index.snapshot.queries.items())}
        sources = index.metric_names, index.target_resources, queries
        served = [(group, version) for group, versions in SERVED_VERSIONS.items() for version in versions]
        upstream_names = {each: self._upstream(*each) for each in served}
        if (sources, upstream_names) != (self._sources, self._upstream_names):
            self._sources, self._upstream_names = sources, upstream_names
            parents = sorted({POLICIES_RESOURCE, *_USUAL_TARGETS, *index.target_resources})
            listed = index.metric_names[: MOST_NAMES // (2 * len(parents))]
            metrics = _policy_metrics(listed)
            on_pods = {EFFECTIVE_PREFIX + name for name in listed} | {name for name in queries if queries[name]}
            self._names = {
                CUSTOM: (
                    *(f"{parent}/{metric}" for parent in parents for metric in metrics),
                    *(f"{PODS_RESOURCE}/{metric}" for metric in sorted(on_pods)),
                ),
                EXTERNAL: tuple(dict.fromkeys([*_policy_metrics(index.metric_names[: MOST_NAMES // 2]), *queries])),
            }
            self._kept.clear()

    def _parents(self, group: str, version: str) -> dict[str, list[ListedParent]]:
        """Our metrics and those of the upstream by parent; a parent of ours has our scope, no name is there twice."""
        theirs = {parent.name: parent for parent in self._upstream_names[group, version]}
        parents: dict[str, list[ListedParent]] = {}
        for name, metrics in by_parent(group, self._names[group]).items():
            taken = theirs[name].metrics if name in theirs and theirs[name].namespaced else frozenset()
            parents[name] = [encode_parent(group, name, [metric for metric in metrics if metric not in taken])]
        for name, parent in theirs.items():
            if parent.namespaced or name not in parents:
                parents.setdefault(name, []).append(parent)
        return parents

    def _aggregated(self, version: str) -> DiscoveryDocument:
        items = []
        for group, versions in SERVED_VERSIONS.items():
            entries = []
            for served in versions:
                parents = self._parents(group, served)
                if group == EXTERNAL:
                    resources: Any = _array(part.aggregated for parts in parents.values() for part in parts)
                else:
                    resources = [
                        {
                            "resource": name,
                            "scope": "Namespaced" if parts[0].namespaced else "Cluster",
                            "singularResource": "",
                            "responseKind": _NO_KIND,
                            "verbs": [],
                            "subresources": _array(part.aggregated for part in parts),
                        }
                        for name, parts in parents.items()
                    ]
                entries.append({"version": served, "resources": resources, "freshness": "Current"})
            items.append({"metadata": {"name": group, "creationTimestamp": None}, "versions": entries})
        api = f"apidiscovery.k8s.io/{version}"
        body = _encode({"kind": _AGGREGATED_KIND, "apiVersion": api, "metadata": {}, "items": items})
        content_type = f"{JSON};g=apidiscovery.k8s.io;v={version};as={_AGGREGATED_KIND}"
        return DiscoveryDocument(body, content_type, f'"{hashlib.sha256(body).hexdigest()[:32]}"')


def _array(entries: Iterable[bytes]) -> msgspec.Raw:
    return msgspec.Raw(b"[" + b",".join(filter(None, entries)) + b"]")


def _group(group: str, versions: tuple[str, ...]) -> dict[str, Any]:
    items = [{"groupVersion": f"{group}/{version}", "version": version} for version in versions]
    return {"name": group, "versions": items, "preferredVersion": items[0]}


def _policy_metrics(names: Sequence[str]) -> list[str]:
    return [*COMMON_METRICS, *(prefix + name for name in names for prefix in (EFFECTIVE_PREFIX, RAW_PREFIX))]


def _aggregated_version(accept: str) -> str | None:
    """The version of the aggregated document that an Accept header prefers, None for the legacy document."""
    for part in accept.split(","):
        media, *parameters = (piece.strip() for piece in part.split(";"))
        asked = dict(parameter.partition("=")[::2] for parameter in parameters)
        if media != JSON or asked.get("as") != _AGGREGATED_KIND or asked.get("g") != "apidiscovery.k8s.io":
            if media in {JSON, "*/*"} and "as" not in asked:
                return None
            continue
        if asked.get("v") in {"v2", "v2beta1"}:
            return asked["v"]
    return None
