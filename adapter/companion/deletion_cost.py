"""deleteFirst: pulled-out pods of a Deployment get the lowest deletion cost, until they serve again.

Only costs that the companion set itself are removed; one that another client set stays.
"""

from collections.abc import Iterator

from adapter.companion.state import ActionResult, Condition, Context, Write
from adapter.kube.api import PODS
from adapter.kube.objects import DELETION_COST_ANNOTATION, MARK_ANNOTATION
from adapter.load.pods import GONE, LOWEST_COST, Pod, PodAssessment, PodState
from adapter.load.spec import Mode
from adapter.policy.conditions import Reason
from adapter.runtime.faults import first_names

MARK_POD = "MarkPod"
MOST_AT_ONCE = 10
"""The most pods of a policy that are written to between two looks at it."""
REWRITE_SECONDS = 600.0
"""How long the same is not written to a pod again: a client that undoes it, or forges the mark, wins."""
_WRITTEN = {ActionResult.DONE, ActionResult.OVERTAKEN}
"""Overtaken: the cost proved to be set by another client, to 0 or to what is no number."""


def plan(context: Context) -> list[Write]:
    """Marks the pods that are pulled out, and unmarks those that serve again, MOST_AT_ONCE at a time."""
    policy, target = context.view.policy, context.view.target
    asked = policy.pulled_out.delete_first and policy.mode is not Mode.OBSERVE
    wanted = asked and target is not None and target.kind == "Deployment"
    due = []
    for reading in _alive(context):
        pod, first = reading.pod, wanted and reading.state is PodState.PULLED_OUT
        is_over = reading.state is PodState.SERVING or not wanted
        is_due = (not pod.marked and pod.deletion_cost == 0) if first else (pod.marked and is_over)
        if is_due and _last_result(context, write := marked(context, pod, first=first)) not in _WRITTEN:
            due.append(write)
    return due[:MOST_AT_ONCE]


def marked(context: Context, pod: Pod, *, first: bool) -> Write:
    """Marks the pod to be deleted first, or removes the mark: an apply removes what it owns and leaves out."""
    costs = {DELETION_COST_ANNOTATION: str(LOWEST_COST), MARK_ANNOTATION: "true"} if first else {}
    metadata = {"name": pod.name, "namespace": pod.namespace, "uid": pod.uid, "annotations": costs}
    body = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata}
    return Write(key=context.key, kind=MARK_POD, path=PODS.path(pod.namespace, pod.name), body=body)


def _last_result(context: Context, write: Write) -> ActionResult | None:
    """How the same write ended within REWRITE_SECONDS; None if there was none."""
    last = context.state.attempts.get((write.kind, write.path))
    is_same = last is not None and last.body == write.body and context.now - last.at < REWRITE_SECONDS
    return last.result if last is not None and is_same else None


def condition(context: Context) -> Condition | None:
    """DeletionCostApplied, while pods are pulled out and the policy asks for it."""
    policy, alive = context.view.policy, list(_alive(context))
    pulled_out = [reading.pod for reading in alive if reading.state is PodState.PULLED_OUT]
    if not (policy.pulled_out.delete_first and pulled_out):
        return None
    kind = context.view.target.kind if context.view.target is not None else "target"
    foreign = first_names(sorted(pod.name for pod in pulled_out if _is_foreign(context, pod)), 3)
    switched_off = "the settings do not switch on companion.features.deletionCost"
    may_not = "the companion may not patch pods; the component companion-deletion-cost grants it"
    by_others = f"another client set the deletion cost of {foreign}; it is left as it is"
    several = len({one.pod.template_hash for one in alive}) > 1
    is_marking = any(pod.deletion_cost != LOWEST_COST for pod in pulled_out)
    other_kind = f"deletion costs decide among the pods of a Deployment; a {kind} shrinks by other rules"
    obstacles: tuple[tuple[object, Reason, str], ...] = (
        (not context.settings.features.deletion_cost, "SwitchedOff", switched_off),
        (kind != "Deployment", "NoDeployment", other_kind),
        (policy.mode is Mode.OBSERVE, "Observed", "mode Observe: no pod is marked"),
        (context.state.is_refused(MARK_POD), "Forbidden", may_not),
        (foreign, "ForeignCost", by_others),
        (several, "SeveralReplicaSets", "pods of several ReplicaSets exist, which shrink by other rules"),
        (is_marking, "Marking", "some pods that were pulled out are not marked yet"),
        (True, "Marked", "the pods that were pulled out are marked to be deleted first"),
    )
    reason, message = next((reason, message) for holds, reason, message in obstacles if holds)
    return Condition(reason == "Marked", reason, message)


def _is_foreign(context: Context, pod: Pod) -> bool:
    """Whether another client set this pod's cost: it shows, or setting it failed of late because of that."""
    has_conflict = _last_result(context, marked(context, pod, first=True)) is ActionResult.OVERTAKEN
    return has_conflict or pod.deletion_cost not in ({LOWEST_COST} if pod.marked else {LOWEST_COST, 0})


def _alive(context: Context) -> Iterator[PodAssessment]:
    assessment = context.view.assessment
    return (reading for reading in (assessment.pods if assessment else ()) if reading.state not in GONE)
