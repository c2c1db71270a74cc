"""The memory in a policy's status: the pods that are away, and since when nothing can be decided."""

import json
from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from adapter.load.memory import LastSample, Memory, MetricMemory, PodMemory
from adapter.load.pods import PodState
from adapter.policy import status_memory
from adapter.policy.documents import PolicyError
from tests.load.kit import NOW, assess_and_decide, cpu, out, pod, policy, usage

OUT = PodMemory(PodState.PULLED_OUT, NOW - 60, registered=True, absent_since=NOW - 60, was_out=True, turned_at=NOW - 60)
DOUBTFUL = PodMemory(PodState.DOUBTFUL, NOW - 33.25, turned_at=NOW - 33.25)
LARGEST = 4096


def uuid(index: int) -> str:
    return f"{index:08x}-0000-4000-8000-000000000000"


def restored(memory: Memory) -> Memory:
    """The memory after it was written to a status and read again, by a process that sees all its pods."""
    status = json.loads(msgspec.json.encode(status_memory.to_status(memory)))
    pods = [pod(uid, uid=uid, age=86_400) for uid in [*memory.pods, uuid(10**6)]]
    return status_memory.from_status(status).of(pods)


@pytest.mark.parametrize("uids", [("a", "b"), (uuid(1), uuid(2))], ids=["of a document", "of the API server"])
def test_pods_away_and_the_begin_of_an_error_are_restored(uids: tuple[str, str]) -> None:
    memory = Memory(pods=dict(zip(uids, (OUT, DOUBTFUL), strict=True)), error_since=NOW - 5)
    assert restored(memory) == memory


def test_everything_else_stays_in_the_process() -> None:
    memory = Memory(
        pods={"a": PodMemory(PodState.SERVING, NOW, registered=True)},
        metrics={"cpu": MetricMemory(last={"a": LastSample(NOW, 5)})},
        started_at=NOW, last_replicas=3, rose_at=NOW,
    )  # fmt: skip
    assert status_memory.to_status(memory) == {}


@pytest.mark.parametrize("moments", [1, 4, 40, 200, 600])
def test_a_status_remembers_200_pods_in_4_kb_whatever_their_times(moments: int) -> None:
    pods: Mapping[str, PodMemory] = {
        uuid(index): (OUT if index % 3 else DOUBTFUL)._replace(since=NOW - index % moments) for index in range(600)
    }
    memory = Memory(pods=pods, error_since=NOW)
    assert len(msgspec.json.encode({"memory": status_memory.to_status(memory)})) <= LARGEST
    after = restored(memory)
    assert len(after.pods) == 200  # the longest away
    assert min(each.since for uid, each in pods.items() if uid in after.pods) == min(e.since for e in pods.values())
    for uid, each in after.pods.items():
        assert each.since <= pods[uid].since  # never away for a shorter time: then it might not be replaced
        assert each.state is pods[uid].state
    latest = sorted({each.since for uid, each in pods.items() if uid in after.pods})[-15:]
    for uid in after.pods:
        if pods[uid].since in latest:
            assert after.pods[uid].since == pods[uid].since


def test_a_time_before_a_pod_was_last_ready_does_not_begin_its_absence_again() -> None:
    """Its earlier time is that of the pods that share its line."""
    read = status_memory.from_status({"away": ["pulledOut 2026-01-01T11:00:00Z uid-a"]})
    [there] = read.of([pod("a", ready_for=600)]).pods.values()
    assert (there.since, there.absent_since) == (NOW - 3600, NOW - 600)


def test_a_pulled_out_pod_is_replaced_after_a_restart_as_before() -> None:
    rule = policy(cpu("1200m"), replace_after=60)
    pods = [*(pod(f"web-{index}") for index in range(4)), out("web-4")]
    samples = usage({one.name: "1500m" for one in pods})
    first, _ = assess_and_decide(rule, pods, samples, now=NOW - 600)
    _, before = assess_and_decide(rule, pods, samples, memory=first.memory)
    _, after = assess_and_decide(rule, pods, samples, memory=restored(first.memory))
    _, forgotten = assess_and_decide(rule, pods, samples)
    assert (before.desired, after.desired, forgotten.desired) == (6, 6, 5)


@pytest.mark.parametrize(
    "data",
    [
        {"away": {}}, {"away": {"u": {"since": "2026-01-01T12:00:00Z", "state": "doubtful"}}}, {"away": "u"},
        {"away": [5]}, {"away": ["doubtful 2026-01-01T12:00:00Z"]}, {"away": ["serving 2026-01-01T12:00:00Z u"]},
        {"away": ["doubtful 2026-99-01T12:00:00Z u"]}, {"away": ["doubtful x u"]}, {"away": ["u"] * 41},
        {"errorSince": "soon"}, {"errorSince": 5},
    ],
    ids=str,
)  # fmt: skip
def test_a_value_that_is_never_written_is_refused_with_its_path(data: dict[str, Any]) -> None:
    with pytest.raises(PolicyError, match=next(iter(data))):
        status_memory.from_status(data)


def test_keys_of_other_versions_are_ignored() -> None:
    assert status_memory.from_status({"rosters": 5, "pods": {"u": {"seen": "x"}}}).of([]) == Memory()
