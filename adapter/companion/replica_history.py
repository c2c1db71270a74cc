"""How a target's count goes: scalings as people want to hear of them, with their reason and by whom where known."""

from dataclasses import replace

from adapter.companion.context import Context
from adapter.companion.state import DesiredCount, ReplicaHistory, Scaling
from adapter.load.explanation import why
from adapter.load.fast_scale_up_hold import CLOCKS_SECONDS

HPA = "the HPA"
COMPANION = "the companion"
ATTRIBUTION_SECONDS = 3.0
"""So long is waited for the HPA to say that a scaling was its own."""
FRESH_SECONDS = 300.0
"""A count that another leader left behind says nothing after so long."""


def follow(context: Context) -> ReplicaHistory:
    """The history after another look."""
    view, history = context.view, context.state.history
    if view.scale is None or view.target is None:
        return history
    if history.target != view.target.uid or history.replicas is None:
        known = None if history.target else _left_behind(context)
        history = ReplicaHistory(
            target=view.target.uid, replicas=view.scale.replicas if known is None else known, last=history.last
        )
    return _looked(history, context, view.scale.replicas)


def _left_behind(context: Context) -> int | None:
    """The count that the status shows as another leader wrote it; None where that was too long ago."""
    written = context.state.written
    current = written.status.get("current")
    if written.at is None or context.now - written.at > FRESH_SECONDS or not isinstance(current, int):
        return None
    return current


def _looked(history: ReplicaHistory, context: Context, current: int) -> ReplicaHistory:
    if current == history.replicas:
        asked = _asked(context)
        return replace(history, moved_at=None, asked=asked)
    moved_at = history.moved_at if history.moved_at is not None else context.now
    by = _author(history, context, current, moved_at)
    if not by and context.now - moved_at < ATTRIBUTION_SECONDS:
        return replace(history, moved_at=moved_at)
    assert history.replicas is not None
    number = history.last.number + 1 if history.last is not None else 1
    step = Scaling(number, moved_at, history.replicas, current, _reason(history, current), by)
    credited = _last_scale(context) if by == HPA else history.credited
    return ReplicaHistory(target=history.target, replicas=current, credited=credited, last=step)


def _asked(context: Context) -> DesiredCount | None:
    decision, assessment = context.decision, context.view.assessment
    if decision is None or assessment is None or decision.desired in {None, decision.current}:
        return None
    assert decision.desired is not None
    return DesiredCount(decision.desired, why(assessment, decision))


def _author(history: ReplicaHistory, context: Context, current: int, moved_at: float) -> str:
    raised = context.state.raised
    if raised.to == current and raised.at is not None and abs(raised.at - moved_at) < CLOCKS_SECONDS:
        return COMPANION
    last = _last_scale(context)
    if last is not None and last != history.credited and last >= moved_at - CLOCKS_SECONDS:
        return HPA
    return ""


def _last_scale(context: Context) -> float | None:
    return context.view.bounds.last_scale if context.view.bounds is not None else None


def _reason(history: ReplicaHistory, current: int) -> str:
    """Why the count is what it is now; empty where the policy did not ask for it, nor for more of the same."""
    asked, before = history.asked, history.replicas
    if asked is None or before is None:
        return ""
    if asked.replicas == current:
        return asked.why
    on_the_way = before < current < asked.replicas or before > current > asked.replicas
    return f"on the way to {asked.replicas}: {asked.why}" if on_the_way else ""
