"""Parses request targets into RequestInfo: the requested resource, its selectors, and the right that it requires.

A target is parsed once, after authentication and before authorization: what is authorized is what is answered.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from http import HTTPStatus
from typing import NamedTuple
from urllib.parse import parse_qsl, unquote

from adapter.apiserver.status import StatusError, bad_request, not_allowed
from adapter.kube.api import WATERMARK_POLICIES
from adapter.kube.selectors import LabelSelector, SelectorError, parse_selector
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
_MAX_PARAMETERS = 32
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

    `labels` selects objects (External: series), `series` the series of an object; None selects everything.
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

    @property
    def policy(self) -> str | None:
        """The policy whose External series are requested; None: those of any."""
        return None if self.labels is None else self.labels.value("policy")

    @property
    def is_list(self) -> bool:
        """Whether all pods, policies or series of a namespace are looked at."""
        is_any = self.policy is None if self.kind is RequestKind.EXTERNAL else self.kind is RequestKind.PODS
        return is_any or self.name == ALL_OBJECTS


def parse_target(target: str) -> RequestInfo:
    """Parse a target (`/path?query`). Raises StatusError for one that is invalid."""
    path, _, query = target.partition("?")
    segments = _decode(path)
    parameters = _parameters(query)
    group, version = (*segments[1:3], "", "")[:2]
    attributes = None
    if len(segments) > 3 and segments[0] == "apis" and version in SERVED_VERSIONS.get(group, ()) and all(segments):
        attributes = _resource_attributes(group, version, segments[3:])
    if attributes is not None:
        if parameters.get("watch", "") not in {"", "0", "false"}:
            raise not_allowed("watch is not supported: metrics can only be read")
        if parameters.get("fieldSelector"):
            raise bad_request("fieldSelector is not supported; use labelSelector")
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
            labels=_selector(parameters, "labelSelector"),
            series=_selector(parameters, "metricLabelSelector"),
        )
    kind = RequestKind.OTHER
    if segments[0] == "apis" and len(segments) <= 3 and all(segments):
        kind = (RequestKind.GROUPS, RequestKind.GROUP, RequestKind.RESOURCES)[len(segments) - 1]
    elif segments == ("version",):
        kind = RequestKind.VERSION
    elif segments[0] == "openapi":
        kind = RequestKind.OPENAPI
    elif segments[0] == "apis" and group in SERVED_VERSIONS:
        raise bad_request("invalid request path")
    attributes = Attributes(path="/" + "/".join(segments))
    return RequestInfo(kind=kind, attributes=attributes, segments=segments, group=group, version=version)


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
