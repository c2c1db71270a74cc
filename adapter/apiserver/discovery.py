"""Discovery documents: groups, versions and resources, as the legacy lists that every client reads.

The aggregator fetches these lists itself where a server has no aggregated form. No list is empty: old clients fail on
an empty one. Each parent resource has one scope, since the aggregator fails to convert the list of a whole version if
one has both: all of ours are namespaced, and the others, which an upstream adapter lists, have the scope of their
first metric.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from adapter.apiserver.policy_figures import COMMON_METRICS, EFFECTIVE_PREFIX, RAW_PREFIX
from adapter.apiserver.request_info import CUSTOM, EXTERNAL, PODS_RESOURCE, POLICIES_RESOURCE, SERVED_VERSIONS
from adapter.snapshot import SnapshotIndex

_USUAL_TARGETS = ("deployments.apps", "statefulsets.apps")
LIST_KINDS = {CUSTOM: "MetricValueList", EXTERNAL: "ExternalMetricValueList"}
MOST_NAMES = 10_000
"""Names of policies' metrics, and of an upstream's, that one version lists, about; all are served, listed or not. The
API server and every client hold them, and a tenant may name 10,000 metrics, and 20 kinds of targets that have them."""

Listed = Callable[[str, str], Mapping[str, bool]]
"""The metrics of a group and version that an upstream adapter adds: whether each is namespaced, by full name."""


class Discovery:
    """Builds the documents and caches them until the names in them change; it keeps no reference to the snapshot."""

    def __init__(self, upstream: Listed = lambda _group, _version: {}) -> None:
        self._upstream = upstream
        self._lists: dict[tuple[str, str], tuple[object, bytes]] = {}
        """The list of each version, with what its names were made from."""

    def groups(self) -> bytes:
        """`/apis`: the APIGroupList."""
        groups = [_group(group, versions) for group, versions in SERVED_VERSIONS.items()]
        return msgspec.json.encode({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups})

    def group(self, group: str) -> bytes | None:
        """`/apis/<group>`; None if the group is not served."""
        if group not in SERVED_VERSIONS:
            return None
        return msgspec.json.encode({"kind": "APIGroup", "apiVersion": "v1", **_group(group, SERVED_VERSIONS[group])})

    def resources(self, index: SnapshotIndex, group: str, version: str) -> bytes | None:
        """`/apis/<group>/<version>`, which the aggregator also probes; None if it is not served."""
        if version not in SERVED_VERSIONS.get(group, ()):
            return None
        queries = {name: query.by_pod for name, query in sorted(index.snapshot.queries.items())}
        theirs = self._upstream(group, version)
        sources = (index.metric_names, index.target_resources, queries, theirs)
        kept = self._lists.get((group, version))
        if kept is not None and kept[0] == sources:
            return kept[1]
        ours = _custom_names(index, queries) if group == CUSTOM else _external_names(index, queries)
        names = dict.fromkeys(ours, True)
        scopes = dict.fromkeys((_parent(name) for name in names), True)
        for name, namespaced in theirs.items():
            if group != CUSTOM or scopes.setdefault(_parent(name), namespaced) == namespaced:
                names.setdefault(name, namespaced)
        kind = LIST_KINDS[group]
        resources = [
            {"name": name, "singularName": "", "namespaced": namespaced, "kind": kind, "verbs": ["get"]}
            for name, namespaced in names.items()
        ]
        head = {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": f"{group}/{version}"}
        body = msgspec.json.encode({**head, "resources": resources})
        self._lists[group, version] = sources, body
        return body


def _custom_names(index: SnapshotIndex, queries: Mapping[str, bool]) -> list[str]:
    parents = sorted({POLICIES_RESOURCE, *_USUAL_TARGETS, *index.target_resources})
    listed = index.metric_names[: MOST_NAMES // (2 * len(parents))]
    metrics = _policy_metrics(listed)
    on_pods = {EFFECTIVE_PREFIX + name for name in listed} | {name for name in queries if queries[name]}
    return [f"{parent}/{metric}" for parent in parents for metric in metrics] + [
        f"{PODS_RESOURCE}/{metric}" for metric in sorted(on_pods)
    ]


def _external_names(index: SnapshotIndex, queries: Mapping[str, bool]) -> list[str]:
    return [*_policy_metrics(index.metric_names[: MOST_NAMES // 2]), *queries]


def _policy_metrics(names: Sequence[str]) -> list[str]:
    return [*COMMON_METRICS, *(prefix + name for name in names for prefix in (EFFECTIVE_PREFIX, RAW_PREFIX))]


def _parent(name: str) -> str:
    return name.partition("/")[0]


def _group(group: str, versions: tuple[str, ...]) -> dict[str, Any]:
    items = [{"groupVersion": f"{group}/{version}", "version": version} for version in versions]
    return {"name": group, "versions": items, "preferredVersion": items[0]}
