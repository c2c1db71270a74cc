"""What Dubbo and Curator write into ZooKeeper to register an instance. Pure.

Dubbo's interface-level registration writes a provider as the name of a node: its percent-encoded URL. Dubbo's
application-level registration and Spring Cloud write nodes of Curator's service discovery: JSON documents, each with a
payload of its own.
"""

import ipaddress
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple
from urllib.parse import unquote

import msgspec

from adapter.load.roster import Instance
from adapter.runtime.decoding import Decoder, shared

DUBBO_WEIGHT = 100.0
"""Dubbo's default weight of a provider."""
_MILLISECONDS = 1000
_LONGEST_TIME = 18  # digits
_MAX_URL = 20_000
"""The longest name of a node that is read (characters): decoding 60,000 percent signs takes 17 ms of the event loop."""

_Milliseconds = Annotated[int, msgspec.Meta(gt=-(10**_LONGEST_TIME), lt=10**_LONGEST_TIME)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Registration:
    """One registered instance, with the attributes that Dubbo's rules match.

    `interface`, `version`, `group` and `protocol` are empty for application-level registrations.
    """

    instance: Instance
    application: str = ""
    interface: str = ""
    version: str = ""
    group: str = ""
    protocol: str = ""


class DubboUrl(NamedTuple):
    """A Dubbo URL; the values of its query are not decoded again."""

    protocol: str
    host: str
    port: int | None
    interface: str
    query: Mapping[str, str]


def parse_url(node: str) -> DubboUrl:
    """Parses a node's name as a URL. Raises ValueError."""
    if len(node) > _MAX_URL:
        raise ValueError(f"it is longer than {_MAX_URL:,} characters")
    protocol, separator, rest = unquote(node).partition("://")
    address, _, pairs = rest.partition("?")
    authority, _, path = address.partition("/")
    host, port = host_and_port(authority.rpartition("@")[2])
    if not protocol or not separator or not host:
        raise ValueError("it is not a URL with a protocol and a host")
    # Thousands of providers share most of their keys and values.
    found = (pair.partition("=") for pair in pairs.split("&") if pair)
    query = {shared(key): shared(value) for key, _, value in found}
    return DubboUrl(protocol, host, port, query.get("interface") or path.strip("/"), query)


def host_and_port(address: str) -> tuple[str, int | None]:
    """The parts of `host:port`. Raises ValueError.

    Dubbo writes IPv6 without brackets, and reads as the host what is before the last colon.
    """
    if address.startswith("["):
        host, _, port = address[1:].partition("]")
        port = port.removeprefix(":")
    else:
        host, _, port = address.rpartition(":") if ":" in address else (address, "", "")
    if port and not (port.isascii() and port.isdigit() and int(port) <= 65535):
        raise ValueError(f"its port {port[:20]!r} is not a number")
    return host, int(port) if port else None


def parse_provider(node: str, pod_name_key: str) -> Registration:
    """Parses the node name of an interface's provider. Raises ValueError."""
    url = parse_url(node)
    at = url.query.get("timestamp", "")
    instance = Instance(
        ip=url.host,
        port=url.port,
        enabled=is_enabled(url.query),
        weight=parse_weight(url.query),
        pod_name=url.query.get(pod_name_key, "") if pod_name_key else "",
        registered_at=int(at) / _MILLISECONDS if at.isdecimal() and len(at) <= _LONGEST_TIME else None,
        metadata=url.query,
    )
    return Registration(
        instance=instance,
        application=url.query.get("application", ""),
        interface=url.interface,
        version=service_version(url.query),
        group=url.query.get("group", ""),
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


_DOCUMENT, _PAYLOAD = Decoder(_Document), Decoder(_Payload)


def parse_document(body: bytes, created_at: float, pod_name_key: str) -> Registration:
    """Parses an instance of Curator's service discovery; `created_at` is its node's creation. Raises ValueError.

    The registration time is the later one of document and node. After a lost session Curator writes the same document
    into a new node, so the document's time is old and the node's is new; a server whose clock is behind creates nodes
    that look old. Only a leftover is old by both.

    A host name as the address is the pod's name, because Kubernetes sets a pod's host name to it. Names are never
    resolved.
    """
    try:
        document = _DOCUMENT.decode(body)
    except msgspec.MsgspecError as error:
        raise ValueError(f"it is not an instance of Curator's service discovery: {error}") from error
    if not document.address:
        raise ValueError("it has no address")
    try:
        payload = _PAYLOAD.decode(document.payload).metadata or {}
    except msgspec.MsgspecError:
        payload = {}  # one of another framework is not an error
    metadata = {shared(key): value if isinstance(value, str) else str(value) for key, value in payload.items()}
    pod_name = metadata.get(pod_name_key, "") if pod_name_key else ""
    try:
        ipaddress.ip_address(document.address.strip("[]").partition("%")[0])
    except ValueError:
        pod_name = pod_name or document.address.partition(".")[0]
    instance = Instance(
        ip=document.address,
        port=document.port or document.ssl_port,
        enabled=document.enabled,
        status=metadata.get("instance_status", ""),
        pod_name=pod_name,
        registered_at=max(document.registration_time / _MILLISECONDS, created_at),
        metadata=metadata,
    )
    return Registration(instance=instance, application=document.name)


def newest_registrations(registrations: Iterable[Registration]) -> list[Registration]:
    """The newest registration of each endpoint: a restarted process leaves one behind until its session expires."""
    by_age = sorted(registrations, key=lambda one: one.instance.registered_at or 0.0)
    newest = {
        (one.instance.ip, one.instance.port, one.protocol, one.interface, one.version, one.group): one for one in by_age
    }
    return list(newest.values())
