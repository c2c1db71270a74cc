"""The memory in a policy's status: whoever takes over decides as the one before would have."""

import json
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter.load.memory import LastSample, Memory, PodMemory, SampleMemory
from adapter.load.pods import PodCondition, PodState
from adapter.load.states import classify, is_set_aside, registry_problem
from adapter.policy import status_memory
from adapter.policy.memory_json import MemoryDecodeError, MemoryReader
from tests.load.kit import NOW, REGISTRY, assess_and_decide, cpu, pod, policy, roster, usage
from tests.load.registering import Registering, service

RULE, PODS = policy(cpu("1200m", "400m")), [pod(f"web-{index}") for index in range(10)]
NAMES = [one.name for one in PODS]


def travelled(memory: Memory) -> Memory:
    """The memory after its way through a status."""
    return status_memory.from_status(json.loads(msgspec.json.encode(status_memory.to_status(memory))))


def taken_over(shop: Registering) -> Registering:
    """The same target and registry, seen by a process that starts with what the status says."""
    successor = Registering(shop.rule, shop.pods, shop.now)
    successor.memory = travelled(shop.memory)
    return successor


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["answer", "disable", "annotate", "ready", "silence", "empty", "collapse"]),
        st.sets(st.integers(0, 7), max_size=5),
        st.integers(1, 120),
    ),
    min_size=1,
    max_size=25,
)


def lived(steps: list[tuple[str, set[int], int]]) -> Registering:
    """A service of eight after these turns of fate."""
    shop = service(8)
    for what, whom, after in steps:
        names = [f"p{index}" for index in sorted(whom)]
        match what:
            case "answer":
                shop.answer(*names, after=after)
            case "disable":
                shop.now += after
                listed = roster(*(p.ips[0] for p in shop.pods), at=shop.now)
                out = [replace(one, enabled=index not in whom) for index, one in enumerate(listed.instances)]
                shop.hear(replace(listed, instances=tuple(out)))
            case "annotate":
                for index in whom:
                    one = shop.pods[index]
                    shop.pods[index] = replace(one, pulled_out_annotation=not one.pulled_out_annotation)
                shop.wait(after)
            case "ready":
                for index in whom:
                    is_ready = not shop.pods[index].is_ready
                    shop.pods[index] = replace(shop.pods[index], ready=PodCondition(is_ready, shop.now))
                shop.wait(after)
            case "silence":
                shop.wait(after)
            case "empty":
                shop.answer(*(p.name for p in shop.pods), after=after, alive=bool(whom))
            case _:
                shop.answer(*names, after=after, registry_total=10 * len(whom))
    return shop


@given(steps=STEPS, later=st.sampled_from([0.0, 5.0, 400.0, 2000.0]), put_back=st.booleans())
def test_a_successor_sees_every_pod_as_its_predecessor_does_before_its_own_registry_answers(
    steps: list[tuple[str, set[int], int]], later: float, put_back: bool
) -> None:
    shop = lived(steps)
    successor = taken_over(shop)
    now = shop.now + later
    if put_back:
        shop.pods = [replace(one, pulled_out_annotation=False, ready=PodCondition(True, now)) for one in shop.pods]
    before = classify(shop.rule, shop.pods, shop.memory, now)
    after = classify(shop.rule, shop.pods, successor.memory, now)
    assert {uid: (s.state, s.by_absence) for uid, s in after.items()} == {
        uid: (s.state, s.by_absence) for uid, s in before.items()
    }
    assert is_set_aside(successor.memory, REGISTRY) == is_set_aside(shop.memory, REGISTRY)
    trouble = registry_problem(shop.rule, shop.pods, shop.memory, now)
    assert registry_problem(shop.rule, shop.pods, successor.memory, now) == trouble


@pytest.mark.parametrize(("gone", "state"), [(2, PodState.PULLED_OUT), (3, PodState.DOUBTFUL)])
def test_a_successor_takes_no_pod_out_whose_registration_was_lost_while_nobody_looked(
    gone: int, state: PodState
) -> None:
    """A node that ends with the adapter and the registry on it: half of the pods have come back when both are."""
    shop = lived([])
    shop.answer(registry_total=8)
    successor = taken_over(shop)
    for _ in range(20):
        found = successor.answer(*(f"p{index}" for index in range(gone)), registry_total=8 - gone)
    assert [found[f"p{index}"] for index in range(gone)] == [state] * gone
    assert successor.absent("p7")["p7"] is PodState.PULLED_OUT, "it deregistered after that"


def test_pods_that_were_out_before_do_not_look_like_a_loss_to_a_successor() -> None:
    shop = lived([])
    gone = ["p0", "p1"]
    for _ in range(20):
        shop.answer(*gone, registry_total=6)
    successor = taken_over(shop)
    found = successor.answer(*gone, "p2", registry_total=5)
    assert [found[name] for name in gone] == [PodState.PULLED_OUT] * 2


@given(steps=STEPS, absent=st.sets(st.integers(0, 7), max_size=4))
def test_a_successor_takes_the_registrys_next_answers_as_its_predecessor_does(
    steps: list[tuple[str, set[int], int]], absent: set[int]
) -> None:
    # A collapse of the whole registry is told by totals, which each process has to count for itself.
    shop = lived([step for step in steps if step[0] != "collapse"])
    successor = taken_over(shop)
    for _ in range(5):
        names = [f"p{index}" for index in absent]
        assert successor.answer(*names, after=20) == shop.answer(*names, after=20)
        assert {uid: pod.out_since for uid, pod in successor.memory.pods.items()} == {
            uid: pod.out_since for uid, pod in shop.memory.pods.items()
        }


def test_what_is_remembered_of_the_policy_itself_travels_along() -> None:
    memory = Memory(
        ever_in_roster=True,
        roster_at=NOW,
        rosters=5,
        rosters_since=NOW - 100,
        hold_until=NOW + 60,
        rollout_since=NOW - 10,
        last_replicas=7,
        last_scale=NOW - 33.25,
        error_since=NOW - 5,
    )
    assert travelled(memory) == memory


def test_samples_and_what_counts_for_one_connection_stay_behind() -> None:
    samples = {"cpu": SampleMemory(last={"a": LastSample(NOW, 5)})}
    memory = Memory(pods={"a": PodMemory(out_since=NOW)}, samples=samples, roster_total=40, reconnected_at=NOW)
    assert travelled(memory) == Memory(pods={"a": PodMemory(out_since=NOW)})


def test_a_replica_that_starts_doubts_the_zeros_that_were_doubted_before() -> None:
    loads = dict.fromkeys(NAMES, "1190m")
    first, _ = assess_and_decide(RULE, PODS, usage(loads))
    zeros = usage({**loads, **dict.fromkeys(NAMES[:9], "0")}, at=NOW + 50)
    then, before = assess_and_decide(RULE, PODS, zeros, memory=first.memory, now=NOW + 60)
    data = status_memory.to_status(then.memory)
    assert {uid: set(known) for uid, known in data["pods"].items()} == {
        one.uid: {"byAbsence", "absentCount", "served", "lastSample", "registrationLost"} for one in PODS[:9]
    }
    _, after = assess_and_decide(RULE, PODS, zeros, memory=travelled(then.memory), now=NOW + 61)
    assert (before.desired, after.desired) == (10, 10)


def test_doubt_of_a_process_that_never_heard_of_the_registry_stays_with_it() -> None:
    shop = Registering(service().rule, [pod("p0", ip="10.0.0.1"), pod("p1", ip="10.0.0.2")])
    shop.hear(None)
    assert len(shop.memory.pods) == 2
    assert all(known.doubt_since is not None for known in shop.memory.pods.values())
    assert status_memory.to_status(shop.memory)["pods"] == {}
    heard = service(8)
    heard.answer("p0")
    assert "doubtSince" in status_memory.to_status(heard.memory)["pods"]["uid-p0"]


def test_the_longest_out_travel_first_and_no_more_than_200_and_5000() -> None:
    pods = {f"u{index:05}": PodMemory(seen=NOW - 9000, out_since=NOW - index) for index in range(6000)}
    data = status_memory.to_status(Memory(pods=pods))
    assert sorted(data["pods"]) == [f"u{index:05}" for index in range(5800, 6000)]
    assert len(data["registered"]) == 5000
    assert len(msgspec.json.encode(data)) < 300_000


def test_what_a_later_version_remembers_besides_is_passed_over() -> None:
    data = status_memory.to_status(Memory(last_replicas=3)) | {
        "moods": {"a": 1},
        "pods": {"u": {"outSince": "x", "mood": 2}},
    }
    with pytest.raises(MemoryDecodeError, match="outSince"):
        status_memory.from_status(data)
    data["pods"]["u"] = {"byAbsence": True, "mood": 2}
    assert status_memory.from_status(data) == Memory(last_replicas=3, pods={"u": PodMemory(by_absence=True)})


TOO_MANY = {
    "of pods": {"pods": {str(n): {} for n in range(401)}},
    "of registered pods": {"registered": ["u"] * 5_001},
    "of samples dated ahead": {"ahead": {"cpu": {}}},
}
GARBAGE: list[dict[str, Any]] = [
    {"pods": []}, {"pods": {"a": 5}}, {"pods": {"a": {"seen": "9999-12-31T23:59:59-14:00"}}}, {"rosters": "x"},
    {"lastValid": {"at": "x"}}, {"lastValid": []}, {"lastValid": {"at": "2026-01-01T00:00:00Z", "error": 5}},
    {"replacement": {"notedCurrent": 1.5}}, {"departed": {"a": {}}}, {"departed": {"a": []}}, {"registered": 5},
    {"registered": "abc"}, {"registered": {"a": 1}}, {"lastReplicas": -1}, {"lastReplicas": 2**80},
    {"holdUntil": "9999-12-31T23:59:59Z"}, {"lastScale": "9999-12-31T23:59:59-01:00"}, {"everInRoster": "yes"},
]  # fmt: skip


@pytest.mark.parametrize("memory", GARBAGE, ids=str)
def test_a_value_that_was_never_written_is_a_fault_with_its_path(memory: dict[str, Any]) -> None:
    with pytest.raises(MemoryDecodeError, match=rf"memory\.{next(iter(memory))}"):
        status_memory.from_status(memory)


@pytest.mark.parametrize("memory", TOO_MANY.values(), ids=TOO_MANY.keys())
def test_more_than_is_ever_written_is_refused(memory: dict[str, Any]) -> None:
    with pytest.raises(MemoryDecodeError, match="at most"):
        status_memory.from_status(memory)


def test_each_answer_of_a_registry_changes_nothing_that_is_worth_telling_but_a_new_absence_does() -> None:
    shop = service(8)
    shop.absent("p1", rounds=5, after=20)
    before = status_memory.durable_part(status_memory.to_status(shop.memory))
    shop.answer("p1", after=10)
    assert status_memory.durable_part(status_memory.to_status(shop.memory)) == before
    shop.answer("p1", "p2", after=10)
    assert status_memory.durable_part(status_memory.to_status(shop.memory)) != before


def test_a_pod_that_plainly_serves_is_remembered_by_its_uid_alone() -> None:
    shop = Registering(service().rule, [pod("p0", ip="10.0.0.1")])
    shop.answer()
    data = status_memory.to_status(shop.memory)
    assert (data["pods"], data["registered"]) == ({}, ["uid-p0"])


MANY_SAMPLES = {str(number): {"at": "2026-01-01T12:00:00Z", "value": "1"} for number in range(60)}


@pytest.mark.parametrize(
    "data",
    [
        {"pods": {f"u{index}": {"lastSample": MANY_SAMPLES} for index in range(400)}},
        {"departed": {f"u{index}": {"lastSample": {key: {} for key in MANY_SAMPLES}} for index in range(200)}},
        {"pods": {f"u{index}": {"ahead": MANY_SAMPLES} for index in range(400)}},
    ],
    ids=["samples of pods", "samples of departed pods", "samples dated ahead"],
)
def test_samples_of_more_metrics_than_a_policy_has_are_refused_before_they_are_read(data: dict[str, object]) -> None:
    with (
        patch.object(MemoryReader, "time", side_effect=AssertionError("it is read")),
        pytest.raises(MemoryDecodeError, match=r"u0\.(lastSample|ahead): has 60 items; at most \d+ are written"),
    ):
        status_memory.from_status(data)


def test_of_many_faults_of_a_status_only_the_first_are_told() -> None:
    data = {"pods": {f"u{index}": {"seen": "never", "outSince": "x"} for index in range(400)}}
    with pytest.raises(MemoryDecodeError, match="and 700 more faults") as caught:
        status_memory.from_status(data)
    assert len(caught.value.faults) == 101


def test_a_replica_that_starts_knows_the_last_load_of_a_pod_without_a_sample() -> None:
    loads: dict[str, str | int | None] = dict.fromkeys(NAMES, "300m")
    first, _ = assess_and_decide(RULE, PODS, usage(loads | {"web-9": "20"}))
    lost = usage(loads | {"web-9": None}, at=NOW + 20)
    then, before = assess_and_decide(RULE, PODS, lost, memory=first.memory, now=NOW + 30)
    _, after = assess_and_decide(RULE, PODS, lost, memory=travelled(then.memory), now=NOW + 31)
    _, forgotten = assess_and_decide(RULE, PODS, lost, now=NOW + 31)
    assert (before.desired, after.desired, forgotten.desired) == (10, 10, 9)


def test_a_replica_that_starts_knows_since_when_a_pod_is_back_in_service() -> None:
    pulled = [*PODS[:5], *(replace(one, pulled_out_annotation=True) for one in PODS[5:])]
    loads: dict[str, str | int | None] = dict.fromkeys(NAMES[:5], "300m") | dict.fromkeys(NAMES[5:], "20m")
    first, _ = assess_and_decide(RULE, pulled, usage(loads))
    back, _ = assess_and_decide(RULE, PODS, usage(loads, at=NOW + 10), memory=first.memory, now=NOW + 12)
    later = usage(loads, at=NOW + 25)  # the windows began 2 s before they were back
    _, after = assess_and_decide(RULE, PODS, later, memory=travelled(back.memory), now=NOW + 26)
    assert after.desired == 10
