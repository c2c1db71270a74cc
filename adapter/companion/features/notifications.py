"""Notifications: every scaling, and every trouble when it comes, once. Without routes nothing is noted."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, NamedTuple

from adapter.companion.actions import Notify
from adapter.companion.state import Context, Notification, NotificationState, PolicyCondition, State, TroubleState
from adapter.load.assessment import Assessment, HeldBy, Verdict
from adapter.load.conditions import ConditionType, Reason
from adapter.load.explanation import decision_reason, metric_errors
from adapter.load.pods import PodState
from adapter.settings.companion import Severity, Topic

FEWEST_OUT = 2
"""Fewer pods than this are no mass pull-out, whatever share they are."""
_DUE_AT_MOST = 50
_RUNNING = (PodState.SERVING, PodState.PULLED_OUT, PodState.DOUBTFUL)


class NotifiedTrouble(NamedTuple):
    """How long a trouble has to last before it is notified, and to be over before it is news again (seconds)."""

    topic: Topic
    severity: Severity
    rise: float
    fall: float
    in_production: Severity | None = None


TROUBLES = (
    NotifiedTrouble(Topic.VERSION_MISMATCH, Severity.WARNING, 0.0, 600.0, Severity.CRITICAL),
    NotifiedTrouble(Topic.MASS_PULL_OUT, Severity.CRITICAL, 0.0, 300.0),
    NotifiedTrouble(Topic.DATA_LOST, Severity.WARNING, 60.0, 30.0),
    NotifiedTrouble(Topic.AT_MAXIMUM, Severity.WARNING, 30.0, 300.0),
)


def observe(context: Context) -> State:
    """The state with the notifications that are due after this look."""
    return replace(context.state, notifications=_observed(context))


def _observed(context: Context) -> NotificationState:
    state, scaling = context.state.notifications, context.state.history.last
    if not context.settings.notifications.routes:
        silent = NotificationState(scaling=scaling.number if scaling is not None else 0, number=state.number)
        return state if state == silent else silent
    if state.troubles is None:
        state = replace(state, troubles=_left_behind(context))
    if scaling is not None and scaling.number > state.scaling:
        fields = {"from": str(scaling.before), "to": str(scaling.after), "why": scaling.why}
        state = _with_due(state, context, Topic.SCALED, Severity.INFO, f"scaled {scaling}", fields=fields)
        state = replace(state, scaling=scaling.number)
    if context.view.assessment is None or context.decision is None:
        return state
    for trouble in TROUBLES:
        state = _with_trouble(state, trouble, _text(trouble.topic, context), context)
    return state


def plan(context: Context) -> Iterator[Notify]:
    """Hands what is due to the notifier."""
    if context.state.notifications.due:
        yield Notify(key=context.key, notifications=context.state.notifications.due, routes=context.view.policy.notify)


def after(state: State, action: Notify, _now: float) -> State:
    """The state once the notifier has them."""
    last = action.notifications[-1].number
    due = tuple(one for one in state.notifications.due if one.number > last)
    return replace(state, notifications=replace(state.notifications, due=due))


def notified_topics(context: Context) -> list[str]:
    """The troubles that were notified and last, for the status, from which a new leader takes them over."""
    troubles = context.state.notifications.troubles
    if troubles is None:
        troubles = _left_behind(context) if context.settings.notifications.routes else {}
    return sorted(topic.value for topic, trouble in troubles.items() if trouble.notified)


def conditions(context: Context) -> Iterator[PolicyCondition]:
    """RoutesKnown, where the policy names routes."""
    named, routes = context.view.policy.notify, context.settings.notifications.routes
    unknown = [name for name in named if name not in {route.name for route in routes}]
    kept = [route.name for route in routes if route.name in named and not route.serves(context.key.namespace)]
    if unknown:
        message = f"notify names {', '.join(unknown)}, which the settings do not define"
        yield PolicyCondition(ConditionType.ROUTES_KNOWN, False, Reason.UNKNOWN_ROUTE, message)
    elif kept:
        message = f"notify names {', '.join(kept)}, which the settings keep for other namespaces"
        yield PolicyCondition(ConditionType.ROUTES_KNOWN, False, Reason.ROUTE_NOT_FOR_NAMESPACE, message)
    elif named:
        message = "the settings define every route that the policy names"
        yield PolicyCondition(ConditionType.ROUTES_KNOWN, True, Reason.KNOWN, message)


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
    topic, now = trouble.topic, context.now
    before = (state.troubles or {}).get(topic, TroubleState())
    if text is None or bool(text) is before.notified:
        return _updated(state, topic, TroubleState(before.notified))
    since = before.since if before.since is not None else now
    if now - since < (trouble.fall if before.notified else trouble.rise):
        return _updated(state, topic, TroubleState(before.notified, since))
    state = _updated(state, topic, TroubleState(not before.notified))
    if text:
        graver = trouble.in_production
        return _with_due(state, context, topic, trouble.severity, text, severity_in_production=graver)
    if topic is Topic.DATA_LOST:
        trusted = ", and the registry is trusted" if context.view.policy.registry is not None else ""
        recovered = f"every metric has an answer again{trusted}"
        return _with_due(state, context, Topic.DATA_RECOVERED, Severity.INFO, recovered)
    return state


def _updated(state: NotificationState, topic: Topic, trouble: TroubleState) -> NotificationState:
    if state.troubles is not None and state.troubles.get(topic) == trouble:
        return state
    return replace(state, troubles={**(state.troubles or {}), topic: trouble})


def _with_due(
    state: NotificationState, context: Context, topic: Topic, severity: Severity, text: str, **more: Any
) -> NotificationState:
    """The state with one more notification; `more` are its further fields."""
    target = context.view.target
    notification = Notification(
        number=state.number + 1,
        topic=topic,
        severity=severity,
        at=context.now,
        target=f"{target.kind} {target.name}" if target is not None else "",
        text=text,
        **more,
    )
    return replace(state, number=notification.number, due=(*state.due, notification)[-_DUE_AT_MOST:])


# --- the text of a trouble: empty where there is none, None where that cannot be judged ---


def _text(topic: Topic, context: Context) -> str | None:
    assessment = context.view.assessment
    assert assessment is not None
    match topic:
        case Topic.VERSION_MISMATCH:
            condition = context.conditions.get(ConditionType.VERSIONS_CONSISTENT)
            return condition.message if condition is not None and not condition.is_true else ""
        case Topic.MASS_PULL_OUT:
            # Pods count that are pulled out, and those that a guard keeps doubtful although the evidence says out.
            running = [one for one in assessment.pods if one.state in _RUNNING]
            out = [one for one in running if one.state is PodState.PULLED_OUT]
            guarded = [one for one in running if one.guarded]
            count = len(out) + len(guarded)
            if count < FEWEST_OUT or count * 100 < len(running) * context.settings.notifications.mass_pull_out_percent:
                return ""
            example = (out + guarded)[0]
            doubt = f", {len(guarded)} of them not believed yet" if guarded else ""
            return f"{count} of {len(running)} running pods are pulled out{doubt}; {example.pod.name}: {example.reason}"
        case Topic.DATA_LOST:
            if context.decision is None or context.decision.current == 0:
                return None  # a service without pods has no samples
            errors = metric_errors(assessment.policy, assessment.metrics)
            return "; ".join(filter(None, [errors, assessment.conditions.get(ConditionType.REGISTRY_TRUSTED)]))
        case _:
            return _at_maximum(assessment, context)


def _at_maximum(assessment: Assessment, context: Context) -> str:
    decision, bounds = context.decision, context.view.bounds
    if decision is None or bounds is None or decision.desired != bounds.maximum:
        return ""
    if decision.held_by is not HeldBy.BOUNDS or decision.verdict is not Verdict.ABOVE:
        return ""
    return f"more is needed than the HPA's maximum of {bounds.maximum}: {decision_reason(assessment, decision)}"
