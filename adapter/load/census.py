"""The pods of a target by their states, taken anew only when something that they follow from has changed.

Between two samples nearly always nothing has: the same pods, the same answer of the registry, the same memory of both.
"""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import is_

from adapter.load.assessment import PodAssessment
from adapter.load.matching import Records
from adapter.load.membership import Membership, classify, turning_points
from adapter.load.memory import Memory, PodMemory
from adapter.load.pods import Pod, PodState
from adapter.load.roster import Roster
from adapter.load.sample_columns import Row
from adapter.load.spec import Policy

_CLOSE_SECONDS = 0.01
"""So near to a turning point nothing is kept: sums of times are not exact."""
_COUNTED = (PodState.SERVING, PodState.DOUBTFUL)
_GONE = (PodState.TERMINATING, PodState.FINISHED)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Census:
    """Every pod's state, and the pods of each group; `readings` are without usage. Holds until `until` (seconds).

    `serving` and `doubtful` (by name) count for the load, `idle` start or are not Ready, `out` are pulled out; `others`
    are all but those that count. `rows`: by metric name, what of the serving and the doubtful pods does not change with
    a sample; filled where it is first needed. `found` are the pods' registrations in the roster `found_in`.
    """

    membership: Membership
    readings: tuple[PodAssessment, ...]
    counts: Mapping[PodState, int]
    serving: Sequence[PodAssessment]
    doubtful: Sequence[PodAssessment]
    idle: Sequence[PodAssessment]
    out: Sequence[PodAssessment]
    others: Sequence[PodAssessment]
    pods: tuple[Pod, ...]
    policy: Policy
    remembered: Mapping[str, PodMemory]
    at: float
    until: float
    found: Records
    found_in: Roster | None
    rows: dict[str, tuple[object, Sequence[Row], Sequence[Row]]] = field(default_factory=dict)

    @property
    def running(self) -> Iterable[PodAssessment]:
        """The pods that are neither terminating nor finished."""
        return (reading for reading in self.readings if reading.state not in _GONE)

    def has_same_pods(self, pods: Sequence[Pod]) -> bool:
        """Whether it was taken of these very pods."""
        return len(pods) == len(self.pods) and all(map(is_, pods, self.pods))

    def found_again(self, roster: Roster | None, policy: Policy, pods: Sequence[Pod]) -> Records | None:
        """The pods' registrations in this roster, None where they have to be looked up."""
        same = self.found_in is roster and self.policy.registry == policy.registry and self.has_same_pods(pods)
        return self.found if same else None

    def holds(self, policy: Policy, pods: Sequence[Pod], memory: Memory, now: float) -> bool:
        """Whether taking it anew would give the same, with nothing new in the memory of the pods."""
        return (
            self.at <= now < self.until
            and self.remembered is memory.pods
            # Equal, not only in what decides on states: rows of metrics that it once had are not kept with it.
            and (policy is self.policy or policy == self.policy)
            and self.found_in is memory.last_valid
            and self.has_same_pods(pods)
        )


def take(policy: Policy, pods: Sequence[Pod], memory: Memory, found: Records, now: float) -> Census:
    """The census of these pods, from a memory that knows the latest roster, in which the pods were `found`."""
    membership = classify(policy, pods, memory, now, found)
    readings = tuple(_reading(pod, membership) for pod in pods)
    by_state: dict[PodState, list[PodAssessment]] = {state: [] for state in PodState}
    for reading in readings:
        by_state[reading.state].append(reading)
    turns = (at for at in turning_points(policy, pods, memory, found) if at > now - _CLOSE_SECONDS)
    return Census(
        membership=membership,
        readings=readings,
        counts=Counter({state: len(group) for state, group in by_state.items() if group}),
        serving=by_state[PodState.SERVING],
        doubtful=sorted(by_state[PodState.DOUBTFUL], key=lambda reading: reading.pod.name),
        idle=[*by_state[PodState.STARTING], *by_state[PodState.UNREADY]],
        out=by_state[PodState.PULLED_OUT],
        others=[reading for reading in readings if reading.state not in _COUNTED],
        pods=tuple(pods),
        policy=policy,
        remembered=memory.pods,
        at=now,
        until=min(turns, default=math.inf) - _CLOSE_SECONDS,
        found=found,
        found_in=memory.last_valid,
    )


def _reading(pod: Pod, membership: Membership) -> PodAssessment:
    standing = membership.standings[pod.uid]
    return PodAssessment(
        pod=pod,
        state=standing.state,
        reason=standing.reason,
        evidence=standing.evidence,
        guarded=standing.guarded,
    )
