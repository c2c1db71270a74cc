"""Notifications: every scaling, and every trouble when it comes, once. Without routes nothing is noted."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import NamedTuple

from adapter.companion.replica_history import ReplicaHistory
from adapter.companion.state import Context, Debounced, Notification, Notify, PolicyCondition, State
from adapter.load.assessment import Assessment, HeldBy, Verdict
from adapter.load.explanation import decision_reason, metric_errors
from adapter.load.pods import PodState
from adapter.load.states import service_registry
from adapter.policy.conditions import ConditionType, Reason
from adapter.settings.companion import Severity, Topic

FEWEST_OUT = 2
"""Fewer pods than this are no mass pull-out, whatever share they are."""
_RUNNING = (PodState.SERVING, PodState.PULLED_OUT, PodState.DOUBTFUL)


class NotifiedTrouble(NamedTuple):
    """How long a trouble has to last before it is notified, and to be over before it is notified again.

    `rise` in multiples of `afterSeconds`; `fall` in seconds, or None for half of `afterSeconds`.
    """

    severity: Severity
    rise: float
    fall: float | None


TROUBLES = {
    Topic.VERSION_MISMATCH: NotifiedTrouble(Severity.WARNING, 0.0, 600.0),
    Topic.MASS_PULL_OUT: NotifiedTrouble(Severity.CRITICAL, 0.0, 300.0),
    Topic.DATA_LOST: NotifiedTrouble(Severity.WARNING, 1.0, None),
    Topic.AT_MAXIMUM: NotifiedTrouble(Severity.WARNING, 0.5, 300.0),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class NotificationState:
    """What notifications have said: the last scaling's number, and which troubles (None before the first look).

    `due` are those of this look.
    """

    scaling: int = 0
    troubles: Mapping[Topic, Debounced[bool]] | None = None
    due: tuple[Notification, ...] = ()


def observe(context: Context) -> State:
    """The state with the notifications that are due after this look."""
    history, state = context.state.of(ReplicaHistory), context.state.of(NotificationState)
    if not context.settings.notifications.routes:
        return context.state.having(NotificationState(scaling=history.number))
    troubles, due = _troubles(context), list[Notification]()
    for scaling in (one for one in history.done if one.number > state.scaling):
        fields = {"from": str(scaling.before), "to": str(scaling.after), "why": scaling.why}
        due.append(_notification(context, Topic.SCALED, Severity.INFO, f"scaled {scaling}", fields))
    for topic, (severity, rise, fall) in TROUBLES.items():
        text, before, after = _text(topic, context), troubles[topic], context.settings.notifications.after_seconds
        is_present = before.value if text is None else bool(text)
        seconds = after * rise if not before.value else after / 2 if fall is None else fall
        now_is = troubles[topic] = before.seen(is_present, seconds, context.now)
        if now_is.value and not before.value and text:
            is_graver = topic is Topic.VERSION_MISMATCH and context.settings.production.has(context.key.namespace)
            due.append(_notification(context, topic, Severity.CRITICAL if is_graver else severity, text))
        elif before.value and not now_is.value and topic is Topic.DATA_LOST:
            trusted = ", and the registry is trusted" if context.view.policy.registry is not None else ""
            recovered = f"every metric has an answer again{trusted}"
            due.append(_notification(context, Topic.DATA_RECOVERED, Severity.INFO, recovered))
    number = max(history.number, state.scaling)
    return context.state.having(NotificationState(scaling=number, troubles=troubles, due=tuple(due)))


def plan(context: Context) -> Iterator[Notify]:
    """Hands what is due to the notifier."""
    if due := context.state.of(NotificationState).due:
        yield Notify(key=context.key, notifications=due, routes=context.view.policy.notify)


def notified_topics(context: Context) -> list[str]:
    """The troubles that were notified and last, for the status, from which a new leader takes them over."""
    troubles = _troubles(context) if context.settings.notifications.routes else {}
    return sorted(topic.value for topic, trouble in troubles.items() if trouble.value)


def conditions(context: Context) -> Iterator[PolicyCondition]:
    """NotificationRoutesResolved, where the policy names routes."""
    named, routes = context.view.policy.notify, {route.name: route for route in context.settings.notifications.routes}
    unknown = [name for name in named if name not in routes]
    kept = [name for name in named if name in routes and not routes[name].serves(context.key.namespace)]
    reason, message = Reason.KNOWN, "the settings define every route that the policy names"
    if unknown:
        reason, message = Reason.UNKNOWN_ROUTE, f"notify names {', '.join(unknown)}, which the settings do not define"
    elif kept:
        message = f"notify names {', '.join(kept)}, which the settings keep for other namespaces"
        reason = Reason.ROUTE_NOT_FOR_NAMESPACE
    if named:
        type_ = ConditionType.NOTIFICATION_ROUTES_RESOLVED
        yield PolicyCondition(type_, reason is Reason.KNOWN, reason, message)


def _troubles(context: Context) -> dict[Topic, Debounced[bool]]:
    """The troubles as they are known; before the first look those in the status, as another leader may have left it."""
    troubles = context.state.of(NotificationState).troubles
    if troubles is not None:
        return dict(troubles)
    notified = context.written.status.get("notified", ())
    return {topic: Debounced(topic.value in notified) for topic in TROUBLES}


def _notification(
    context: Context, topic: Topic, severity: Severity, text: str, fields: Mapping[str, str] = MappingProxyType({})
) -> Notification:
    target = context.view.target
    named = f"{target.kind} {target.name}" if target is not None else ""
    return Notification(topic, severity, context.now, named, text, fields)


def _text(topic: Topic, context: Context) -> str | None:
    """What a trouble is notified as: empty where there is none, None where that cannot be judged."""
    assessment, decision = context.view.assessment, context.decision
    if assessment is None or decision is None:
        return None
    match topic:
        case Topic.VERSION_MISMATCH:
            condition = context.conditions.get(ConditionType.VERSIONS_CONSISTENT)
            return condition.message if condition is not None and not condition.is_true else ""
        case Topic.MASS_PULL_OUT:
            return _mass_pull_out(assessment, context.settings.notifications.mass_pull_out_percent)
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


def _mass_pull_out(assessment: Assessment, percent: int) -> str:
    """The pods that are pulled out, with those that are doubtful only because too many would be; empty for few."""
    registry, none_serves = service_registry(assessment.policy), not assessment.counts.get(PodState.SERVING)
    confirmed = assessment.at - (registry.absence_confirmation_seconds if registry is not None else 0.0)
    running = [one for one in assessment.pods if one.state in _RUNNING]
    kept = 0
    out = []
    for one in running:
        pod = assessment.memory.pod(one.pod.uid)
        is_absent = pod.registered and pod.absent_since is not None and pod.absent_since <= confirmed
        is_kept = one.state is PodState.DOUBTFUL and (is_absent if one.evidence == "absence" else none_serves)
        is_kept = is_kept and bool(one.evidence)
        kept += is_kept
        out += [one] if is_kept or one.state is PodState.PULLED_OUT else []
    if len(out) < FEWEST_OUT or len(out) * 100 < len(running) * percent:
        return ""
    doubtful, example = f", {kept} of them are kept as doubtful" if kept else "", out[0]
    return f"{len(out)} of {len(running)} running pods are pulled out{doubtful}; {example.pod.name}: {example.reason}"
