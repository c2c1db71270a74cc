"""Whether pods that are out will be the first to go when the count falls."""

from collections.abc import Sequence

from adapter.load.assessment import PodAssessment
from adapter.load.pods import PodState
from adapter.load.spec import Policy, Target

_GONE = {PodState.TERMINATING, PodState.FINISHED}


def deletes_pulled_out_first(policy: Policy, target: Target | None, pods: Sequence[PodAssessment]) -> bool:
    """Whether every pulled-out pod is seen to be cheaper to delete than every other one, where that decides.

    It does among the pods of one ReplicaSet: a Deployment with several shrinks them by other rules, and a StatefulSet
    goes by ordinals.
    """
    if not policy.pulled_out.delete_first or target is None or target.kind != "Deployment":
        return False
    alive = [assessed for assessed in pods if assessed.state not in _GONE]
    if len({assessed.pod.template_hash for assessed in alive}) != 1:
        return False
    out = [assessed.pod.deletion_cost for assessed in alive if assessed.state is PodState.PULLED_OUT]
    others = [assessed.pod.deletion_cost for assessed in alive if assessed.state is not PodState.PULLED_OUT]
    return bool(out) and (not others or max(out) < min(others))
