"""Which pods are the target's, and which registration is which pod's."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from adapter.load.matching import Mismatch, canonical_ip, match_registrations, owned_by, registrations
from adapter.load.pods import Container, Owner, Pod
from adapter.load.roster import Instance, Roster
from adapter.load.spec import Match, Registry, Target
from tests.load.kit import NOW, REGISTRY, TARGET, pod


def target(kind: str, name: str = "web", uid: str = "target", api_version: str = "apps/v1") -> Target:
    return Target(api_version=api_version, kind=kind, name=name, uid=uid)


Found = dict[str, tuple[Instance, ...]]


def found(*instances: Instance, pods: Sequence[Pod] | None = None, registry: Registry = REGISTRY) -> Found:
    """The registrations that find their pod, among one pod at 10.0.0.1 unless told otherwise."""
    pods = [pod("web-0", ip="10.0.0.1")] if pods is None else pods
    return dict(registrations(pods, Roster(at=NOW, instances=instances), registry))


class TestOwners:
    def test_a_deployment_owns_through_the_replica_set_of_the_pods_own_template(self) -> None:
        assert owned_by(pod(owner=Owner("ReplicaSet", "web-abc"), template_hash="abc"), TARGET)

    def test_an_argo_rollout_owns_the_same_way(self) -> None:
        rollout = target("Rollout", api_version="argoproj.io/v1alpha1")
        assert owned_by(pod(owner=Owner("ReplicaSet", "web-abc"), template_hash="abc"), rollout)

    @pytest.mark.parametrize(
        ("owner", "template_hash"),
        [
            (Owner("ReplicaSet", "web-canary-abc"), "abc"),  # deployment web-canary, same labels
            (Owner("ReplicaSet", "web-abc"), "xyz"),
            (Owner("ReplicaSet", "web-abc"), ""),
            (Owner("ReplicaSet", "other-abc"), "abc"),
            (Owner("StatefulSet", "web"), ""),
            (Owner("Job", "web-abc"), "abc"),
            (None, "abc"),
        ],
    )
    def test_a_deployment_owns_no_pod_of_another_controller(self, owner: Owner | None, template_hash: str) -> None:
        assert not owned_by(pod(owner=owner, template_hash=template_hash), TARGET)

    @pytest.mark.parametrize("kind", ["StatefulSet", "ReplicaSet", "ReplicationController"])
    def test_a_controller_of_pods_owns_by_being_their_controller(self, kind: str) -> None:
        assert owned_by(pod(owner=Owner(kind, "web", "target")), target(kind))
        assert not owned_by(pod(owner=Owner(kind, "other", "target")), target(kind))
        assert not owned_by(pod(owner=None), target(kind))

    def test_a_stateful_set_owns_no_pod_of_a_replica_set_that_looks_like_its_own(self) -> None:
        assert not owned_by(pod(owner=Owner("ReplicaSet", "web-abc"), template_hash="abc"), target("StatefulSet"))

    def test_a_namesake_of_another_life_owns_nothing(self) -> None:
        assert not owned_by(pod(owner=Owner("StatefulSet", "web", "earlier")), target("StatefulSet"))
        assert owned_by(pod(owner=Owner("StatefulSet", "web", "earlier")), target("StatefulSet", uid=""))

    def test_pods_of_an_unknown_kind_are_taken_by_selector_alone(self) -> None:
        custom = target("Worker", api_version="example.com/v1")
        assert owned_by(pod(owner=None), custom)
        assert owned_by(pod(owner=Owner("WorkerSet", "web-1")), custom)

    def test_an_unknown_kind_may_own_through_a_deployment_of_another_name(self) -> None:
        custom = target("Worker", api_version="example.com/v1")
        assert owned_by(pod(owner=Owner("ReplicaSet", "web-main-abc"), template_hash="abc"), custom)


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

    def test_any_address_of_a_pod_will_do(self) -> None:
        dual = pod(ips=("10.0.0.1", "fd00::1"))
        assert found(Instance(ip="fd00::1"), pods=[dual])
        assert found(Instance(ip="10.0.0.1"), pods=[dual])

    def test_a_text_that_is_no_address_is_compared_as_it_is(self) -> None:
        assert canonical_ip("web-0.web.shop.svc") == "web-0.web.shop.svc"
        assert canonical_ip("010.0.0.1") == "010.0.0.1"
        assert found(Instance(ip="nonsense")) == {}
        assert found(Instance(ip="")) == {}

    def test_a_pod_without_a_registration_is_not_in_the_answer(self) -> None:
        assert set(found(Instance(ip="10.0.0.2"), pods=[pod("a", ip="10.0.0.1"), pod("b", ip="10.0.0.2")])) == {"uid-b"}

    def test_several_registrations_of_one_pod_are_all_kept(self) -> None:
        http, grpc = Instance(ip="10.0.0.1", port=8080), Instance(ip="10.0.0.1", port=9090, enabled=False)
        assert found(http, grpc) == {"uid-web-0": (http, grpc)}

    def test_a_named_port_leaves_the_other_ports_out(self) -> None:
        http, grpc, any_port = (Instance(ip="10.0.0.1", port=port) for port in (8080, 9090, None))
        assert found(http, grpc, any_port, registry=replace(REGISTRY, port=8080)) == {"uid-web-0": (http, any_port)}

    @pytest.mark.parametrize("named", [{"pod_name": "web-0"}, {"pod_uid": "uid-web-0"}])
    def test_a_named_port_filters_the_registrations_that_name_their_pod_as_well(self, named: dict[str, str]) -> None:
        http, grpc = Instance(ip="10.0.0.1", port=8080, **named), Instance(ip="10.0.0.1", port=9090, **named)  # type: ignore[arg-type]
        assert found(http, grpc, registry=replace(REGISTRY, port=9090)) == {"uid-web-0": (grpc,)}

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

    def test_a_registration_of_the_process_before_a_restart_gives_way_to_a_newer_one_at_any_port(self) -> None:
        """A container restarted in place, with another port: Eureka keeps the old instance UP."""
        restarted = pod("web-0", ip="10.0.0.1", restarted_at=NOW - 60)
        old = Instance(ip="10.0.0.1", port=8080, registered_at=NOW - 3000)
        new = Instance(ip="10.0.0.1", port=8081, status="OUT_OF_SERVICE", registered_at=NOW - 50)
        assert found(old, new, pods=[restarted]) == {"uid-web-0": (new,)}
        assert found(old, pods=[restarted]) == {"uid-web-0": (old,)}
        assert found(old, new) == {"uid-web-0": (old, new)}
        first, _ = match_registrations([restarted], Roster(at=NOW, instances=(old, new)), REGISTRY)
        assert first.mismatch is Mismatch.REPLACED

    def test_a_uid_beats_a_name_beats_an_address(self) -> None:
        pods = [pod("a", ip="10.0.0.1"), pod("b", ip="10.0.0.2"), pod("c", ip="10.0.0.3")]
        by_uid = Instance(ip="10.0.0.3", pod_name="b", pod_uid="uid-c")
        by_name = Instance(pod_name="b")
        assert found(by_uid, pods=pods) == {"uid-c": (by_uid,)}
        assert found(by_name, pods=pods) == {"uid-b": (by_name,)}

    def test_a_registration_of_an_unknown_uid_matches_no_pod_by_its_address(self) -> None:
        assert found(Instance(ip="10.0.0.1", pod_uid="uid-of-another-life")) == {}
        assert found(Instance(ip="10.0.0.1", pod_name="web-99")) == {}

    def test_a_shared_address_says_nothing_by_itself(self) -> None:
        pods = [pod("a", ip="192.168.0.1"), pod("b", ip="192.168.0.1")]
        assert found(Instance(ip="192.168.0.1"), pods=pods) == {}

    def test_a_pod_on_the_hosts_network_is_known_by_a_port_of_its_own(self) -> None:
        hosted = pod("a", ip="192.168.0.1", host_network=True, containers=(Container("app", ports=(8080,)),))
        assert set(found(Instance(ip="192.168.0.1", port=8080), pods=[hosted])) == {"uid-a"}
        assert found(Instance(ip="192.168.0.1", port=9090), pods=[hosted]) == {}
        assert found(Instance(ip="192.168.0.1"), pods=[hosted]) == {}
        assert set(found(Instance(ip="192.168.0.1", pod_name="a"), pods=[hosted])) == {"uid-a"}

    def test_a_port_that_the_policy_names_need_not_be_declared(self) -> None:
        hosted = pod("a", ip="192.168.0.1", host_network=True)
        by_port = replace(REGISTRY, port=20880)
        assert set(found(Instance(ip="192.168.0.1", port=20880), pods=[hosted], registry=by_port)) == {"uid-a"}
        assert found(Instance(ip="192.168.0.1"), pods=[hosted], registry=by_port) == {}

    def test_two_pods_of_one_node_are_distinguished_by_their_ports(self) -> None:
        pods = [
            pod(name, ip="192.168.0.1", host_network=True, containers=(Container("app", ports=(port,)),))
            for name, port in (("a", 8080), ("b", 8081))
        ]
        assert set(found(Instance(ip="192.168.0.1", port=8081), pods=pods)) == {"uid-b"}

    def test_by_address_alone_a_node_stands_for_its_only_pod(self) -> None:
        by_ip = replace(REGISTRY, match=Match.IP)
        hosted = pod("a", ip="192.168.0.1", host_network=True)
        assert set(found(Instance(ip="192.168.0.1", port=1), pods=[hosted], registry=by_ip)) == {"uid-a"}
        two = [hosted, pod("b", ip="192.168.0.1", host_network=True)]
        assert found(Instance(ip="192.168.0.1", port=1), pods=two, registry=by_ip) == {}

    def test_metadata_under_the_policys_key_names_the_pod(self) -> None:
        by_key = replace(REGISTRY, pod_name_key="k8s.pod")
        pods = [pod("a", ip="10.0.0.1"), pod("b", ip="10.0.0.2")]
        elsewhere = Instance(ip="web.example", metadata={"k8s.pod": "b"})
        assert found(elsewhere, pods=pods, registry=by_key) == {"uid-b": (elsewhere,)}
        assert found(elsewhere, pods=pods) == {}
        assert found(replace(elsewhere, metadata={"k8s.pod": "gone"}), pods=pods, registry=by_key) == {}

    def test_a_namesake_in_another_namespace_is_another_pod(self) -> None:
        assert found(Instance(pod_name="web-0", pod_namespace="shop"))
        assert found(Instance(pod_name="web-0", pod_namespace="pay")) == {}
        assert found(Instance(ip="10.0.0.1", pod_namespace="pay")) == {}
        [match] = match_registrations(
            [pod()], Roster(at=NOW, instances=(Instance(pod_name="web-0", pod_namespace="pay"),)), REGISTRY
        )
        assert match.mismatch is Mismatch.NAMESPACE

    def test_an_instance_without_that_metadata_is_known_by_its_address(self) -> None:
        by_key = replace(REGISTRY, pod_name_key="k8s.pod")
        assert set(found(Instance(ip="10.0.0.1"), registry=by_key)) == {"uid-web-0"}

    @pytest.mark.parametrize("phase", ["Failed", "Succeeded"])
    def test_an_address_reused_after_a_pod_finished_is_the_new_pods(self, phase: str) -> None:
        pods = [pod("old", ip="10.0.0.1", phase=phase, ready=False), pod("new", ip="10.0.0.1")]
        assert set(found(Instance(ip="10.0.0.1"), pods=pods)) == {"uid-new"}

    def test_a_registration_older_than_the_pods_start_is_a_leftover(self) -> None:
        young = pod(ip="10.0.0.1", age=100)
        assert found(Instance(ip="10.0.0.1", registered_at=NOW - 131), pods=[young]) == {}
        assert found(Instance(ip="10.0.0.1", registered_at=NOW - 100), pods=[young])
        assert found(Instance(ip="10.0.0.1", registered_at=None), pods=[young])

    def test_a_registry_whose_clock_is_half_a_minute_behind_hides_no_pod(self) -> None:
        young = pod(ip="10.0.0.1", age=100)
        assert found(Instance(ip="10.0.0.1", registered_at=NOW - 130), pods=[young])

    def test_a_leftover_is_no_evidence_by_name_either(self) -> None:
        young = pod("web-0", age=100)
        assert found(Instance(pod_name="web-0", registered_at=NOW - 500, enabled=False), pods=[young]) == {}

    def test_a_pod_that_has_not_started_counts_from_its_creation(self) -> None:
        pending = pod(ip="10.0.0.1", age=100, started_at=None)
        assert found(Instance(ip="10.0.0.1", registered_at=NOW - 131), pods=[pending]) == {}
