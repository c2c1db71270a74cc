"""From a request target, as it stands in the request line, to what is asked for and what right that takes.

A target is read in two steps, neither of them for a stranger: `resolve` tells the right that it takes, and `route`,
once that right is proven, what it selects. Lengths are bounded, and only what small targets mean is kept.
"""

import re
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import NamedTuple
from urllib.parse import parse_qsl, unquote

from adapter.apiserver import roster_path
from adapter.apiserver.status import StatusError, bad_request, not_allowed, not_found, too_long
from adapter.kube.api import WATERMARK_POLICIES
from adapter.kube.selectors import LabelSelector, SelectorError, is_small, parse_selector

CUSTOM = "custom.metrics.k8s.io"
EXTERNAL = "external.metrics.k8s.io"
CUSTOM_VERSIONS = ("v1beta2", "v1beta1")
"""Preferred first."""
EXTERNAL_VERSIONS = ("v1beta1",)
PODS = "pods"
POLICIES = WATERMARK_POLICIES.name
EVERY = "*"

LONGEST_QUERY = 32 * 1024
"""Characters of a request target's query, as it is encoded: two selectors of many hundred values."""
LONGEST_PATH = 2048
"""Characters of its path, as it is encoded: a namespace, a resource, a name and a metric."""
_MOST_KEPT = 8192
_MOST_PARAMETERS = 32
_HEALTH = frozenset({"livez", "readyz", "healthz"})
_SELECTED = frozenset({"policy", "pods", "target", "external"})
_BAD_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2})")


class Kind(StrEnum):
    """What a request asks for; also the `resource_kind` of the request metric, so there are few."""

    HEALTH = "health"
    VERSION = "version"
    OPENAPI = "openapi"
    GROUPS = "groups"
    GROUP = "group"
    RESOURCES = "resources"
    POLICY = "policy"
    PODS = "pods"
    TARGET = "target"
    EXTERNAL = "external"
    REGISTRY = "registry"
    OTHER = "other"


class Attributes(NamedTuple):
    """What a SubjectAccessReview asks about: a resource, or (where `path` is set) a path."""

    verb: str = "get"
    group: str = ""
    version: str = ""
    resource: str = ""
    subresource: str = ""
    name: str = ""
    namespace: str = ""
    path: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """A parsed request target.

    `registry_group` is a service's group in its registry. `labels` selects objects (External: series), `series` the
    series of an object; None selects everything. `fault` is what is answered to somebody who is known and may ask; a
    route with a fault keeps its attributes for that.
    """

    kind: Kind
    attributes: Attributes
    segments: tuple[str, ...] = ()
    group: str = ""
    version: str = ""
    namespace: str = ""
    resource: str = ""
    name: str = ""
    metric: str = ""
    registry_group: str = ""
    labels: LabelSelector | None = None
    series: LabelSelector | None = None
    fault: StatusError | None = None
    is_small: bool = field(default=False, compare=False)
    """Whether it may stay in caches."""
    _hash: int = field(init=False, compare=False, repr=False, default=0)

    def __post_init__(self) -> None:
        """Hash the parts that differ once: a route is looked up with every request."""
        parts = (self.metric, self.name, self.namespace, self.resource, self.labels, self.series)
        object.__setattr__(self, "_hash", hash(parts))

    def __hash__(self) -> int:
        return self._hash


_kept: dict[str, Route] = {}
"""What targets mean. The same few hundred come back every 15 seconds, from those who have the right to them."""


def resolve(target: str) -> Route:
    """What a target (`/path?query`) asks for and the right it takes; its selectors are not read unless they are known.

    Never raises: what is wrong stands in `fault`.
    """
    return _kept.get(target) or _resolved(target)


def route(target: str) -> Route:
    """What a target asks for, selectors included. Never raises: what is wrong stands in `fault`."""
    known = _kept.get(target)
    if known is not None:
        return known
    found = _selecting(_resolved(target), target)
    if found.kind in _SELECTED and found.fault is None and is_small(target):
        found = replace(found, is_small=True)
        if len(_kept) >= _MOST_KEPT:
            _kept.clear()
        _kept[target] = found
    return found


def _resolved(target: str) -> Route:
    path, _, query = target.partition("?")
    if path.startswith(roster_path.ROOT):
        return _registry_route(path, query)
    try:
        segments = _segments(path)
    except StatusError as error:
        return Route(kind=Kind.OTHER, attributes=Attributes(path=path[:LONGEST_PATH] or "/"), fault=error)
    found = _resource_route(segments) if _is_resource(segments) else None
    return found or _plain_route(segments)


def _selecting(found: Route, target: str) -> Route:
    """The route with what its query selects."""
    query = target.partition("?")[2]
    if found.fault is not None or not query:
        return found
    try:
        parameters = _parameters(query)
        if found.kind not in _SELECTED:
            return found
        _refuse_unserved(parameters)
        labels, series = (_selector(parameters, name) for name in ("labelSelector", "metricLabelSelector"))
    except StatusError as error:
        return replace(found, fault=error)
    return replace(found, labels=labels, series=series)


def _segments(path: str) -> tuple[str, ...]:
    segments = _decoded(path)
    if any("/" in part for part in segments):
        raise bad_request("invalid request path: no segment may contain '/'")
    return segments


def _decoded(path: str) -> tuple[str, ...]:
    if len(path) > LONGEST_PATH:
        raise too_long(f"the path has {len(path)} characters, at most {LONGEST_PATH} are read")
    if not path.startswith("/") or _BAD_ESCAPE.search(path):
        raise bad_request("invalid request path")
    try:
        path.encode()  # a byte that is no UTF-8 stands in it as a surrogate
        segments = tuple(unquote(part, errors="strict") for part in path[1:].removesuffix("/").split("/"))
    except UnicodeError:
        raise bad_request("invalid request path: not UTF-8") from None
    if any(part in {".", ".."} for part in segments):
        raise bad_request("invalid request path: no segment may be '.' or '..'")
    return segments


def _parameters(query: str) -> dict[str, str]:
    """Query parameters; `+` is a space. The aggregator sorts and re-encodes them, so a repeated one is a mistake."""
    if len(query) > LONGEST_QUERY:
        raise too_long(f"the query has {len(query)} characters, at most {LONGEST_QUERY} are read: select by less")
    try:
        pairs = parse_qsl(query, keep_blank_values=True, errors="strict", max_num_fields=_MOST_PARAMETERS)
    except ValueError:
        raise bad_request("invalid query: not UTF-8, or too many parameters") from None
    parameters = dict(pairs)
    if len(parameters) != len(pairs):
        raise bad_request("invalid query: a parameter is given twice")
    return parameters


def _is_resource(segments: tuple[str, ...]) -> bool:
    if len(segments) < 4 or segments[0] != "apis":
        return False
    versions = {CUSTOM: CUSTOM_VERSIONS, EXTERNAL: EXTERNAL_VERSIONS}.get(segments[1], ())
    return segments[2] in versions and all(segments)


def _resource_route(segments: tuple[str, ...]) -> Route | None:
    _, group, version, *rest = segments
    found = _custom(version, rest) if group == CUSTOM else _external(version, rest)
    if found is None:
        return None
    attributes = found
    return Route(
        kind=_kind(attributes),
        attributes=attributes,
        segments=segments,
        group=group,
        version=version,
        namespace=attributes.namespace,
        resource=attributes.resource,
        name=attributes.name,
        metric=attributes.subresource or segments[-1],
    )


def _kind(attributes: Attributes) -> Kind:
    if attributes.group == EXTERNAL:
        return Kind.EXTERNAL
    return {PODS: Kind.PODS, POLICIES: Kind.POLICY}.get(attributes.resource, Kind.TARGET)


def _custom(version: str, rest: list[str]) -> Attributes | None:
    match rest:
        case ["namespaces", namespace, "metrics", metric]:
            return Attributes(group=CUSTOM, version=version, resource="metrics", name=metric, namespace=namespace)
        case ["namespaces", namespace, resource, name, metric]:
            return Attributes("get", CUSTOM, version, resource, metric, name, namespace)
        case [resource, name, metric] if resource != "namespaces":
            return Attributes("get", CUSTOM, version, resource, metric, name)
        case _:
            return None


def _external(version: str, rest: list[str]) -> Attributes | None:
    match rest:
        case ["namespaces", namespace, metric]:
            return Attributes(verb="list", group=EXTERNAL, version=version, resource=metric, namespace=namespace)
        case _:
            return None


def _refuse_unserved(parameters: dict[str, str]) -> None:
    if parameters.get("watch", "") not in {"", "0", "false"}:
        raise not_allowed("watch is not supported: metrics can only be read")
    if parameters.get("fieldSelector"):
        raise bad_request("fieldSelector is not supported; use labelSelector")


def _selector(parameters: dict[str, str], name: str) -> LabelSelector | None:
    text = parameters.get(name, "")
    if not text:
        return None
    try:
        return parse_selector(text)
    except SelectorError as error:
        raise bad_request(f"invalid {name}: {error}") from None


def _plain_route(segments: tuple[str, ...]) -> Route:
    kind = _plain_kind(segments)
    fault = None
    if kind is Kind.OTHER and segments[:2] in {("apis", CUSTOM), ("apis", EXTERNAL)}:
        fault = bad_request("invalid request path")
    return Route(
        kind=kind,
        attributes=Attributes(path="/" + "/".join(segments)),
        segments=segments,
        group=segments[1] if len(segments) > 1 else "",
        version=segments[2] if len(segments) > 2 else "",
        fault=fault,
    )


def _registry_route(path: str, query: str) -> Route:
    """Where a platform tells which pods of a service serve; the path names all that the right has to cover."""
    try:
        segments = _decoded(path)
    except StatusError as error:
        return Route(kind=Kind.REGISTRY, attributes=Attributes(verb="put", path=path[:LONGEST_PATH]), fault=error)
    target = roster_path.target(segments[1:])
    attributes = Attributes(verb="put", path=roster_path.authorized(segments[1:]))
    if target is None:
        return Route(kind=Kind.REGISTRY, attributes=attributes, fault=not_found(roster_path.ADVICE))
    return Route(
        kind=Kind.REGISTRY,
        attributes=attributes,
        segments=segments,
        namespace=target.namespace,
        resource=target.registry,
        name=target.service,
        registry_group=target.group,
        fault=bad_request(roster_path.ADVICE) if query else None,
    )


def _plain_kind(segments: tuple[str, ...]) -> Kind:
    if segments[0] in _HEALTH and len(segments) <= 2:
        return Kind.HEALTH
    if segments[0] == "apis" and len(segments) <= 3 and all(segments):
        return (Kind.GROUPS, Kind.GROUP, Kind.RESOURCES)[len(segments) - 1]
    if segments == ("version",):
        return Kind.VERSION
    return Kind.OPENAPI if segments[0] == "openapi" else Kind.OTHER
