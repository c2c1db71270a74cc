"""Parses request targets into RequestInfo: the requested resource, its selectors, and the right that it requires.

Parsing has two steps, both after authentication: `parse_path` yields the attributes to authorize, and `parse_target`,
after authorization, the selectors too. Lengths are bounded, and only the results of small targets are cached.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from http import HTTPStatus
from typing import NamedTuple
from urllib.parse import parse_qsl, unquote

from adapter.apiserver.status import StatusError, bad_request, not_allowed
from adapter.kube.api import WATERMARK_POLICIES
from adapter.kube.selectors import LabelSelector, SelectorError, is_small, parse_selector
from adapter.policy.linking import MAX_SELECTOR_REQUIREMENTS

CUSTOM = "custom.metrics.k8s.io"
EXTERNAL = "external.metrics.k8s.io"
SERVED_VERSIONS: Mapping[str, tuple[str, ...]] = {CUSTOM: ("v1beta2", "v1beta1"), EXTERNAL: ("v1beta1",)}
"""Group → versions, the preferred one first. Both are described whatever the settings serve: the API server asks only
for a group whose APIService leads here, and while that finds no group, no namespace of the cluster can be deleted."""
PODS_RESOURCE = "pods"
POLICIES_RESOURCE = WATERMARK_POLICIES.name
ALL_OBJECTS = "*"

MAX_QUERY = 32 * 1024
"""Characters of a target's encoded query: enough for two selectors of many hundred values."""
MAX_PATH = 2048
"""Characters of a target's encoded path: enough for a namespace, a resource, a name and a metric."""
_MAX_CACHED = 8192
_MAX_PARAMETERS = 32
_METRIC_KINDS = frozenset({"policy", "pods", "target", "external"})
_BAD_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2})")


class RequestKind(StrEnum):
    """What a request asks for. Also label `resource_kind` of the request metric, so there are few values."""

    VERSION = "version"
    OPENAPI = "openapi"
    GROUPS = "groups"
    GROUP = "group"
    RESOURCES = "resources"
    POLICY = "policy"
    PODS = "pods"
    TARGET = "target"
    EXTERNAL = "external"
    UPSTREAM = "upstream"  # a metric that is not ours, whatever its resource
    OTHER = "other"


class Attributes(NamedTuple):
    """The attributes of a SubjectAccessReview: a resource, or (if `path` is set) a non-resource path."""

    verb: str = "get"
    group: str = ""
    version: str = ""
    resource: str = ""
    subresource: str = ""
    name: str = ""
    namespace: str = ""
    path: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestInfo:
    """A parsed request target.

    `labels` selects objects (External: series), `series` the
    series of an object; None selects everything. `error` is the answer to an authorized request whose target is
    invalid; its attributes are still set, for authorization.
    """

    kind: RequestKind
    attributes: Attributes
    segments: tuple[str, ...] = ()
    group: str = ""
    version: str = ""
    namespace: str = ""
    resource: str = ""
    name: str = ""
    metric: str = ""
    labels: LabelSelector | None = None
    series: LabelSelector | None = None
    error: StatusError | None = None
    target: str = field(default="", compare=False)
    """The target itself where it is small enough for caches."""

    @property
    def policy(self) -> str | None:
        """The policy whose External series are requested; None: those of any."""
        return None if self.labels is None else self.labels.value("policy")


CACHE: dict[str, RequestInfo] = {}
"""Parsed targets of authorized requests; HPAs repeat the same few hundred every 15 seconds."""


def parse_path(target: str) -> RequestInfo:
    """Parse the path of a target (`/path?query`); selectors are present only if the target is cached.

    Never raises: `error` holds the fault.
    """
    return CACHE.get(target) or _parse_path(target)


def parse_target(target: str) -> RequestInfo:
    """Parse a target with its selectors. Never raises: `error` holds the fault."""
    cached = CACHE.get(target)
    if cached is not None:
        return cached
    info, query = _parse_path(target), target.partition("?")[2]
    if info.error is None and query:
        try:
            parameters = _parameters(query)
            if info.kind in _METRIC_KINDS:
                if parameters.get("watch", "") not in {"", "0", "false"}:
                    raise not_allowed("watch is not supported: metrics can only be read")
                if parameters.get("fieldSelector"):
                    raise bad_request("fieldSelector is not supported; use labelSelector")
                labels, series = (_selector(parameters, name) for name in ("labelSelector", "metricLabelSelector"))
                info = replace(info, labels=labels, series=series)
        except StatusError as error:
            info = replace(info, error=error)
    if info.kind in _METRIC_KINDS and info.error is None and is_small(target):
        info = replace(info, target=target)
        if len(CACHE) >= _MAX_CACHED:
            CACHE.clear()
        CACHE[target] = info
    return info


def _parse_path(target: str) -> RequestInfo:
    path = target.partition("?")[0]
    try:
        segments = _decode(path)
    except StatusError as error:
        return RequestInfo(kind=RequestKind.OTHER, attributes=Attributes(path=path[:MAX_PATH] or "/"), error=error)
    group, version = (*segments[1:3], "", "")[:2]
    attributes = None
    if len(segments) > 3 and segments[0] == "apis" and version in SERVED_VERSIONS.get(group, ()) and all(segments):
        attributes = _resource_attributes(group, version, segments[3:])
    if attributes is not None:
        resources = {PODS_RESOURCE: RequestKind.PODS, POLICIES_RESOURCE: RequestKind.POLICY}
        of_custom = resources.get(attributes.resource, RequestKind.TARGET)
        return RequestInfo(
            kind=RequestKind.EXTERNAL if group == EXTERNAL else of_custom,
            attributes=attributes,
            segments=segments,
            group=group,
            version=version,
            namespace=attributes.namespace,
            resource=attributes.resource,
            name=attributes.name,
            metric=attributes.subresource or segments[-1],
        )
    kind, fault = RequestKind.OTHER, None
    if segments[0] == "apis" and len(segments) <= 3 and all(segments):
        kind = (RequestKind.GROUPS, RequestKind.GROUP, RequestKind.RESOURCES)[len(segments) - 1]
    elif segments == ("version",):
        kind = RequestKind.VERSION
    elif segments[0] == "openapi":
        kind = RequestKind.OPENAPI
    elif segments[0] == "apis" and group in SERVED_VERSIONS:
        fault = bad_request("invalid request path")
    attributes = Attributes(path="/" + "/".join(segments))
    return RequestInfo(kind=kind, attributes=attributes, segments=segments, group=group, version=version, error=fault)


def _resource_attributes(group: str, version: str, rest: tuple[str, ...]) -> Attributes | None:
    """What is asked of a group and version; None where the segments after it are no metric's."""
    match rest:
        case ("namespaces", namespace, metric) if group == EXTERNAL:
            return Attributes("list", group, version, metric, namespace=namespace)
        case _ if group == EXTERNAL:
            return None
        case ("namespaces", namespace, "metrics", metric):
            return Attributes("get", group, version, "metrics", name=metric, namespace=namespace)
        case ("namespaces", namespace, resource, name, metric):
            return Attributes("get", group, version, resource, metric, name, namespace)
        case (resource, name, metric) if resource != "namespaces":
            return Attributes("get", group, version, resource, metric, name)
    return None


def _decode(path: str) -> tuple[str, ...]:
    if len(path) > MAX_PATH:
        message = f"the path has {len(path)} characters, at most {MAX_PATH} are read"
        raise StatusError(HTTPStatus.REQUEST_URI_TOO_LONG, message)
    if not path.startswith("/") or _BAD_ESCAPE.search(path):
        raise bad_request("invalid request path")
    try:
        path.encode()  # a byte that is not UTF-8 was decoded to a surrogate
        segments = tuple(unquote(part, errors="strict") for part in path[1:].removesuffix("/").split("/"))
    except UnicodeError:
        raise bad_request("invalid request path: not UTF-8") from None
    if any(part in {".", ".."} for part in segments):
        raise bad_request("invalid request path: no segment may be '.' or '..'")
    if any("/" in part for part in segments):
        raise bad_request("invalid request path: no segment may contain '/'")
    return segments


def _parameters(query: str) -> dict[str, str]:
    """Query parameters; `+` is a space. A repeated one is an error: the aggregator sorts and re-encodes them."""
    if len(query) > MAX_QUERY:
        message = f"the query has {len(query)} characters, at most {MAX_QUERY} are read: select by less"
        raise StatusError(HTTPStatus.REQUEST_URI_TOO_LONG, message)
    try:
        pairs = parse_qsl(query, keep_blank_values=True, errors="strict", max_num_fields=_MAX_PARAMETERS)
    except ValueError:
        raise bad_request("invalid query: not UTF-8, or too many parameters") from None
    parameters = dict(pairs)
    if len(parameters) != len(pairs):
        raise bad_request("invalid query: a parameter is given twice")
    return parameters


def _selector(parameters: dict[str, str], name: str) -> LabelSelector | None:
    text = parameters.get(name, "")
    if not text:
        return None
    try:
        selector = parse_selector(text)
    except SelectorError as error:
        raise bad_request(f"invalid {name}: {error}") from None
    if len(selector.requirements) > MAX_SELECTOR_REQUIREMENTS:
        raise bad_request(f"invalid {name}: it has more than {MAX_SELECTOR_REQUIREMENTS} requirements")
    return selector
