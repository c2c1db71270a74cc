"""Discovery documents: groups, versions and resources, as the legacy lists that every client reads.

The aggregator fetches these lists itself where a server has no aggregated form. No list is empty: old clients fail on
an empty one. Each parent resource has one scope, since the aggregator fails to convert the list of a whole version if
one has both: all of ours are namespaced, and the others, which an upstream adapter lists, have the scope of their
first metric.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from adapter.apiserver.request_info import (
    CUSTOM,
    EXTERNAL,
    PODS_RESOURCE,
    POLICIES_RESOURCE,
    SERVED_VERSIONS,
    RequestInfo,
    RequestKind,
)
from adapter.load.pods import PodState
from adapter.policy.hpa import DESIRED_REPLICAS
from adapter.snapshot import Snapshot

EFFECTIVE_PREFIX, RAW_PREFIX = "effective_", "raw_"
"""Of the two metrics that each metric of a policy makes: `effective_cpu`, `raw_cpu`."""
POD_COUNTS: Mapping[str, PodState] = {"effective_pods": PodState.SERVING, "pulled_out_pods": PodState.PULLED_OUT}
COMMON_METRICS = (DESIRED_REPLICAS, *POD_COUNTS)
"""Metrics that every policy has."""
LIST_KINDS = {CUSTOM: "MetricValueList", EXTERNAL: "ExternalMetricValueList"}
MOST_NAMES = 10_000
"""Names of policies' metrics, and of an upstream's, that one version lists, about; all are served, listed or not. The
API server and every client hold them, and a tenant may name 10,000 metrics, and 20 kinds of targets that have them."""
_USUAL_TARGETS = ("deployments.apps", "statefulsets.apps")


def is_reserved(metric: str) -> bool:
    """Whether metrics of policies alone may have this name."""
    return metric in COMMON_METRICS or metric.startswith((EFFECTIVE_PREFIX, RAW_PREFIX))


def document(info: RequestInfo, snapshot: Snapshot, upstream: Mapping[str, bool]) -> bytes | None:
    """The document that is requested; None for what is not served, such as OpenAPI.

    `upstream`: the metrics that an upstream adapter adds to the group and version, whether each is namespaced. The
    longest document takes 15 ms, and the API server asks once in half a minute.
    """
    group, versions = info.group, SERVED_VERSIONS.get(info.group, ())
    match info.kind:
        case RequestKind.GROUPS:
            groups = [_group(*each) for each in SERVED_VERSIONS.items()]
            return msgspec.json.encode({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups})
        case RequestKind.GROUP if versions:
            return msgspec.json.encode({"kind": "APIGroup", "apiVersion": "v1", **_group(group, versions)})
        case RequestKind.RESOURCES if info.version in versions:
            return _resources(snapshot, group, info.version, upstream)
    return None


def _resources(snapshot: Snapshot, group: str, version: str, upstream: Mapping[str, bool]) -> bytes:
    """`/apis/<group>/<version>`, which the aggregator also probes."""
    queries = {name: query.by_pod for name, query in sorted(snapshot.queries.items())}
    names = dict.fromkeys(_names(snapshot, group, queries), True)
    scopes = dict.fromkeys((name.partition("/")[0] for name in names), True)
    for name, namespaced in upstream.items():
        if group != CUSTOM or scopes.setdefault(name.partition("/")[0], namespaced) == namespaced:
            names.setdefault(name, namespaced)
    resources = [
        {"name": name, "singularName": "", "namespaced": namespaced, "kind": LIST_KINDS[group], "verbs": ["get"]}
        for name, namespaced in names.items()
    ]
    head = {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": f"{group}/{version}"}
    return msgspec.json.encode({**head, "resources": resources})


def _names(snapshot: Snapshot, group: str, queries: Mapping[str, bool]) -> list[str]:
    """Our names of a group: `<resource>/<metric>`, of External the metrics alone."""
    if group == EXTERNAL:
        return [*_policy_metrics(snapshot.metric_names[: MOST_NAMES // 2]), *queries]
    parents = sorted({POLICIES_RESOURCE, *_USUAL_TARGETS, *snapshot.target_resources})
    listed = snapshot.metric_names[: MOST_NAMES // (2 * len(parents))]
    on_pods = {EFFECTIVE_PREFIX + name for name in listed} | {name for name, by_pod in queries.items() if by_pod}
    of_policies = [f"{parent}/{metric}" for parent in parents for metric in _policy_metrics(listed)]
    return of_policies + [f"{PODS_RESOURCE}/{metric}" for metric in sorted(on_pods)]


def _policy_metrics(names: Sequence[str]) -> list[str]:
    return [*COMMON_METRICS, *(prefix + name for name in names for prefix in (EFFECTIVE_PREFIX, RAW_PREFIX))]


def _group(group: str, versions: tuple[str, ...]) -> dict[str, Any]:
    items = [{"groupVersion": f"{group}/{version}", "version": version} for version in versions]
    return {"name": group, "versions": items, "preferredVersion": items[0]}
