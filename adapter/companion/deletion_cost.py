"""deleteFirst: pulled-out pods of a Deployment get the lowest deletion cost, until they serve again.

Only costs that the companion set itself are removed; one that another client set stays.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial

from adapter.companion.state import ActionResult, Context, PolicyCondition, State, Write
from adapter.kube.api import PODS
from adapter.kube.objects import DELETION_COST_ANNOTATION, MARK_ANNOTATION
from adapter.load.pods import GONE, LOWEST_COST, Pod, PodAssessment, PodState
from adapter.load.spec import Mode
from adapter.policy.conditions import ConditionType, Reason
from adapter.runtime.faults import first_names

MARK_POD = "MarkPod"
MOST_AT_ONCE = 10
"""The most pods of a policy that are written to between two looks at it."""
REWRITE_SECONDS = 600.0
"""How long the same is not written to a pod again: a client that undoes it, or forges the mark, wins."""
_SHOWN = 3
_SWITCHED_OFF = "the settings do not switch on companion.features.deletionCost"


@dataclass(frozen=True, slots=True)
class Marking:
    """The pods (by UID) that were written to of late: whether they are deleted first or no longer so, when, and how.

    Overtaken: the cost proved to be set by another client, to 0 or to what is no number.
    """

    pods: Mapping[str, tuple[bool, float, ActionResult]] = field(default_factory=dict)


def plan(context: Context) -> list[Write]:
    """Marks the pods that are pulled out, and unmarks those that serve again, MOST_AT_ONCE at a time."""
    policy, target = context.view.policy, context.view.target
    asked = policy.pulled_out.delete_first and policy.mode is not Mode.OBSERVE
    wanted = asked and target is not None and target.kind == "Deployment"
    due = []
    for reading in _alive(context):
        pod, first = reading.pod, wanted and reading.state is PodState.PULLED_OUT
        if first:
            is_due = not pod.marked and pod.deletion_cost == 0
        else:
            is_due = pod.marked and (reading.state is PodState.SERVING or not wanted)
        last = context.state.of(Marking).pods.get(pod.uid)
        if is_due and (last is None or last[0] is not first or context.now - last[1] >= REWRITE_SECONDS):
            due.append(marked(context, pod, first=first))
    return due[:MOST_AT_ONCE]


def marked(context: Context, pod: Pod, *, first: bool) -> Write:
    """Marks the pod to be deleted first, or removes the mark: an apply removes what it owns and leaves out."""
    costs = {DELETION_COST_ANNOTATION: str(LOWEST_COST), MARK_ANNOTATION: "true"} if first else {}
    metadata = {"name": pod.name, "namespace": pod.namespace, "uid": pod.uid, "annotations": costs}
    body = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata}
    after = partial(_marked, pod.uid, first)
    return Write(key=context.key, kind=MARK_POD, path=PODS.path(pod.namespace, pod.name), body=body, after=after)


def _marked(uid: str, first: bool, state: State, result: ActionResult, now: float) -> State:
    """The state once a pod was written to; a conflict means that its cost was set by another client."""
    if result not in {ActionResult.DONE, ActionResult.OVERTAKEN}:
        return state
    kept = {uid: one for uid, one in state.of(Marking).pods.items() if now - one[1] < REWRITE_SECONDS}
    return state.having(Marking(pods=kept | {uid: (first, now, result)}))


def conditions(context: Context) -> Iterator[PolicyCondition]:
    """DeletionCostApplied, while pods are pulled out and the policy asks for it, or while marks are left behind."""
    policy, alive = context.view.policy, list(_alive(context))
    is_off = not context.settings.features.deletion_cost
    left = first_names(sorted(reading.pod.name for reading in alive if reading.pod.marked), _SHOWN) if is_off else ""
    pulled_out = [reading.pod for reading in alive if reading.state is PodState.PULLED_OUT]
    if not left and not (policy.pulled_out.delete_first and pulled_out):
        return
    kind = context.view.target.kind if context.view.target is not None else "target"
    foreign = first_names(sorted(pod.name for pod in pulled_out if _is_foreign(context, pod)), _SHOWN)
    may_not = "the companion may not patch pods; the component companion-deletion-cost grants it"
    by_others = f"another client set the deletion cost of {foreign}; it is left as it is"
    several = len({one.pod.template_hash for one in alive}) > 1
    is_marking = any(pod.deletion_cost != LOWEST_COST for pod in pulled_out)
    other_kind = f"deletion costs decide among the pods of a Deployment; a {kind} shrinks by other rules"
    marks = f"{_SWITCHED_OFF}, and {left} are still marked to be deleted first; remove their marks"
    obstacles = (
        (left, Reason.MARKS_LEFT, marks),
        (is_off, Reason.SWITCHED_OFF, _SWITCHED_OFF),
        (kind != "Deployment", Reason.NO_DEPLOYMENT, other_kind),
        (policy.mode is Mode.OBSERVE, Reason.OBSERVED, "mode Observe: no pod is marked"),
        (MARK_POD in context.state.refused, Reason.FORBIDDEN, may_not),
        (foreign, Reason.FOREIGN_COST, by_others),
        (several, Reason.SEVERAL_REPLICA_SETS, "pods of several ReplicaSets exist, which shrink by other rules"),
        (is_marking, Reason.MARKING, "some pods that were pulled out are not marked yet"),
        (True, Reason.MARKED, "the pods that were pulled out are marked to be deleted first"),
    )
    reason, message = next((reason, message) for holds, reason, message in obstacles if holds)
    yield PolicyCondition(ConditionType.DELETION_COST_APPLIED, reason is Reason.MARKED, reason, message)


def _is_foreign(context: Context, pod: Pod) -> bool:
    """Whether another client set this pod's cost: it shows, or setting it failed of late because of that."""
    _, at, result = context.state.of(Marking).pods.get(pod.uid, (False, -REWRITE_SECONDS, ActionResult.DONE))
    has_conflict = result is ActionResult.OVERTAKEN and context.now - at < REWRITE_SECONDS
    return has_conflict or pod.deletion_cost not in ({LOWEST_COST} if pod.marked else {LOWEST_COST, 0})


def _alive(context: Context) -> Iterator[PodAssessment]:
    assessment = context.view.assessment
    return (reading for reading in (assessment.pods if assessment else ()) if reading.state not in GONE)
