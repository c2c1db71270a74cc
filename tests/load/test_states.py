"""Which registration is which pod's, and the table of states: orders and edges that random documents do not meet."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from adapter.load.memory import Memory, PodMemory
from adapter.load.pods import Container, Pod, PodAssessment, PodCondition, PodState
from adapter.load.roster import Instance, Mismatch, Roster, canonical_ip, match_registrations, registrations
from adapter.load.samples import Samples
from adapter.load.spec import Policy, Registry
from tests.load.kit import NOW, REGISTRY, assess_and_decide, out, pod, policy, roster

POLICY, REGISTERED = policy(), policy(registry=REGISTRY)
S = PodState


def state(one: Pod, rule: Policy = POLICY, listed: Roster | None = None, memory: Memory | None = None) -> PodAssessment:
    """The classification of one pod among a serving one, so that believing is never the question."""
    pods = [one, pod("other", ip="10.0.0.99")]
    return assess_and_decide(rule, pods, Samples(), listed=listed, memory=memory)[0].pods[0]


HERE, OTHER = "10.0.0.1", "10.0.0.99"
CRASHING = (Container("app", running=False, crash_looping=True),)
GATED = pod(ready=False, ready_for=60, containers_ready=True, gates={"a": True, "b": False}, ip=HERE)


def young(ready_for: float) -> Pod:
    """A pod that turned Ready a while ago, 5 s after it started."""
    return pod(age=ready_for + 5, ready_for=ready_for, ip=HERE)


@pytest.mark.parametrize(
    ("one", "expected"),
    [
        pytest.param(out("web-0", deleting=True), S.TERMINATING, id="deleted and pulled out"),
        pytest.param(pod(deleting=True, phase="Failed", ready=False), S.TERMINATING, id="deleted and failed"),
        pytest.param(out("web-0", phase="Failed"), S.FINISHED, id="failed and pulled out"),
        pytest.param(pod(ready=False, started_at=None), S.STARTING, id="no start time"),
        pytest.param(replace(pod(), ready=None), S.STARTING, id="no Ready condition"),
        pytest.param(pod(ready=False, age=3600, ready_for=3600), S.STARTING, id="no change since its creation"),
        pytest.param(replace(pod(), ready=PodCondition(False, None)), S.STARTING, id="no transition time"),
        pytest.param(pod(ready=False, age=3600, ready_for=3570), S.STARTING, id="not Ready 30 s after its start"),
        pytest.param(pod(ready=False, age=3600, ready_for=3569), S.UNREADY, id="not Ready 31 s after its start"),
        pytest.param(
            pod(ready=False, age=100, ready_for=100, containers=CRASHING), S.UNREADY, id="crash-looping, never Ready"
        ),
        pytest.param(out("web-0", ready=False, ready_for=10), S.UNREADY, id="unready and pulled out by hand"),
        pytest.param(replace(GATED, containers_ready=False), S.UNREADY, id="a gate is shut, containers are not ready"),
        pytest.param(
            replace(GATED, created_at=NOW - 60, started_at=NOW - 60), S.STARTING, id="a gate that never opened"
        ),
    ],
)
def test_without_a_registry_the_first_rule_that_matches_decides(one: Pod, expected: PodState) -> None:
    assert state(one).state is expected


class TestGracePeriod:
    def test_a_pod_registered_as_starting_takes_no_traffic_for_it_unless_it_is_up_elsewhere(self) -> None:
        said = Instance(ip=HERE, port=80, status="STARTING")
        listed = Roster(at=NOW - 1, instances=(said,))
        assert [state(young(age), REGISTERED, listed).state for age in (179, 180)] == [S.STARTING, S.SERVING]
        both = replace(listed, instances=(said, Instance(ip=HERE, port=81, status="UP")))
        assert state(young(10), REGISTERED, both).state is S.SERVING

    def test_a_pod_that_turns_ready_again_has_its_grace_to_register_again(self) -> None:
        known = Memory(pods={"uid-web-0": PodMemory(registered=True)})
        assert state(pod(ready_for=10, ip=HERE), REGISTERED, roster(OTHER), known).state is S.STARTING


@pytest.mark.parametrize("rule", [POLICY, policy(registry=Registry(name="kubernetes"))])
def test_without_another_registry_an_endpoint_that_does_not_serve_is_evidence(rule: Policy) -> None:
    assert state(pod(endpoint_serving=False), rule).state is S.PULLED_OUT
    assert state(pod(endpoint_serving=True), rule).state is S.SERVING


class TestExplicitEvidence:
    @pytest.mark.parametrize(
        "word", [{}, {"weight": 0.01}, {"weight": None}, {"status": "UP"}, {"status": "warning"}, {"status": "passing"}]
    )
    def test_any_other_word_is_a_pod_that_serves(self, word: dict[str, object]) -> None:
        listed = Roster(at=NOW - 1, instances=(Instance(ip="10.0.0.1", **word),))  # type: ignore[arg-type]
        assert state(pod(ip="10.0.0.1"), REGISTERED, listed).state is S.SERVING


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

    @pytest.mark.parametrize(
        ("made", "kept"),
        [([-3631], []), ([-3629], [0]), ([-200, -131], [0, 1]), ([-200, -129], [1]), ([-200, None], [0, 1])],
        ids=["before the pod", "as it started", "twice before the restart", "after it", "without a time"],
    )
    def test_an_earlier_processs_registration_is_no_evidence_beside_a_later_one(
        self, made: list[float | None], kept: list[int]
    ) -> None:
        """The pod started an hour ago and restarted 100 s ago; the registry's clock may be 30 s behind."""
        restarted = pod("web-0", ip="10.0.0.1", restarted_at=NOW - 100)
        times = [at and NOW + at for at in made]
        given = [Instance(ip="10.0.0.1", port=port, registered_at=at) for port, at in enumerate(times)]
        listed = found(*given, pods=[restarted])
        assert listed == ({restarted.uid: tuple(given[place] for place in kept)} if kept else {})

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

    @pytest.mark.parametrize("changes", [{"phase": "Failed"}, {"phase": "Succeeded"}, {"deleting": True}])
    def test_an_address_reused_after_a_pod_ended_is_the_new_pods(self, changes: dict[str, object]) -> None:
        pods = [replace(pod("old", ip="10.0.0.1"), **changes), pod("new", ip="10.0.0.1")]  # type: ignore[arg-type]
        assert set(found(Instance(ip="10.0.0.1"), pods=pods)) == {"uid-new"}
