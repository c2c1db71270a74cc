"""The part of a policy's memory that travels through its status, so that all replicas and later ones know it.

Bounded: pods that do not plainly serve, at most 200, and which UIDs were registered. Samples and the last roster stay
behind: they are read anew.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from adapter.load.memory import Memory, PodMemory
from adapter.policy import memory as recollection

MOST_PODS = 200
REGISTERED = "registered"


def dump(memory: Memory) -> dict[str, Any]:
    """The memory as JSON-able data for the status."""
    strange = {uid: replace(known, last_sample={}) for uid, known in memory.pods.items() if _since(known) is not None}
    kept = dict(sorted(strange.items(), key=lambda item: (_since(item[1]), item[0]))[:MOST_PODS])
    data = recollection.dump(replace(memory, pods=kept, last_valid=None))
    # A list, not a key each: the API server keeps book of every key in the object's managed fields.
    registered = sorted(uid for uid, known in memory.pods.items() if known.seen is not None)
    return data | ({REGISTERED: registered} if registered else {})


def load(data: Mapping[str, Any]) -> Memory:
    """The memory from a status. Raises RecollectionError with every fault."""
    rest = {key: value for key, value in data.items() if key != REGISTERED}
    memory = recollection.load(rest)
    registered = data.get(REGISTERED, ())
    seen = memory.roster_at or 0.0
    known = {str(uid): PodMemory(seen=seen) for uid in registered}
    return replace(memory, pods={**known, **memory.pods})


def _since(known: PodMemory) -> float | None:
    """Since when a pod has not plainly served; None where it does."""
    moments = (known.absent_since, known.out_since, known.doubt_since)
    return min((at for at in moments if at is not None), default=None)
