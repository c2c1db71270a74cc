"""The part of a policy's memory that travels through its status, so that all replicas and later ones know it.

Bounded: pods that do not plainly serve, at most 200; those that left of late, at most 200, with what they used; and
which UIDs were registered, at most 5,000. Samples of pods that are there stay behind: they are read anew. Only of those
whose samples fell to 0 the last ones go along, of at most 200: who does not know them believes the zeros. Of the last
valid roster only what it says of the pods goes along, and is made a roster again: so a replica that starts takes a pod
that was pulled out for pulled out also before its registry answers.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from adapter.load.memory import Memory, PodMemory, SampleMemory
from adapter.load.roster import Instance, Roster
from adapter.policy import memory_json as recollection
from adapter.policy.memory_json import MemoryDecodeError
from adapter.policy.watermark_policy import MOST_METRICS
from adapter.runtime.faults import Fault, path_of

MOST_PODS = 200
MOST_REGISTERED = 5000
REGISTERED = "registered"
_FLEETING = {"rosterAt", "rosters", "lastValid"}
_NOTHING = PodMemory()
_FOREIGN = Instance(pod_uid="of no pod here")
"""Stands for instances that are no pod's: an answer that had some was not an empty one."""


def to_status(memory: Memory) -> dict[str, Any]:
    """The memory as JSON-able data for the status."""
    # Few pods are strange, and this is done for every policy with every sample: no copies of the others.
    pods = {uid: known for uid, known in memory.pods.items() if _since(known) is not None}
    if memory.last_valid is None:
        # Doubt for want of any answer is this process's alone: others may hear what it does not.
        pods = {uid: replace(known, doubt_since=None) for uid, known in pods.items()}
    strange = {uid: known for uid, known in pods.items() if _since(known) is not None}
    kept = dict(sorted(strange.items(), key=lambda item: (_since(item[1]), item[0]))[:MOST_PODS])
    before = _before_zeros(memory)
    for uid in sorted({uid for seen in before.values() for uid in seen.last}):
        known = memory.pods.get(uid, _NOTHING)
        kept.setdefault(uid, PodMemory(seen=known.seen, served=known.served))
    left = dict(sorted(memory.departed.items(), key=lambda item: (-item[1].at, item[0]))[:MOST_PODS])
    data = recollection.memory_to_json(_ours_alone(replace(memory, pods=kept, samples=before, departed=left)))
    # A list, not a key each: the API server keeps book of every key in the object's managed fields.
    registered = sorted(uid for uid, known in memory.pods.items() if known.seen is not None)[:MOST_REGISTERED]
    return data | ({REGISTERED: registered} if registered else {})


def _ours_alone(memory: Memory) -> Memory:
    """Without what counts for one connection only: the next process sees the other services answer one by one."""
    last = memory.last_valid
    bare = replace(last, instances=(), registry_total=None, reconnected_at=None) if last is not None else None
    return replace(memory, last_valid=bare, roster_total=None, reconnected_at=None, ahead={})


def _before_zeros(memory: Memory) -> dict[str, SampleMemory]:
    """What the pods whose samples fell to 0 used before, the most loaded ones first."""
    fell: dict[str, int] = {}
    for seen in memory.samples.values():
        for uid in seen.zeros & seen.last.keys():
            fell[uid] = max(fell.get(uid, 0), seen.last[uid].value)
    kept = set(sorted(fell, key=lambda uid: (-fell[uid], uid))[:MOST_PODS])
    return {
        name: SampleMemory(last={uid: seen.last[uid] for uid in sorted(seen.zeros & seen.last.keys() & kept)})
        for name, seen in memory.samples.items()
    }


def durable_part(data: Mapping[str, Any]) -> dict[str, Any]:
    """What of a dumped memory is not overtaken by each answer of a registry: a change of that is worth telling."""
    pods = data.get("pods") or {}
    kept = {uid: {key: value for key, value in pod.items() if key != "absentCount"} for uid, pod in pods.items()}
    return {key: value for key, value in data.items() if key not in _FLEETING} | {"pods": kept}


def from_status(data: Mapping[str, Any]) -> Memory:
    """The memory from a status. Raises RecollectionError with every fault."""
    _refuse_more_than_is_written(data)
    rest = {key: value for key, value in data.items() if key != REGISTERED}
    memory = recollection.memory_from_json(rest, strict=False)
    registered = data.get(REGISTERED) or []
    if not isinstance(registered, list):
        raise MemoryDecodeError([Fault(path_of(("memory", REGISTERED)), registered, "must be a list of UIDs")])
    seen = memory.roster_at if memory.roster_at is not None else 0.0
    pods = {uid: PodMemory(seen=seen) for uid in registered if isinstance(uid, str)} | dict(memory.pods)
    last = memory.last_valid
    return replace(memory, pods=pods, last_valid=_told(memory, last, pods) if last is not None else None)


def _refuse_more_than_is_written(data: Mapping[str, Any]) -> None:
    """Raises RecollectionError where reading would take long: `to_status` writes no more."""
    last = data.get("lastValid")
    _at_most(data.get("pods"), 2 * MOST_PODS, "pods")
    _at_most(data.get("departed"), MOST_PODS, "departed")
    _at_most(data.get("ahead"), 0, "ahead")
    _at_most(last.get("instances") if isinstance(last, Mapping) else None, 0, "lastValid.instances")
    _at_most(data.get(REGISTERED), MOST_REGISTERED, REGISTERED)
    for key in ("pods", "departed"):
        pods = data.get(key)
        for uid, pod in pods.items() if isinstance(pods, Mapping) else ():
            if isinstance(pod, Mapping):
                _at_most(pod.get("lastSample"), MOST_METRICS, f"{key}.{uid}.lastSample")
                _at_most(pod.get("ahead"), 0, f"{key}.{uid}.ahead")


def _at_most(value: object, most: int, key: str) -> None:
    if isinstance(value, Mapping | list) and len(value) > most:
        raise MemoryDecodeError([Fault(f"memory.{key}", None, f"has {len(value)} items; at most {most} are written")])


def _told(memory: Memory, last: Roster, pods: Mapping[str, PodMemory]) -> Roster:
    """The last valid roster as far as it told of pods: those it listed, and whether it called them out."""
    listed = [
        Instance(pod_uid=uid, enabled=known.out_since is None and known.doubt_since is None)
        for uid, known in pods.items()
        if known.seen is not None and known.absent_since is None
    ]
    return replace(last, instances=tuple(listed) if memory.empty_since is not None else (*listed, _FOREIGN))


def _since(known: PodMemory) -> float | None:
    """Since when a pod has not plainly served; None where it does."""
    moments = (known.absent_since, known.out_since, known.doubt_since)
    return min((at for at in moments if at is not None), default=None)
