"""The pods of a target by state, and those of them that may serve soon, be replaced, or be deleted first."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from adapter.load.memory import Memory
from adapter.load.pods import GONE, Pod, PodAssessment, PodState
from adapter.load.spec import Policy, Target
from adapter.load.states import is_young

LONG_DOUBT_SECONDS = 300.0
"""A pod that has been doubtful for this long is replaced where it is taken for out."""
_SETTLED = frozenset({"", "NewReplicaSetAvailable", "ProgressDeadlineExceeded", "DeploymentPaused"})
"""Reasons of the Progressing condition of a target whose rollout does not progress; Kubernetes ends a stuck one."""
_ESTABLISHED = (PodState.SERVING, PodState.UNREADY, PodState.PULLED_OUT, PodState.DOUBTFUL)
"""The pods that `minServingPercent` is a share of."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PodGroups:
    """The pods of a target. `idle` ones start or are not Ready, `out` are pulled out. `young` has UIDs.

    `in_service`: by UID, when a pod started, turned Ready, was last seen back from being out, or registered late.
    `replaceable` counts the pulled-out pods that may be replaced, `doubt_replaceable` has the UIDs of doubtful ones.
    `deletes_out_first`: a scale-down deletes the pulled-out pods first. `may_shrink` is False where too few pods serve
    (`minServingPercent`).
    """

    assessed: Sequence[PodAssessment]
    counts: Mapping[PodState, int]
    serving: Sequence[Pod]
    doubtful: Sequence[Pod]
    idle: Sequence[Pod]
    out: Sequence[Pod]
    young: frozenset[str]
    in_service: Mapping[str, float]
    replaceable: int
    doubt_replaceable: frozenset[str]
    deletes_out_first: bool
    may_shrink: bool

    @property
    def kept(self) -> int:
        """How many pods stay in the count whatever they carry."""
        return len(self.doubtful) + (0 if self.deletes_out_first else len(self.out))

    @property
    def running(self) -> int:
        """How many pods are neither terminating nor finished."""
        return len(self.serving) + len(self.doubtful) + len(self.idle) + len(self.out)


def group_pods(
    policy: Policy, target: Target | None, assessed: Sequence[PodAssessment], memory: Memory, now: float
) -> PodGroups:
    """Group the pods. The memory knows their states already."""
    by_state: dict[PodState, list[Pod]] = {state: [] for state in PodState}
    in_service = {}
    for each in assessed:
        pod = each.pod
        by_state[each.state].append(pod)
        ready_since = pod.ready.since if pod.ready is not None else None
        in_service[pod.uid] = max(pod.started_at or 0.0, ready_since or 0.0, memory.pod(pod.uid).back_since or 0.0)
    pulled_out = policy.pulled_out
    may_replace = pulled_out.replace and (target is None or target.progressing in _SETTLED)

    def is_replaced(pod: Pod, after: float) -> bool:
        is_old = now - pod.created_at >= pulled_out.min_age
        return may_replace and is_old and now - memory.pod(pod.uid).since >= after

    out, doubtful = by_state[PodState.PULLED_OUT], by_state[PodState.DOUBTFUL]
    return PodGroups(
        assessed=assessed,
        counts=Counter({state: len(group) for state, group in by_state.items() if group}),
        serving=by_state[PodState.SERVING],
        doubtful=doubtful,
        idle=by_state[PodState.STARTING] + by_state[PodState.UNREADY],
        out=out,
        young=frozenset(each.pod.uid for each in assessed if is_young(each, memory.pod(each.pod.uid), now)),
        in_service=in_service,
        replaceable=sum(is_replaced(pod, pulled_out.replace_after) for pod in out),
        doubt_replaceable=frozenset(pod.uid for pod in doubtful if is_replaced(pod, LONG_DOUBT_SECONDS)),
        deletes_out_first=_deletes_out_first(target, assessed),
        may_shrink=100 * len(by_state[PodState.SERVING])
        >= policy.min_serving_percent * sum(len(by_state[state]) for state in _ESTABLISHED),
    )


def _deletes_out_first(target: Target | None, pods: Sequence[PodAssessment]) -> bool:
    """Whether a scale-down deletes the pulled-out pods first: each has a lower deletion cost than every other pod.

    The cost decides only among the pods of one ReplicaSet: a Deployment with several shrinks them by other rules, and a
    StatefulSet deletes by ordinal.
    """
    if target is None or target.kind != "Deployment":
        return False
    alive = [each for each in pods if each.state not in GONE]
    if len({each.pod.template_hash for each in alive}) != 1:
        return False
    out = [each.pod.deletion_cost for each in alive if each.state is PodState.PULLED_OUT]
    others = [each.pod.deletion_cost for each in alive if each.state is not PodState.PULLED_OUT]
    return bool(out) and (not others or max(out) < min(others))
