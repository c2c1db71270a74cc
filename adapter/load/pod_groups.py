"""The pods of a target by state, and those of them that may serve soon, be replaced, or go first on the way down."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from adapter.load.assessment import AssessmentInputs, PodAssessment
from adapter.load.doubt import AwayPods, Doubt
from adapter.load.pod_samples import is_young
from adapter.load.pods import GONE, Pod, PodState
from adapter.load.remembering import replacement_ineffective, rolling_out, since_first_step
from adapter.load.spec import Policy, Target

LONG_DOUBT_SECONDS = 300.0
"""A pod that has been doubtful for this long may be replaced in the scenarios that count it as out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PodGroups:
    """The pods of a target. `doubtful` ones are by name; `idle` ones start or are not Ready, `out` are pulled out.

    `away` counts the pods that are out in every scenario. By UID: `young` pods do not serve, but may soon; `doubt` has
    what matters of doubtful pods where a scenario has them out.
    """

    assessed: Sequence[PodAssessment]
    counts: Mapping[PodState, int]
    serving: Sequence[Pod]
    doubtful: Sequence[Pod]
    idle: Sequence[Pod]
    out: Sequence[Pod]
    away: AwayPods
    young: frozenset[str]
    doubt: Mapping[str, Doubt]

    @property
    def running(self) -> int:
        """How many pods are neither terminating nor finished."""
        return len(self.serving) + len(self.doubtful) + len(self.idle) + len(self.out)


def group_pods(inputs: AssessmentInputs, assessed: Sequence[PodAssessment]) -> PodGroups:
    """Group the pods. The memory knows them already."""
    policy, memory, now = inputs.policy, inputs.memory, inputs.now
    after = policy.pulled_out.replace_after
    by_state: dict[PodState, list[Pod]] = {state: [] for state in PodState}
    for each in assessed:
        by_state[each.state].append(each.pod)
    idle = by_state[PodState.STARTING] + by_state[PodState.UNREADY]
    out, doubtful = by_state[PodState.PULLED_OUT], sorted(by_state[PodState.DOUBTFUL], key=lambda pod: pod.name)

    def lasts(since: float | None, seconds: float) -> bool:
        return since is not None and now - since >= seconds

    may_replace = policy.pulled_out.replace and not rolling_out(memory, now)
    # Once replacing has proved ineffective, only pods from before its first step.
    stopped = may_replace and replacement_ineffective(memory, assessed)
    old = {pod.uid for pod in (*out, *doubtful) if may_replace and not (stopped and since_first_step(memory, pod))}
    doubt = {}
    for pod in doubtful:
        remembered = memory.pod(pod.uid)
        is_long, may_be_new = (
            lasts(remembered.doubt_since, LONG_DOUBT_SECONDS),
            remembered.seen is None and is_young(pod, now),
        )
        doubt[pod.uid] = Doubt(is_long, is_replaceable=is_long and pod.uid in old, is_young=may_be_new)
    return PodGroups(
        assessed=assessed,
        counts=Counter({state: len(group) for state, group in by_state.items() if group}),
        serving=by_state[PodState.SERVING],
        doubtful=doubtful,
        idle=idle,
        out=out,
        away=AwayPods(
            out=0 if _deletes_pulled_out_first(policy, inputs.target, assessed) else len(out),
            replaceable=sum(pod.uid in old and lasts(memory.pod(pod.uid).out_since, after) for pod in out),
            reserved=len(by_state[PodState.STARTING]),
        ),
        young=frozenset(pod.uid for pod in idle if is_young(pod, now)),
        doubt=doubt,
    )


def _deletes_pulled_out_first(policy: Policy, target: Target | None, pods: Sequence[PodAssessment]) -> bool:
    """Whether a scale-down deletes the pulled-out pods first: each has a lower deletion cost than every other pod.

    The cost decides only among the pods of one ReplicaSet: a Deployment with several shrinks them by other rules, and a
    StatefulSet deletes by ordinal.
    """
    if not policy.pulled_out.delete_first or target is None or target.kind != "Deployment":
        return False
    alive = [each for each in pods if each.state not in GONE]
    if len({each.pod.template_hash for each in alive}) != 1:
        return False
    out = [each.pod.deletion_cost for each in alive if each.state is PodState.PULLED_OUT]
    others = [each.pod.deletion_cost for each in alive if each.state is not PodState.PULLED_OUT]
    return bool(out) and (not others or max(out) < min(others))
