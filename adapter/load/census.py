"""The pods of a target grouped by state, kept from one assessment to the next as long as nothing changes a state.

Between two samples usually nothing does: pods, roster and the memory of both stay the same objects.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import is_
from typing import Any, TypeVar

from adapter.load.assessment import Assessment, PodAssessment
from adapter.load.matching import Registrations, matched_by
from adapter.load.membership import Classification, classify_in_steps, turning_points, turning_points_of_pods
from adapter.load.memory import Memory, PodMemory
from adapter.load.pod_assessments import without_usage
from adapter.load.pods import Pod, PodState
from adapter.load.roster import Roster
from adapter.load.sample_columns import MetricRows
from adapter.load.spec import Policy
from adapter.load.steps import Steps, collected, selected, sorted_in_steps
from adapter.load.totals import Band

T = TypeVar("T")
CLOSE_SECONDS = 0.01
"""Nothing that is kept holds this close to a turning point: sums of floating-point times are not exact."""
_COUNTED = (PodState.SERVING, PodState.DOUBTFUL)
_STEP = 2048
"""Pods that are grouped in one step."""
_GONE = (PodState.TERMINATING, PodState.FINISHED)


@dataclass(slots=True, kw_only=True, eq=False)
class Census:
    """Every pod's state, and the pods of each group, without usage. Valid from `at` until `until` (seconds).

    `states` are by UID, `assessed` are all pods. `serving` and `doubtful` (by name) count for the load, `idle` start or
    are not Ready, `out` are pulled out; `others` are all that do not count. `registrations` are those of the pods in
    `roster`. `pods`, `policy` and `remembered` are what it was taken of.

    For the next census: `settled` is the memory of the pods after it, and `moved` are the UIDs for which that differs
    from `remembered`. `unregistered` are those that the next roster may change, though it lists the same. No pod
    changes its state by age before `pods_until`. `is_guarded`: a pod's state depends on those of others. `changed` are
    the UIDs of the pods that are not as in the previous census, None if there was none; `anew` those that exist.

    Three fields keep what others derive from it: `rows` has the static rows by metric name, `last_rows` those of the
    previous census that are not taken over yet (`metric_assessment`), and `groups` the latest `pod_groups.PodGroups`
    with what they hold for. `bands` are the bands of the metrics with samples of pods. `derived` has what others
    computed of its pods or of `settled`, by name (`derived_from`).
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
    pods_until: float
    registrations: Registrations
    roster: Roster | None
    is_guarded: bool
    settled: Mapping[str, PodMemory] = field(default_factory=dict)
    moved: frozenset[str] = frozenset()
    unregistered: frozenset[str] = frozenset()
    changed: frozenset[str] | None = None
    anew: Sequence[PodAssessment] = ()
    rows: dict[str, MetricRows] = field(default_factory=dict)
    last_rows: dict[str, MetricRows] = field(default_factory=dict)
    groups: object = None
    bands: dict[str, Band] = field(default_factory=dict)
    derived: dict[str, Any] = field(default_factory=dict)

    @property
    def running(self) -> Iterable[PodAssessment]:
        """The pods that are neither terminating nor finished."""
        return (one for one in self.assessed if one.state not in _GONE)

    def registrations_in(self, roster: Roster | None, policy: Policy, pods: Sequence[Pod]) -> Registrations | None:
        """The known registrations of these pods in this roster; None where they have to be matched again."""
        same = lists_the_same(roster, self.roster) and self.policy.registry == policy.registry
        return self.registrations if same and self._are_registered_alike(pods) else None

    def _are_registered_alike(self, pods: Sequence[Pod]) -> bool:
        """Whether each pod, in any order, is the same as before in all that registrations are matched by."""
        if len(pods) != len(self.pods):
            return False
        before = {pod.uid: pod for pod in self.pods}
        return all((known := before.get(pod.uid)) is not None and is_matched_alike(pod, known) for pod in pods)

    def holds(self, policy: Policy, pods: Sequence[Pod], memory: Memory, now: float) -> bool:
        """Whether a new census would be equal and add nothing to the memory of the pods."""
        return (
            self.at <= now < self.until
            and self.remembered is memory.pods
            and self.is_of(policy)
            and self.roster is memory.last_valid
            and self._has_same_pods(pods)
        )

    def is_of(self, policy: Policy) -> bool:
        """Whether it was taken for this policy.

        The whole policy, although few fields decide on states: `rows` must not outlive their metrics.
        """
        return policy is self.policy or policy == self.policy

    def _has_same_pods(self, pods: Sequence[Pod]) -> bool:
        """Whether these are the very objects that it was taken of."""
        return len(pods) == len(self.pods) and all(map(is_, pods, self.pods))


def derived_from(assessment: Assessment, name: str, compute: Callable[[Sequence[PodAssessment]], T]) -> T:
    """What is computed of the pods of an assessment alone; computed once as long as the census is the same."""
    census, pods = assessment.memory.census, without_usage(assessment.pods)
    if not isinstance(census, Census) or census.assessed is not pods:
        return compute(pods)
    if name not in census.derived:
        census.derived[name] = compute(pods)
    known: T = census.derived[name]
    return known


def derived_from_memory(memory: Memory, name: str, compute: Callable[[Mapping[str, PodMemory]], T]) -> T:
    """What is computed of the memory of pods alone; computed once as long as it is the same."""
    census = memory.census
    if not isinstance(census, Census) or census.settled is not memory.pods:
        return compute(memory.pods)
    if name not in census.derived:
        census.derived[name] = compute(memory.pods)
    known: T = census.derived[name]
    return known


def lists_the_same(roster: Roster | None, other: Roster | None) -> bool:
    """Whether the registrations are the same in both rosters, and mean the same."""
    if roster is None or other is None:
        return roster is other
    return (
        roster.protected is other.protected
        and roster.absence_counts is other.absence_counts
        and (roster.instances is other.instances or roster.instances == other.instances)
    )


def is_matched_alike(pod: Pod, known: Pod) -> bool:
    """Whether registrations are matched to both pods alike."""
    return pod is known or matched_by(pod) == matched_by(known)


def take_census(
    policy: Policy, pods: Sequence[Pod], memory: Memory, registrations: Registrations, now: float
) -> Steps[Census]:
    """Classify the pods. `memory` already counts the latest roster, and `registrations` are those of the pods in it."""
    states = yield from classify_in_steps(policy, pods, memory, now, registrations)
    assessed = yield from collected(classified(pod, states[pod.uid]) for pod in pods)
    points = turning_points_of_pods(policy, pods, memory.pods.values(), registrations.values())
    turns = yield from selected(lambda at: at > now - CLOSE_SECONDS, points)
    return (
        yield from census_of(
            policy,
            memory,
            assessed=assessed,
            states=states,
            registrations=registrations,
            now=now,
            pods_until=min(turns, default=math.inf) - CLOSE_SECONDS,
            is_guarded=bool((yield from selected(lambda one: one.by_absence or one.guarded, states.values()))),
        )
    )


def census_of(
    policy: Policy,
    memory: Memory,
    *,
    assessed: Sequence[PodAssessment],
    states: Mapping[str, Classification],
    registrations: Registrations,
    now: float,
    pods_until: float,
    is_guarded: bool = False,
) -> Steps[Census]:
    """The census of pods that are classified."""
    by_state: dict[PodState, list[PodAssessment]] = {state: [] for state in PodState}
    for first in range(0, len(assessed), _STEP):
        for one in assessed[first : first + _STEP]:
            by_state[one.state].append(one)
        yield
    doubtful = yield from sorted_in_steps(by_state[PodState.DOUBTFUL], _name)
    others: Sequence[PodAssessment] = ()
    if sum(len(by_state[state]) for state in _COUNTED) < len(assessed):
        others = yield from selected(lambda one: one.state not in _COUNTED, assessed)
    return Census(
        states=states,
        assessed=tuple(assessed),
        counts=Counter({state: len(group) for state, group in by_state.items() if group}),
        serving=by_state[PodState.SERVING],
        doubtful=doubtful,
        idle=[*by_state[PodState.STARTING], *by_state[PodState.UNREADY]],
        out=by_state[PodState.PULLED_OUT],
        others=others,
        pods=tuple([one.pod for one in assessed]),
        policy=policy,
        remembered=memory.pods,
        at=now,
        until=min(
            [pods_until, *(at - CLOSE_SECONDS for at in turning_points(policy, memory) if at > now - CLOSE_SECONDS)]
        ),
        pods_until=pods_until,
        registrations=registrations,
        roster=memory.last_valid,
        is_guarded=is_guarded,
    )


def _name(one: PodAssessment) -> str:
    return one.pod.name


def classified(pod: Pod, known: Classification) -> PodAssessment:
    """The pod in this state."""
    return PodAssessment(
        pod=pod, state=known.state, reason=known.reason, evidence=known.evidence, guarded=known.guarded
    )
