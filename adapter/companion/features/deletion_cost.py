"""deleteFirst: pulled-out pods of a Deployment get the lowest deletion cost, until they serve again.

Only costs that the companion set itself are removed; one that another client set stays.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import islice

from adapter.companion.actions import ActionResult, MarkPod
from adapter.companion.state import Context, PodMark, PolicyCondition, State
from adapter.load.assessment import PodAssessment
from adapter.load.conditions import ConditionType, Reason
from adapter.load.pods import GONE, LOWEST_COST, Pod, PodState
from adapter.load.spec import Mode
from adapter.runtime.faults import first_names

MOST_AT_ONCE = 10
"""The most pods of a policy that are written to between two looks at it."""
FOREIGN_SECONDS = 600.0
"""How long a cost that proved to be set by another client is left alone."""
REWRITE_SECONDS = 600.0
"""How long the same is not written to a pod again: a client that undoes it, or forges the mark, wins."""
_SHOWN = 3
_SWITCHED_OFF = "the settings do not switch on companion.features.deletionCost"


def plan(context: Context) -> Iterator[MarkPod]:
    """Marks the pods that are pulled out, and unmarks those that serve again."""
    return islice(_all(context), MOST_AT_ONCE)


def _all(context: Context) -> Iterator[MarkPod]:
    policy, target = context.view.policy, context.view.target
    asked = policy.pulled_out.delete_first and policy.mode is not Mode.OBSERVE
    wanted = asked and target is not None and target.kind == "Deployment"
    for reading in _alive(context):
        pod, first = reading.pod, wanted and reading.state is PodState.PULLED_OUT
        if first:
            is_due = not pod.marked and pod.deletion_cost == 0 and not _is_foreign(context, pod)
        else:
            is_due = pod.marked and (reading.state is PodState.SERVING or not wanted)
        if is_due and not _was_done(context, pod, first=first):
            yield MarkPod(key=context.key, namespace=pod.namespace, pod=pod.name, uid=pod.uid, first=first)


def after(state: State, action: MarkPod, now: float) -> State:
    """The state once a pod was marked or unmarked, which proves the right to do so."""
    kept = {uid: one for uid, one in state.marking.done.items() if now - one.at < REWRITE_SECONDS}
    done = {**kept, action.uid: PodMark(action.first, now)}
    return replace(state, marking=replace(state.marking, done=done, refused=False))


def missed(state: State, action: MarkPod, outcome: ActionResult, now: float) -> State:
    """The state once a pod was not written to; a conflict means that its cost was set by another client."""
    match outcome:
        case ActionResult.REFUSED:
            return replace(state, marking=replace(state.marking, refused=True))
        case ActionResult.OVERTAKEN:
            kept = {uid: at for uid, at in state.marking.foreign.items() if now - at < FOREIGN_SECONDS}
            return replace(state, marking=replace(state.marking, foreign={**kept, action.uid: now}, refused=False))
        case _:
            return state


def conditions(context: Context) -> Iterator[PolicyCondition]:
    """DeletedFirst, while pods are pulled out and the policy asks for it, or while marks are left behind."""
    is_off = not context.settings.features.deletion_cost
    if is_off and (left := [one.pod for one in _alive(context) if one.pod.marked]):
        message = f"{_SWITCHED_OFF}, and {_names(left)} bear its marks: they are deleted first until those are removed"
        yield PolicyCondition(ConditionType.DELETED_FIRST, False, Reason.MARKS_LEFT, message)
        return
    if not context.view.policy.pulled_out.delete_first:
        return
    pulled_out = [one.pod for one in _alive(context) if one.state is PodState.PULLED_OUT]
    if not pulled_out:
        return
    trouble = _hindrance(context) or _gap(context, pulled_out)
    if trouble is not None:
        yield PolicyCondition(ConditionType.DELETED_FIRST, False, *trouble)
    else:
        message = "the pods that were pulled out are marked to be deleted first"
        yield PolicyCondition(ConditionType.DELETED_FIRST, True, Reason.MARKED, message)


def _hindrance(context: Context) -> tuple[Reason, str] | None:
    """Why pods are not marked at all: reason and message."""
    target = context.view.target
    if not context.settings.features.deletion_cost:
        return Reason.SWITCHED_OFF, _SWITCHED_OFF
    if target is None or target.kind != "Deployment":
        kind = target.kind if target is not None else "target"
        message = f"deletion costs decide among the pods of a Deployment; a {kind} shrinks by other rules"
        return Reason.NO_DEPLOYMENT, message
    if context.view.policy.mode is Mode.OBSERVE:
        return Reason.OBSERVED, "mode Observe: no pod is marked"
    if context.state.marking.refused:
        return Reason.FORBIDDEN, "the companion may not patch pods; the component companion-deletion-cost grants it"
    return None


def _gap(context: Context, pulled_out: list[Pod]) -> tuple[Reason, str] | None:
    """Why marked pods are not certain to be deleted first: reason and message."""
    foreign = [pod for pod in pulled_out if _has_foreign_cost(pod) or _is_foreign(context, pod)]
    if foreign:
        return Reason.FOREIGN_COST, f"another client set the deletion cost of {_names(foreign)}; it is left as it is"
    if len({one.pod.template_hash for one in _alive(context)}) > 1:
        return Reason.SEVERAL_REPLICA_SETS, "pods of several ReplicaSets exist, which shrink by other rules"
    if any(pod.deletion_cost != LOWEST_COST for pod in pulled_out):
        return Reason.MARKING, "some pods that were pulled out are not marked yet"
    return None


def _names(pods: Iterable[Pod]) -> str:
    return first_names(sorted(pod.name for pod in pods), _SHOWN)


def _has_foreign_cost(pod: Pod) -> bool:
    return pod.deletion_cost not in ({LOWEST_COST} if pod.marked else {LOWEST_COST, 0})


def _is_foreign(context: Context, pod: Pod) -> bool:
    """Whether setting this pod's cost failed of late because another client owns it."""
    foreign: Mapping[str, float] = context.state.marking.foreign
    return pod.uid in foreign and context.now - foreign[pod.uid] < FOREIGN_SECONDS


def _was_done(context: Context, pod: Pod, *, first: bool) -> bool:
    last = context.state.marking.done.get(pod.uid)
    return last is not None and last.first is first and context.now - last.at < REWRITE_SECONDS


def _alive(context: Context) -> Iterator[PodAssessment]:
    assessment = context.view.assessment
    return (one for one in (assessment.pods if assessment else ()) if one.state not in GONE)
