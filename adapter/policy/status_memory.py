"""The part of a policy's memory that is kept in its status, for other replicas and for processes that start later.

Since when pods are pulled out or doubtful (at most 200 of them), and since when nothing could be decided. With it an
absent pod still counts as registered before, and an old doubt as old. Everything else a process observes itself.
"""

from collections.abc import Mapping
from datetime import datetime
from heapq import nsmallest
from typing import Annotated, Any, Literal

import msgspec

from adapter.load.memory import Memory, PodMemory
from adapter.load.pods import AWAY, PodState
from adapter.policy.documents import type_fault
from adapter.runtime.faults import Fault
from adapter.runtime.times import format_micro_time

MOST_AWAY = 200


class MemoryDecodeError(ValueError):
    """The data is not a memory; `fault` has the path, the value and the remedy."""

    def __init__(self, fault: Fault) -> None:
        self.fault = fault
        super().__init__(str(fault))


_Time = Annotated[datetime, msgspec.Meta(tz=True)]


class _Away(msgspec.Struct):
    since: _Time
    state: Literal["pulledOut", "doubtful"]


class _StatusMemory(msgspec.Struct, rename="camel"):
    away: Annotated[dict[str, _Away], msgspec.Meta(max_length=MOST_AWAY)] = {}
    error_since: _Time | None = None


def to_status(memory: Memory) -> dict[str, Any]:
    """The memory as JSON data for the status; the longest away where there are too many."""
    away = {uid: pod for uid, pod in memory.pods.items() if pod.state in AWAY}
    kept = nsmallest(MOST_AWAY, away, key=lambda uid: (away[uid].since, uid))
    states = {uid: PodState.PULLED_OUT if away[uid].was_out else PodState.DOUBTFUL for uid in kept}
    data: dict[str, Any] = {}
    if kept:
        data["away"] = {uid: {"since": format_micro_time(away[uid].since), "state": str(states[uid])} for uid in kept}
    if memory.error_since is not None:
        data["errorSince"] = format_micro_time(memory.error_since)
    return data


def from_status(data: Mapping[str, Any]) -> Memory:
    """The memory from a status or a document. Raises MemoryDecodeError with the path of the first fault."""
    try:
        memory = msgspec.convert(data, _StatusMemory)
    except msgspec.ValidationError as error:
        raise MemoryDecodeError(type_fault(error)) from error
    pods = {}
    for uid, pod in memory.away.items():
        since, is_out = pod.since.timestamp(), pod.state == "pulledOut"
        pods[uid] = PodMemory(
            PodState(pod.state),
            since,
            registered=is_out,  # so its absence stays confirmed
            absent_since=since if is_out else None,
            was_out=is_out,
            turned_at=since,
        )
    return Memory(pods=pods, error_since=None if memory.error_since is None else memory.error_since.timestamp())
