"""A target's replica count over time: its rises, and its scalings with their reason and author."""

from dataclasses import replace

from adapter.companion.context import Context
from adapter.companion.state import DesiredCount, ReplicaHistory, Scaling
from adapter.load.explanation import decision_reason
from adapter.load.pacing import CLOCK_SKEW_SECONDS
from adapter.policy.behavior import ReplicaChange
from adapter.snapshot import PolicyView

HPA = "the HPA"
COMPANION = "the companion"
ATTRIBUTION_SECONDS = 3.0
"""How long a scaling waits for the HPA's status to claim it."""
LEFT_BEHIND_SECONDS = 300.0
"""A count that another leader wrote is ignored after this time."""
RISES_SECONDS = 1800.0
"""The longest period that an HPA's scaling policy can have."""


def observe_count(history: ReplicaHistory, view: PolicyView, now: float) -> ReplicaHistory:
    """The history with the count of this view. Every replica of the companion observes, whether it leads or not."""
    if view.target is None or view.scale is None or view.bounds is None:
        return history
    replicas = view.scale.replicas
    if history.target != view.target.uid:
        # The first count of another target is no scaling.
        reported = replicas if history.reported is not None else None
        last_scale = view.bounds.last_scale
        return ReplicaHistory(
            target=view.target.uid,
            since=now,
            scaled_before=last_scale,
            replicas=replicas,
            reported=reported,
            last=history.last,
        )
    if replicas == history.replicas:
        return history
    rise = () if replicas < history.replicas else (ReplicaChange(now, replicas - history.replicas),)
    rises = (one for one in (*history.rises, *rise) if now - one.at < RISES_SECONDS)
    return replace(history, replicas=replicas, rises=tuple(rises))


def unattributed(history: ReplicaHistory) -> ReplicaHistory:
    """What this process observed, for a new term as leader; others may have led in between."""
    return replace(history, reported=None, changed_at=None, desired=None, credited=None, last=None)


def attribute(context: Context) -> ReplicaHistory:
    """The history of the leader: a change of the count is a scaling once its author is known, or after a wait."""
    view, history = context.view, context.state.history
    if view.scale is None or view.target is None or history.target != view.target.uid:
        return history
    current = view.scale.replicas
    if history.reported is None:
        left_behind = _left_behind(context)
        history = replace(history, reported=current if left_behind is None else left_behind)
    if current == history.reported:
        return replace(history, changed_at=None, desired=_desired(context))
    changed_at = history.changed_at if history.changed_at is not None else context.now
    by = _author(history, context, current, changed_at)
    if not by and context.now - changed_at < ATTRIBUTION_SECONDS:
        return replace(history, changed_at=changed_at)
    return replace(
        history,
        reported=current,
        changed_at=None,
        desired=None,
        credited=_last_scale(context) if by == HPA else history.credited,
        last=_scaling(history, current, changed_at, by),
    )


def _left_behind(context: Context) -> int | None:
    """The count in the status, as another leader wrote it; None where it is too old."""
    written = context.state.written
    current = written.status.get("current")
    if written.at is None or context.now - written.at > LEFT_BEHIND_SECONDS or not isinstance(current, int):
        return None
    return current


def _desired(context: Context) -> DesiredCount | None:
    decision, assessment = context.decision, context.view.assessment
    if decision is None or assessment is None or decision.desired in {None, decision.current}:
        return None
    assert decision.desired is not None
    return DesiredCount(decision.desired, decision_reason(assessment, decision))


def _author(history: ReplicaHistory, context: Context, current: int, changed_at: float) -> str:
    raised = context.state.raised
    if raised.to == current and raised.at is not None and abs(raised.at - changed_at) < CLOCK_SKEW_SECONDS:
        return COMPANION
    last = _last_scale(context)
    if last is not None and last != history.credited and last >= changed_at - CLOCK_SKEW_SECONDS:
        return HPA
    return ""


def _last_scale(context: Context) -> float | None:
    return context.view.bounds.last_scale if context.view.bounds is not None else None


def _scaling(history: ReplicaHistory, current: int, at: float, by: str) -> Scaling:
    assert history.reported is not None
    number = history.last.number + 1 if history.last is not None else 1
    return Scaling(number, at, history.reported, current, _reason(history.desired, history.reported, current), by)


def _reason(desired: DesiredCount | None, before: int, current: int) -> str:
    """Why the count changed; empty where the policy asked neither for this count nor for more of the same."""
    if desired is None:
        return ""
    if desired.replicas == current:
        return desired.why
    on_the_way = before < current < desired.replicas or before > current > desired.replicas
    return f"on the way to {desired.replicas}: {desired.why}" if on_the_way else ""
