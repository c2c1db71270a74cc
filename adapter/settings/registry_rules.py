"""Rules that span the keys of one service registry, and those of addresses. Works on the raw file."""

import re
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import urlsplit

from adapter.runtime.faults import Fault

_HOST_PORT = re.compile(r"(\[[0-9a-fA-F:.]+\]|[^\s:/@\[\]]+):([1-9][0-9]{0,4})", re.ASCII)
_TOKEN = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+", re.ASCII)
_FRAMING = {"host", "content-length", "transfer-encoding", "connection", "content-type", "accept", "accept-encoding"}
_PAIRS = (("username", "passwordFile"), ("accessKeyFile", "secretKeyFile"))
_RIVALS = (("username", "accessKeyFile"), ("username", "bearerTokenFile"))


def registry_faults(path: str, registry: Mapping[str, Any]) -> Iterator[Fault]:
    """What the types cannot say of one registry."""
    if registry.get("name") == "kubernetes":
        yield Fault(f"{path}.name", "kubernetes", "is what Kubernetes' own facts are called; choose another")
    for one, other in _PAIRS:
        for given, lacking in ((one, other), (other, one)):
            if registry.get(given) and not registry.get(lacking):
                yield Fault(f"{path}.{lacking}", None, f"is missing beside {given}; write both or neither")
    for one, other in _RIVALS:
        if registry.get(one) and registry.get(other):
            yield Fault(path, registry.get("name"), f"has both {one} and {other}; keep one")
    yield from header_faults(
        path, registry, authorized=bool(registry.get("username") or registry.get("bearerTokenFile"))
    )
    yield from _address_faults(path, registry)
    yield from _tls_faults(f"{path}.tls", registry.get("tls"))


def _address_faults(path: str, registry: Mapping[str, Any]) -> Iterator[Fault]:
    servers = registry.get("servers")
    for index, server in enumerate(servers if isinstance(servers, list) else ()):
        place = f"{path}.servers[{index}]"
        if not isinstance(server, str):
            continue
        if registry.get("type") != "ZooKeeper":
            yield from url_faults(place, server)
        elif not _HOST_PORT.fullmatch(server):
            yield Fault(place, server, "write host:port, an IPv6 address in brackets")
    if registry.get("type") == "HTTP":
        if isinstance(registry.get("url"), str) and registry["url"]:
            yield from url_faults(f"{path}.url", registry["url"])
        elif registry.get("push") is not True:
            yield Fault(f"{path}.url", None, "is missing; write the address to ask, or push: true")


def _tls_faults(path: str, tls: object) -> Iterator[Fault]:
    if not isinstance(tls, dict):
        return
    if tls.get("insecureSkipVerify") is True and tls.get("caFile"):
        yield Fault(f"{path}.insecureSkipVerify", True, "makes caFile meaningless; keep one")
    if tls.get("keyFile") and not tls.get("certFile"):
        yield Fault(f"{path}.certFile", None, "is missing beside keyFile; write both, or certFile alone")


def header_faults(path: str, section: Mapping[str, Any], *, authorized: bool) -> Iterator[Fault]:
    """What is wrong with `headers` and `headerFiles`. `authorized`: other keys set the header Authorization."""
    seen: set[str] = {"authorization"} if authorized else set()
    for key in ("headers", "headerFiles"):
        headers = section.get(key)
        for name, value in headers.items() if isinstance(headers, dict) else ():
            place = f"{path}.{key}[{name}]"
            if not isinstance(name, str) or not _TOKEN.fullmatch(name):
                yield Fault(place, None, "is no name of a header; write letters, digits and any of !#$%&'*+-.^_`|~")
            elif name.lower() in _FRAMING:
                yield Fault(place, None, "is set by the adapter itself; leave it away")
            elif name.lower() in seen:
                yield Fault(place, None, "is set by another key as well; keep one of them")
            elif isinstance(value, str) and not (value and value.isprintable()):
                wanted = "the path of a file" if key == "headerFiles" else "one line of printable characters"
                yield Fault(place, None, f"has no value that can be used; write {wanted}")
            seen.add(str(name).lower())


def url_faults(path: str, url: str) -> Iterator[Fault]:
    """What is wrong with the base address of an HTTP server."""
    try:
        parts = urlsplit(url)
        host = parts.hostname if parts.port is None or parts.port > 0 else None
    except ValueError:
        parts, host = urlsplit(""), None
    if parts.scheme not in {"http", "https"} or not host:
        # One with a user in it is not shown either.
        shown = None if "@" in url else url
        yield Fault(path, shown, "write http:// or https://, a host, and the port where it is not the usual one")
    elif parts.username is not None:
        # The value is not shown: it holds a password.
        yield Fault(path, None, "carries a user; write it as a key of its own, with the password in a file")
    elif parts.query or parts.fragment:
        yield Fault(
            path,
            parts._replace(query="", fragment="").geturl(),
            "ends in a query or fragment; write the address that the API's paths follow",
        )
