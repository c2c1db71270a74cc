"""The memory in a policy's status: the pods that are away, and since when nothing can be decided."""

import json
from typing import Any

import msgspec
import pytest

from adapter.load.memory import LastSample, Memory, MetricMemory, PodMemory
from adapter.load.pods import PodState
from adapter.policy import status_memory
from adapter.policy.status_memory import MemoryDecodeError
from tests.load.kit import NOW, assess_and_decide, cpu, out, pod, policy, usage

OUT = PodMemory(PodState.PULLED_OUT, NOW - 60, registered=True, absent_since=NOW - 60, was_out=True, turned_at=NOW - 60)
DOUBTFUL = PodMemory(PodState.DOUBTFUL, NOW - 33.25, turned_at=NOW - 33.25)


def restored(memory: Memory) -> Memory:
    """The memory after it was written to a status and read again."""
    return status_memory.from_status(json.loads(msgspec.json.encode(status_memory.to_status(memory))))


def test_pods_away_and_the_begin_of_an_error_are_restored() -> None:
    memory = Memory(pods={"a": OUT, "b": DOUBTFUL}, error_since=NOW - 5)
    assert restored(memory) == memory


def test_everything_else_stays_in_the_process() -> None:
    memory = Memory(
        pods={"a": PodMemory(PodState.SERVING, NOW, registered=True)},
        metrics={"cpu": MetricMemory(last={"a": LastSample(NOW, 5)})},
        started_at=NOW, last_replicas=3, rose_at=NOW, zero_since=NOW,
    )  # fmt: skip
    assert status_memory.to_status(memory) == {}


def test_of_more_than_200_pods_the_longest_away_are_written() -> None:
    pods = {f"u{index:03}": PodMemory(PodState.DOUBTFUL, NOW - index) for index in range(600)}
    data = status_memory.to_status(Memory(pods=pods))
    assert sorted(data["away"]) == [f"u{index}" for index in range(400, 600)]
    assert len(msgspec.json.encode(data)) < 20_000


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
        {"away": []}, {"away": {"u": 5}}, {"away": {"u": {"since": "x", "state": "doubtful"}}}, {"errorSince": "soon"},
        {"away": {"u": {"state": "doubtful"}}}, {"errorSince": 5},
        {"away": {"u": {"since": "2026-01-01T12:00:00Z", "state": "serving"}}},
    ],
    ids=str,
)  # fmt: skip
def test_a_value_that_is_never_written_is_refused_with_its_path(data: dict[str, Any]) -> None:
    with pytest.raises(MemoryDecodeError, match=next(iter(data))):
        status_memory.from_status(data)


def test_keys_of_other_versions_are_ignored() -> None:
    assert status_memory.from_status({"rosters": 5, "pods": {"u": {"seen": "x"}}}) == Memory()
