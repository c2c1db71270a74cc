"""The pods of a target that carry no certain load: which may serve soon, be replaced, or go first on the way down."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

from adapter.load.assessment import AssessmentInputs, PodAssessment
from adapter.load.census import Census
from adapter.load.effective_usage import is_young
from adapter.load.memory import PodMemory
from adapter.load.memory_updates import replacement_ineffective, rolling_out, since_first_step
from adapter.load.pods import PodState
from adapter.load.scenarios import AwayPods
from adapter.load.spec import Policy, Target

LONG_DOUBT_SECONDS = 300.0
"""A pod that has been doubtful for this long may be replaced in the scenarios that count it as out."""

_NO_MEMORY = PodMemory()
_GONE = {PodState.TERMINATING, PodState.FINISHED}


@dataclass(frozen=True, slots=True, kw_only=True)
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


def group_pods(inputs: AssessmentInputs, census: Census) -> PodGroups:
    """Group the pods that do not surely serve. The memory of the inputs knows these pods already.

    Pulled-out pods are kept in the count on the way down, except where they are deleted first.
    """
    policy, memory, now = inputs.policy, inputs.memory, inputs.now
    remembered = {one.pod.uid: memory.pods.get(one.pod.uid, _NO_MEMORY) for one in census.doubtful}
    long_doubtful = frozenset(
        uid
        for uid, pod in remembered.items()
        if pod.doubt_since is not None and now - pod.doubt_since >= LONG_DOUBT_SECONDS
    )
    replaceable = _replaceable(inputs, census, long_doubtful)
    return PodGroups(
        census=census,
        away=AwayPods(
            out=0 if _deletes_pulled_out_first(policy, inputs.target, census.assessed) else len(census.out),
            replaceable=sum(1 for one in census.out if one.pod.uid in replaceable),
            reserved=census.counts.get(PodState.STARTING, 0),
        ),
        young=[one for one in census.idle if is_young(one.pod, now)],
        long_doubtful=long_doubtful,
        replaceable_doubtful=replaceable & long_doubtful,
        young_doubtful=frozenset(
            one.pod.uid for one in census.doubtful if remembered[one.pod.uid].seen is None and is_young(one.pod, now)
        ),
    )


def _replaceable(inputs: AssessmentInputs, census: Census, long_doubtful: frozenset[str]) -> frozenset[str]:
    """The pods that may be replaced on the way up: out or doubtful for long enough.

    None during a rollout. Once replacing has proved ineffective, only pods from before its first step.
    """
    policy, memory, now = inputs.policy, inputs.memory, inputs.now
    if not policy.pulled_out.replace or rolling_out(memory, now):
        return frozenset()
    is_ineffective = replacement_ineffective(memory, census.assessed)
    replaceable = set()
    for pod in (one.pod for one in chain(census.out, census.doubtful)):
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
