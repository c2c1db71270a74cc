"""Parsers of what Dubbo and Curator write into ZooKeeper. Pure.

Dubbo's interface-level registration writes a provider as the name of a node: its percent-encoded URL. Dubbo's
application-level registration and Spring Cloud write nodes of Curator's service discovery: JSON documents, each with a
payload of its own.

The registration time of a Curator instance is the later one of document and node. After a lost session Curator writes
the same document into a new node, so the document's time is old and the node's is new; a server whose clock is behind
creates nodes that look old. Only a leftover is old by both.
"""

import ipaddress
import math
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, Any
from urllib.parse import unquote, urlsplit

import msgspec

from adapter.load.roster import Instance
from adapter.runtime.decoding import Decoder

DUBBO_WEIGHT = 100.0
"""Dubbo's default weight of a provider."""
_MILLISECONDS = 1000
_LONGEST_TIME = 18  # digits
_MAX_URL = 20_000
"""The longest name of a node that is read (characters): decoding 60,000 percent signs takes 17 ms of the event loop."""

_Milliseconds = Annotated[int, msgspec.Meta(gt=-(10**_LONGEST_TIME), lt=10**_LONGEST_TIME)]


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceInstance:
    """One registered instance, with the attributes that Dubbo's override rules match.

    `interface`, `version`, `group` and `protocol` are empty for application-level registrations.
    """

    instance: Instance
    application: str = ""
    interface: str = ""
    version: str = ""
    group: str = ""
    protocol: str = ""


@dataclass(frozen=True, slots=True)
class DubboUrl:
    """A Dubbo URL; the values of its query are not decoded again."""

    protocol: str
    host: str
    port: int | None
    path: str
    query: Mapping[str, str] = field(default_factory=dict)

    @property
    def interface(self) -> str:
        """The interface from the query, else from the path."""
        return self.query.get("interface") or self.path


def parse_dubbo_url(node: str) -> DubboUrl:
    """Parses a node's name as a URL. Raises ValueError."""
    if len(node) > _MAX_URL:
        raise ValueError(f"it is longer than {_MAX_URL:,} characters")
    parts = urlsplit(unquote(node))
    if not parts.scheme or not parts.hostname:
        raise ValueError("it is not a URL with a protocol and a host")
    pairs = (pair.partition("=") for pair in parts.query.split("&") if pair)
    # Thousands of providers share most of their keys and values.
    query = {sys.intern(key): sys.intern(value) for key, _, value in pairs}
    return DubboUrl(parts.scheme, parts.hostname, parts.port, parts.path.strip("/"), query)


def parse_provider(node: str, pod_name_key: str) -> ServiceInstance:
    """Parses the node name of an interface's provider. Raises ValueError."""
    url = parse_dubbo_url(node)
    query = url.query
    instance = Instance(
        ip=url.host,
        port=url.port,
        enabled=is_enabled(query),
        weight=parse_weight(query),
        pod_name=query.get(pod_name_key, "") if pod_name_key else "",
        registered_at=_seconds(query.get("timestamp")),
        metadata=query,
    )
    return ServiceInstance(
        instance=instance,
        application=query.get("application", ""),
        interface=url.interface,
        version=service_version(query),
        group=query.get("group", ""),
        protocol=url.protocol,
    )


def is_enabled(query: Mapping[str, str]) -> bool:
    """Whether consumers use a provider with these parameters: `disabled` decides if present, else `enabled`."""
    if query.get("disabled"):
        return query["disabled"].lower() != "true"
    return query.get("enabled", "").lower() != "false"


def parse_weight(query: Mapping[str, str]) -> float | None:
    """The weight, Dubbo's default if there is none, None if it is not a finite number."""
    try:
        weight = float(query.get("weight") or DUBBO_WEIGHT)
    except ValueError:
        return None
    return weight if math.isfinite(weight) else None


def service_version(query: Mapping[str, str]) -> str:
    """The version of a service; Dubbo treats 0.0.0 as no version."""
    version = query.get("version", "")
    return "" if version == "0.0.0" else version


class _Document(msgspec.Struct, rename="camel"):
    """Curator's ServiceInstance."""

    name: str = ""
    address: str | None = None
    port: int | None = None
    ssl_port: int | None = None
    payload: msgspec.Raw = msgspec.Raw(b"null")
    enabled: bool = True
    registration_time: _Milliseconds = msgspec.field(default=0, name="registrationTimeUTC")


class _Payload(msgspec.Struct):
    """The payload that Spring Cloud and Dubbo put into a ServiceInstance."""

    metadata: dict[str, Any] | None = None


_DOCUMENT = Decoder(_Document)
_PAYLOAD = Decoder(_Payload)


def parse_service_instance(body: bytes, created_at: float, pod_name_key: str) -> ServiceInstance:
    """Parses an instance of Curator's service discovery; `created_at` is its node's creation. Raises ValueError.

    A host name as the address is the pod's name, because Kubernetes sets a pod's host name to it. Names are never
    resolved.
    """
    try:
        document = _DOCUMENT.decode(body)
    except msgspec.MsgspecError as error:
        raise ValueError(f"it is not an instance of Curator's service discovery: {error}") from error
    if not document.address:
        raise ValueError("it has no address")
    metadata = _metadata(document.payload)
    registered_at = max(document.registration_time / _MILLISECONDS, created_at)
    pod_name = metadata.get(pod_name_key, "") if pod_name_key else ""
    instance = Instance(
        ip=document.address,
        port=document.port or document.ssl_port,
        enabled=document.enabled,
        status=metadata.get("instance_status", ""),
        pod_name=pod_name or _host_name(document.address),
        registered_at=registered_at,
        metadata=metadata,
    )
    return ServiceInstance(instance=instance, application=document.name)


def newest_registrations(instances: Iterable[ServiceInstance]) -> list[ServiceInstance]:
    """The newest registration of each endpoint: a restarted process leaves one behind until its session expires."""
    newest: dict[tuple[object, ...], ServiceInstance] = {}
    for one in instances:
        endpoint = (one.instance.ip, one.instance.port, one.protocol, one.interface, one.version, one.group)
        known = newest.get(endpoint)
        if known is None or _registered_at(one) >= _registered_at(known):
            newest[endpoint] = one
    return list(newest.values())


def with_overrides(one: ServiceInstance, *, enabled: bool, weight: float | None) -> ServiceInstance:
    """The instance with the values that override rules give it."""
    if one.instance.enabled == enabled and one.instance.weight == weight:
        return one
    return replace(one, instance=replace(one.instance, enabled=enabled, weight=weight))


def _registered_at(one: ServiceInstance) -> float:
    return one.instance.registered_at or 0.0


def _metadata(payload: msgspec.Raw) -> dict[str, str]:
    try:
        metadata = _PAYLOAD.decode(payload).metadata or {}
    except msgspec.MsgspecError:
        return {}  # a payload of another framework is not an error
    return {sys.intern(key): value if isinstance(value, str) else str(value) for key, value in metadata.items()}


def _host_name(address: str) -> str:
    try:
        ipaddress.ip_address(address.strip("[]").partition("%")[0])
    except ValueError:
        return address.partition(".")[0]
    return ""


def _seconds(milliseconds: str | None) -> float | None:
    if not milliseconds or not milliseconds.isdecimal() or len(milliseconds) > _LONGEST_TIME:
        return None
    return int(milliseconds) / _MILLISECONDS
