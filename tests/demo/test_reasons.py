"""Reasons: `decide` on the observed objects, with memory passed from one observation to the next."""

import yaml

from adapter.commands.decide.decision import decision_json
from adapter.commands.decide.reader import read_document
from lab.demo.objects import OURS, STOCK, Object
from lab.demo.observe import Observation
from lab.demo.reasons import Reasoner, lean, lean_pod
from tests.demo.world import observation, pod, pods


def seen(count: int, each: int, *, at: float = 0, out: int = 0, replicas: int | None = None) -> Observation:
    """`count` pods of ours, the first `out` of them pulled out and idle, the others at `each` millicores."""
    ours = [pod(OURS, f"{OURS}-{index}", out=index < out) for index in range(count)]
    usage = {f"{OURS}-{index}": 20 if index < out else each for index in range(count)}
    return observation(ours, pods(STOCK, 5), at=at, counts=(replicas or count, 5), usage=usage)


def test_an_overload_is_explained_in_the_adapters_sentences() -> None:
    reason = Reasoner("demo").consider(seen(5, 1500))
    assert reason is not None
    assert (reason.current, reason.desired) == (5, 7)
    assert reason.sentences == (
        "cpu: 5 pods use 1500m on average, above the high watermark 1200m (acts beyond 1212m)",
        "cpu needs 7 serving pods: proposes 7 (now 5)",
    )


def test_pulled_out_pods_are_replaced_after_the_delay_recorded_in_memory() -> None:
    reasoner = Reasoner("demo")
    first = reasoner.consider(seen(7, 1600, at=0, out=2))
    later = reasoner.consider(seen(7, 1600, at=6, out=2))
    assert first is not None
    assert later is not None
    assert (first.desired, later.desired) == (7, 9)
    assert later.sentences[0] == f"pulled out: {OURS}-0, {OURS}-1"
    assert "2 more replace pulled-out ones" in later.sentences[2]


def test_the_reason_of_a_rescale_is_the_latest_decision_for_its_count() -> None:
    reasoner = Reasoner("demo")
    reasoner.consider(seen(5, 1100))
    wanted = reasoner.consider(seen(5, 1500, at=1))
    reasoner.consider(seen(5, 1500, at=2, replicas=7))
    assert reasoner.behind(5, 7) is wanted
    assert reasoner.behind(5, 8) is None
    assert reasoner.behind(7, 5) is None


def test_a_written_document_gives_the_same_decision() -> None:
    reason = Reasoner("demo").consider(seen(5, 1500))
    assert reason is not None
    assert decision_json(read_document(yaml.safe_dump(reason.document)))["desiredReplicas"] == 7


def test_an_observation_without_samples_gives_no_reason_and_no_error() -> None:
    reason = Reasoner("demo").consider(observation(pods(OURS, 5), pods(STOCK, 5)))
    assert reason is not None
    assert reason.desired is None


def test_an_unreadable_object_gives_no_reason() -> None:
    broken = observation(pods(OURS, 5), pods(STOCK, 5))
    del broken.hpas[OURS]["spec"]["scaleTargetRef"]  # type: ignore[attr-defined]
    assert Reasoner("demo").consider(broken) is None


def test_a_document_holds_only_the_inputs_of_the_decision() -> None:
    one = pod(OURS, "web", usage=300, out=True)
    kept: Object = lean_pod(one)
    assert kept["metadata"]["annotations"] == {"effective-load.io/pulled-out": "true"}
    assert "managedFields" not in kept["metadata"]
    assert kept["spec"] == {"containers": [{"name": "app", "resources": {}}]}
    assert kept["status"] == one["status"]
    assert "annotations" not in lean(pod(OURS, "web", usage=300))["metadata"]
