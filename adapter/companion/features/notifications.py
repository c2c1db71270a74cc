"""Notifications: every scaling, and every trouble when it comes, once. Without routes nothing is noted."""

from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

from adapter.companion.actions import ActionResult, Notify
from adapter.companion.state import Context, Notification, NotificationState, PolicyCondition, State, TroubleState
from adapter.load.assessment import Assessment, Decision, HeldBy, Verdict
from adapter.load.explanation import decision_reason, metric_errors
from adapter.load.pods import PodAssessment, PodState
from adapter.load.states import service_registry
from adapter.policy.conditions import ConditionType, Reason
from adapter.settings.companion import Severity, Topic

FEWEST_OUT = 2
"""Fewer pods than this are no mass pull-out, whatever share they are."""
_DUE_AT_MOST = 50
_RUNNING = (PodState.SERVING, PodState.PULLED_OUT, PodState.DOUBTFUL)


class NotifiedTrouble(NamedTuple):
    """How long a trouble has to last before it is notified, and to be over before it is notified again.

    `rise` in multiples of `afterSeconds`; `fall` in seconds, or None for half of `afterSeconds`.
    """

    topic: Topic
    severity: Severity
    rise: float
    fall: float | None
    in_production: Severity | None = None


TROUBLES = (
    NotifiedTrouble(Topic.VERSION_MISMATCH, Severity.WARNING, 0.0, 600.0, Severity.CRITICAL),
    NotifiedTrouble(Topic.MASS_PULL_OUT, Severity.CRITICAL, 0.0, 300.0),
    NotifiedTrouble(Topic.DATA_LOST, Severity.WARNING, 1.0, None),
    NotifiedTrouble(Topic.AT_MAXIMUM, Severity.WARNING, 0.5, 300.0),
)


def observe(context: Context) -> State:
    """The state with the notifications that are due after this look."""
    state, scaling = context.state.notifications, context.state.history.last
    number = scaling.number if scaling is not None else 0
    if not context.settings.notifications.routes:
        silent = NotificationState(scaling=number)
        return context.state if state == silent else replace(context.state, notifications=silent)
    troubles, due = dict(_troubles(context)), list(state.due)
    if scaling is not None and number > state.scaling:
        fields = {"from": str(scaling.before), "to": str(scaling.after), "why": scaling.why}
        due.append(replace(_notification(context, Topic.SCALED, Severity.INFO, f"scaled {scaling}"), fields=fields))
    if context.view.assessment is not None and context.decision is not None:
        for trouble in TROUBLES:
            text = _text(trouble.topic, context, context.view.assessment, context.decision)
            before = troubles.get(trouble.topic, TroubleState())
            now_is = troubles[trouble.topic] = _moved(before, trouble, text, context)
            if now_is.notified and not before.notified and text:
                one = _notification(context, trouble.topic, trouble.severity, text)
                due.append(replace(one, severity_in_production=trouble.in_production))
            elif before.notified and not now_is.notified and trouble.topic is Topic.DATA_LOST:
                trusted = ", and the registry is trusted" if context.view.policy.registry is not None else ""
                recovered = f"every metric has an answer again{trusted}"
                due.append(_notification(context, Topic.DATA_RECOVERED, Severity.INFO, recovered))
    after = NotificationState(scaling=max(number, state.scaling), troubles=troubles, due=tuple(due[-_DUE_AT_MOST:]))
    return context.state if after == state else replace(context.state, notifications=after)


def plan(context: Context) -> Iterator[Notify]:
    """Hands what is due to the notifier."""
    if context.state.notifications.due:
        yield Notify(key=context.key, notifications=context.state.notifications.due, routes=context.view.policy.notify)


def after(state: State, action: Notify, result: ActionResult, _now: float) -> State:
    """The state once the notifier has them."""
    if result is not ActionResult.DONE:
        return state
    due = tuple(one for one in state.notifications.due if one not in action.notifications)
    return replace(state, notifications=replace(state.notifications, due=due))


def notified_topics(context: Context) -> list[str]:
    """The troubles that were notified and last, for the status, from which a new leader takes them over."""
    troubles = _troubles(context) if context.settings.notifications.routes else {}
    return sorted(topic.value for topic, trouble in troubles.items() if trouble.notified)


def conditions(context: Context) -> Iterator[PolicyCondition]:
    """NotificationRoutesResolved, where the policy names routes."""
    named, routes = context.view.policy.notify, context.settings.notifications.routes
    unknown = [name for name in named if name not in {route.name for route in routes}]
    kept = [route.name for route in routes if route.name in named and not route.serves(context.key.namespace)]
    reason, message = Reason.KNOWN, "the settings define every route that the policy names"
    if unknown:
        reason = Reason.UNKNOWN_ROUTE
        message = f"notify names {', '.join(unknown)}, which the settings do not define"
    elif kept:
        reason = Reason.ROUTE_NOT_FOR_NAMESPACE
        message = f"notify names {', '.join(kept)}, which the settings keep for other namespaces"
    if named:
        is_true = reason is Reason.KNOWN
        yield PolicyCondition(ConditionType.NOTIFICATION_ROUTES_RESOLVED, is_true, reason, message)


def _troubles(context: Context) -> dict[Topic, TroubleState]:
    """The troubles as they are known; before the first look those in the status, as another leader may have left it."""
    troubles = context.state.notifications.troubles
    if troubles is not None:
        return dict(troubles)
    notified = context.state.written.status.get("notified", ())
    return {trouble.topic: TroubleState(notified=trouble.topic.value in notified) for trouble in TROUBLES}


def _moved(before: TroubleState, trouble: NotifiedTrouble, text: str | None, context: Context) -> TroubleState:
    """A trouble's state once it is present (a text), absent (empty), or cannot be judged now (None)."""
    if text is None or bool(text) is before.notified:
        return TroubleState(before.notified)
    since = before.since if before.since is not None else context.now
    after = context.settings.notifications.after_seconds
    fall = after / 2 if trouble.fall is None else trouble.fall
    if context.now - since < (fall if before.notified else after * trouble.rise):
        return TroubleState(before.notified, since)
    return TroubleState(not before.notified)


def _notification(context: Context, topic: Topic, severity: Severity, text: str) -> Notification:
    target = context.view.target
    named = f"{target.kind} {target.name}" if target is not None else ""
    return Notification(topic=topic, severity=severity, at=context.now, target=named, text=text)


def _is_doubted(reading: PodAssessment, assessment: Assessment) -> bool:
    """Whether a pod is doubtful only because too many would be pulled out at once."""
    if reading.state is not PodState.DOUBTFUL:
        return False
    registry, remembered = service_registry(assessment.policy), assessment.memory.pod(reading.pod.uid)
    if reading.evidence == "absence":
        since = remembered.absent_since
        is_confirmed = (
            registry is not None
            and since is not None
            and assessment.at - since >= registry.absence_confirmation_seconds
        )
        return is_confirmed and remembered.registered
    return bool(reading.evidence) and not assessment.counts.get(PodState.SERVING)


def _text(topic: Topic, context: Context, assessment: Assessment, decision: Decision) -> str | None:
    """What a trouble is notified as: empty where there is none, None where that cannot be judged."""
    match topic:
        case Topic.VERSION_MISMATCH:
            condition = context.conditions.get(ConditionType.VERSIONS_CONSISTENT)
            return condition.message if condition is not None and not condition.is_true else ""
        case Topic.MASS_PULL_OUT:
            running = [reading for reading in assessment.pods if reading.state in _RUNNING]
            out = [reading for reading in running if reading.state is PodState.PULLED_OUT]
            doubted = [reading for reading in running if _is_doubted(reading, assessment)]
            count = len(out) + len(doubted)
            if count < FEWEST_OUT or count * 100 < len(running) * context.settings.notifications.mass_pull_out_percent:
                return ""
            example, kept = (out + doubted)[0], f", {len(doubted)} of them are kept as doubtful" if doubted else ""
            return f"{count} of {len(running)} running pods are pulled out{kept}; {example.pod.name}: {example.reason}"
        case Topic.DATA_LOST:
            errors = metric_errors(assessment.metrics)
            lost = [errors, assessment.conditions.get(ConditionType.REGISTRY_DATA_VALID)]
            return "; ".join(filter(None, lost)) if decision.current else None  # without pods there are no samples
        case _:
            bounds = context.view.bounds
            is_held = decision.held_by is HeldBy.BOUNDS and decision.verdict is Verdict.ABOVE
            if bounds is None or not is_held or decision.desired != bounds.maximum:
                return ""
            reason = decision_reason(assessment, decision)
            return f"more is needed than the HPA's maximum of {bounds.maximum}: {reason}"
