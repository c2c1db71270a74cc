"""deleteFirst: pulled-out pods of a Deployment get the lowest deletion cost there is, until they serve again.

Only what the companion set itself is ever taken away. A cost that somebody else set stays.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import islice

from adapter.companion.context import Context, PodMark, PolicyCondition, State
from adapter.companion.writes.actions import ActionResult, MarkPod
from adapter.load.assessment import PodAssessment
from adapter.load.pods import Pod, PodState
from adapter.load.spec import Mode

LOWEST = -(2**31)
"""The lowest cost that the ReplicaSet controller reads."""
MOST_AT_ONCE = 10
"""So many pods of a policy are written for between two looks at it."""
FOREIGN_SECONDS = 600.0
"""A cost that turned out to be somebody else's is left alone for so long."""
AGAIN_SECONDS = 600.0
"""The same is written to a pod once in so long: whoever undoes it, or marks pods as if it were the companion, wins."""
CONDITION = "DeletedFirst"
_GONE = {PodState.TERMINATING, PodState.FINISHED}
_SHOWN = 3
_SWITCHED_OFF = "the settings do not switch on companion.features.deletionCost"


def plan(context: Context) -> Iterator[MarkPod]:
    """Mark the pods that are out, and unmark those that serve again."""
    return islice(_all(context), MOST_AT_ONCE)


def _all(context: Context) -> Iterator[MarkPod]:
    wanted = _wanted(context)
    for reading in _alive(context):
        pod, first = reading.pod, wanted and reading.state is PodState.PULLED_OUT
        if first:
            is_due = not pod.marked and pod.deletion_cost == 0 and not _is_foreign(context, pod)
        else:
            is_due = pod.marked and (reading.state is PodState.SERVING or not wanted)
        if is_due and not _was_done(context, pod, first=first):
            yield _action(context, pod, first=first)


def after(state: State, action: MarkPod, now: float) -> State:
    """The state once a pod was marked or unmarked: the right for it is there."""
    known = {uid: one for uid, one in state.marking.done.items() if now - one.at < AGAIN_SECONDS}
    done = {**known, action.uid: PodMark(action.first, now)}
    return replace(state, marking=replace(state.marking, done=done, refused=False))


def missed(state: State, action: MarkPod, outcome: ActionResult, now: float) -> State:
    """The state once that was tried in vain: what was refused as somebody else's is left alone for a while."""
    match outcome:
        case ActionResult.REFUSED:
            return replace(state, marking=replace(state.marking, refused=True))
        case ActionResult.OVERTAKEN:
            known = {uid: at for uid, at in state.marking.foreign.items() if now - at < FOREIGN_SECONDS}
            return replace(state, marking=replace(state.marking, foreign={**known, action.uid: now}, refused=False))
        case _:
            return state


def conditions(context: Context) -> Iterator[PolicyCondition]:
    """Whether pulled-out pods go first, while there are some and the policy asks for that; what was left behind."""
    is_off = not context.settings.features.deletion_cost
    if is_off and (left := [one.pod for one in _alive(context) if one.pod.marked]):
        sentence = f"{_SWITCHED_OFF}, and {_names(left)} bear its marks: they go first until those are taken away"
        yield PolicyCondition(CONDITION, False, "MarksLeft", sentence)
        return
    pulled_out = [one.pod for one in _alive(context) if one.state is PodState.PULLED_OUT]
    if not context.view.policy.pulled_out.delete_first or not pulled_out:
        return
    trouble = _hindrance(context) or _gap(context, pulled_out)
    if trouble is not None:
        yield PolicyCondition(CONDITION, False, *trouble)
    else:
        yield PolicyCondition(CONDITION, True, "Marked", "the pods that were pulled out are marked to be deleted first")


def _hindrance(context: Context) -> tuple[str, str] | None:
    """Why pods are not marked at all: reason and sentence."""
    target = context.view.target
    if not context.settings.features.deletion_cost:
        return "SwitchedOff", _SWITCHED_OFF
    if target is None or target.kind != "Deployment":
        kind = target.kind if target is not None else "target"
        return "NoDeployment", f"deletion costs decide among the pods of a Deployment; a {kind} shrinks by other rules"
    if context.view.policy.mode is Mode.OBSERVE:
        return "Observed", "mode Observe: no pod is marked"
    if context.state.marking.refused:
        return "Forbidden", "the companion may not patch pods; the component companion-deletion-cost lets it"
    return None


def _gap(context: Context, pulled_out: list[Pod]) -> tuple[str, str] | None:
    """Why marked pods are not sure to go first: reason and sentence."""
    foreign = [pod for pod in pulled_out if _has_foreign_cost(pod) or _is_foreign(context, pod)]
    if foreign:
        return "ForeignCost", f"somebody else set the deletion cost of {_names(foreign)}; it is left as it is"
    if len({one.pod.template_hash for one in _alive(context)}) > 1:
        return "SeveralReplicaSets", "pods of several ReplicaSets exist, which shrink by other rules"
    if any(pod.deletion_cost != LOWEST for pod in pulled_out):
        return "Marking", "some pods that were pulled out are not marked yet"
    return None


def _names(pods: Iterable[Pod]) -> str:
    names = sorted(pod.name for pod in pods)
    return ", ".join(names[:_SHOWN]) + (f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else "")


def _has_foreign_cost(pod: Pod) -> bool:
    return pod.deletion_cost not in ({LOWEST} if pod.marked else {LOWEST, 0})


def _is_foreign(context: Context, pod: Pod) -> bool:
    """Whether this pod's cost was found to be somebody else's when it was to be set."""
    foreign: Mapping[str, float] = context.state.marking.foreign
    return pod.uid in foreign and context.now - foreign[pod.uid] < FOREIGN_SECONDS


def _was_done(context: Context, pod: Pod, *, first: bool) -> bool:
    last = context.state.marking.done.get(pod.uid)
    return last is not None and last.first is first and context.now - last.at < AGAIN_SECONDS


def _wanted(context: Context) -> bool:
    policy, target = context.view.policy, context.view.target
    wanted = policy.pulled_out.delete_first and policy.mode is not Mode.OBSERVE
    return wanted and target is not None and target.kind == "Deployment"


def _alive(context: Context) -> Iterator[PodAssessment]:
    assessment = context.view.assessment
    return (one for one in (assessment.pods if assessment else ()) if one.state not in _GONE)


def _action(context: Context, pod: Pod, *, first: bool) -> MarkPod:
    return MarkPod(key=context.key, namespace=pod.namespace, pod=pod.name, uid=pod.uid, first=first)
