"""The part of a policy's memory that is kept in its status, for other replicas and for processes that start later.

Since when pods are pulled out or doubtful (at most 200 of them), and since when nothing could be decided. With it an
absent pod still counts as registered before, and an old doubt as old. Everything else a process observes itself.
"""

from collections.abc import Mapping
from heapq import nsmallest
from typing import Any

import msgspec

from adapter.load.memory import Memory, PodMemory
from adapter.load.pods import AWAY, PodState
from adapter.policy.documents import type_fault
from adapter.runtime.faults import Fault
from adapter.runtime.times import format_micro_time, parse_time

MOST_AWAY = 200
MOST_UID = 63


class MemoryDecodeError(ValueError):
    """The data is not a memory; `fault` has the path, the value and the remedy."""

    def __init__(self, fault: Fault) -> None:
        self.fault = fault
        super().__init__(str(fault))


class _Away(msgspec.Struct):
    since: str
    state: str


class _StatusMemory(msgspec.Struct, rename="camel"):
    away: dict[str, _Away] = {}
    error_since: str | None = None


def to_status(memory: Memory) -> dict[str, Any]:
    """The memory as JSON data for the status; the longest away where there are too many."""
    away = {uid: pod for uid, pod in memory.pods.items() if pod.state in AWAY}
    kept = nsmallest(MOST_AWAY, away, key=lambda uid: (away[uid].since, uid))
    data: dict[str, Any] = {
        uid: {
            "since": format_micro_time(away[uid].since),
            "state": str(PodState.PULLED_OUT if away[uid].was_out else PodState.DOUBTFUL),
        }
        for uid in kept
    }
    return ({"away": data} if data else {}) | (
        {} if memory.error_since is None else {"errorSince": format_micro_time(memory.error_since)}
    )


def from_status(data: Mapping[str, Any]) -> Memory:
    """The memory from a status or a document. Raises MemoryDecodeError with the path of the first fault."""
    try:
        memory = msgspec.convert(data, _StatusMemory)
    except msgspec.ValidationError as error:
        raise MemoryDecodeError(type_fault(error)) from error
    if len(memory.away) > MOST_AWAY:
        raise MemoryDecodeError(Fault("away", None, f"has {len(memory.away)} items; at most {MOST_AWAY} are read"))
    pods = {}
    for uid, pod in memory.away.items():
        if pod.state not in AWAY:
            raise MemoryDecodeError(Fault(f"away.{uid[:MOST_UID]}.state", pod.state, "must be pulledOut or doubtful"))
        since, is_out = _time(f"away.{uid[:MOST_UID]}.since", pod.since), pod.state == PodState.PULLED_OUT
        pods[uid] = PodMemory(
            PodState(pod.state),
            since,
            registered=is_out,  # so its absence stays confirmed
            absent_since=since if is_out else None,
            was_out=is_out,
            turned_at=since,
        )
    error_since = None if memory.error_since is None else _time("errorSince", memory.error_since)
    return Memory(pods=pods, error_since=error_since)


def _time(path: str, text: str) -> float:
    seconds = parse_time(text)
    if seconds is None:
        raise MemoryDecodeError(Fault(path, text, "must be a time such as 2026-01-01T12:00:00Z"))
    return seconds
