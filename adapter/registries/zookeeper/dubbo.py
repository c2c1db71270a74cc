"""Registrations and rules as Dubbo, Curator and Spring Cloud write them into ZooKeeper. Pure.

Dubbo registers a provider of an interface as the name of a node: its percent-encoded URL. Its applications, and Spring
Cloud, write documents of Curator's service discovery. Rules disable or weigh instances by their addresses; a rule with
another condition is not applied, and named.
"""

import functools
import ipaddress
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple
from urllib.parse import unquote

import msgspec

from adapter.load.roster import Instance
from adapter.runtime import document_text
from adapter.runtime.decoding import Decoder, shared

ANY_HOST = "0.0.0.0"  # noqa: S104 - Dubbo's wildcard, not an address to listen on
LARGEST_RULE = 64 * 1024
"""Maximum bytes of a rule: 64 KiB of YAML take a second."""

_TRAFFIC_PARAMETERS = ("disabled", "enabled", "weight")
_USUAL_WEIGHT = "100"


class Registration(NamedTuple):
    """One registered instance. `service` is `interface:version:group`, empty for a registration by application."""

    instance: Instance
    application: str = ""
    service: str = ""

    @property
    def rule_keys(self) -> tuple[str, ...]:
        """The keys under which Dubbo keeps rules for it; those of its application first."""
        if not self.service:
            return (self.application,)
        interface, version, group = self.service.split(":")
        old = f"{group}*" * bool(group) + interface + f":{version}" * bool(version)  # of early Dubbo-admins
        return (self.application, old, self.service)


# --- registrations ---


class _Url(NamedTuple):
    protocol: str
    host: str
    port: int | None
    service: str
    query: Mapping[str, str]


def _parse_url(node: str) -> _Url:
    """The URL in a node's name. Raises ValueError."""
    protocol, separator, rest = unquote(node).partition("://")
    address, _, pairs = rest.partition("?")
    authority, _, path = address.partition("/")
    host, port = _host_and_port(authority.rpartition("@")[2])
    if not protocol or not separator or not host:
        raise ValueError("it is not a URL with a protocol and a host")
    # Thousands of providers share most of their keys and values.
    found = (pair.partition("=") for pair in pairs.split("&") if pair)
    query = {shared(key): shared(value) for key, _, value in found}
    version = query.get("version", "").replace("0.0.0", "")  # Dubbo's way to write none
    service = ":".join((query.get("interface") or path.strip("/"), version, query.get("group", "")))
    return _Url(protocol, host, port, service, query)


def _host_and_port(address: str) -> tuple[str, int | None]:
    """The parts of `host:port`. Dubbo writes IPv6 without brackets, too: the last colon counts. Raises ValueError."""
    host, separator, port = address.rpartition(":")
    if not separator or address.endswith("]"):
        host, port = address, ""
    if port and not (port.isascii() and port.isdigit() and int(port) <= 65535):
        raise ValueError(f"its port {port[:20]!r} is not a number")
    return host.strip("[]"), int(port) if port else None


def _ip(host: str) -> str:
    """An address in canonical form; empty if it is not one."""
    try:
        return str(ipaddress.ip_address(host))
    except ValueError:
        return ""


def parse_provider(node: str, pod_name_key: str) -> Registration:
    """The provider in a node's name. Raises ValueError."""
    url = _parse_url(node)
    at = url.query.get("timestamp", "")
    instance = Instance(
        ip=url.host,
        port=url.port,
        enabled=_is_enabled(url.query),
        weight=_weight(url.query),
        pod_name=url.query.get(pod_name_key, ""),
        registered_at=int(at) / 1000 if at.isdecimal() and len(at) < 19 else None,
        metadata=url.query,
    )
    return Registration(instance, url.query.get("application", ""), url.service)


def _is_enabled(query: Mapping[str, str]) -> bool:
    """Whether consumers use a provider with these parameters: `disabled` decides if present, else `enabled`."""
    if query.get("disabled"):
        return query["disabled"].lower() != "true"
    return query.get("enabled", "").lower() != "false"


def _weight(query: Mapping[str, str]) -> float | None:
    """The weight, Dubbo's default if there is none, None if it is not a finite number."""
    try:
        weight = float(query.get("weight") or _USUAL_WEIGHT)
    except ValueError:
        return None
    return weight if math.isfinite(weight) else None


class _Document(msgspec.Struct, rename="camel"):
    """Curator's ServiceInstance."""

    name: str = ""
    address: str | None = None
    port: int | None = None
    ssl_port: int | None = None
    payload: msgspec.Raw = msgspec.Raw(b"null")
    enabled: bool = True
    registration_time: float = msgspec.field(default=0.0, name="registrationTimeUTC")


class _Payload(msgspec.Struct):
    """The payload that Spring Cloud and Dubbo put into a ServiceInstance."""

    metadata: dict[str, Any] | None = None


_DOCUMENT, _PAYLOAD = Decoder(_Document), Decoder(_Payload)


def parse_document(body: bytes, created_at: float, pod_name_key: str) -> Registration:
    """The instance in a document of Curator; `created_at` is the time of its node. Raises ValueError.

    The later of both times counts: after a lost session Curator writes the same document into a new node, and a server
    whose clock is behind creates nodes that look old. A host name as the address is the pod's name.
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
    pod_name = metadata.get(pod_name_key, "")
    if not pod_name and not _ip(document.address.strip("[]").partition("%")[0]):
        pod_name = document.address.partition(".")[0]
    instance = Instance(
        ip=document.address,
        port=document.port or document.ssl_port,
        enabled=document.enabled,
        status=metadata.get("instance_status", ""),
        pod_name=pod_name,
        registered_at=max(document.registration_time / 1000, created_at),
        metadata=metadata,
    )
    return Registration(instance, document.name)


# --- rules ---


class Rule(NamedTuple):
    """Parameters for the instances of a key at these addresses; hosts and ports may be wildcards."""

    key: str
    addresses: frozenset[tuple[str, int | None]]
    parameters: Mapping[str, str]


class Rules(NamedTuple):
    """Rules in the order in which they apply, and a sentence for each one that is not applied."""

    rules: tuple[Rule, ...] = ()
    faults: tuple[str, ...] = ()


def parse_override_urls(nodes: Iterable[str]) -> Rules:
    """The rules in the names of an interface's `configurators`, which Dubbo 2 writes."""
    rules: list[Rule] = []
    faults: list[str] = []
    for node in sorted(nodes):
        try:
            rules += _rules_of_url(_parse_url(node))
        except ValueError as error:
            faults.append(f"rule {node} is not applied: {error}")
    return Rules(tuple(rules), tuple(faults))


def _rules_of_url(url: _Url) -> Iterator[Rule]:
    parameters = _traffic_parameters({key: value for key, value in url.query.items() if key != "enabled"})
    if not parameters or url.query.get("enabled", "").lower() == "false":
        return
    if url.protocol != "override":
        raise ValueError(f"its protocol is {url.protocol}, not override")
    if condition := next((key for key in url.query if key.startswith("~")), ""):
        raise ValueError(f"its condition {condition} is not supported")
    if url.query.get("application", "*") != "*":
        raise ValueError(f"it is about the application {url.query['application']} alone")
    if url.port is not None or url.host == ANY_HOST:  # else the host is that of one consumer
        yield Rule(url.service, frozenset({(_ip(url.host) or url.host, url.port)}), parameters)


class _ConfigItem(msgspec.Struct, rename="camel"):
    side: str | None = None
    type: str | None = None
    enabled: bool = True
    addresses: list[str] | None = None
    provider_addresses: list[str] | None = None
    applications: list[str] | None = None
    services: list[str] | None = None
    parameters: dict[str, Any] | None = None
    match: Any = None


class _Configurators(msgspec.Struct):
    enabled: bool = True
    configs: list[_ConfigItem] | None = None


@functools.lru_cache(maxsize=1024)
def parse_rules(key: str, body: bytes) -> Rules:
    """The rules for a key in its document of the dynamic configuration, which hundreds of services may share.

    May take a second: not for the event loop.
    """
    if len(body) > LARGEST_RULE:
        return Rules((), (f"rule {key} is not applied: it is larger than {LARGEST_RULE >> 10} KiB",))
    try:
        config = msgspec.convert(document_text.read_document(body.decode()) or {}, _Configurators, strict=False)
        return Rules(tuple(rule for item in config.configs or () for rule in _rules_of_item(key, item, config.enabled)))
    except (ValueError, document_text.TextError) as error:
        return Rules((), (f"rule {key} is not applied: {' '.join(str(error).split())}",))


def _rules_of_item(key: str, item: _ConfigItem, enabled: bool) -> Iterator[Rule]:
    given = {name: "" if value is None else str(value).lower() for name, value in (item.parameters or {}).items()}
    parameters = _traffic_parameters(given)
    if not parameters or not (enabled if item.type in {None, "", "general"} else item.enabled):
        return
    conditions = {"match": item.match, "services": item.services, "applications": item.applications}
    if condition := next((name for name, value in conditions.items() if value not in (None, [], ["*"])), ""):
        raise ValueError(f"its `{condition}` is not supported; name the instances by `addresses`")
    if item.side != "provider":
        raise ValueError(f"its side is {item.side or 'missing'}, not provider")
    addresses: set[tuple[str, int | None]] = set()
    for address in item.provider_addresses or item.addresses or [ANY_HOST]:
        host, port = _host_and_port(address.removesuffix(":*"))
        # Without brackets it may also be an IPv6 address alone.
        addresses |= {(_ip(address.strip("[]")) or address, None), (_ip(host) or host, port)}
    yield Rule(key, frozenset(addresses), parameters)


def _traffic_parameters(parameters: Mapping[str, str]) -> Mapping[str, str]:
    """The parameters that affect traffic. Raises ValueError."""
    affecting = {key: value for key in _TRAFFIC_PARAMETERS if (value := parameters.get(key))}
    if _weight(affecting) is None:
        raise ValueError(f"its weight {affecting['weight']} is not a number")
    return affecting


def apply_rules(registrations: Iterable[Registration], rules: Sequence[Rule]) -> Iterator[Instance]:
    """Yields the instances with these rules applied; later rules win."""
    for registration in registrations:
        instance, by_url = registration.instance, bool(registration.service)
        registered = {key: value for key in _TRAFFIC_PARAMETERS if by_url and (value := instance.metadata.get(key))}
        host = _ip(instance.ip) or instance.ip
        places = {(host, instance.port), (host, None), (ANY_HOST, instance.port), (ANY_HOST, None)}
        query = registered
        for rule in rules:
            if rule.key in registration.rule_keys and not rule.addresses.isdisjoint(places):
                query = {**query, **rule.parameters}
        if query == registered:
            yield instance
            continue
        # Consumers ignore a provider that is registered with `enabled=false`, regardless of rules.
        allowed = registered.get("enabled", "").lower() != "false" if by_url else instance.enabled
        weight = _weight(query) if "weight" in query else instance.weight
        yield replace(instance, enabled=allowed and _is_enabled(query), weight=weight)
