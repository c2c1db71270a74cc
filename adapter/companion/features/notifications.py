"""Notifications: every scaling, and every trouble when it comes, once. Without routes nothing is noted."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import NamedTuple

from adapter.companion.actions import Notify
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
    """How long a trouble has to last before it is notified, and to be over before it is news again.

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
    if not context.settings.notifications.routes:
        silent = NotificationState(scaling=scaling.number if scaling is not None else 0, number=state.number)
        return context.state if state == silent else replace(context.state, notifications=silent)
    if state.troubles is None:
        state = replace(state, troubles=_left_behind(context))
    if scaling is not None and scaling.number > state.scaling:
        fields = {"from": str(scaling.before), "to": str(scaling.after), "why": scaling.why}
        state = _with_due(state, context, Topic.SCALED, Severity.INFO, f"scaled {scaling}", fields=fields)
        state = replace(state, scaling=scaling.number)
    if context.view.assessment is not None and context.decision is not None:
        for trouble in TROUBLES:
            text = _text(trouble.topic, context, context.view.assessment, context.decision)
            state = _with_trouble(state, trouble, text, context)
    return replace(context.state, notifications=state)


def plan(context: Context) -> Iterator[Notify]:
    """Hands what is due to the notifier."""
    if context.state.notifications.due:
        yield Notify(key=context.key, notifications=context.state.notifications.due, routes=context.view.policy.notify)


def after(state: State, action: Notify, _now: float) -> State:
    """The state once the notifier has them."""
    last = action.notifications[-1].number
    due = tuple(notification for notification in state.notifications.due if notification.number > last)
    return replace(state, notifications=replace(state.notifications, due=due))


def notified_topics(context: Context) -> list[str]:
    """The troubles that were notified and last, for the status, from which a new leader takes them over."""
    troubles = context.state.notifications.troubles
    if troubles is None:
        troubles = _left_behind(context) if context.settings.notifications.routes else {}
    return sorted(topic.value for topic, trouble in troubles.items() if trouble.notified)


def conditions(context: Context) -> Iterator[PolicyCondition]:
    """NotificationRoutesResolved, where the policy names routes."""
    named, routes = context.view.policy.notify, context.settings.notifications.routes
    unknown = [name for name in named if name not in {route.name for route in routes}]
    kept = [route.name for route in routes if route.name in named and not route.serves(context.key.namespace)]
    if unknown:
        message = f"notify names {', '.join(unknown)}, which the settings do not define"
        yield PolicyCondition(ConditionType.NOTIFICATION_ROUTES_RESOLVED, False, Reason.UNKNOWN_ROUTE, message)
    elif kept:
        message = f"notify names {', '.join(kept)}, which the settings keep for other namespaces"
        yield PolicyCondition(
            ConditionType.NOTIFICATION_ROUTES_RESOLVED, False, Reason.ROUTE_NOT_FOR_NAMESPACE, message
        )
    elif named:
        message = "the settings define every route that the policy names"
        yield PolicyCondition(ConditionType.NOTIFICATION_ROUTES_RESOLVED, True, Reason.KNOWN, message)


def _left_behind(context: Context) -> dict[Topic, TroubleState]:
    """The troubles in the status, as another leader may have left it."""
    notified = context.state.written.status.get("notified", ())
    return {trouble.topic: TroubleState(notified=trouble.topic.value in notified) for trouble in TROUBLES}


def _with_trouble(
    state: NotificationState, trouble: NotifiedTrouble, text: str | None, context: Context
) -> NotificationState:
    """The state once a trouble is present (a text), absent (empty), or cannot be judged now (None).

    A trouble is notified once it has lasted for long enough, and so is the end of lost data.
    """
    topic, now, troubles = trouble.topic, context.now, state.troubles or {}
    before = troubles.get(topic, TroubleState())
    new = TroubleState(before.notified)
    if text is not None and bool(text) is not before.notified:
        since = before.since if before.since is not None else now
        after = context.settings.notifications.after_seconds
        fall = after / 2 if trouble.fall is None else trouble.fall
        waits = now - since < (fall if before.notified else after * trouble.rise)
        new = TroubleState(before.notified, since) if waits else TroubleState(not before.notified)
    if troubles.get(topic) != new:
        state = replace(state, troubles={**troubles, topic: new})
    if new.notified is before.notified:
        return state
    if text:
        return _with_due(state, context, topic, trouble.severity, text, in_production=trouble.in_production)
    if topic is Topic.DATA_LOST:
        trusted = ", and the registry is trusted" if context.view.policy.registry is not None else ""
        recovered = f"every metric has an answer again{trusted}"
        return _with_due(state, context, Topic.DATA_RECOVERED, Severity.INFO, recovered)
    return state


def _with_due(
    state: NotificationState,
    context: Context,
    topic: Topic,
    severity: Severity,
    text: str,
    *,
    in_production: Severity | None = None,
    fields: Mapping[str, str] | None = None,
) -> NotificationState:
    target = context.view.target
    notification = Notification(
        number=state.number + 1,
        topic=topic,
        severity=severity,
        severity_in_production=in_production,
        at=context.now,
        target=f"{target.kind} {target.name}" if target is not None else "",
        text=text,
        fields=fields or {},
    )
    return replace(state, number=notification.number, due=(*state.due, notification)[-_DUE_AT_MOST:])


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
            errors = metric_errors(assessment.policy, assessment.metrics)
            lost = [errors, assessment.conditions.get(ConditionType.REGISTRY_DATA_VALID)]
            return "; ".join(filter(None, lost)) if decision.current else None  # without pods there are no samples
        case _:
            bounds = context.view.bounds
            is_held = decision.held_by is HeldBy.BOUNDS and decision.verdict is Verdict.ABOVE
            if bounds is None or not is_held or decision.desired != bounds.maximum:
                return ""
            reason = decision_reason(assessment, decision)
            return f"more is needed than the HPA's maximum of {bounds.maximum}: {reason}"
