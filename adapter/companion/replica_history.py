"""A target's replica count over time: its rises, and its scalings with their reason and author."""

from dataclasses import replace

from adapter.companion.state import Context, DesiredCount, ReplicaHistory, Scaling
from adapter.load.decide import decide
from adapter.load.explanation import decision_reason
from adapter.policy.behavior import ReplicaChange
from adapter.snapshot import PolicyView

HPA = "the HPA"
COMPANION = "the companion"
ATTRIBUTION_SECONDS = 3.0
"""How long a scaling waits for the HPA's status to claim it."""
REASON_SECONDS = 20.0
"""How long a scaling of the HPA waits for its reason: a poll at the default interval, and its assessment."""
RISES_SECONDS = 1800.0
"""The longest period that an HPA's scaling policy can have."""

CLOCK_SKEW_SECONDS = 5.0
"""The HPA may date a scaling this long before this process observes it."""


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
    rises = (change for change in (*history.rises, *rise) if now - change.at < RISES_SECONDS)
    return replace(history, replicas=replicas, rises=tuple(rises))


def unattributed(history: ReplicaHistory) -> ReplicaHistory:
    """What this process observed, for a new term as leader; others may have led in between."""
    return replace(history, reported=None, pending=None, desired=None, credited=None, last=None)


def attribute(context: Context) -> ReplicaHistory:
    """The history of the leader: a change is a scaling once its author and reason are known, or after a wait.

    The HPA may act on samples of the serving process that the companion gets with its next poll only: a change by the
    HPA without a reason waits for one that is seen then, at the count before it.
    """
    view, history = context.view, context.state.history
    if view.scale is None or view.target is None or history.target != view.target.uid:
        return history
    current = view.scale.replicas
    if history.reported is None:
        # From the count in the status, as another leader wrote it.
        left_behind = context.state.written.status.get("current")
        history = replace(history, reported=left_behind if isinstance(left_behind, int) else current)
    if history.pending is not None and history.pending.by and history.pending.after != current:
        history = _completed(history, history.pending)  # it waited for its reason, and the next change is here
    if current == history.reported:
        return replace(history, pending=None, desired=_desired(context, current))
    assert history.reported is not None
    number = history.last.number + 1 if history.last is not None else 1
    pending = history.pending or Scaling(number, context.now, history.reported, current, "", "")
    by, raised = pending.by, context.state.raised
    last_scale = view.bounds.last_scale if view.bounds is not None else None
    if not by and raised.to == current and raised.at is not None and abs(raised.at - pending.at) < CLOCK_SKEW_SECONDS:
        by = COMPANION
    elif not by and last_scale not in {None, history.credited} and last_scale >= pending.at - CLOCK_SKEW_SECONDS:
        by = HPA
    why = _reason(history.desired, pending.before, current)
    why = why or _reason(_desired(context, pending.before), pending.before, current)
    pending = pending._replace(after=current, by=by, why=why)
    history = replace(history, pending=pending, credited=last_scale if by == HPA else history.credited)
    patience = {"": ATTRIBUTION_SECONDS, HPA: 0.0 if why else REASON_SECONDS}.get(by, 0.0)
    return history if context.now - pending.at < patience else _completed(history, pending)


def _completed(history: ReplicaHistory, scaling: Scaling) -> ReplicaHistory:
    return replace(history, reported=scaling.after, pending=None, desired=None, last=scaling)


def _desired(context: Context, replicas: int) -> DesiredCount | None:
    """What the policy asks for at this count; None where that is the count itself, or unknown."""
    view, decision = context.view, context.decision
    if decision is None or view.assessment is None or view.scale is None or view.bounds is None:
        return None
    if decision.current != replicas:
        decision = decide(view.assessment, replace(view.scale, replicas=replicas), view.bounds, context.now)
    if decision.desired is None or decision.desired == replicas:
        return None
    return DesiredCount(decision.desired, decision_reason(view.assessment, decision))


def _reason(desired: DesiredCount | None, before: int, current: int) -> str:
    """Why the count changed; empty where the policy asked neither for this count nor for more of the same."""
    if desired is None:
        return ""
    if desired.replicas == current:
        return desired.why
    on_the_way = before < current < desired.replicas or before > current > desired.replicas
    return f"on the way to {desired.replicas}: {desired.why}" if on_the_way else ""
