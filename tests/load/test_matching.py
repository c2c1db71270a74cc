"""Which registration is which pod's."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from adapter.load.pods import Container, Pod
from adapter.load.roster import Instance, Mismatch, Roster, canonical_ip, match_registrations, registrations
from adapter.load.spec import Registry
from tests.load.kit import NOW, REGISTRY, pod

Found = dict[str, tuple[Instance, ...]]


def found(*instances: Instance, pods: Sequence[Pod] | None = None, registry: Registry = REGISTRY) -> Found:
    """The registrations that find their pod, among one pod at 10.0.0.1 unless told otherwise."""
    pods = [pod("web-0", ip="10.0.0.1")] if pods is None else pods
    listed = registrations(pods, Roster(at=NOW, instances=instances), registry)
    return {uid: tuple(found) for uid, found in listed.items()}


class TestRegistrations:
    @pytest.mark.parametrize(
        ("written", "status"),
        [
            ("10.0.0.1", "10.0.0.1"),
            ("fd00::1", "fd00:0:0::0001"),
            ("[FD00::1]", "fd00::1"),
            ("fe80::1%eth0", "fe80::1"),
            ("[fe80::1%2]", "fe80::1"),
            ("::ffff:10.0.0.10", "10.0.0.10"),
        ],
    )
    def test_addresses_are_compared_in_canonical_form(self, written: str, status: str) -> None:
        assert found(Instance(ip=written), pods=[pod(ip=status)])

    def test_a_text_that_is_no_address_is_compared_as_it_is(self) -> None:
        assert canonical_ip("web-0.web.shop.svc") == "web-0.web.shop.svc"
        assert canonical_ip("010.0.0.1") == "010.0.0.1"
        assert found(Instance(ip="nonsense")) == {}
        assert found(Instance(ip="")) == {}

    @pytest.mark.parametrize("named", [{"pod_name": "web-0"}, {"pod_uid": "uid-web-0"}])
    def test_a_registration_that_names_its_pod_counts_only_at_its_address(self, named: dict[str, str]) -> None:
        """A pod of a StatefulSet keeps its name and gets another address; the old registration lives on."""
        old = Instance(ip="10.0.0.7", port=8080, enabled=False, **named)  # type: ignore[arg-type]
        assert found(old) == {}
        [match] = match_registrations([pod("web-0", ip="10.0.0.1")], Roster(at=NOW, instances=(old,)), REGISTRY)
        assert match.mismatch is Mismatch.OTHER_ADDRESS

    @pytest.mark.parametrize("ip", ["", "10.0.0.1", "192.168.0.1", "web-0.web.shop.svc"])
    def test_a_pods_address_is_its_own_its_nodes_or_none(self, ip: str) -> None:
        known = pod("web-0", ip="10.0.0.1", host_ip="192.168.0.1")
        assert found(Instance(ip=ip, pod_name="web-0"), pods=[known])

    def test_a_uid_beats_a_name_beats_an_address_though_no_pod_has_it(self) -> None:
        pods = [pod("a", ip="10.0.0.1"), pod("b", ip="10.0.0.2"), pod("c", ip="10.0.0.3")]
        by_uid = Instance(ip="10.0.0.3", pod_name="b", pod_uid="uid-c")
        assert found(by_uid, pods=pods) == {"uid-c": (by_uid,)}
        assert set(found(Instance(pod_name="b"), pods=pods)) == {"uid-b"}
        assert found(Instance(ip="10.0.0.1", pod_uid="uid-of-another-life")) == {}
        assert found(Instance(ip="10.0.0.1", pod_name="web-99")) == {}

    def test_a_shared_address_says_nothing_by_itself(self) -> None:
        pods = [pod("a", ip="192.168.0.1"), pod("b", ip="192.168.0.1")]
        assert found(Instance(ip="192.168.0.1"), pods=pods) == {}

    @pytest.mark.parametrize(
        ("port", "registry", "known"),
        [
            pytest.param(8080, REGISTRY, True, id="a port of its own"),
            pytest.param(9090, REGISTRY, False, id="another port"),
            pytest.param(None, REGISTRY, False, id="no port"),
            pytest.param(20880, replace(REGISTRY, port=20880), True, id="the policy's port need not be declared"),
            pytest.param(None, replace(REGISTRY, port=20880), False, id="the policy's port and none"),
            pytest.param(1, replace(REGISTRY, match="IP"), True, id="by address alone the node's only pod"),
        ],
    )
    def test_a_pod_on_the_hosts_network_is_known_by_its_port(
        self, port: int | None, registry: Registry, *, known: bool
    ) -> None:
        hosted = pod("a", ip="192.168.0.1", host_network=True, containers=(Container("app", ports=(8080,)),))
        assert bool(found(Instance(ip="192.168.0.1", port=port), pods=[hosted], registry=registry)) is known
        assert found(Instance(ip="192.168.0.1", pod_name="a"), pods=[hosted])

    def test_metadata_under_the_policys_key_names_the_pod_and_without_it_the_address_does(self) -> None:
        by_key = replace(REGISTRY, pod_name_key="k8s.pod")
        pods = [pod("a", ip="10.0.0.1"), pod("b", ip="10.0.0.2")]
        elsewhere = Instance(ip="web.example", metadata={"k8s.pod": "b"})
        assert found(elsewhere, pods=pods, registry=by_key) == {"uid-b": (elsewhere,)}
        assert found(elsewhere, pods=pods) == {}
        assert found(replace(elsewhere, metadata={"k8s.pod": "gone"}), pods=pods, registry=by_key) == {}
        assert set(found(Instance(ip="10.0.0.1"), pods=pods, registry=by_key)) == {"uid-a"}

    def test_a_namesake_in_another_namespace_is_another_pod(self) -> None:
        assert found(Instance(pod_name="web-0", pod_namespace="shop"))
        assert found(Instance(pod_name="web-0", pod_namespace="pay")) == {}
        assert found(Instance(ip="10.0.0.1", pod_namespace="pay")) == {}
        [match] = match_registrations(
            [pod()], Roster(at=NOW, instances=(Instance(pod_name="web-0", pod_namespace="pay"),)), REGISTRY
        )
        assert match.mismatch is Mismatch.NAMESPACE

    @pytest.mark.parametrize("changes", [{"phase": "Failed"}, {"phase": "Succeeded"}, {"deleting": True}])
    def test_an_address_reused_after_a_pod_ended_is_the_new_pods(self, changes: dict[str, object]) -> None:
        pods = [replace(pod("old", ip="10.0.0.1"), **changes), pod("new", ip="10.0.0.1")]  # type: ignore[arg-type]
        assert set(found(Instance(ip="10.0.0.1"), pods=pods)) == {"uid-new"}
