"""A target's replica count over time: its rises, and each change with its author and cause."""

from dataclasses import dataclass, replace
from typing import NamedTuple

from adapter.companion.state import Context, State
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


@dataclass(frozen=True, slots=True, kw_only=True)
class LastRaise:
    """When this process last tried to raise the count itself (seconds), and to what."""

    at: float | None = None
    to: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaHistory:
    """The replica count of a target (a UID, empty before the first observation). Times are in seconds.

    Every replica of the companion observes: since when, `scaled_before` (when the HPA had last scaled the target by
    then, None for never), the current count `replicas`, and its rises of the last half hour, whoever made them.

    The leader attributes: `pending` are the changes without author or cause, the oldest first (None before its first
    look), `desired` is what the policy last asked for before them, and why, `credited` the HPA's last scaling that was
    attributed to it, and `done` are the scalings that this look finished.
    """

    target: str = ""
    since: float = 0.0
    scaled_before: float | None = None
    replicas: int = 0
    rises: tuple[ScaleEvent, ...] = ()
    pending: tuple[Scaling, ...] | None = None
    desired: tuple[int, str] | None = None
    credited: float | None = None
    done: tuple[Scaling, ...] = ()


def observe_count(history: ReplicaHistory, view: PolicyView, now: float) -> ReplicaHistory:
    """The history with the count of this view. Every replica of the companion observes, whether it leads or not."""
    if view.target is None or view.scale is None or view.bounds is None:
        return history
    uid, replicas, before, pending = view.target.uid, view.scale.replicas, history.replicas, history.pending
    if history.target != uid:  # its first count is no scaling
        pending, scaled = None if pending is None else (), view.bounds.last_scale
        return ReplicaHistory(target=uid, since=now, scaled_before=scaled, replicas=replicas, pending=pending)
    if replicas == before:
        return history
    rises = (*history.rises, ScaleEvent(replicas - before, now))
    rises = tuple(one for one in rises if one.change > 0 and now - one.at < RISES_SECONDS)
    pending = None if pending is None else (*pending, Scaling(now, before, replicas))
    return replace(history, replicas=replicas, rises=rises, pending=pending)


def unattributed(history: ReplicaHistory) -> ReplicaHistory:
    """What this process observed, for a new term as leader; others may have led in between."""
    return replace(history, pending=None, desired=None, credited=None, done=())


def is_new(history: ReplicaHistory, replicas: int) -> bool:
    """Whether this count is new and its author unknown."""
    pending = history.pending
    return pending is not None and (replicas != history.replicas or any(not change.by for change in pending[-1:]))


def attributed(context: Context) -> State:
    """The state of the leader after this look: a change is a scaling once author and cause are known, or after a wait.

    The HPA may act on samples of the serving process that the companion gets with its next poll only: a change by the
    HPA without a reason waits for one that is seen then, at the count before it.
    """
    view, now = context.view, context.now
    history = replace(observe_count(context.state.of(ReplicaHistory), view, now), done=())
    if view.scale is None or view.target is None or history.target != view.target.uid:
        return context.state.having(history)
    if history.pending is None:  # from the count in the status, as another leader wrote it
        replicas = view.scale.replicas
        left = context.written.status.get("current", replicas)
        history = replace(history, pending=(Scaling(now, left, replicas),) if left != replicas else ())
    pending, credited = _credited(history, context)
    if not pending:
        return context.state.having(replace(history, pending=(), desired=_desired(context, view.scale.replicas)))
    desired, done = history.desired, list[Scaling]()
    while pending:
        scaling = _named(pending[0], context)
        if scaling.by in {HPA, COMPANION} and not scaling.why:
            scaling = scaling._replace(why=_cause(scaling, context, desired))
        pending[0], is_known = scaling, bool(scaling.by)
        patience = (
            0.0 if scaling.why or scaling.by not in {"", HPA} else REASON_SECONDS if is_known else ATTRIBUTION_SECONDS
        )
        if now - scaling.at < patience and not (is_known and len(pending) > 1):  # its reason is not waited for then
            break
        done.append(pending.pop(0)._replace(by=scaling.by or OTHERS))
        desired = None
    history = replace(history, pending=tuple(pending), desired=desired, credited=credited, done=tuple(done))
    return context.state.having(history)


def _credited(history: ReplicaHistory, context: Context) -> tuple[list[Scaling], float | None]:
    """The changes with the HPA's last scaling attributed to it, and when that was: it ends where its status says.

    A change that began elsewhere were two: another client's, and the HPA's from where that one had left the count.
    """
    changes, credited = list(history.pending or ()), history.credited
    last = context.view.bounds.last_scale if context.view.bounds is not None else None
    step = context.hpa.last_step if context.hpa is not None else None
    for index, change in enumerate(changes if last is not None and last != credited else ()):
        is_its = step is None or step.after == change.after
        if last is None or change.by or not is_its or last < change.at - CLOCK_SKEW_SECONDS:
            continue
        if step is None or step.before in {change.before, change.after}:
            changes[index] = change._replace(by=HPA)
        else:
            of_others, its = change._replace(after=step.before, by=OTHERS), change._replace(before=step.before, by=HPA)
            changes[index : index + 1] = [of_others, its]
        return changes, last
    return changes, credited


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


def _desired(context: Context, replicas: int) -> tuple[int, str] | None:
    """What the policy asks for at this count, and why; None where that is the count itself, or unknown."""
    view, decision = context.view, context.decision
    if decision is None or view.assessment is None or view.scale is None or view.bounds is None:
        return None
    if decision.current != replicas:
        decision = decide(view.assessment, replace(view.scale, replicas=replicas), view.bounds, context.now)
    if decision.desired is None or decision.desired == replicas:
        return None
    return decision.desired, decision_reason(view.assessment, decision)


def _cause(scaling: Scaling, context: Context, desired: tuple[int, str] | None) -> str:
    """Why the HPA or the companion changed the count: what the policy asked for; empty if another count."""
    before, after = scaling.before, scaling.after
    for asked, why in filter(None, (desired, _desired(context, before))):
        if asked == after:
            return why
        if before < after < asked or before > after > asked:
            return f"on the way to {asked}: {why}"
    return ""
