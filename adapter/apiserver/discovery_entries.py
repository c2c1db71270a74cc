"""The entries of discovery documents, encoded by parent resource.

An upstream adapter may list thousands of metrics. Their entries are encoded in slices when it lists them, so that a
document only joins them.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import msgspec

from adapter.apiserver.request_info import CUSTOM, EXTERNAL
from adapter.runtime.slices import Slices

LIST_KINDS = {CUSTOM: "MetricValueList", EXTERNAL: "ExternalMetricValueList"}
_AT_ONCE = 100

_encode = msgspec.json.Encoder().encode


class ListedMetric(NamedTuple):
    """A name of a discovery document: `pods/rps`, or an External metric's."""

    name: str
    namespaced: bool = True


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
    aggregated = [_aggregated(group, metric.partition("/")[2] or metric, kind) for metric in metrics]
    return ListedParent(name, namespaced, frozenset(metrics), _encode(legacy)[1:-1], _encode(aggregated)[1:-1])


def _aggregated(group: str, name: str, kind: str) -> dict[str, Any]:
    response = {"group": "", "version": "", "kind": kind}
    if group == CUSTOM:
        return {"subresource": name, "responseKind": response, "verbs": ["get"]}
    scope = {"resource": name, "scope": "Namespaced", "singularResource": ""}
    return {**scope, "responseKind": response, "verbs": ["get"]}


def by_parent(group: str, metrics: Iterable[str]) -> dict[str, list[str]]:
    """Full names by the name of their parent."""
    parents: dict[str, list[str]] = {}
    for metric in metrics:
        parents.setdefault(metric.partition("/")[0] if group == CUSTOM else "", []).append(metric)
    return parents


async def encode_in_slices(group: str, metrics: Iterable[ListedMetric]) -> tuple[ListedParent, ...]:
    """The entries of many metrics. A parent has one scope, that of its first metric."""
    scopes: dict[str, bool] = {}
    names = []
    for name, namespaced in metrics:
        scopes.setdefault(name.partition("/")[0] if group == CUSTOM else "", namespaced or group != CUSTOM)
        names.append(name)
    slices = Slices()
    encoded = []
    for parent, below in by_parent(group, names).items():
        parts = []
        for start in range(0, len(below), _AT_ONCE):
            part = below[start : start + _AT_ONCE]
            parts.append(encode_parent(group, parent, part, namespaced=scopes[parent]))
            await slices.breathe()
        encoded.append(_joined(parts))
    return tuple(encoded)


def _joined(parts: Sequence[ListedParent]) -> ListedParent:
    first = parts[0]
    metrics = frozenset[str]().union(*(part.metrics for part in parts))
    legacy, aggregated = (b",".join(each) for each in zip(*((p.legacy, p.aggregated) for p in parts), strict=True))
    return ListedParent(first.name, first.namespaced, metrics, legacy, aggregated)
