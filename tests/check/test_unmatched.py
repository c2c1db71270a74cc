"""The reasons why a pod has no registration that counts, for `effective-load check`."""

from dataclasses import replace

import pytest

from adapter.commands.check.findings import address, why_unmatched
from adapter.load.matching import Mismatch, RegistrationMatch, match_registrations
from adapter.load.pods import Container, Pod
from adapter.load.roster import Instance, Roster
from adapter.load.spec import Registry
from tests.load.kit import NOW, REGISTRY, pod

WEB = pod("web-0", ip="10.0.0.1", host_ip="192.168.0.1")


def reason(*instances: Instance, of: Pod = WEB, beside: tuple[Pod, ...] = (), registry: Registry = REGISTRY) -> str:
    found = list(match_registrations([of, *beside], Roster(at=NOW, instances=instances), registry))
    return why_unmatched(of, found, registry)


@pytest.mark.parametrize(
    ("instance", "expected"),
    [
        (Instance(ip="10.0.0.9", port=8080), "no instance is registered at its address (10.0.0.1)"),
        (
            Instance(ip="10.0.0.1", port=8080, registered_at=NOW - 7200),
            "10.0.0.1:8080: it was made before the pod started: a leftover of another pod at this address",
        ),
        (Instance(ip="10.0.0.1", port=8080, pod_name="web-7"), "10.0.0.1:8080 is registered, but as pod web-7"),
        (
            Instance(ip="10.0.0.1", port=8080, pod_namespace="prod"),
            "10.0.0.1:8080 is registered, but as a pod of namespace prod",
        ),
        (Instance(ip="10.0.0.1", port=8080, pod_uid="uid-7"), "10.0.0.1:8080 is registered, but as pod uid-7"),
        (
            Instance(ip="10.0.0.9", metadata={"k8s.pod": "web-0"}),
            "10.0.0.9 carries its name under k8s.pod; write registry.podNameKey: k8s.pod",
        ),
    ],
)
def test_an_instance_that_misses_its_pod_is_the_reason(instance: Instance, expected: str) -> None:
    assert reason(instance) == expected


def test_an_instance_at_the_nodes_address_is_the_reason() -> None:
    assert reason(Instance(ip="192.168.0.1", port=30080)).startswith("192.168.0.1:30080 is registered at the address")


def test_a_port_that_the_policy_does_not_count_is_the_reason() -> None:
    found = reason(Instance(ip="10.0.0.1", port=20880), registry=replace(REGISTRY, port=8080))
    assert found == "10.0.0.1:20880 is registered, but the policy counts port 8080 only (registry.port)"


def test_a_host_network_pod_without_the_declared_port_is_named() -> None:
    host = replace(WEB, host_network=True)
    assert "it is on the host network and declares no such port" in reason(Instance(ip="10.0.0.1", port=8080), of=host)


def test_pods_that_share_address_and_port_are_ambiguous() -> None:
    container = Container("app", ports=(8080,))
    one, other = (replace(WEB, name=name, uid=name, containers=(container,)) for name in ("web-0", "web-1"))
    found = reason(Instance(ip="10.0.0.1", port=8080), of=one, beside=(other,))
    assert "several pods have that address and port" in found


def test_a_pod_that_is_not_ready_need_not_be_registered_yet() -> None:
    assert reason(of=pod("web-0", ip="10.0.0.1", ready=False)).startswith("it is not Ready")


def test_a_pod_without_an_address_says_so() -> None:
    assert reason(of=pod("web-0")) == "it has no address yet"


@pytest.mark.parametrize("miss", Mismatch)
def test_every_mismatch_is_named_for_a_pod_at_that_address(miss: Mismatch) -> None:
    matched = WEB if miss in {Mismatch.OLDER, Mismatch.REPLACED} else None
    match = RegistrationMatch(Instance(ip="10.0.0.1", port=8080, pod_name="web-7"), matched, miss)
    told = why_unmatched(WEB, [match], REGISTRY)
    assert told.startswith("10.0.0.1:8080") or miss is Mismatch.ADDRESS


def test_a_claim_says_why_it_counts_for_no_pod() -> None:
    [match] = match_registrations([WEB], Roster(at=NOW, instances=(Instance(ip="10.0.0.9"),)), REGISTRY)
    assert (match.pod, match.mismatch) == (None, Mismatch.ADDRESS)


def test_addresses_are_written_as_people_write_them() -> None:
    assert address(Instance(ip="FD00::1", port=80)) == "[fd00::1]:80"
    assert address(Instance(ip="10.0.0.1")) == "10.0.0.1"
