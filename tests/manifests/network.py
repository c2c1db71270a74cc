"""Evaluates NetworkPolicies by Kubernetes' rules: a pod selected by a policy is isolated in that direction, and each
policy allows what it lists. Also lists the servers of the settings.

Tests and checks use it on rendered manifests; in a cluster, the network plugin enforces the policies.
"""

import ipaddress
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal
from urllib.parse import urlsplit

from adapter.settings import Settings
from adapter.settings.registries import HttpRegistry, Registry
from tests.manifests.rendering import Object

PLACEHOLDER = "192.0.2.0/24"
NAMESPACE_LABEL = "kubernetes.io/metadata.name"
_PORTS = {"http": 80, "https": 443}
_PEER: dict[str, Literal["from", "to"]] = {"ingress": "from", "egress": "to"}


@dataclass(frozen=True)
class Peer:
    """The other end of a connection: a pod of a namespace, or an address outside of the pod network.

    `labels` None: any pod of the namespace, which matches every selector.
    """

    namespace: str = ""
    labels: Mapping[str, str] | None = field(default_factory=dict)
    address: str = ""


def allows(
    policies: Iterable[Object],
    pod: Mapping[str, str],
    way: Literal["ingress", "egress"],
    peer: Peer,
    port: int,
    *,
    protocol: str = "TCP",
    home: str = "effective-load",
) -> bool:
    """Whether a pod with these labels in namespace `home` may accept connections from the peer, or open them to it."""
    specs = [one["spec"] for one in policies if one["metadata"]["namespace"] == home]
    about = [one for one in specs if way.title() in one["policyTypes"] and _selects(one["podSelector"], pod)]
    return not about or any(_opens(rule, way, peer, port, protocol, home) for one in about for rule in one.get(way, ()))


def _opens(rule: Object, way: str, peer: Peer, port: int, protocol: str, home: str) -> bool:
    ports, peers = rule.get("ports"), rule.get(_PEER[way])
    to_port = not ports or (port, protocol) in {(one["port"], one.get("protocol", "TCP")) for one in ports}
    return to_port and (not peers or any(_is_meant(one, peer, home) for one in peers))


def _is_meant(meant: Object, peer: Peer, home: str) -> bool:
    if "ipBlock" in meant:
        block = meant["ipBlock"]
        return bool(peer.address) and _within(peer.address, block["cidr"], block.get("except", ()))
    if not peer.namespace:
        return False
    spaces = meant.get("namespaceSelector")
    in_space = _selects(spaces, {NAMESPACE_LABEL: peer.namespace}) if spaces is not None else peer.namespace == home
    return in_space and (peer.labels is None or _selects(meant.get("podSelector", {}), peer.labels))


def _within(address: str, cidr: str, but: Iterable[str]) -> bool:
    at = ipaddress.ip_address(address)
    return at in ipaddress.ip_network(cidr) and not any(at in ipaddress.ip_network(one) for one in but)


def _selects(selector: Object, labels: Mapping[str, str]) -> bool:
    if unknown := selector.keys() - {"matchLabels"}:
        raise NotImplementedError(f"a selector uses {sorted(unknown)}")
    return dict(selector.get("matchLabels", {})).items() <= labels.items()


def places(settings: Settings) -> Iterator[tuple[str, int]]:
    """Host and port of every server in the settings of server and companion."""
    for server in settings.prometheus.servers:
        yield _place(server.url)
    for registry in settings.registries:
        yield from _places_of(registry)


def _places_of(registry: Registry) -> Iterator[tuple[str, int]]:
    if isinstance(registry, HttpRegistry):
        if registry.url:
            yield _place(registry.url)
        return
    for server in registry.servers:
        yield _place(server)


def _place(url: str) -> tuple[str, int]:
    split = urlsplit(url if "://" in url else f"tcp://{url}")
    assert split.hostname, url
    return split.hostname, split.port or _PORTS[split.scheme]


def network_faults(found: Mapping[Any, Object], settings: Settings) -> Iterator[str]:
    """Faults of a rendering's NetworkPolicies: placeholders, and servers of the settings that no policy allows."""
    policies = [item for item in found.values() if item["kind"] == "NetworkPolicy"]
    for policy in policies:
        if PLACEHOLDER in str(policy["spec"]):
            yield f"NetworkPolicy {policy['metadata']['name']} still has {PLACEHOLDER} instead of an address"
    for item in found.values():
        if policies and item["kind"] == "Deployment":
            labels = item["spec"]["template"]["metadata"]["labels"]
            name = item["metadata"]["name"]
            for host, port in places(settings):
                if not _reaches(policies, labels, host, port):
                    yield f"no NetworkPolicy lets {name} reach {host}:{port}, which the settings name"


def _reaches(policies: list[Object], labels: Mapping[str, str], host: str, port: int) -> bool:
    try:
        peer = Peer(address=str(ipaddress.ip_address(host)))
    except ValueError:
        if not (namespace := _namespace(host)):
            return True  # a name outside of the cluster: its address is unknown here
        peer = Peer(namespace=namespace, labels=None)
    return allows(policies, labels, "egress", peer, port)


def _namespace(host: str) -> str:
    """The namespace in a Service's name (`name.namespace` or `….name.namespace.svc…`), else empty."""
    parts = host.split(".")
    if "svc" in parts[2:]:
        return parts[parts.index("svc", 2) - 1]
    return parts[1] if len(parts) == 2 else ""
