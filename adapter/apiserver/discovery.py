"""Discovery documents: groups, versions and resources, as the legacy lists that every client reads.

The aggregator fetches these lists itself where a server has no aggregated form. No list is empty: old clients fail on
an empty one. An upstream adapter's names are not listed: no HPA reads a list.
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
"""Names of policies' metrics that one version lists, about; all are served, listed or not. The API server and every
client hold them, and a tenant may name 10,000 metrics, and 20 kinds of targets that have them."""
_USUAL_TARGETS = ("deployments.apps", "statefulsets.apps")


def is_reserved(metric: str) -> bool:
    """Whether metrics of policies alone may have this name."""
    return metric in COMMON_METRICS or metric.startswith((EFFECTIVE_PREFIX, RAW_PREFIX))


def document(info: RequestInfo, snapshot: Snapshot) -> bytes | None:
    """The document that is requested; None for what is not served, such as OpenAPI.

    The longest document takes 15 ms, and the API server asks once in half a minute.
    """
    match info.segments:
        case ("apis",):
            found = {"kind": "APIGroupList", "groups": [*map(_group, SERVED_VERSIONS)]}
        case ("apis", group) if group in SERVED_VERSIONS:
            found = {"kind": "APIGroup", **_group(group)}
        case ("apis", group, version) if version in SERVED_VERSIONS.get(group, ()):
            found = {"kind": "APIResourceList", "groupVersion": f"{group}/{version}"}
            found["resources"] = [
                {"name": name, "singularName": "", "namespaced": True, "kind": LIST_KINDS[group], "verbs": ["get"]}
                for name in _names(snapshot, group)
            ]
        case _:
            return None
    return msgspec.json.encode({"apiVersion": "v1", **found})


def _names(snapshot: Snapshot, group: str) -> list[str]:
    """Our names of a group: `<resource>/<metric>`, of External the metrics alone."""
    if group == EXTERNAL:
        return [*_policy_metrics(snapshot.metric_names[: MOST_NAMES // 2]), *sorted(snapshot.queries)]
    parents = sorted({POLICIES_RESOURCE, *_USUAL_TARGETS, *snapshot.target_resources})
    listed = snapshot.metric_names[: MOST_NAMES // (2 * len(parents))]
    on_pods = [query.name for query in snapshot.queries.values() if query.by_pod]
    of_policies = [f"{parent}/{metric}" for parent in parents for metric in _policy_metrics(listed)]
    return of_policies + [f"{PODS_RESOURCE}/{metric}" for metric in sorted(on_pods)]


def _policy_metrics(names: Sequence[str]) -> list[str]:
    return [*COMMON_METRICS, *(prefix + name for name in names for prefix in (EFFECTIVE_PREFIX, RAW_PREFIX))]


def _group(group: str) -> dict[str, Any]:
    items = [{"groupVersion": f"{group}/{version}", "version": version} for version in SERVED_VERSIONS[group]]
    return {"name": group, "versions": items, "preferredVersion": items[0]}
