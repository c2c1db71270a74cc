"""The pods of a target grouped by state, kept from one assessment to the next as long as nothing changes a state.

Between two samples usually nothing does: pods, roster and the memory of both stay the same objects.
"""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import is_

from adapter.load.assessment import PodAssessment
from adapter.load.matching import Registrations, matched_by
from adapter.load.membership import Classification, classify_in_steps, turning_points
from adapter.load.memory import Memory, PodMemory
from adapter.load.pods import Pod, PodState
from adapter.load.roster import Roster
from adapter.load.sample_columns import MetricRows
from adapter.load.spec import Policy
from adapter.load.steps import Steps, collected

CLOSE_SECONDS = 0.01
"""Nothing that is kept holds this close to a turning point: sums of floating-point times are not exact."""
_COUNTED = (PodState.SERVING, PodState.DOUBTFUL)
_GONE = (PodState.TERMINATING, PodState.FINISHED)


@dataclass(slots=True, kw_only=True, eq=False)
class Census:
    """Every pod's state, and the pods of each group, without usage. Valid from `at` until `until` (seconds).

    `states` are by UID, `assessed` are all pods. `serving` and `doubtful` (by name) count for the load, `idle` start or
    are not Ready, `out` are pulled out; `others` are all that do not count. `registrations` are those of the pods in
    `roster`. `pods`, `policy` and `remembered` are what it was taken of. Three fields keep what others derive from it:
    `rows` has the static rows by metric name, `last_rows` those of the last census that are not taken over yet
    (`metric_assessment`), and `groups` the latest `pod_groups.PodGroups` with what they hold for.
    """

    states: Mapping[str, Classification]
    assessed: tuple[PodAssessment, ...]
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
    registrations: Registrations
    roster: Roster | None
    rows: dict[str, MetricRows] = field(default_factory=dict)
    last_rows: dict[str, MetricRows] = field(default_factory=dict)
    groups: object = None

    @property
    def running(self) -> Iterable[PodAssessment]:
        """The pods that are neither terminating nor finished."""
        return (one for one in self.assessed if one.state not in _GONE)

    def registrations_in(self, roster: Roster | None, policy: Policy, pods: Sequence[Pod]) -> Registrations | None:
        """The known registrations of these pods in this roster; None where they have to be matched again."""
        same = self.roster is roster and self.policy.registry == policy.registry and len(pods) == len(self.pods)
        return self.registrations if same and self._are_registered_alike(pods) else None

    def _are_registered_alike(self, pods: Sequence[Pod]) -> bool:
        """Whether each pod, in any order, is the same as before in all that registrations are matched by."""
        before = {pod.uid: pod for pod in self.pods}
        for pod in pods:
            known = before.get(pod.uid)
            if known is not pod and (known is None or matched_by(known) != matched_by(pod)):
                return False
        return True

    def holds(self, policy: Policy, pods: Sequence[Pod], memory: Memory, now: float) -> bool:
        """Whether a new census would be equal and add nothing to the memory of the pods."""
        return (
            self.at <= now < self.until
            and self.remembered is memory.pods
            # The whole policy, although few fields decide on states: `rows` must not outlive their metrics.
            and (policy is self.policy or policy == self.policy)
            and self.roster is memory.last_valid
            and self._has_same_pods(pods)
        )

    def _has_same_pods(self, pods: Sequence[Pod]) -> bool:
        """Whether these are the very objects that it was taken of."""
        return len(pods) == len(self.pods) and all(map(is_, pods, self.pods))


def take_census(
    policy: Policy, pods: Sequence[Pod], memory: Memory, registrations: Registrations, now: float
) -> Steps[Census]:
    """Classify the pods. `memory` already counts the latest roster, and `registrations` are those of the pods in it."""
    states = yield from classify_in_steps(policy, pods, memory, now, registrations)
    assessed = yield from collected(_without_usage(pod, states[pod.uid]) for pod in pods)
    by_state: dict[PodState, list[PodAssessment]] = {state: [] for state in PodState}
    for one in assessed:
        by_state[one.state].append(one)
    yield
    doubtful = sorted(by_state[PodState.DOUBTFUL], key=lambda one: one.pod.name)
    yield
    points = turning_points(policy, pods, memory, registrations)
    turns = yield from collected(at for at in points if at > now - CLOSE_SECONDS)
    return Census(
        states=states,
        assessed=tuple(assessed),
        counts=Counter({state: len(group) for state, group in by_state.items() if group}),
        serving=by_state[PodState.SERVING],
        doubtful=doubtful,
        idle=[*by_state[PodState.STARTING], *by_state[PodState.UNREADY]],
        out=by_state[PodState.PULLED_OUT],
        others=[one for one in assessed if one.state not in _COUNTED],
        pods=tuple(pods),
        policy=policy,
        remembered=memory.pods,
        at=now,
        until=min(turns, default=math.inf) - CLOSE_SECONDS,
        registrations=registrations,
        roster=memory.last_valid,
    )


def _without_usage(pod: Pod, known: Classification) -> PodAssessment:
    return PodAssessment(
        pod=pod, state=known.state, reason=known.reason, evidence=known.evidence, guarded=known.guarded
    )
