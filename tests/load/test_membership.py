"""The table of states: the first rule that matches decides."""

from dataclasses import replace

import pytest

from adapter.load.assessment import PodAssessment
from adapter.load.memory import Memory, PodMemory
from adapter.load.pods import Container, Pod, PodCondition, PodState
from adapter.load.roster import Instance, Roster
from adapter.load.spec import Policy, Registry
from adapter.load.states import service_registry
from tests.load.kit import NOW, REGISTRY, out, pod, policy, roster
from tests.load.registering import REGISTERED, classify_with, names_in_state, service, states

POLICY = policy()
S = PodState


def state(one: Pod, rule: Policy = POLICY, listed: Roster | None = None, memory: Memory | None = None) -> PodAssessment:
    """The classification of one pod among a serving one, so that believing is never the question."""
    other = pod("other", ip="10.0.0.99")
    return classify_with(rule, [one, other], listed, memory)[one.uid]


class TestTerminated:
    def test_a_pod_being_deleted_is_terminating_whatever_else_it_is(self) -> None:
        for one in (pod(deleting=True), out("web-0", deleting=True), pod(deleting=True, phase="Failed", ready=False)):
            assert state(one).state is S.TERMINATING

    @pytest.mark.parametrize("phase", ["Failed", "Succeeded"])
    def test_a_pod_that_ended_is_finished(self, phase: str) -> None:
        assert state(pod(phase=phase, ready=False)).state is S.FINISHED
        assert state(out("web-0", phase=phase)).state is S.FINISHED


class TestStartingAndUnready:
    def test_a_pending_pod_is_starting(self) -> None:
        assert state(pod(phase="Pending", ready=False, ready_for=10.0, age=600)).state is S.STARTING

    def test_a_pod_without_a_start_time_is_starting(self) -> None:
        assert state(pod(ready=False, started_at=None)).state is S.STARTING

    def test_a_pod_without_a_ready_condition_is_starting(self) -> None:
        assert state(replace(pod(), ready=None)).state is S.STARTING

    def test_a_pod_that_did_not_change_since_its_creation_is_starting(self) -> None:
        assert state(pod(ready=False, age=3600, ready_for=3600)).state is S.STARTING

    def test_a_pod_whose_condition_has_no_transition_time_is_starting(self) -> None:
        assert state(replace(pod(), ready=PodCondition(False, None))).state is S.STARTING

    def test_a_pod_that_turned_not_ready_within_30_s_of_its_start_never_was_ready(self) -> None:
        assert state(pod(ready=False, age=3600, ready_for=3570)).state is S.STARTING
        assert state(pod(ready=False, age=3600, ready_for=3569)).state is S.UNREADY

    def test_a_pod_that_was_ready_and_is_not_is_unready(self) -> None:
        assert state(pod(ready=False, ready_for=10)).state is S.UNREADY

    def test_a_crash_looping_pod_is_unready_though_it_never_was_ready(self) -> None:
        crashing = (Container("app", running=False, crash_looping=True),)
        assert state(pod(ready=False, age=100, ready_for=100, containers=crashing)).state is S.UNREADY

    def test_a_registered_pod_that_is_not_ready_is_unready_all_the_same(self) -> None:
        ill = pod(ready=False, ready_for=10, ip="10.0.0.1")
        assert state(ill, REGISTERED, roster("10.0.0.1", "10.0.0.99")).state is S.UNREADY

    def test_an_unready_pod_is_not_pulled_out_by_its_registry_or_its_annotation(self) -> None:
        ill = pod(ready=False, ready_for=10, ip="10.0.0.1")
        assert state(ill, REGISTERED, roster("10.0.0.99", disabled=("10.0.0.1",))).state is S.UNREADY
        assert state(out("web-0", ready=False, ready_for=10)).state is S.UNREADY

    def test_a_ready_pod_that_is_yet_to_register_is_starting_for_the_grace_period(self) -> None:
        for ready_for, expected in ((179, S.STARTING), (180, S.DOUBTFUL), (10, S.STARTING)):
            fresh = pod(age=ready_for + 5, ready_for=ready_for, ip="10.0.0.1")
            assert state(fresh, REGISTERED, roster("10.0.0.99")).state is expected, ready_for

    def test_the_grace_period_is_the_policys(self) -> None:
        rule = policy(registry=replace(REGISTRY, grace=60.0))
        fresh = pod(age=65, ready_for=60, ip="10.0.0.1")
        assert state(fresh, rule, roster("10.0.0.99")).state is S.DOUBTFUL

    def test_a_registered_pod_serves_within_the_grace_period(self) -> None:
        fresh = pod(age=15, ready_for=10, ip="10.0.0.1")
        assert state(fresh, REGISTERED, roster("10.0.0.1", "10.0.0.99")).state is S.SERVING

    def test_a_pod_registered_as_starting_takes_no_traffic_for_the_grace_period(self) -> None:
        said = Roster(at=NOW - 1, instances=(Instance(ip="10.0.0.1", status="STARTING"),))
        for ready_for, expected in ((179, S.STARTING), (180, S.SERVING)):
            assert state(pod(age=ready_for + 5, ready_for=ready_for, ip="10.0.0.1"), REGISTERED, said).state is expected

    def test_a_pod_that_is_up_elsewhere_is_not_starting(self) -> None:
        both = tuple(Instance(ip="10.0.0.1", port=port, status=word) for port, word in ((80, "STARTING"), (81, "UP")))
        fresh = pod(age=15, ready_for=10, ip="10.0.0.1")
        assert state(fresh, REGISTERED, Roster(at=NOW - 1, instances=both)).state is S.SERVING

    def test_a_pod_once_registered_gets_no_second_grace_period(self) -> None:
        known = Memory(pods={"uid-web-0": PodMemory(seen=NOW - 100)}, ever_in_roster=True)
        again = pod(ready_for=10, ip="10.0.0.1")
        assert state(again, REGISTERED, roster("10.0.0.99"), known).state is S.DOUBTFUL

    def test_an_answer_older_than_readiness_cannot_know_the_pod(self) -> None:
        fresh = pod(age=15, ready_for=10, ip="10.0.0.1")
        assert state(fresh, REGISTERED, roster("10.0.0.99", at=NOW - 11)).state is S.DOUBTFUL


class TestPulledOutWithoutARegistry:
    @pytest.mark.parametrize("rule", [POLICY, policy(registry=Registry(name="kubernetes"))])
    def test_an_endpoint_that_does_not_serve_is_evidence(self, rule: Policy) -> None:
        assert state(pod(endpoint_serving=False), rule).state is S.PULLED_OUT
        assert state(pod(endpoint_serving=True), rule).state is S.SERVING
        assert state(pod(endpoint_serving=None), rule).state is S.SERVING
        assert state(pod(endpoint_serving=False, endpoints_silent=True), rule).state is S.DOUBTFUL
        assert state(pod(endpoint_serving=None, endpoints_silent=True), rule).state is S.SERVING
        was_out = Memory(pods={"uid-web-0": PodMemory(out_since=NOW - 60)})
        assert state(pod(endpoints_silent=True), rule, memory=was_out).state is S.DOUBTFUL

    def test_endpoints_are_no_evidence_where_a_registry_is_named(self) -> None:
        assert state(pod(endpoint_serving=False, ip="10.0.0.1"), REGISTERED, roster("10.0.0.1")).state is S.SERVING

    def test_a_shut_readiness_gate_is_evidence_with_any_registry_or_none(self) -> None:
        gated = pod(ready=False, ready_for=60, containers_ready=True, gates={"a": True, "b": False}, ip="10.0.0.1")
        for rule in (POLICY, REGISTERED):
            found = state(gated, rule, roster("10.0.0.1", "10.0.0.99"))
            assert found.state is S.PULLED_OUT
            assert found.evidence == "readiness gate b"

    def test_a_gate_says_nothing_while_containers_are_not_ready(self) -> None:
        assert state(pod(ready=False, ready_for=60, gates={"b": False})).state is S.UNREADY

    def test_a_gate_that_never_opened_is_a_pod_that_starts(self) -> None:
        gated = pod(ready=False, age=60, ready_for=60, containers_ready=True, gates={"b": False})
        assert state(gated).state is S.STARTING

    def test_the_annotation_is_honoured_with_any_registry(self) -> None:
        assert state(out("web-0")).state is S.PULLED_OUT
        assert state(out("web-0", ip="10.0.0.1"), REGISTERED, roster("10.0.0.1", "10.0.0.99")).state is S.PULLED_OUT
        assert state(out("web-0"), REGISTERED, None).state is S.PULLED_OUT

    def test_the_rest_serves(self) -> None:
        assert state(pod()).state is S.SERVING
        assert service_registry(POLICY) is None


class TestExplicitEvidence:
    @pytest.mark.parametrize(
        "word",
        [
            {"enabled": False},
            {"isolated": True},
            {"weight": 0.0},
            {"weight": -1.0},
            {"status": "OUT_OF_SERVICE"},
            {"status": "DOWN"},
            {"status": "maintenance"},
            {"status": "Critical"},
            {"healthy": False},
        ],
        ids=str,
    )
    def test_the_registrys_own_word_counts_at_once(self, word: dict[str, object]) -> None:
        listed = Roster(at=NOW - 1, instances=(Instance(ip="10.0.0.1", **word), Instance(ip="10.0.0.99")))  # type: ignore[arg-type]
        found = state(pod(ip="10.0.0.1"), REGISTERED, listed)
        assert found.state is S.PULLED_OUT
        assert found.evidence.startswith("registry nacos: ")
        assert not found.by_absence

    @pytest.mark.parametrize(
        "word", [{}, {"weight": 0.01}, {"weight": None}, {"status": "UP"}, {"status": "warning"}, {"status": "passing"}]
    )
    def test_any_other_word_is_a_pod_that_serves(self, word: dict[str, object]) -> None:
        listed = Roster(at=NOW - 1, instances=(Instance(ip="10.0.0.1", **word),))  # type: ignore[arg-type]
        assert state(pod(ip="10.0.0.1"), REGISTERED, listed).state is S.SERVING

    def test_health_says_nothing_while_the_registry_protects_itself(self) -> None:
        ill = roster("10.0.0.99", protected=True)
        ill = replace(ill, instances=(*ill.instances, Instance(ip="10.0.0.1", healthy=False)))
        assert state(pod(ip="10.0.0.1"), REGISTERED, ill).state is S.SERVING

    def test_health_says_nothing_where_the_policy_says_so(self) -> None:
        rule = policy(registry=replace(REGISTRY, unhealthy_is_out=False))
        listed = Roster(at=NOW - 1, instances=(Instance(ip="10.0.0.1", healthy=False),))
        assert state(pod(ip="10.0.0.1"), rule, listed).state is S.SERVING

    def test_a_disabled_pod_is_out_while_the_registry_protects_itself(self) -> None:
        listed = roster("10.0.0.99", disabled=("10.0.0.1",), protected=True)
        assert state(pod(ip="10.0.0.1"), REGISTERED, listed).state is S.PULLED_OUT

    def test_a_pod_with_several_records_is_out_only_if_all_are(self) -> None:
        both = roster("10.0.0.1", "10.0.0.99", disabled=("10.0.0.1",))
        assert state(pod(ip="10.0.0.1"), REGISTERED, both).state is S.SERVING
        all_out = roster("10.0.0.99", disabled=("10.0.0.1", "10.0.0.1"))
        assert state(pod(ip="10.0.0.1"), REGISTERED, all_out).state is S.PULLED_OUT

    def test_any_record_will_do_where_the_policy_says_so(self) -> None:
        rule = policy(registry=replace(REGISTRY, any_out=True))
        both = roster("10.0.0.1", "10.0.0.99", disabled=("10.0.0.1",))
        assert state(pod(ip="10.0.0.1"), rule, both).state is S.PULLED_OUT

    def test_a_leftover_record_is_no_evidence(self) -> None:
        listed = roster("10.0.0.99")
        leftover = Instance(ip="10.0.0.1", enabled=False, registered_at=NOW - 7200)
        listed = replace(listed, instances=(*listed.instances, leftover))
        assert state(pod(ip="10.0.0.1"), REGISTERED, listed).state is S.DOUBTFUL

    def test_it_is_believed_for_30_min(self) -> None:
        one = pod(ip="10.0.0.1")
        for age, expected in ((1800, S.PULLED_OUT), (1801, S.DOUBTFUL)):
            listed = roster("10.0.0.99", disabled=("10.0.0.1",), at=NOW - age)
            assert state(one, REGISTERED, listed).state is expected

    def test_it_may_turn_out_all_but_one(self) -> None:
        pods = [pod(f"p{i}", ip=f"10.0.0.{i}") for i in range(10)]
        listed = roster("10.0.0.0", disabled=tuple(f"10.0.0.{i}" for i in range(1, 10)))
        assert names_in_state(states(classify_with(REGISTERED, pods, listed)), S.PULLED_OUT) == [
            f"p{i}" for i in range(1, 10)
        ]

    @pytest.mark.parametrize(
        "others", [[], [pod("s", phase="Pending", ready=False)], [pod("u", ready=False, ready_for=9)]]
    )
    def test_explicit_evidence_is_doubtful_where_it_would_leave_no_pod(self, others: list[Pod]) -> None:
        pods = [pod(f"p{i}", ip=f"10.0.0.{i}") for i in range(3)]
        listed = roster(disabled=("10.0.0.0", "10.0.0.1", "10.0.0.2"))
        found = classify_with(REGISTERED, [*pods, *others], listed)
        assert names_in_state(states(found), S.DOUBTFUL) == ["p0", "p1", "p2"]
        assert "every pod would be out" in found["uid-p0"].reason

    def test_a_doubtful_pod_counts_as_one_that_stays(self) -> None:
        pods = [pod(f"p{i}", ip=f"10.0.0.{i}") for i in range(3)]
        found = classify_with(REGISTERED, pods, roster(disabled=("10.0.0.0", "10.0.0.1")))
        assert states(found) == {"p0": S.PULLED_OUT, "p1": S.PULLED_OUT, "p2": S.DOUBTFUL}

    def test_annotations_and_gates_are_doubted_alike(self) -> None:
        gated = pod("g", ready=False, ready_for=60, containers_ready=True, gates={"b": False})
        assert set(states(classify_with(POLICY, [out("a"), gated])).values()) == {S.DOUBTFUL}

    def test_confirmed_absence_stays_evidence_where_explicit_evidence_is_doubted(self) -> None:
        shop = service(4)
        assert names_in_state(shop.absent("p3"), S.PULLED_OUT) == ["p3"]
        shop.now += 10
        found = shop.hear(roster(disabled=("10.0.0.0", "10.0.0.1", "10.0.0.2"), at=shop.now))
        assert found == {"p0": S.DOUBTFUL, "p1": S.DOUBTFUL, "p2": S.DOUBTFUL, "p3": S.PULLED_OUT}
