"""The pods of a target that carry no certain load: which may serve soon, be replaced, or go first on the way down."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from math import inf

from adapter.load.assessment import AssessmentInputs, PodAssessment
from adapter.load.census import CLOSE_SECONDS, Census
from adapter.load.effective_usage import is_young, young_until
from adapter.load.memory import PodMemory
from adapter.load.memory_updates import replacement_ineffective, rolling_out, since_first_step
from adapter.load.pods import PodState
from adapter.load.scenarios import AwayPods
from adapter.load.spec import Policy, Target
from adapter.load.steps import Steps

LONG_DOUBT_SECONDS = 300.0
"""A pod that has been doubtful for this long may be replaced in the scenarios that count it as out."""

_NO_MEMORY = PodMemory()
_STEP = 1024
"""Pods that are grouped in one step."""
_GONE = {PodState.TERMINATING, PodState.FINISHED}


@dataclass(frozen=True, slots=True)
class PodGroups:
    """A census with the groups that every metric's scenarios need. UIDs, but for the pods of `young`.

    `away` counts the pods that are out in every scenario. `young` pods do not serve, but may soon. `long_doubtful` pods
    may not come back soon; the other doubtful ones are reserved where a scenario has them out.
    `replaceable_doubtful` may be replaced there. `young_doubtful` may only not be registered yet, and are young there.
    """

    census: Census
    away: AwayPods
    young: Sequence[PodAssessment]
    long_doubtful: frozenset[str]
    replaceable_doubtful: frozenset[str]
    young_doubtful: frozenset[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class _KnownGroups:
    """The groups of a census, and what they hold for: this memory of the pods, from `at` until `until` (seconds).

    `grouped` makes them with their census. The census keeps this, so what it keeps must not refer to it: only a full
    garbage collection would free the two, with every pod that they know.
    """

    grouped: Callable[[Census], PodGroups]
    pods: Mapping[str, PodMemory]
    first_step: float | None
    is_rolling_out: bool
    target: str
    at: float
    until: float

    def hold(self, inputs: AssessmentInputs) -> bool:
        """Whether grouping again would give the same."""
        memory = inputs.memory
        return (
            self.at <= inputs.now < self.until
            and self.pods is memory.pods
            and self.first_step == memory.replacement.first_step
            and self.is_rolling_out is rolling_out(memory, inputs.now)
            and self.target == _kind(inputs.target)
        )


def group_pods(inputs: AssessmentInputs, census: Census) -> Steps[PodGroups]:
    """Group the pods that do not surely serve. The memory of the inputs knows these pods already.

    The last groups of this census are taken where they still hold.
    """
    known = census.groups
    if isinstance(known, _KnownGroups) and known.hold(inputs):
        return known.grouped(census)
    grouped = yield from _group(inputs, census)
    memory, now = inputs.memory, inputs.now
    turn = yield from _next_turn(inputs, census)
    census.groups = _KnownGroups(
        grouped=grouped,
        pods=memory.pods,
        first_step=memory.replacement.first_step,
        is_rolling_out=rolling_out(memory, now),
        target=_kind(inputs.target),
        at=now,
        until=turn - CLOSE_SECONDS,
    )
    return grouped(census)


def _kind(target: Target | None) -> str:
    return "" if target is None else target.kind


def _next_turn(inputs: AssessmentInputs, census: Census) -> Steps[float]:
    """When a group may change although the memory stays the same (seconds); infinite where none may."""
    remembered, soonest = inputs.memory.pods, inf
    for index, pod in enumerate(one.pod for one in chain(census.idle, census.out, census.doubtful)):
        if index % _STEP == _STEP - 1:
            yield
        known = remembered.get(pod.uid, _NO_MEMORY)
        turns = [young_until(pod)]
        if known.doubt_since is not None:
            turns.append(known.doubt_since + LONG_DOUBT_SECONDS)
        if known.out_since is not None:
            turns.append(known.out_since + inputs.policy.pulled_out.replace_after)
        soonest = min([soonest, *(at for at in turns if at > inputs.now - CLOSE_SECONDS)])
    return soonest


def _group(inputs: AssessmentInputs, census: Census) -> Steps[Callable[[Census], PodGroups]]:
    """Pulled-out pods are kept in the count on the way down, except where they are deleted first."""
    policy, memory, now = inputs.policy, inputs.memory, inputs.now
    long_doubtful, young_doubtful = [], []
    for index, pod in enumerate(one.pod for one in census.doubtful):
        if index % _STEP == _STEP - 1:
            yield
        known = memory.pods.get(pod.uid, _NO_MEMORY)
        if known.doubt_since is not None and now - known.doubt_since >= LONG_DOUBT_SECONDS:
            long_doubtful.append(pod.uid)
        if known.seen is None and is_young(pod, now):
            young_doubtful.append(pod.uid)
    long = frozenset(long_doubtful)
    replaceable = yield from _replaceable(inputs, census, long)
    return partial(
        PodGroups,
        away=AwayPods(
            out=0 if _deletes_pulled_out_first(policy, inputs.target, census.assessed) else len(census.out),
            replaceable=sum(1 for one in census.out if one.pod.uid in replaceable),
            reserved=census.counts.get(PodState.STARTING, 0),
        ),
        young=[one for one in census.idle if is_young(one.pod, now)],
        long_doubtful=long,
        replaceable_doubtful=replaceable & long,
        young_doubtful=frozenset(young_doubtful),
    )


def _replaceable(inputs: AssessmentInputs, census: Census, long_doubtful: frozenset[str]) -> Steps[frozenset[str]]:
    """The pods that may be replaced on the way up: out or doubtful for long enough.

    None during a rollout. Once replacing has proved ineffective, only pods from before its first step.
    """
    policy, memory, now = inputs.policy, inputs.memory, inputs.now
    if not policy.pulled_out.replace or rolling_out(memory, now):
        return frozenset()
    is_ineffective = replacement_ineffective(memory, census.assessed)
    replaceable = set()
    for index, pod in enumerate(one.pod for one in chain(census.out, census.doubtful)):
        if index % _STEP == _STEP - 1:
            yield
        out_since = memory.pods.get(pod.uid, _NO_MEMORY).out_since
        long_out = out_since is not None and now - out_since >= policy.pulled_out.replace_after
        if (long_out or pod.uid in long_doubtful) and not (is_ineffective and since_first_step(memory, pod)):
            replaceable.add(pod.uid)
    return frozenset(replaceable)


def _deletes_pulled_out_first(policy: Policy, target: Target | None, pods: Sequence[PodAssessment]) -> bool:
    """Whether a scale-down deletes the pulled-out pods first: each has a lower deletion cost than every other pod.

    The cost decides only among the pods of one ReplicaSet: a Deployment with several shrinks them by other rules, and a
    StatefulSet deletes by ordinal.
    """
    if not policy.pulled_out.delete_first or target is None or target.kind != "Deployment":
        return False
    alive = [one for one in pods if one.state not in _GONE]
    if len({one.pod.template_hash for one in alive}) != 1:
        return False
    out = [one.pod.deletion_cost for one in alive if one.state is PodState.PULLED_OUT]
    others = [one.pod.deletion_cost for one in alive if one.state is not PodState.PULLED_OUT]
    return bool(out) and (not others or max(out) < min(others))
