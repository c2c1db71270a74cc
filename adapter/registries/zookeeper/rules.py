"""Dubbo's rules that change providers without touching their registrations: `override://` nodes and YAML documents.

What Dubbo-admin's "disable", "half" and "double" write. Only what decides over traffic is looked at: `disabled`,
`enabled`, `weight`. A rule for some consumers only pulls no provider out. One that cannot be read with certainty is
not applied and told of, for a wrong guess would hide a pod that serves.
"""

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import msgspec

from adapter.registries.zookeeper.layouts import (
    DubboUrl,
    Registration,
    dubbo_url,
    is_enabled,
    version,
    weight,
    with_verdict,
)
from adapter.runtime import document_text
from adapter.runtime.decoding import decode

ANY_HOST = "0.0.0.0"  # noqa: S104 - Dubbo's word for every address, not one to listen on
SUFFIX = ".configurators"
LARGEST_RULE = 64 * 1024
"""Bytes of a YAML document."""
MOST_RULES = 1000
"""Of one document: each application that it names is paired with each service."""

_DECIDING = ("disabled", "enabled", "weight")


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """Parameters for the providers that all conditions hold for.

    `addresses` are `ip:port`, `ip`, or any host with or without a port; `service` is `group/interface:version` as
    Dubbo writes it, `*` for any; an empty `application` means any. `keeps` is true where the provider's own parameters
    win; `rank` orders the rules of one kind.
    """

    addresses: tuple[str, ...]
    service: str
    application: str
    parameters: Mapping[str, str]
    keeps: bool = False
    rank: tuple[str, int] = ("", 0)


class Rules(NamedTuple):
    """Rules in the order in which they count, and sentences about what could not be read."""

    rules: tuple[Rule, ...] = ()
    remarks: tuple[str, ...] = ()


class _NotClearError(ValueError):
    """Why a rule is not applied."""


class _Item(msgspec.Struct, rename="camel"):
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


class _Config(msgspec.Struct):
    """A YAML document. `key` is the application, or the service as `group/interface:version`."""

    key: str | None = None
    scope: str | None = None
    enabled: bool = True
    configs: list[_Item] | None = None


def overrides(nodes: Iterable[str]) -> Rules:
    """The rules of an interface's `configurators`, from the names of its nodes."""
    rules, remarks = [], []
    for node in nodes:
        try:
            rule = _override(dubbo_url(node))
        except ValueError as error:
            remarks.append(f"rule {node} is not applied: {error}")
            continue
        if rule is not None:
            rules.append(rule)
    # Dubbo's own order: by host, where any host comes first, then by priority; later ones win.
    return Rules(tuple(sorted(rules, key=lambda rule: rule.rank)), tuple(remarks))


def documents(node: str, body: bytes) -> Rules:
    """The rules of one node of Dubbo's dynamic configuration, for an application or for an interface."""
    try:
        return Rules(tuple(_document(body)))
    except (ValueError, document_text.TextError) as error:
        return Rules((), (f"rule {node} is not applied: {' '.join(str(error).split())}",))


def applied(found: Iterable[Registration], rules: Sequence[Rule]) -> Iterator[Registration]:
    """The registrations as these rules make them."""
    for one in found:
        yield _apply(one, rules) if rules else one


def subject(node: str) -> str:
    """The application or interface that a node of the dynamic configuration is named after.

    Dubbo names it `interface:version:group`, early Dubbo-admins `group*interface:version`.
    """
    return node.removesuffix(SUFFIX).partition(":")[0].rpartition("*")[2]


def _apply(one: Registration, rules: Sequence[Rule]) -> Registration:
    by_url = bool(one.protocol)
    own = {key: value for key in _DECIDING if by_url and (value := one.instance.metadata.get(key))}
    query = own
    for rule in rules:
        if _matches(rule, one):
            query = {**rule.parameters, **query} if rule.keeps else {**query, **rule.parameters}
    if query == own:
        return one
    # A provider registered as not enabled is not even seen by consumers, whatever rules say.
    allowed = own.get("enabled", "").lower() != "false" if by_url else one.instance.enabled
    return with_verdict(
        one,
        enabled=allowed and is_enabled(query),
        weight=weight(query) if "weight" in query else one.instance.weight,
    )


def _matches(rule: Rule, one: Registration) -> bool:
    if rule.application and rule.application != one.application:
        return False
    if rule.service != "*" and rule.service != _service_key(one.group, one.interface, one.version):
        return False
    ip, port = one.instance.ip, one.instance.port
    known = {ANY_HOST, f"{ANY_HOST}:*", f"{ANY_HOST}:{port}", ip, _address(ip, port)}
    return any(address in known for address in rule.addresses)


def _service_key(group: str, interface: str, number: str) -> str:
    return f"{group}/" * bool(group) + interface + f":{number}" * bool(number)


def _address(host: str, port: int | None) -> str:
    shown = f"[{host}]" if ":" in host else host
    return shown if port is None else f"{shown}:{port}"


def _override(url: DubboUrl) -> Rule | None:
    """The rule of an override node; None for one that pulls no provider out of all traffic."""
    query = url.query
    if query.get("enabled", "true").lower() == "false":
        return None
    parameters = _deciding({key: value for key, value in query.items() if key != "enabled"})
    if not parameters:
        return None
    if url.protocol not in {"override", "absent"}:
        raise _NotClearError(f"its protocol is {url.protocol}, not override or absent")
    if condition := next((key for key in query if key.startswith("~")), ""):
        raise _NotClearError(f"its condition {condition} is not known here")
    if query.get("application", "*") != "*":
        raise _NotClearError(f"it is about the application {query['application']} alone")
    if url.port is None and url.host != ANY_HOST:
        return None  # the address of one consumer
    return Rule(
        addresses=(_address(url.host, url.port),),
        service=_service_key(query.get("group", ""), url.interface, version(query)),
        application="",
        parameters=parameters,
        keeps=url.protocol == "absent",
        rank=(url.host, int(query.get("priority") or 0)),
    )


def _document(body: bytes) -> Iterator[Rule]:
    if len(body) > LARGEST_RULE:
        raise _NotClearError(f"it is larger than {LARGEST_RULE >> 10} KiB")
    text = body.decode()
    if text.lstrip().startswith("["):
        found = overrides(decode(body, list[str]))
        if found.remarks:
            raise _NotClearError("; ".join(found.remarks))
        yield from found.rules
        return
    content = document_text.read_document(text)  # not by a loader: a C one crashes on what is nested deep
    if content is None:
        return
    config = msgspec.convert(content, _Config, strict=False)
    rules = itertools.chain.from_iterable(_item(item, config) for item in config.configs or ())
    for number, rule in enumerate(rules):
        if number >= MOST_RULES:
            raise _NotClearError(f"it makes more than {MOST_RULES} rules; name fewer applications and services")
        yield rule


def _item(item: _Item, config: _Config) -> Iterator[Rule]:
    parameters = _deciding({key: _word(value) for key, value in (item.parameters or {}).items()})
    enabled = config.enabled if item.type in {None, "", "general"} else item.enabled
    if not parameters or not enabled:
        return
    if not config.key:
        raise _NotClearError("it has no key")
    by_application = config.scope == "application"
    _for_all_consumers(item, by_application=by_application)
    applications = [config.key] if by_application else item.applications or [""]
    services = item.services or ["*"] if by_application else [config.key]
    for application in applications:
        for service in services:
            yield Rule(
                addresses=_addresses(item),
                service=service,
                application="" if application == "*" else application,
                parameters=parameters,
            )


def _for_all_consumers(item: _Item, *, by_application: bool) -> None:
    """Raise where an entry is not about a provider for all of its consumers."""
    if item.match:
        raise _NotClearError("its `match` is not known here; name the instances by `addresses`")
    if item.side not in {"provider", "consumer"}:
        raise _NotClearError("it does not say whether its side is provider or consumer")
    if item.side == "provider":
        return
    consumers = {address.partition(":")[0] for address in item.addresses or [ANY_HOST]}
    if by_application or item.applications or ANY_HOST not in consumers:
        raise _NotClearError("it is about some consumers only")


def _addresses(item: _Item) -> tuple[str, ...]:
    """The providers that an entry is about."""
    named = item.provider_addresses or (item.addresses if item.side == "provider" else None)
    return tuple(named or (ANY_HOST,))


def _deciding(parameters: Mapping[str, str]) -> Mapping[str, str]:
    """Those parameters that decide over traffic."""
    found = {key: value for key in _DECIDING if (value := parameters.get(key))}
    if weight(found) is None:
        raise _NotClearError(f"its weight {found['weight']} is no number")
    return found


def _word(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else "" if value is None else str(value)
