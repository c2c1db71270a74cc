"""What Dubbo and Curator write into ZooKeeper, turned into registrations. Pure; nothing here asks a server.

Dubbo's interface level writes a provider as the name of a node: its URL, percent-encoded. Dubbo's application level and
Spring Cloud write a node of Curator's service discovery each: a JSON document with a payload of their own.

When a registration was made is taken from both clocks where there are two, whichever is later: after a lost session
Curator writes the same document into a new node, so the document's own time is old while the node's is new, and a
server whose clock is behind makes nodes that look old. Only a leftover is old by both.
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
"""The weight of a provider that names none."""
_MILLISECONDS = 1000
_LONGEST_TIME = 18  # digits

_Milliseconds = Annotated[int, msgspec.Meta(gt=-(10**_LONGEST_TIME), lt=10**_LONGEST_TIME)]


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceInstance:
    """One instance as it was registered, with what rules of Dubbo tell instances apart by.

    `interface`, `version`, `group` and `protocol` are empty where instances are registered by application.
    """

    instance: Instance
    application: str = ""
    interface: str = ""
    version: str = ""
    group: str = ""
    protocol: str = ""


@dataclass(frozen=True, slots=True)
class DubboUrl:
    """A URL of Dubbo's: values of its query are as they were written."""

    protocol: str
    host: str
    port: int | None
    path: str
    query: Mapping[str, str] = field(default_factory=dict)

    @property
    def interface(self) -> str:
        """The interface, from the query or else the path."""
        return self.query.get("interface") or self.path


def parse_dubbo_url(node: str) -> DubboUrl:
    """The URL that is the name of a node. Raises ValueError."""
    parts = urlsplit(unquote(node))
    if not parts.scheme or not parts.hostname:
        raise ValueError("it is no URL with a protocol and a host")
    pairs = (pair.partition("=") for pair in parts.query.split("&") if pair)
    # Thousands of providers share most of their words.
    query = {sys.intern(key): sys.intern(value) for key, _, value in pairs}
    return DubboUrl(parts.scheme, parts.hostname, parts.port, parts.path.strip("/"), query)


def parse_provider(node: str, pod_name_key: str) -> ServiceInstance:
    """A provider of an interface, from the name of its node. Raises ValueError."""
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
    """Whether consumers use such a provider: `disabled` decides where it is there, else `enabled`."""
    if query.get("disabled"):
        return query["disabled"].lower() != "true"
    return query.get("enabled", "").lower() != "false"


def parse_weight(query: Mapping[str, str]) -> float | None:
    """The weight that was written, else Dubbo's own; None where it is no number."""
    try:
        found = float(query.get("weight") or DUBBO_WEIGHT)
    except ValueError:
        return None
    return found if math.isfinite(found) else None


def service_version(query: Mapping[str, str]) -> str:
    """The version of a service; Dubbo takes 0.0.0 for none."""
    written = query.get("version", "")
    return "" if written == "0.0.0" else written


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
    """What Spring Cloud and Dubbo put into it."""

    metadata: dict[str, Any] | None = None


_DOCUMENT = Decoder(_Document)
_PAYLOAD = Decoder(_Payload)


def parse_service_instance(body: bytes, created_at: float, pod_name_key: str) -> ServiceInstance:
    """An instance of Curator's service discovery. `created_at` is when its node was made. Raises ValueError.

    A host name in place of an address is the pod's own name, for so Kubernetes calls a pod's host; names are never
    looked up.
    """
    try:
        document = _DOCUMENT.decode(body)
    except msgspec.MsgspecError as error:
        raise ValueError(f"it is no instance of Curator's service discovery: {error}") from error
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


def newest_registrations(found: Iterable[ServiceInstance]) -> list[ServiceInstance]:
    """Of the registrations of one place the latest: a process that was restarted leaves one behind for a while."""
    latest: dict[tuple[object, ...], ServiceInstance] = {}
    for one in found:
        place = (one.instance.ip, one.instance.port, one.protocol, one.interface, one.version, one.group)
        known = latest.get(place)
        if known is None or _at(one) >= _at(known):
            latest[place] = one
    return list(latest.values())


def with_overrides(one: ServiceInstance, *, enabled: bool, weight: float | None) -> ServiceInstance:
    """The registration as rules made it."""
    if one.instance.enabled == enabled and one.instance.weight == weight:
        return one
    return replace(one, instance=replace(one.instance, enabled=enabled, weight=weight))


def _at(one: ServiceInstance) -> float:
    return one.instance.registered_at or 0.0


def _metadata(payload: msgspec.Raw) -> dict[str, str]:
    try:
        found = _PAYLOAD.decode(payload).metadata or {}
    except msgspec.MsgspecError:
        return {}  # a payload of another make, and no fault
    return {sys.intern(key): value if isinstance(value, str) else str(value) for key, value in found.items()}


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
