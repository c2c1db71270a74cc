"""Allowed connections with the component network-policies: the example overlay, with a cluster's addresses."""

import copy
from pathlib import Path
from typing import Any

import pytest
import yaml

from adapter.settings import parse_settings
from tests.manifests.network import PLACEHOLDER, Peer, allows, network_faults
from tests.manifests.rendering import MANIFESTS, Object, documents, identity, render
from tools import checks

COMPONENT = MANIFESTS / "components" / "network-policies"
EXAMPLE = MANIFESTS / "examples" / "overlay"
BASICS = {"app.kubernetes.io/name": "effective-load", "app.kubernetes.io/part-of": "effective-load"}
SERVER, COMPANION = ({**BASICS, "app.kubernetes.io/component": one} for one in ("server", "companion"))
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


def test_the_component_alone_admits_no_client_to_the_metrics_api(tmp_path: Path) -> None:
    (tmp_path / "kustomization.yaml").write_text(yaml.safe_dump({"components": [str(COMPONENT)]}))
    closed = render(tmp_path)
    for peer in (API_SERVER, PROMETHEUS, TENANT, OUTSIDE):
        assert not allows(closed, SERVER, "ingress", peer, 6443)
        assert not allows(closed, SERVER, "egress", peer, 9090)
    assert {rule["cidr"] for item in closed for rule in blocks(item)} == {PLACEHOLDER}


def blocks(policy: Object) -> list[dict[str, Any]]:
    rules = (*policy["spec"].get("ingress", ()), *policy["spec"].get("egress", ()))
    peers = [peer for rule in rules for peer in (*rule.get("from", ()), *rule.get("to", ()))]
    return [peer["ipBlock"] for peer in peers if "ipBlock" in peer]


def test_a_server_of_the_settings_without_a_rule_is_reported() -> None:
    objects = {identity(item): copy.deepcopy(item) for item in render(EXAMPLE)}
    registry = """
registries:
- {name: a, type: Nacos, servers: ['http://nacos-0.nacos:8848/nacos']}
- {name: b, type: ZooKeeper, layout: Curator, servers: ['zk-0.zk.infra.svc.cluster.local:2181', 'zk.infra.svc:1']}
- {name: c, type: HTTP, url: 'https://platform.example.com/x'}
- {name: d, type: Consul, servers: ['http://10.9.8.7:8500']}
prometheus: {servers: [{name: main, url: 'http://prometheus.monitoring:9090'}]}
"""
    said = {one for one in network_faults(objects, parse_settings(registry)) if "lets effective-load reach" in one}
    named = [one.partition("reach ")[2].partition(",")[0] for one in sorted(said)]
    assert named == [
        "10.9.8.7:8500",
        "nacos-0.nacos:8848",
        "zk-0.zk.infra.svc.cluster.local:2181",
        "zk.infra.svc:1",
    ]


def test_placeholder_addresses_of_the_component_are_reported() -> None:
    objects = {identity(item): item for item in render(EXAMPLE)}
    objects |= {identity(item): item for item in documents(COMPONENT / "control-plane.yaml")}
    said = list(checks.wiring_faults(objects))
    assert [one.split()[1] for one in said] == ["effective-load-from-control-plane", "effective-load-to-control-plane"]
