"""Allowed connections with the component network-policies: the example overlay, with a cluster's addresses.

Evaluates NetworkPolicies by Kubernetes' rules: a pod selected by a policy is isolated in that direction, and each
policy allows what it lists. In a cluster, the network plugin enforces them.
"""

import ipaddress
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import pytest

from tests.manifests.rendering import MANIFESTS, Object, render, render_with

HOME, PLACEHOLDER = "effective-load", "192.0.2.0/24"
NAMESPACE_LABEL = "kubernetes.io/metadata.name"
_PEER: dict[str, Literal["from", "to"]] = {"ingress": "from", "egress": "to"}
EXAMPLE = MANIFESTS / "examples" / "overlay"
BASICS = {"app.kubernetes.io/name": "effective-load", "app.kubernetes.io/part-of": "effective-load"}
SERVER, COMPANION = ({**BASICS, "app.kubernetes.io/component": one} for one in ("server", "companion"))


@dataclass(frozen=True)
class Peer:
    """The other end of a connection: a pod of a namespace, or an address outside of the pod network."""

    namespace: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    address: str = ""


def allows(
    policies: Iterable[Object],
    pod: Mapping[str, str],
    way: Literal["ingress", "egress"],
    peer: Peer,
    port: int,
    *,
    protocol: str = "TCP",
) -> bool:
    """Whether a pod of ours with these labels may accept connections from the peer, or open them to it."""
    specs = [one["spec"] for one in policies if one["metadata"]["namespace"] == HOME]
    about = [one for one in specs if way.title() in one["policyTypes"] and _selects(one["podSelector"], pod)]
    return not about or any(_opens(rule, way, peer, port, protocol) for one in about for rule in one.get(way, ()))


def _opens(rule: Object, way: str, peer: Peer, port: int, protocol: str) -> bool:
    ports, peers = rule.get("ports"), rule.get(_PEER[way])
    to_port = not ports or (port, protocol) in {(one["port"], one.get("protocol", "TCP")) for one in ports}
    return to_port and (not peers or any(_is_meant(one, peer) for one in peers))


def _is_meant(meant: Object, peer: Peer) -> bool:
    if "ipBlock" in meant:
        block = meant["ipBlock"]
        return bool(peer.address) and _within(peer.address, block["cidr"], block.get("except", ()))
    if not peer.namespace:
        return False
    spaces = meant.get("namespaceSelector")
    in_space = _selects(spaces, {NAMESPACE_LABEL: peer.namespace}) if spaces is not None else peer.namespace == HOME
    return in_space and _selects(meant.get("podSelector", {}), peer.labels)


def _within(address: str, cidr: str, but: Iterable[str]) -> bool:
    at = ipaddress.ip_address(address)
    return at in ipaddress.ip_network(cidr) and not any(at in ipaddress.ip_network(one) for one in but)


def _selects(selector: Object, labels: Mapping[str, str]) -> bool:
    if unknown := selector.keys() - {"matchLabels"}:
        raise NotImplementedError(f"a selector uses {sorted(unknown)}")
    return dict(selector.get("matchLabels", {})).items() <= labels.items()


API_SERVER = Peer(address="10.0.0.3")
PROMETHEUS = Peer("monitoring", {"app": "prometheus"})
TENANT = Peer("shop", {"app": "web"})
NEIGHBOUR = Peer("effective-load", {"app": "else"})
OUTSIDE = Peer(address="203.0.113.9")
DNS = Peer("kube-system", {"k8s-app": "kube-dns"})


@pytest.fixture(scope="module")
def policies() -> list[Object]:
    return [item for item in render(EXAMPLE) if item["kind"] == "NetworkPolicy"]


def test_the_pods_of_both_deployments_have_the_labels_that_are_selected() -> None:
    found = [item for item in render(EXAMPLE) if item["kind"] == "Deployment"]
    assert [item["spec"]["template"]["metadata"]["labels"] for item in found] == [SERVER, COMPANION]


PORTS = (22, 53, 80, 443, 6443, 8080, 8500, 9090, 10250)


@pytest.mark.parametrize(
    ("pod", "peer", "accepted", "opened"),
    [
        (SERVER, API_SERVER, {6443, 8080}, {443, 6443}),
        (SERVER, Peer(address="10.96.0.1"), set(), {443, 6443}),
        (SERVER, PROMETHEUS, {8080}, {9090}),
        (SERVER, TENANT, set(), set()),
        (SERVER, NEIGHBOUR, set(), set()),
        (SERVER, OUTSIDE, set(), set()),
        (SERVER, Peer("kube-system", {"component": "kube-apiserver"}), set(), set()),
        (SERVER, Peer(address="169.254.169.254"), set(), set()),
        (SERVER, DNS, set(), {53}),
        (COMPANION, API_SERVER, set(), {443, 6443}),
        (COMPANION, PROMETHEUS, {8080}, {9090}),
        (COMPANION, OUTSIDE, set(), {443}),
        (COMPANION, TENANT, set(), set()),
        (COMPANION, Peer(address="10.2.3.4"), set(), set()),
        (COMPANION, Peer(address="169.254.169.254"), set(), set()),
        (COMPANION, DNS, set(), {53}),
    ],
    ids=str,
)
def test_only_the_control_plane_comes_in_and_pods_reach_the_servers_of_the_settings_and_nothing_else(
    policies: list[Object], pod: dict[str, str], peer: Peer, accepted: set[int], opened: set[int]
) -> None:
    assert {port for port in PORTS if allows(policies, pod, "ingress", peer, port)} == accepted
    assert {port for port in PORTS if allows(policies, pod, "egress", peer, port)} == opened


def test_dns_is_allowed_over_udp_and_tcp(policies: list[Object]) -> None:
    assert all(allows(policies, SERVER, "egress", DNS, 53, protocol=one) for one in ("UDP", "TCP"))
    assert not allows(policies, SERVER, "egress", TENANT, 53, protocol="UDP")


def test_the_component_alone_admits_no_client_to_the_metrics_api() -> None:
    closed = [one for one in render_with(MANIFESTS / "base", ["network-policies"]) if one["kind"] == "NetworkPolicy"]
    for peer in (API_SERVER, PROMETHEUS, TENANT, OUTSIDE):
        assert not allows(closed, SERVER, "ingress", peer, 6443)
        assert not allows(closed, SERVER, "egress", peer, 9090)
    assert {rule["cidr"] for item in closed for rule in blocks(item)} == {PLACEHOLDER}


def blocks(policy: Object) -> list[dict[str, Any]]:
    rules = (*policy["spec"].get("ingress", ()), *policy["spec"].get("egress", ()))
    peers = [peer for rule in rules for peer in (*rule.get("from", ()), *rule.get("to", ()))]
    return [peer["ipBlock"] for peer in peers if "ipBlock" in peer]
