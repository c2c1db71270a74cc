"""How a target's count goes: scalings as people want to hear of them, with their reason and by whom where known."""

from dataclasses import replace

from adapter.companion.context import Context
from adapter.companion.state import Asked, ReplicaHistory, Scaling
from adapter.load.explanation import decision_reason
from adapter.load.pacing import CLOCK_SKEW_SECONDS

HPA = "the HPA"
COMPANION = "the companion"
ATTRIBUTION_SECONDS = 3.0
"""So long is waited for the HPA to say that a scaling was its own."""
FRESH_SECONDS = 300.0
"""A count that another leader left behind says nothing after so long."""


def follow(situation: Context) -> ReplicaHistory:
    """The course after another look."""
    view, course = situation.view, situation.past.course
    if view.scale is None or view.target is None:
        return course
    if course.target != view.target.uid or course.replicas is None:
        known = None if course.target else _left_behind(situation)
        course = ReplicaHistory(
            target=view.target.uid, replicas=view.scale.replicas if known is None else known, last=course.last
        )
    return _looked(course, situation, view.scale.replicas)


def _left_behind(situation: Context) -> int | None:
    """The count that the status shows as another leader wrote it; None where that was too long ago."""
    written = situation.past.written
    current = written.status.get("current")
    if written.at is None or situation.now - written.at > FRESH_SECONDS or not isinstance(current, int):
        return None
    return current


def _looked(course: ReplicaHistory, situation: Context, current: int) -> ReplicaHistory:
    if current == course.replicas:
        asked = _asked(situation)
        return replace(course, moved_at=None, asked=asked)
    moved_at = course.moved_at if course.moved_at is not None else situation.now
    by = _author(course, situation, current, moved_at)
    if not by and situation.now - moved_at < ATTRIBUTION_SECONDS:
        return replace(course, moved_at=moved_at)
    assert course.replicas is not None
    number = course.last.number + 1 if course.last is not None else 1
    step = Scaling(number, moved_at, course.replicas, current, _reason(course, current), by)
    credited = _last_scale(situation) if by == HPA else course.credited
    return ReplicaHistory(target=course.target, replicas=current, credited=credited, last=step)


def _asked(situation: Context) -> Asked | None:
    decision, assessment = situation.decision, situation.view.assessment
    if decision is None or assessment is None or decision.desired in {None, decision.current}:
        return None
    assert decision.desired is not None
    return Asked(decision.desired, decision_reason(assessment, decision))


def _author(course: ReplicaHistory, situation: Context, current: int, moved_at: float) -> str:
    raised = situation.past.raised
    if raised.to == current and raised.at is not None and abs(raised.at - moved_at) < CLOCK_SKEW_SECONDS:
        return COMPANION
    last = _last_scale(situation)
    if last is not None and last != course.credited and last >= moved_at - CLOCK_SKEW_SECONDS:
        return HPA
    return ""


def _last_scale(situation: Context) -> float | None:
    return situation.view.bounds.last_scale if situation.view.bounds is not None else None


def _reason(course: ReplicaHistory, current: int) -> str:
    """Why the count is what it is now; empty where the policy did not ask for it, nor for more of the same."""
    asked, before = course.asked, course.replicas
    if asked is None or before is None:
        return ""
    if asked.replicas == current:
        return asked.why
    on_the_way = before < current < asked.replicas or before > current > asked.replicas
    return f"on the way to {asked.replicas}: {asked.why}" if on_the_way else ""
