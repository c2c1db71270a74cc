"""What the types of the settings cannot say: rules that span keys, and what to do about a fault. Works on the raw file,
so that these faults are listed beside all others.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from pydantic_core import ErrorDetails

from adapter.runtime.faults import Fault, closest
from adapter.settings.notification_rules import label_faults, route_faults
from adapter.settings.registry_rules import header_faults, registry_faults, url_faults

OWN_NAMES = ("desired_replicas", "pulled_out_pods")
OWN_PREFIXES = ("effective_", "raw_")
"""Names the adapter serves itself; a named query may not be called so."""

TAG_FAULTS = ("union_tag_not_found", "union_tag_invalid")
_WRITE_TYPE = "write one of Nacos, Eureka, Consul, ZooKeeper, Polaris, HTTP"
_MAPPING = "write a mapping of keys"
_ADVICE = {
    "missing": "is missing and has no default; write one",
    "model_type": _MAPPING,
    "model_attributes_type": _MAPPING,
    "string_too_short": "may not be empty",
    "too_short": "may not be empty",
    "union_tag_not_found": f"has no type; {_WRITE_TYPE}",
}
_METRIC_NAME = re.compile(r"[A-Za-z_]([A-Za-z0-9_.:-]*[A-Za-z0-9_])?", re.ASCII)
_VARIABLE = re.compile(r"\$(?:([A-Za-z_]\w*)|\{([A-Za-z_]\w*)\})", re.ASCII)
_VARIABLES = {"$namespace", "$workload"}
_LONGEST_NAME = 128


def spanning_faults(document: Mapping[str, Any]) -> Iterator[Fault]:
    """The faults of the raw document that no single key shows. Wrongly typed parts are left to the types."""
    yield from _tls_faults(_section(document, "server", "tls"))
    yield from _age_faults("resourceMetrics", _section(document, "resourceMetrics"), 90, 10)
    prometheus = _section(document, "prometheus")
    servers, queries = _items(prometheus, "servers"), _items(prometheus, "queries")
    yield from _repeated("prometheus.servers", servers)
    yield from _repeated("prometheus.queries", queries)
    for index, server in servers:
        yield from _server_faults(f"prometheus.servers[{index}]", server)
    for index, query in queries:
        yield from _query_faults(f"prometheus.queries[{index}]", query, [s.get("name") for _, s in servers])
    yield from _total_faults(document)

    label = _section(document, "companion", "production").get("label")
    yield from label_faults("companion.production.label", label)
    routes = _items(_section(document, "companion", "notifications"), "routes")
    yield from _repeated("companion.notifications.routes", routes)
    for index, route in routes:
        yield from route_faults(f"companion.notifications.routes[{index}]", route)
    for index, registry in _items(document, "registries"):
        yield from registry_faults(f"registries[{index}]", registry)
    yield from _repeated("registries", _items(document, "registries"))


def advice(detail: ErrorDetails, known: Sequence[str]) -> str:
    """What to do about a fault that the types found. `known` are the keys of the section it stands in."""
    match detail["type"]:
        case "extra_forbidden":
            return f"there is no such key{closest(str(detail['loc'][-1]), known)}; there are {', '.join(known)}"
        case "union_tag_invalid":
            return f"has a type that is not known ({detail['ctx']['tag']}); {_WRITE_TYPE}"
        case found if found in _ADVICE:
            return _ADVICE[found]
        case _:
            return detail["msg"].replace("Input should be", "must be")


def _tls_faults(tls: Mapping[str, Any]) -> Iterator[Fault]:
    for key in ("certFile", "keyFile"):
        if tls.get("mode") == "Files" and not tls.get(key):
            yield Fault(f"server.tls.{key}", None, "mode Files needs both certFile and keyFile; name the file")
        if tls.get("mode", "SelfSigned") == "SelfSigned" and tls.get(key):
            yield Fault(f"server.tls.{key}", tls[key], "is read with mode: Files only; set the mode, or leave it away")


def _age_faults(path: str, section: Mapping[str, Any], default_age: float, default_interval: float) -> Iterator[Fault]:
    age = section.get("maxAgeSeconds", default_age)
    interval = section.get("intervalSeconds", default_interval)
    if _is_number(age) and _is_number(interval) and age <= interval:
        yield Fault(
            f"{path}.maxAgeSeconds", age, f"must be more than intervalSeconds ({interval}), or samples expire unseen"
        )


def _server_faults(path: str, server: Mapping[str, Any]) -> Iterator[Fault]:
    if server.get("basicAuth") and server.get("bearerTokenFile"):
        yield Fault(path, server.get("name"), "has both basicAuth and bearerTokenFile; keep one")
    if server.get("insecureSkipVerify") is True and server.get("caFile"):
        yield Fault(f"{path}.insecureSkipVerify", True, "makes caFile meaningless; keep one")
    authorized = bool(server.get("basicAuth") or server.get("bearerTokenFile"))
    yield from header_faults(path, server, authorized=authorized)
    if isinstance(server.get("url"), str):
        yield from url_faults(f"{path}.url", server["url"])


def _total_faults(document: Mapping[str, Any]) -> Iterator[Fault]:
    """Limits of one answer that are more than all answers may have together."""
    total = _section(document, "answers").get("maxTotalMiB", 128)
    registries = [
        (f"registries[{index}]", one, 64 if one.get("type") == "Eureka" else 32)
        for index, one in _items(document, "registries")
        if one.get("type") != "ZooKeeper"
    ]
    servers = _items(_section(document, "prometheus"), "servers")
    limits = [("resourceMetrics", _section(document, "resourceMetrics"), 32), *registries]
    limits += [(f"prometheus.servers[{index}]", one, 32) for index, one in servers]
    for path, section, default in limits:
        limit = section.get("maxAnswerMiB", default)
        if _is_number(limit) and _is_number(total) and limit > total:
            yield Fault(f"{path}.maxAnswerMiB", limit, f"must not be more than answers.maxTotalMiB ({total})")


def _query_faults(path: str, query: Mapping[str, Any], servers: Sequence[Any]) -> Iterator[Fault]:
    server = query.get("server")
    if isinstance(server, str) and server not in servers:
        known = ", ".join(str(name) for name in servers) or "none yet"
        yield Fault(f"{path}.server", server, f"is not among prometheus.servers ({known}); name one of them")
    if isinstance(query.get("name"), str):
        yield from _name_faults(f"{path}.name", query["name"])
    if isinstance(query.get("query"), str):
        yield from _variable_faults(f"{path}.query", query["query"])
    yield from _age_faults(path, query, 90, 15)


def _name_faults(path: str, name: str) -> Iterator[Fault]:
    if not _METRIC_NAME.fullmatch(name) or len(name) > _LONGEST_NAME:
        yield Fault(path, name, "write letters, digits, _, -, . or :, beginning with a letter, at most 128 characters")
    if name in OWN_NAMES or name.startswith(OWN_PREFIXES):
        reserved = ", ".join((*OWN_NAMES, *(f"{prefix}*" for prefix in OWN_PREFIXES)))
        yield Fault(path, name, f"is a name the adapter serves itself ({reserved}); choose another")


def _variable_faults(path: str, query: str) -> Iterator[Fault]:
    for match in _VARIABLE.finditer(query):
        if match[0] not in _VARIABLES:
            yield Fault(path, match[0], "is no variable; write $namespace or $workload")


def _repeated(path: str, items: Iterable[tuple[int, Mapping[str, Any]]]) -> Iterator[Fault]:
    seen: set[str] = set()
    for index, item in items:
        name = item.get("name")
        if isinstance(name, str) and name in seen:
            yield Fault(f"{path}[{index}].name", name, "is taken by an earlier entry; names are unique")
        seen.add(str(name))


def _section(document: Mapping[str, Any], *keys: str) -> Mapping[str, Any]:
    for key in keys:
        inner = document.get(key)
        document = inner if isinstance(inner, dict) else {}
    return document


def _items(section: Mapping[str, Any], key: str) -> list[tuple[int, Mapping[str, Any]]]:
    found = section.get(key)
    return [(i, item) for i, item in enumerate(found) if isinstance(item, dict)] if isinstance(found, list) else []


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
