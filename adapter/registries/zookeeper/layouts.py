"""Parsers of what Dubbo and Curator write into ZooKeeper. Pure.

Dubbo's interface-level registration writes a provider as the name of a node: its percent-encoded URL. Dubbo's
application-level registration and Spring Cloud write nodes of Curator's service discovery: JSON documents, each with a
payload of its own.

The registration time of a Curator instance is the later one of document and node. After a lost session Curator writes
the same document into a new node, so the document's time is old and the node's is new; a server whose clock is behind
creates nodes that look old. Only a leftover is old by both.
"""

import ipaddress
import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, NamedTuple
from urllib.parse import unquote, urlsplit

import msgspec

from adapter.load.roster import Instance
from adapter.runtime import document_text
from adapter.runtime.decoding import Decoder, decode, shared

DUBBO_WEIGHT = 100.0
"""Dubbo's default weight of a provider."""
_MILLISECONDS = 1000
_LONGEST_TIME = 18  # digits
_MAX_URL = 20_000
"""The longest name of a node that is read (characters): decoding 60,000 percent signs takes 17 ms of the event loop."""

_Milliseconds = Annotated[int, msgspec.Meta(gt=-(10**_LONGEST_TIME), lt=10**_LONGEST_TIME)]

ANY_HOST = "0.0.0.0"  # noqa: S104 - Dubbo's wildcard, not an address to listen on
CONFIGURATORS_SUFFIX = ".configurators"
LARGEST_RULE = 64 * 1024
"""Maximum bytes of a YAML document."""
MOST_RULES = 1000
"""Maximum rules of one document, which pairs each application that it names with each service."""

_TRAFFIC_PARAMETERS = ("disabled", "enabled", "weight")


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
    query = {shared(key): shared(value) for key, _, value in pairs}
    return DubboUrl(parts.scheme, parts.hostname, parts.port, parts.path.strip("/"), query)


def parse_provider(node: str, pod_name_key: str) -> ServiceInstance:
    """Parses the node name of an interface's provider. Raises ValueError."""
    url = parse_dubbo_url(node)
    query = url.query
    at = query.get("timestamp", "")
    instance = Instance(
        ip=url.host,
        port=url.port,
        enabled=is_enabled(query),
        weight=parse_weight(query),
        pod_name=query.get(pod_name_key, "") if pod_name_key else "",
        registered_at=int(at) / _MILLISECONDS if at.isdecimal() and len(at) <= _LONGEST_TIME else None,
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
    try:
        payload = _PAYLOAD.decode(document.payload).metadata or {}
    except msgspec.MsgspecError:
        payload = {}  # one of another framework is not an error
    metadata = {shared(key): value if isinstance(value, str) else str(value) for key, value in payload.items()}
    registered_at = max(document.registration_time / _MILLISECONDS, created_at)
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
        registered_at=registered_at,
        metadata=metadata,
    )
    return ServiceInstance(instance=instance, application=document.name)


def newest_registrations(instances: Iterable[ServiceInstance]) -> list[ServiceInstance]:
    """The newest registration of each endpoint: a restarted process leaves one behind until its session expires."""
    newest: dict[tuple[object, ...], tuple[float, ServiceInstance]] = {}
    for registration in instances:
        endpoint = (
            registration.instance.ip,
            registration.instance.port,
            registration.protocol,
            registration.interface,
            registration.version,
            registration.group,
        )
        at = registration.instance.registered_at or 0.0
        if endpoint not in newest or at >= newest[endpoint][0]:
            newest[endpoint] = (at, registration)
    return [registration for _, registration in newest.values()]


@dataclass(frozen=True, slots=True, kw_only=True)
class OverrideRule:
    """Parameters for the providers that match all conditions.

    `addresses` are `ip:port`, `ip`, or any host with or without a port; `service` is `group/interface:version` as
    Dubbo writes it, `*` for any; an empty `application` matches any. With `keeps` the provider's own parameters take
    precedence; `rank` orders rules of the same kind.
    """

    addresses: tuple[str, ...]
    service: str
    application: str
    parameters: Mapping[str, str]
    keeps: bool = False
    rank: tuple[str, int] = ("", 0)


class OverrideRules(NamedTuple):
    """Rules in the order in which they apply, and a sentence for each one that is ignored."""

    rules: tuple[OverrideRule, ...] = ()
    warnings: tuple[str, ...] = ()


class _ConfigItem(msgspec.Struct, rename="camel"):
    """An entry of a YAML document."""

    side: str | None = None
    type: str | None = None
    enabled: bool = True
    addresses: list[str] | None = None
    provider_addresses: list[str] | None = None
    applications: list[str] | None = None
    services: list[str] | None = None
    parameters: dict[str, Any] | None = None
    match: Any = None


class _ConfiguratorConfig(msgspec.Struct):
    """A YAML document. `key` is the application, or the service as `group/interface:version`."""

    key: str | None = None
    scope: str | None = None
    enabled: bool = True
    configs: list[_ConfigItem] | None = None


def parse_override_urls(nodes: Iterable[str]) -> OverrideRules:
    """Parses the node names of an interface's `configurators`."""
    rules, warnings = [], []
    for node in nodes:
        try:
            rule = _rule_of_url(parse_dubbo_url(node))
        except ValueError as error:
            warnings.append(f"rule {node} is not applied: {error}")
            continue
        if rule is not None:
            rules.append(rule)
    # Dubbo's order: by host, where any host comes first, then by priority; later ones win.
    return OverrideRules(tuple(sorted(rules, key=lambda rule: rule.rank)), tuple(warnings))


def parse_configurator(node: str, body: bytes) -> OverrideRules:
    """Parses a node of Dubbo's dynamic configuration: the rules for an application or an interface."""
    try:
        return OverrideRules(tuple(_rules_of_document(body)))
    except (ValueError, document_text.TextError) as error:
        return OverrideRules((), (f"rule {node} is not applied: {' '.join(str(error).split())}",))


def apply_rules(instances: Iterable[ServiceInstance], rules: Sequence[OverrideRule]) -> Iterator[ServiceInstance]:
    """Yields the instances with these rules applied."""
    for registration in instances:
        by_url = bool(registration.protocol)
        registered = {
            key: value for key in _TRAFFIC_PARAMETERS if by_url and (value := registration.instance.metadata.get(key))
        }
        ip, port = registration.instance.ip, registration.instance.port
        addresses = {ANY_HOST, f"{ANY_HOST}:*", f"{ANY_HOST}:{port}", ip, _address(ip, port)}
        services = {"*", _service_key(registration.group, registration.interface, registration.version)}
        applications = {"", registration.application}
        query = registered
        for rule in rules:
            matches = rule.application in applications and rule.service in services
            if matches and not addresses.isdisjoint(rule.addresses):
                query = {**rule.parameters, **query} if rule.keeps else {**query, **rule.parameters}
        if query == registered:
            yield registration
            continue
        # Consumers ignore a provider that is registered with `enabled=false`, regardless of rules.
        allowed = registered.get("enabled", "").lower() != "false" if by_url else registration.instance.enabled
        enabled = allowed and is_enabled(query)
        weight = parse_weight(query) if "weight" in query else registration.instance.weight
        if registration.instance.enabled == enabled and registration.instance.weight == weight:
            yield registration
        else:
            yield replace(registration, instance=replace(registration.instance, enabled=enabled, weight=weight))


def rule_key(node: str) -> str:
    """The application or interface in the name of a node of the dynamic configuration.

    Dubbo writes `interface:version:group`, early versions of Dubbo-admin `group*interface:version`.
    """
    return node.removesuffix(CONFIGURATORS_SUFFIX).partition(":")[0].rpartition("*")[2]


def _service_key(group: str, interface: str, number: str) -> str:
    return f"{group}/" * bool(group) + interface + f":{number}" * bool(number)


def _address(host: str, port: int | None) -> str:
    bracketed = f"[{host}]" if ":" in host else host
    return bracketed if port is None else f"{bracketed}:{port}"


def _rule_of_url(url: DubboUrl) -> OverrideRule | None:
    """The rule of an override URL; None if it does not affect all traffic of a provider."""
    query = url.query
    if query.get("enabled", "true").lower() == "false":
        return None
    parameters = _traffic_parameters({key: value for key, value in query.items() if key != "enabled"})
    if not parameters:
        return None
    if url.protocol not in {"override", "absent"}:
        raise ValueError(f"its protocol is {url.protocol}, not override or absent")
    if condition := next((key for key in query if key.startswith("~")), ""):
        raise ValueError(f"its condition {condition} is not supported")
    if query.get("application", "*") != "*":
        raise ValueError(f"it is about the application {query['application']} alone")
    if url.port is None and url.host != ANY_HOST:
        return None  # the address of one consumer
    return OverrideRule(
        addresses=(_address(url.host, url.port),),
        service=_service_key(query.get("group", ""), url.interface, service_version(query)),
        application="",
        parameters=parameters,
        keeps=url.protocol == "absent",
        rank=(url.host, int(query.get("priority") or 0)),
    )


def _rules_of_document(body: bytes) -> Iterator[OverrideRule]:
    if len(body) > LARGEST_RULE:
        raise ValueError(f"it is larger than {LARGEST_RULE >> 10} KiB")
    text = body.decode()
    if text.lstrip().startswith("["):
        parsed = parse_override_urls(decode(body, list[str]))
        if parsed.warnings:
            raise ValueError("; ".join(parsed.warnings))
        yield from parsed.rules
        return
    content = document_text.read_document(text)  # not with a C loader, which crashes on deep nesting
    if content is None:
        return
    config = msgspec.convert(content, _ConfiguratorConfig, strict=False)
    rules = itertools.chain.from_iterable(_rules_of_item(item, config) for item in config.configs or ())
    for number, rule in enumerate(rules):
        if number >= MOST_RULES:
            raise ValueError(f"it makes more than {MOST_RULES} rules; name fewer applications and services")
        yield rule


def _rules_of_item(item: _ConfigItem, config: _ConfiguratorConfig) -> Iterator[OverrideRule]:
    parameters = _traffic_parameters(
        {key: "" if value is None else str(value).lower() for key, value in (item.parameters or {}).items()}
    )
    enabled = config.enabled if item.type in {None, "", "general"} else item.enabled
    if not parameters or not enabled:
        return
    if not config.key:
        raise ValueError("it has no key")
    by_application = config.scope == "application"
    if item.match:
        raise ValueError("its `match` is not supported; name the instances by `addresses`")
    if item.side not in {"provider", "consumer"}:
        raise ValueError("it does not say whether its side is provider or consumer")
    consumers = {address.partition(":")[0] for address in item.addresses or [ANY_HOST]}
    if item.side == "consumer" and (by_application or item.applications or ANY_HOST not in consumers):
        raise ValueError("it is about some consumers only")
    applications = [config.key] if by_application else item.applications or [""]
    services = item.services or ["*"] if by_application else [config.key]
    providers = item.provider_addresses or (item.addresses if item.side == "provider" else None) or [ANY_HOST]
    for application in applications:
        for service in services:
            yield OverrideRule(
                addresses=tuple(providers),
                service=service,
                application="" if application == "*" else application,
                parameters=parameters,
            )


def _traffic_parameters(parameters: Mapping[str, str]) -> Mapping[str, str]:
    """The parameters that affect traffic."""
    affecting = {key: value for key in _TRAFFIC_PARAMETERS if (value := parameters.get(key))}
    if parse_weight(affecting) is None:
        raise ValueError(f"its weight {affecting['weight']} is not a number")
    return affecting
