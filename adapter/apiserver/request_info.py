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
DECISION = "decision"
"""The pseudo-metric of a policy under which its decision is served."""

MAX_TARGET = 32 * 1024
"""Characters of an encoded target: enough for two selectors of many hundred values."""
_MAX_PARAMETERS = 32
_BAD_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2})")


class RequestKind(StrEnum):
    """What a request asks for. Also label `resource_kind` of the request metric, so there are few values."""

    POLICY = "policy"
    DECISION = "decision"  # of a policy, with its inputs
    PODS = "pods"
    TARGET = "target"
    EXTERNAL = "external"
    UPSTREAM = "upstream"  # a metric that is not ours, whatever its resource
    OTHER = "other"  # discovery among them


_KINDS = {PODS_RESOURCE: RequestKind.PODS, POLICIES_RESOURCE: RequestKind.POLICY}


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

    `resource` is the one that the metric describes (`deployments.apps`); of External it is the metric itself. `name` is
    the described object, or ALL_OBJECTS. `labels` selects objects (External: series), `series` the series of an object;
    None selects everything.
    """

    kind: RequestKind = RequestKind.OTHER
    attributes: Attributes
    segments: tuple[str, ...]
    group: str = ""
    version: str = ""
    namespace: str = ""
    resource: str = ""
    name: str = ""
    metric: str = ""
    labels: LabelSelector | None = None
    series: LabelSelector | None = None


def parse_target(target: str) -> RequestInfo:
    """Parse a target (`/path?query`). Raises StatusError for one that is invalid."""
    if len(target) > MAX_TARGET:
        message = f"the request target has {len(target)} characters, at most {MAX_TARGET} are read: select by less"
        raise StatusError(HTTPStatus.REQUEST_URI_TOO_LONG, message)
    path, _, query = target.partition("?")
    segments = _segments(path)
    root, group, version = (*segments, "", "", "")[:3]
    if root != "apis" or group not in SERVED_VERSIONS or len(segments) <= 3:
        return RequestInfo(attributes=Attributes(path="/" + "/".join(segments)), segments=segments)
    asked = _resource_attributes(group, version, segments[3:])
    if asked is None or version not in SERVED_VERSIONS[group] or not all(segments):
        raise bad_request("invalid request path")
    parameters = _parameters(query)
    if parameters.get("watch", "") not in {"", "0", "false"}:
        raise not_allowed("watch is not supported: metrics can only be read")
    if parameters.get("fieldSelector"):
        raise bad_request("fieldSelector is not supported; use labelSelector")
    kind = RequestKind.EXTERNAL if group == EXTERNAL else _KINDS.get(asked.resource, RequestKind.TARGET)
    return RequestInfo(
        kind=RequestKind.DECISION if kind is RequestKind.POLICY and asked.subresource == DECISION else kind,
        attributes=asked,
        segments=segments,
        group=group,
        version=version,
        namespace=asked.namespace,
        resource=asked.resource,
        name=asked.name,
        metric=segments[-1],
        labels=_selector(parameters, "labelSelector"),
        series=_selector(parameters, "metricLabelSelector"),
    )


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


def _segments(path: str) -> tuple[str, ...]:
    """The decoded segments of a path, none of which can be taken for another path."""
    if not path.startswith("/") or _BAD_ESCAPE.search(path):
        raise bad_request("invalid request path")
    try:
        path.encode()  # a byte that is not UTF-8 was decoded to a surrogate
        segments = tuple(unquote(part, errors="strict") for part in path[1:].removesuffix("/").split("/"))
    except UnicodeError:
        raise bad_request("invalid request path: not UTF-8") from None
    if any(part in {".", ".."} or "/" in part for part in segments):
        raise bad_request("invalid request path: no segment may be '.' or '..', or contain '/'")
    return segments


def _parameters(query: str) -> dict[str, str]:
    """Query parameters; `+` is a space. A repeated one is an error: the aggregator sorts and re-encodes them."""
    try:
        pairs = parse_qsl(query, keep_blank_values=True, errors="strict", max_num_fields=_MAX_PARAMETERS)
    except ValueError:
        raise bad_request("invalid query: not UTF-8, or too many parameters") from None
    parameters = dict(pairs)
    if len(parameters) != len(pairs):
        raise bad_request("invalid query: a parameter is given twice")
    return parameters


def _selector(parameters: dict[str, str], name: str) -> LabelSelector | None:
    if not parameters.get(name):
        return None
    try:
        selector = parse_selector(parameters[name])
    except SelectorError as error:
        raise bad_request(f"invalid {name}: {error}") from None
    if len(selector.requirements) > MAX_SELECTOR_REQUIREMENTS:
        raise bad_request(f"invalid {name}: it has more than {MAX_SELECTOR_REQUIREMENTS} requirements")
    return selector
