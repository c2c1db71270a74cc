"""A target's replica count over time: its rises, and each change with its author and cause."""

from dataclasses import dataclass, replace
from typing import NamedTuple

from adapter.companion.state import Context, LastRaise, State
from adapter.hpa.behavior import ScaleEvent
from adapter.load.decide import decide
from adapter.load.explanation import decision_reason
from adapter.snapshot import PolicyView

HPA, OTHER_HPA, COMPANION, OTHERS = "the HPA", "another HPA", "the companion", "another client"
ATTRIBUTION_SECONDS = 3.0
"""How long a scaling waits for the HPA's status to claim it."""
REASON_SECONDS = 20.0
"""How long a scaling of the HPA waits for its reason: a poll at the default interval, and its assessment."""
RISES_SECONDS = 1800.0
"""The longest period that an HPA's scaling policy can have."""
CLOCK_SKEW_SECONDS = 5.0
"""The HPA may date a scaling this long before this process observes it."""
_CONTROLLER = "kube-controller-manager"


class Scaling(NamedTuple):
    """A change of the count: when (seconds), from and to which count, why, and by whom; both empty if unknown."""

    at: float
    before: int
    after: int
    why: str = ""
    by: str = ""

    def __str__(self) -> str:
        by, why = f" by {self.by}" if self.by else "", f": {self.why}" if self.why else ""
        return f"from {self.before} to {self.after}{by}{why}"


class DesiredCount(NamedTuple):
    """A count that the policy asked for while another one was set, and the reason it gave."""

    replicas: int
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaHistory:
    """The replica count of a target (a UID, empty before the first observation). Times are in seconds.

    Every replica of the companion observes: since when, `scaled_before` (when the HPA had last scaled the target by
    then, None for never), the current count `replicas`, and its rises of the last half hour, whoever made them.

    The leader attributes: `reported` is the count up to which it has (None before the first look), `pending` are the
    changes since then, the oldest first, `desired` is what the policy last asked for before them, `credited` the HPA's
    last scaling that was attributed to it, and `done` are the scalings that this look finished.
    """

    target: str = ""
    since: float = 0.0
    scaled_before: float | None = None
    replicas: int = 0
    rises: tuple[ScaleEvent, ...] = ()
    reported: int | None = None
    pending: tuple[Scaling, ...] = ()
    desired: DesiredCount | None = None
    credited: float | None = None
    done: tuple[Scaling, ...] = ()


def observe_count(history: ReplicaHistory, view: PolicyView, now: float) -> ReplicaHistory:
    """The history with the count of this view. Every replica of the companion observes, whether it leads or not."""
    if view.target is None or view.scale is None or view.bounds is None:
        return history
    uid, replicas, scaled = view.target.uid, view.scale.replicas, view.bounds.last_scale
    if history.target != uid:  # its first count is no scaling
        reported = replicas if history.reported is not None else None
        return ReplicaHistory(target=uid, since=now, scaled_before=scaled, replicas=replicas, reported=reported)
    if replicas == history.replicas:
        return history
    rise = () if replicas < history.replicas else (ScaleEvent(replicas - history.replicas, now),)
    rises = tuple(change for change in (*history.rises, *rise) if now - change.at < RISES_SECONDS)
    return _changed(replace(history, replicas=replicas, rises=rises), replicas, now)


def unattributed(history: ReplicaHistory) -> ReplicaHistory:
    """What this process observed, for a new term as leader; others may have led in between."""
    return replace(history, reported=None, pending=(), desired=None, credited=None, done=())


def is_new(history: ReplicaHistory, replicas: int) -> bool:
    """Whether this count is new and its author unknown."""
    return history.reported not in {None, replicas} and not (history.pending and history.pending[-1].by)


def attributed(context: Context) -> State:
    """The state of the leader after this look: a change is a scaling once author and cause are known, or after a wait.

    The HPA may act on samples of the serving process that the companion gets with its next poll only: a change by the
    HPA without a reason waits for one that is seen then, at the count before it.
    """
    view, now = context.view, context.now
    history = replace(observe_count(context.state.of(ReplicaHistory), view, now), done=())
    if view.scale is None or view.target is None or history.target != view.target.uid:
        return context.state.having(history)
    if history.reported is None:  # from the count in the status, as another leader wrote it
        left = context.written.status.get("current")
        history = replace(history, reported=left if isinstance(left, int) else view.scale.replicas)
        history = _changed(history, view.scale.replicas, now)
    if not history.pending:
        return context.state.having(replace(history, desired=_desired(context, view.scale.replicas)))
    history = _credited(history, context)
    waiting = list(history.pending)
    while waiting:
        scaling = _named(waiting[0], context)
        if scaling.by in {HPA, COMPANION} and not scaling.why:
            scaling = scaling._replace(why=_cause(scaling, context, history.desired))
        patience = {"": ATTRIBUTION_SECONDS, HPA: 0.0 if scaling.why else REASON_SECONDS}.get(scaling.by, 0.0)
        waiting[0] = scaling
        if now - scaling.at < patience and not (scaling.by and len(waiting) > 1):  # its reason is not waited for then
            break
        done = waiting.pop(0)._replace(by=scaling.by or OTHERS)
        history = replace(history, reported=done.after, desired=None, done=(*history.done, done))
    return context.state.having(replace(history, pending=tuple(waiting)))


def _changed(history: ReplicaHistory, replicas: int, now: float) -> ReplicaHistory:
    """The history with a change to this count, if it is one."""
    before = history.pending[-1].after if history.pending else history.reported
    change = () if before is None or before == replicas else (Scaling(now, before, replicas),)
    return replace(history, pending=(*history.pending, *change))


def _credited(history: ReplicaHistory, context: Context) -> ReplicaHistory:
    """The history with the HPA's last scaling attributed to it: the change that ends where its status says.

    A change that began elsewhere were two: another client's, and the HPA's from where that one had left the count.
    """
    last = context.view.bounds.last_scale if context.view.bounds is not None else None
    step = context.hpa.last_step if context.hpa is not None else None
    for index, change in enumerate(history.pending if last != history.credited and last is not None else ()):
        ends_there = step is None or step.after == change.after
        if change.by or not ends_there or (last or 0.0) < change.at - CLOCK_SKEW_SECONDS:
            continue
        parts = [change._replace(by=HPA)]
        if step is not None and step.before not in {change.before, change.after}:
            parts = [change._replace(after=step.before, by=OTHERS), change._replace(before=step.before, by=HPA)]
        pending = (*history.pending[:index], *parts, *history.pending[index + 1 :])
        return replace(history, pending=pending, credited=last)
    return history


def _named(scaling: Scaling, context: Context) -> Scaling:
    """The scaling with its author, if that is known by now and is not the HPA."""
    raised, scale = context.state.of(LastRaise), context.view.scale
    if scaling.by:
        return scaling
    if raised.to == scaling.after and raised.at is not None and abs(raised.at - scaling.at) < CLOCK_SKEW_SECONDS:
        return scaling._replace(by=COMPANION)
    manager = context.manager if scale is not None and scale.replicas == scaling.after else ""
    if manager == _CONTROLLER:  # the HPA that follows the policy claims it later
        return scaling._replace(by=OTHER_HPA if context.now - scaling.at >= ATTRIBUTION_SECONDS else "")
    return scaling._replace(by=f"hand ({manager})" if manager.startswith("kubectl") else manager)


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


def _cause(scaling: Scaling, context: Context, desired: DesiredCount | None) -> str:
    """Why the HPA or the companion changed the count: what the policy asked for; empty if another count."""
    before, after = scaling.before, scaling.after
    for asked in (desired, _desired(context, before)):
        if asked is not None and asked.replicas == after:
            return asked.why
        if asked is not None and (before < after < asked.replicas or before > after > asked.replicas):
            return f"on the way to {asked.replicas}: {asked.why}"
    return ""
