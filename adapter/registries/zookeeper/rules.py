"""Dubbo's rules beside the registrations, by which an instance is taken out of traffic. Pure.

Only what disables and weighs instances is read: `disabled`, `enabled` and `weight`, for addresses, of a service or an
application. Rules with further conditions are not applied, and named in a fault.
"""

import functools
import ipaddress
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import msgspec

from adapter.registries.zookeeper.registrations import (
    Registration,
    host_and_port,
    is_enabled,
    parse_url,
    parse_weight,
    service_version,
)
from adapter.runtime import document_text

ANY_HOST = "0.0.0.0"  # noqa: S104 - Dubbo's wildcard, not an address to listen on
LARGEST_RULE = 64 * 1024
"""Maximum bytes of a YAML document."""

_TRAFFIC_PARAMETERS = ("disabled", "enabled", "weight")


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """Parameters for the providers that match all conditions.

    `addresses` are `ip:port`, `ip`, or any host with or without a port. `services` are `group/interface:version` as
    Dubbo writes it, `*` for any; no `applications` match any.
    """

    addresses: frozenset[tuple[str, int | None]]
    services: frozenset[str]
    applications: frozenset[str] = frozenset()
    parameters: Mapping[str, str]

    def matches(self, registration: Registration) -> bool:
        """Whether the rule is about this instance."""
        ip, port = _canonical(registration.instance.ip), registration.instance.port
        name = _service_name(registration.group, registration.interface, registration.version)
        return (
            not self.addresses.isdisjoint({(host, each) for host in (ip, ANY_HOST) for each in (port, None)})
            and not self.services.isdisjoint({name, "*"})
            and (not self.applications or registration.application in self.applications)
        )


class Rules(NamedTuple):
    """Rules in the order in which they apply, and a sentence for each one that is ignored."""

    rules: tuple[Rule, ...] = ()
    faults: tuple[str, ...] = ()


def parse_override_urls(nodes: Iterable[str]) -> Rules:
    """Parses the node names of an interface's `configurators`, which Dubbo 2 writes."""
    rules: list[Rule] = []
    faults: list[str] = []
    for node in nodes:
        try:
            rules += _rules_of_url(node)
        except ValueError as error:
            faults.append(f"rule {node} is not applied: {error}")
    # A rule for one address beats those for all, as in Dubbo.
    return Rules(
        tuple(sorted(rules, key=lambda rule: all(host != ANY_HOST for host, _ in rule.addresses))), tuple(faults)
    )


def _rules_of_url(node: str) -> Iterator[Rule]:
    url = parse_url(node)
    parameters = _traffic_parameters({key: value for key, value in url.query.items() if key != "enabled"})
    if not parameters or url.query.get("enabled", "").lower() == "false":
        return
    if url.protocol != "override":
        raise ValueError(f"its protocol is {url.protocol}, not override")
    if condition := next((key for key in url.query if key.startswith("~")), ""):
        raise ValueError(f"its condition {condition} is not supported")
    if url.query.get("application", "*") != "*":
        raise ValueError(f"it is about the application {url.query['application']} alone")
    if url.port is None and url.host != ANY_HOST:
        return  # the address of one consumer
    name = _service_name(url.query.get("group", ""), url.interface, service_version(url.query))
    yield Rule(
        addresses=frozenset({(_canonical(url.host), url.port)}), services=frozenset({name}), parameters=parameters
    )


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


def rule_nodes(registrations: Iterable[Registration]) -> list[str]:
    """The names of the nodes of Dubbo's dynamic configuration that may have rules for these instances.

    Those of applications come first; later rules win. For a service Dubbo writes `interface:version:group`, early
    versions of Dubbo-admin `group*interface:version`.
    """
    registrations = list(registrations)
    applications = {one.application for one in registrations} - {""}
    services = {(one.group, one.interface, one.version) for one in registrations if one.interface}
    keys = [*sorted(applications)]
    for group, interface, version in sorted(services):
        keys += [_service_name(group, interface, version).replace("/", "*"), f"{interface}:{version}:{group}"]
    return [f"{key}.configurators" for key in dict.fromkeys(keys)]


@functools.lru_cache(maxsize=1024)
def parse_rules(node: str, body: bytes) -> Rules:
    """Parses a node of the dynamic configuration. Hundreds of services may share that of their application.

    64 KiB of YAML take a second: not for the event loop.
    """
    if len(body) > LARGEST_RULE:
        return Rules((), (f"rule {node} is not applied: it is larger than {LARGEST_RULE >> 10} KiB",))
    try:
        content = document_text.read_document(body.decode())
        config = msgspec.convert({} if content is None else content, _ConfiguratorConfig, strict=False)
        return Rules(tuple(rule for item in config.configs or () for rule in _rules_of_item(item, config)))
    except (ValueError, document_text.TextError) as error:
        return Rules((), (f"rule {node} is not applied: {' '.join(str(error).split())}",))


def _rules_of_item(item: _ConfigItem, config: _ConfiguratorConfig) -> Iterator[Rule]:
    given = {key: "" if value is None else str(value).lower() for key, value in (item.parameters or {}).items()}
    parameters = _traffic_parameters(given)
    if not parameters or not (config.enabled if item.type in {None, "", "general"} else item.enabled):
        return
    if not config.key:
        raise ValueError("it has no key")
    if item.match:
        raise ValueError("its `match` is not supported; name the instances by `addresses`")
    if item.side != "provider":
        raise ValueError(f"its side is {item.side or 'missing'}, not provider")
    addresses = item.provider_addresses or item.addresses or [ANY_HOST]
    by_application = config.scope == "application"
    yield Rule(
        addresses=frozenset(found for address in addresses for found in _readings(address)),
        services=frozenset((item.services or ["*"]) if by_application else [config.key]),
        applications=frozenset([config.key] if by_application else item.applications or ()) - {"*"},
        parameters=parameters,
    )


def apply_rules(registrations: Iterable[Registration], rules: Iterable[Rule]) -> Iterator[Registration]:
    """Yields the instances with these rules applied; later rules win."""
    rules = tuple(rules)
    for registration in registrations:
        instance, by_url = registration.instance, bool(registration.protocol)
        registered = {key: value for key in _TRAFFIC_PARAMETERS if by_url and (value := instance.metadata.get(key))}
        query = registered
        for rule in rules:
            if rule.matches(registration):
                query = {**query, **rule.parameters}
        if query == registered:
            yield registration
            continue
        # Consumers ignore a provider that is registered with `enabled=false`, regardless of rules.
        allowed = registered.get("enabled", "").lower() != "false" if by_url else instance.enabled
        weight = parse_weight(query) if "weight" in query else instance.weight
        ruled = replace(instance, enabled=allowed and is_enabled(query), weight=weight)
        yield replace(registration, instance=ruled)


def _traffic_parameters(parameters: Mapping[str, str]) -> Mapping[str, str]:
    """The parameters that affect traffic."""
    affecting = {key: value for key in _TRAFFIC_PARAMETERS if (value := parameters.get(key))}
    if parse_weight(affecting) is None:
        raise ValueError(f"its weight {affecting['weight']} is not a number")
    return affecting


def _readings(address: str) -> Iterator[tuple[str, int | None]]:
    """An address of a rule as host and port, and, if it can be one, as an IPv6 address alone."""
    yield _canonical(address.strip("[]")), None
    host, port = host_and_port(address.removesuffix(":*"))
    yield _canonical(host), port


def _canonical(host: str) -> str:
    try:
        return str(ipaddress.ip_address(host))
    except ValueError:
        return host


def _service_name(group: str, interface: str, version: str) -> str:
    return f"{group}/" * bool(group) + interface + f":{version}" * bool(version)
