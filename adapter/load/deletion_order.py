"""Whether pods that are out will be the first to go when the count falls."""

from collections.abc import Sequence

from adapter.load.assessment import PodAssessment
from adapter.load.pods import PodState
from adapter.load.spec import Policy, Target

_GONE = {PodState.TERMINATING, PodState.FINISHED}


def out_goes_first(policy: Policy, target: Target | None, readings: Sequence[PodAssessment]) -> bool:
    """Whether every pulled-out pod is seen to be cheaper to delete than every other one, where that decides.

    It does among the pods of one ReplicaSet: a Deployment with several shrinks them by other rules, and a StatefulSet
    goes by ordinals.
    """
    if not policy.pulled_out.delete_first or target is None or target.kind != "Deployment":
        return False
    alive = [reading for reading in readings if reading.state not in _GONE]
    if len({reading.pod.template_hash for reading in alive}) != 1:
        return False
    out = [reading.pod.deletion_cost for reading in alive if reading.state is PodState.PULLED_OUT]
    others = [reading.pod.deletion_cost for reading in alive if reading.state is not PodState.PULLED_OUT]
    return bool(out) and (not others or max(out) < min(others))
