"""The part of a policy's memory that is kept in its status, for other replicas and for processes that start later.

Since when pods are pulled out or doubtful (at most 200 of them), and since when nothing could be decided. With it an
absent pod still counts as registered before, and an old doubt as old. Everything else a process observes itself.

Pods that turned at the same moment share a line, `pulledOut 2026-01-01T12:00:00.000000Z 0a1b2c3d 4e5f6a7b`, which has
the first eight characters of their UIDs: less than 4 KB in all, whatever the times are.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from heapq import nsmallest
from typing import Annotated, Any

import msgspec

from adapter.load.memory import Memory, PodMemory
from adapter.load.pods import AWAY, Pod, PodState
from adapter.policy.documents import PolicyError, type_fault
from adapter.runtime.faults import Fault
from adapter.runtime.times import format_micro_time, parse_time

MOST_AWAY = 200
MOST_TIMES = 20
"""The times that are told apart. The pods that have been away longest share the earliest time where there are more."""
_LINE = re.compile(f"({'|'.join(AWAY)}) (\\S+) (.*\\S.*)")
_UUID = re.compile(r"[0-9a-f]{8}-[-0-9a-f]+")


class _Written(msgspec.Struct, rename="camel"):
    away: Annotated[tuple[str, ...], msgspec.Meta(max_length=MOST_TIMES * len(AWAY))] = ()
    error_since: Annotated[datetime, msgspec.Meta(tz=True)] | None = None


@dataclass(frozen=True, slots=True)
class StatusMemory:
    """The memory in a status: the state and its time (seconds) by the short UID of a pod."""

    away: Mapping[str, tuple[PodState, float]]
    error_since: float | None

    def of(self, pods: Iterable[Pod]) -> Memory:
        """The memory of these pods. What began before a pod was last Ready counts from then, as while it was seen."""
        found = {}
        for pod in pods:
            if (away := self.away.get(_short(pod.uid))) is not None:
                state, since = away
                is_out = state is PodState.PULLED_OUT  # then it is registered, so that its absence stays confirmed
                absent = max(since, pod.ready_since) if is_out else None
                found[pod.uid] = PodMemory(
                    state, since, registered=is_out, absent_since=absent, was_out=is_out, turned_at=since
                )
        return Memory(pods=found, error_since=self.error_since)


def to_status(memory: Memory) -> dict[str, Any]:
    """The memory as JSON data for the status; the longest away where there are too many.

    A pod whose time is not told apart looks away for longer than it is: it is replaced sooner, and its absence stays
    confirmed. Away for a shorter time, it might no longer keep the count.
    """
    away = {uid: pod for uid, pod in memory.pods.items() if pod.state in AWAY}
    kept = nsmallest(MOST_AWAY, away, key=lambda uid: (away[uid].since, uid))
    times = sorted({away[uid].since for uid in kept})
    lines: dict[tuple[PodState, float], list[str]] = {}
    for uid in kept:
        state = PodState.PULLED_OUT if away[uid].was_out else PodState.DOUBTFUL
        at = away[uid].since if away[uid].since in times[1 - MOST_TIMES :] else times[0]
        lines.setdefault((state, at), []).append(_short(uid))
    data: dict[str, Any] = {}
    if lines:
        data["away"] = [f"{state} {format_micro_time(at)} {' '.join(uids)}" for (state, at), uids in lines.items()]
    if memory.error_since is not None:
        data["errorSince"] = format_micro_time(memory.error_since)
    return data


def from_status(data: Mapping[str, Any]) -> StatusMemory:
    """The memory from a status or a document. Raises PolicyError with the first fault."""
    try:
        written = msgspec.convert(data, _Written)
    except msgspec.ValidationError as error:
        raise PolicyError([type_fault(error)]) from error
    away: dict[str, tuple[PodState, float]] = {}
    for index, line in enumerate(written.away):
        found = _LINE.fullmatch(line)
        since = parse_time(found[2]) if found else None
        if found is None or since is None:
            advice = "write `pulledOut` or `doubtful`, the time, and the first eight characters of the UIDs"
            raise PolicyError([Fault(f"away[{index}]", line, advice)])
        away |= dict.fromkeys(found[3].split(), (PodState(found[1]), since))
    return StatusMemory(away, None if written.error_since is None else written.error_since.timestamp())


def _short(uid: str) -> str:
    """The first eight characters of a UUID; another UID whole, as documents may have it."""
    return uid[:8] if _UUID.fullmatch(uid) else uid
