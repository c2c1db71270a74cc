"""The part of a policy's memory that is kept in its status, for other replicas and for replicas that start later.

It is bounded: at most 200 pods that do not serve without doubt; at most 200 departed pods with their last samples; and
at most 5,000 UIDs of registered pods. Samples of existing pods are left out, since every replica reads them itself. The
exception are the last samples of at most 200 pods of which no sample counts now: without them a replica would believe a
sample that fell to 0, and take a pod without a sample for one that never had much load. Of the last valid roster only
its facts about the pods are kept; reading makes a roster of them again, so that a replica that starts treats a pulled-
out pod as pulled out before its registry answers.
"""

from collections.abc import Mapping
from dataclasses import replace
from heapq import nsmallest
from typing import Any

from adapter.load.memory import Beyond, Kept, Listed, Memory, PodMemory, SampleMemory
from adapter.load.roster import Instance
from adapter.policy import memory_json
from adapter.policy.memory_json import MemoryDecodeError, MemoryReader
from adapter.policy.watermark_policy import MOST_METRICS
from adapter.runtime.faults import first_faults

MOST_STATUS_PODS = 200
MOST_REGISTERED = 5000
REGISTERED = "registered"
_MOST = {
    "pods": 2 * MOST_STATUS_PODS, "departed": MOST_STATUS_PODS, "lastSample": MOST_METRICS, "beyond": MOST_METRICS,
    "ahead": 0, "instances": 0,
}  # fmt: skip
"""More than these are never written, and would take long to read."""
_FOREIGN = Instance(pod_uid="of no pod here")
"""Stands for the instances of no pod, so that a roster that had only such instances is not read as empty."""


def to_status(memory: Memory) -> dict[str, Any]:
    """The memory as JSON data for the status."""
    remembered = memory.pods
    if memory.last_valid is None:
        # Doubt because no answer ever came is local to this process: other replicas may have answers.
        remembered = {uid: replace(pod, doubt_since=None) for uid, pod in remembered.items()}
    # Since when a pod is absent, out, in doubt or back; none that simply serves.
    since: dict[str, float] = {}
    for uid, pod in remembered.items():
        moments = [pod.absent_since, pod.out_since, pod.doubt_since, pod.back_since]
        if pod.served and _listing(pod) != Listed.IN:
            moments.append(pod.seen)  # it is not Ready, and the registry would not have it serve if it were
        if known := [at for at in moments if at is not None]:
            since[uid] = min(known)
    pods = {uid: remembered[uid] for uid in _foremost(since)}
    # Of pods of which no sample counts now the last ones, the most loaded pods first.
    largest: dict[str, int] = {}
    for seen in memory.samples.values():
        for uid in seen.lacking & seen.last.keys():
            largest[uid] = max(largest.get(uid, 0), seen.last[uid].value)
    kept = set(_foremost({uid: -value for uid, value in largest.items()}))
    samples = {
        name: SampleMemory(last={uid: seen.last[uid] for uid in sorted(seen.lacking & seen.last.keys() & kept)})
        for name, seen in memory.samples.items()
    }
    for uid in sorted({uid for seen in samples.values() for uid in seen.last}):
        pods.setdefault(uid, replace(memory.pod(uid), doubt_since=None))
    last = _foremost({uid: -pod.at for uid, pod in memory.departed.items()})
    bounded = replace(memory, pods=pods, samples=samples, departed={uid: memory.departed[uid] for uid in last})
    data = memory_json.memory_to_json(bounded, Kept.IN_DOCUMENTS)
    # A list instead of one key each: managedFields records every key of an object.
    listed = (uid for uid, pod in memory.pods.items() if pod.seen is not None and not pod.registration_lost)
    registered = nsmallest(MOST_REGISTERED, listed)
    return data | ({REGISTERED: registered} if registered else {})


def _foremost(order: Mapping[str, float]) -> list[str]:
    """The first MOST_STATUS_PODS UIDs in this order."""
    return nsmallest(MOST_STATUS_PODS, order, key=lambda uid: (order[uid], uid))


def durable_part(data: Mapping[str, Any]) -> dict[str, Any]:
    """The part of a status's memory that does not change with every roster: only its changes need a write."""
    kinds = {"pods": PodMemory, "beyond": Beyond}
    nested = {
        key: {name: _durable(entry, kinds[key]) for name, entry in data[key].items()} for key in kinds if key in data
    }
    return _durable(data, Memory) | nested


def _durable(data: Mapping[str, Any], kind: type) -> dict[str, Any]:
    lazy = memory_json.lazy_keys(kind)
    return {key: value for key, value in data.items() if key not in lazy}


def from_status(data: Mapping[str, Any]) -> Memory:
    """The memory from a status. Raises MemoryDecodeError with every fault."""
    reader = MemoryReader(strict=False, most=_MOST)
    memory = reader.memory(data, ("memory",))
    registered = reader.sequence(data.get(REGISTERED), ("memory", REGISTERED))
    if reader.faults:
        raise MemoryDecodeError(first_faults(reader.faults))
    registered_pod = PodMemory(seen=memory.roster_at if memory.roster_at is not None else 0.0)
    pods = {uid: registered_pod for uid in registered if isinstance(uid, str)} | dict(memory.pods)
    if memory.last_valid is None:
        return replace(memory, pods=pods)
    # The last valid roster as the pods' memory has it: the pods that it listed, and whether as enabled.
    listings = {uid: _listing(pod) for uid, pod in pods.items()}
    listed = [
        Instance(pod_uid=uid, enabled=listing != Listed.OUT)
        for uid, listing in listings.items()
        if listing != Listed.ABSENT
    ]
    instances = tuple(listed) if memory.empty_since is not None else (*listed, _FOREIGN)
    return replace(memory, pods=pods, last_valid=replace(memory.last_valid, instances=instances))


def _listing(pod: PodMemory) -> Listed:
    """What the last valid roster said of a pod. A registered one of which nothing else is known was in."""
    if pod.seen is None or pod.absent_since is not None or pod.registration_lost:
        return Listed.ABSENT
    return pod.listing or (Listed.IN if pod.out_since is None and pod.doubt_since is None else Listed.OUT)
