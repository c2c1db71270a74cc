"""The table of states: the first rule that matches decides."""

from dataclasses import replace

import pytest

from adapter.load.memory import Memory, PodMemory
from adapter.load.pods import Container, Pod, PodAssessment, PodCondition, PodState
from adapter.load.roster import Instance, Roster
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

    def test_a_pod_that_turns_ready_again_has_its_grace_to_register_again(self) -> None:
        known = Memory(pods={"uid-web-0": PodMemory(registered=True)})
        assert state(pod(ready_for=10, ip=HERE), REGISTERED, roster(OTHER), known).state is S.STARTING


@pytest.mark.parametrize("rule", [POLICY, policy(registry=Registry(name="kubernetes"))])
def test_without_another_registry_an_endpoint_that_does_not_serve_is_evidence(rule: Policy) -> None:
    assert state(pod(endpoint_serving=False), rule).state is S.PULLED_OUT
    assert state(pod(endpoint_serving=True), rule).state is S.SERVING
    assert state(pod(endpoint_serving=False, endpoints_silent=True), rule).state is S.DOUBTFUL
    assert state(pod(endpoint_serving=None, endpoints_silent=True), rule).state is S.SERVING
    was_out = Memory(pods={"uid-web-0": PodMemory(PodState.PULLED_OUT, NOW - 60)})
    assert state(pod(endpoints_silent=True), rule, memory=was_out).state is S.DOUBTFUL


class TestExplicitEvidence:
    @pytest.mark.parametrize(
        "word", [{}, {"weight": 0.01}, {"weight": None}, {"status": "UP"}, {"status": "warning"}, {"status": "passing"}]
    )
    def test_any_other_word_is_a_pod_that_serves(self, word: dict[str, object]) -> None:
        listed = Roster(at=NOW - 1, instances=(Instance(ip="10.0.0.1", **word),))  # type: ignore[arg-type]
        assert state(pod(ip="10.0.0.1"), REGISTERED, listed).state is S.SERVING


def test_a_service_that_matches_no_pod_is_a_problem_once_the_grace_is_over() -> None:
    for ready_for, problem in (
        (179, None),
        (180, "registry nacos lists no pod of this target: check the service name 'com.shop.web'"),
    ):
        pods = [pod("a", ip=OTHER), young(ready_for)]
        assessment, _ = assess_and_decide(REGISTERED, pods, Samples(), listed=roster())
        assert assessment.conditions.get("RegistryDataValid") == problem


def test_a_registry_that_lost_every_pod_is_a_problem_until_one_is_back() -> None:
    pods = [pod("a", ip=HERE), pod("b", ip=OTHER)]
    known = Memory(pods={one.uid: PodMemory(registered=True) for one in pods})
    for listed, problem in (((), "registry nacos lists no pod of this target any more"), ((HERE,), None)):
        assessment, _ = assess_and_decide(REGISTERED, pods, Samples(), listed=roster(*listed), memory=known)
        assert assessment.conditions.get("RegistryDataValid") == problem
