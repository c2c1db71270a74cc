"""The table of states: the first rule that matches decides."""

from dataclasses import replace

import pytest

from adapter.load.assessment import PodAssessment
from adapter.load.memory import Memory, PodMemory
from adapter.load.pods import Container, Pod, PodCondition, PodState
from adapter.load.roster import Instance, Roster
from adapter.load.spec import Policy, Registry
from tests.load.kit import NOW, REGISTRY, out, pod, policy, roster
from tests.load.registering import REGISTERED, classify_with, names_in_state, service, states

POLICY = policy()
S = PodState


def state(one: Pod, rule: Policy = POLICY, listed: Roster | None = None, memory: Memory | None = None) -> PodAssessment:
    """The classification of one pod among a serving one, so that believing is never the question."""
    other = pod("other", ip="10.0.0.99")
    return classify_with(rule, [one, other], listed, memory)[one.uid]


HERE, OTHER = "10.0.0.1", "10.0.0.99"
CRASHING = (Container("app", running=False, crash_looping=True),)
GATED = pod(ready=False, ready_for=60, containers_ready=True, gates={"a": True, "b": False}, ip=HERE)


def young(ready_for: float) -> Pod:
    """A pod that turned Ready a while ago, 5 s after it started."""
    return pod(age=ready_for + 5, ready_for=ready_for, ip=HERE)


@pytest.mark.parametrize(
    ("one", "expected"),
    [
        pytest.param(pod(deleting=True), S.TERMINATING, id="it is being deleted"),
        pytest.param(out("web-0", deleting=True), S.TERMINATING, id="deleted and pulled out"),
        pytest.param(pod(deleting=True, phase="Failed", ready=False), S.TERMINATING, id="deleted and failed"),
        pytest.param(pod(phase="Failed", ready=False), S.FINISHED, id="it failed"),
        pytest.param(pod(phase="Succeeded", ready=False), S.FINISHED, id="it succeeded"),
        pytest.param(out("web-0", phase="Failed"), S.FINISHED, id="failed and pulled out"),
        pytest.param(pod(phase="Pending", ready=False, ready_for=10, age=600), S.STARTING, id="pending"),
        pytest.param(pod(ready=False, started_at=None), S.STARTING, id="no start time"),
        pytest.param(replace(pod(), ready=None), S.STARTING, id="no Ready condition"),
        pytest.param(pod(ready=False, age=3600, ready_for=3600), S.STARTING, id="no change since its creation"),
        pytest.param(replace(pod(), ready=PodCondition(False, None)), S.STARTING, id="no transition time"),
        pytest.param(pod(ready=False, age=3600, ready_for=3570), S.STARTING, id="not Ready 30 s after its start"),
        pytest.param(pod(ready=False, age=3600, ready_for=3569), S.UNREADY, id="not Ready 31 s after its start"),
        pytest.param(pod(ready=False, ready_for=10), S.UNREADY, id="it was Ready and is not"),
        pytest.param(
            pod(ready=False, age=100, ready_for=100, containers=CRASHING), S.UNREADY, id="crash-looping, never Ready"
        ),
        pytest.param(out("web-0", ready=False, ready_for=10), S.UNREADY, id="unready and pulled out by hand"),
        pytest.param(out("web-0"), S.PULLED_OUT, id="pulled out by hand"),
        pytest.param(GATED, S.PULLED_OUT, id="a readiness gate is shut"),
        pytest.param(replace(GATED, containers_ready=False), S.UNREADY, id="a gate is shut, containers are not ready"),
        pytest.param(
            replace(GATED, created_at=NOW - 60, started_at=NOW - 60), S.STARTING, id="a gate that never opened"
        ),
        pytest.param(pod(), S.SERVING, id="the rest"),
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

    def test_a_pod_once_registered_gets_no_second_one(self) -> None:
        known = Memory(pods={"uid-web-0": PodMemory(seen=NOW - 100)}, ever_in_roster=True)
        assert state(pod(ready_for=10, ip=HERE), REGISTERED, roster(OTHER), known).state is S.DOUBTFUL


@pytest.mark.parametrize("rule", [POLICY, policy(registry=Registry(name="kubernetes"))])
def test_without_another_registry_an_endpoint_that_does_not_serve_is_evidence(rule: Policy) -> None:
    assert state(pod(endpoint_serving=False), rule).state is S.PULLED_OUT
    assert state(pod(endpoint_serving=True), rule).state is S.SERVING
    assert state(pod(endpoint_serving=False, endpoints_silent=True), rule).state is S.DOUBTFUL
    assert state(pod(endpoint_serving=None, endpoints_silent=True), rule).state is S.SERVING
    was_out = Memory(pods={"uid-web-0": PodMemory(out_since=NOW - 60)})
    assert state(pod(endpoints_silent=True), rule, memory=was_out).state is S.DOUBTFUL


def test_the_evidence_names_the_gate_that_is_shut() -> None:
    assert state(GATED).evidence == "readiness gate b"


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

    def test_health_says_nothing_while_the_registry_protects_itself_or_where_the_policy_says_so(self) -> None:
        listed = Roster(at=NOW - 1, instances=(Instance(ip=HERE, healthy=False),))
        assert state(pod(ip=HERE), REGISTERED, replace(listed, protected=True)).state is S.SERVING
        rule = policy(registry=replace(REGISTRY, unhealthy_is_out=False))
        assert state(pod(ip=HERE), rule, listed).state is S.SERVING

    def test_a_pod_with_several_records_is_out_if_all_are_or_the_policy_minds_any(self) -> None:
        both = roster(HERE, OTHER, disabled=(HERE,))
        assert state(pod(ip=HERE), REGISTERED, both).state is S.SERVING
        assert state(pod(ip=HERE), policy(registry=replace(REGISTRY, any_out=True)), both).state is S.PULLED_OUT
        assert state(pod(ip=HERE), REGISTERED, roster(OTHER, disabled=(HERE, HERE))).state is S.PULLED_OUT

    def test_it_is_believed_for_30_min(self) -> None:
        for age, expected in ((1800, S.PULLED_OUT), (1801, S.DOUBTFUL)):
            listed = roster(OTHER, disabled=(HERE,), at=NOW - age)
            assert state(pod(ip=HERE), REGISTERED, listed).state is expected

    @pytest.mark.parametrize(
        "others", [[], [pod("s", phase="Pending", ready=False)], [pod("u", ready=False, ready_for=9)]]
    )
    def test_explicit_evidence_is_doubtful_where_it_would_leave_no_pod(self, others: list[Pod]) -> None:
        pods = [pod(f"p{i}", ip=f"10.0.0.{i}") for i in range(3)]
        listed = roster(disabled=("10.0.0.0", "10.0.0.1", "10.0.0.2"))
        found = classify_with(REGISTERED, [*pods, *others], listed)
        assert names_in_state(states(found), S.DOUBTFUL) == ["p0", "p1", "p2"]
        assert "every pod would be out" in found["uid-p0"].reason

    def test_confirmed_absence_stays_evidence_where_explicit_evidence_is_doubted(self) -> None:
        shop = service(4)
        assert names_in_state(shop.absent("p3"), S.PULLED_OUT) == ["p3"]
        shop.now += 10
        found = shop.hear(roster(disabled=("10.0.0.0", "10.0.0.1", "10.0.0.2"), at=shop.now))
        assert found == {"p0": S.DOUBTFUL, "p1": S.DOUBTFUL, "p2": S.DOUBTFUL, "p3": S.PULLED_OUT}

    def test_a_doubtful_pod_counts_as_one_that_stays(self) -> None:
        pods = [pod(f"p{i}", ip=f"10.0.0.{i}") for i in range(3)]
        found = classify_with(REGISTERED, pods, roster(disabled=("10.0.0.0", "10.0.0.1")))
        assert states(found) == {"p0": S.PULLED_OUT, "p1": S.PULLED_OUT, "p2": S.DOUBTFUL}
