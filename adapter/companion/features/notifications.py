"""What people are to be told, once: scalings, and trouble when it comes. Where nobody listens nothing is noted."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import NamedTuple

from adapter.companion.context import Context, PolicyCondition, State
from adapter.companion.features import versions
from adapter.companion.state import Notification, NotificationState, ReplicaHistory, Scaling, TroubleState
from adapter.companion.writes.actions import Notify
from adapter.load.assessment import Assessment, HeldBy, Verdict
from adapter.load.explanation import why
from adapter.load.membership import ALL_WOULD_BE_OUT, GUARDED_ABSENCE
from adapter.load.pods import PodState
from adapter.load.sentences import metric_errors
from adapter.settings.notifications import Severity, Topic

CONDITION = "RoutesKnown"
FEWEST_OUT = 2
"""Fewer pods than these are no mass pull-out, whatever share they are."""
_WAITING_AT_MOST = 50
_RUNNING = (PodState.SERVING, PodState.PULLED_OUT, PodState.DOUBTFUL)


class _Trouble(NamedTuple):
    """How long something has to stand before it is told, and to be over before it is news again (seconds)."""

    topic: Topic
    severity: Severity
    rise: float
    fall: float
    in_production: Severity | None = None


_TROUBLES = (
    _Trouble(Topic.VERSION_MISMATCH, Severity.WARNING, 0.0, 600.0, Severity.CRITICAL),
    _Trouble(Topic.MASS_PULL_OUT, Severity.CRITICAL, 0.0, 300.0),
    _Trouble(Topic.DATA_LOST, Severity.WARNING, 60.0, 30.0),
    _Trouble(Topic.AT_MAXIMUM, Severity.WARNING, 30.0, 300.0),
)


def observe(context: Context, findings: Mapping[str, PolicyCondition], history: ReplicaHistory) -> NotificationState:
    """What is due after another look. `conditions` are the conditions as they stand, by type."""
    notifications = context.state.notifications
    step = history.last
    if not context.settings.notifications.routes:
        silent = NotificationState(step=step.number if step is not None else 0, number=notifications.number)
        return notifications if notifications == silent else silent
    if notifications.standing is None:
        notifications = replace(notifications, standing=_left_behind(context))
    if step is not None and step.number > notifications.step:
        notifications = replace(_due(notifications, _scaled(step), context), step=step.number)
    if context.view.assessment is None or context.decision is None:
        return notifications
    for trouble in _TROUBLES:
        notifications = _stand(notifications, trouble, _found(trouble.topic, context, findings), context)
    return notifications


def plan(context: Context) -> Iterator[Notify]:
    """Tell what is due."""
    if context.state.notifications.due:
        yield Notify(key=context.key, notices=context.state.notifications.due, routes=context.view.policy.notify)


def after(state: State, action: Notify, _now: float) -> State:
    """The state once it was handed on."""
    last = action.notices[-1].number
    due = tuple(notice for notice in state.notifications.due if notice.number > last)
    return replace(state, notifications=replace(state.notifications, due=due))


def notified_topics(context: Context) -> list[str]:
    """What stands and was told, for the status: a new leader then knows."""
    standing = context.state.notifications.standing
    if standing is None:
        standing = _left_behind(context) if context.settings.notifications.routes else {}
    return sorted(topic.value for topic, one in standing.items() if one.told)


def conditions(context: Context) -> Iterator[PolicyCondition]:
    """Whether there are all the routes that the policy names, and they may be told of it."""
    named, routes = context.view.policy.notify, context.settings.notifications.routes
    unknown = [name for name in named if name not in {route.name for route in routes}]
    kept = [route.name for route in routes if route.name in named and not route.serves(context.key.namespace)]
    if unknown:
        message = f"notify names {', '.join(unknown)}, which the settings do not know"
        yield PolicyCondition(CONDITION, False, "UnknownRoute", message)
    elif kept:
        message = f"notify names {', '.join(kept)}, which the settings keep for other namespaces"
        yield PolicyCondition(CONDITION, False, "RouteNotForNamespace", message)
    elif named:
        yield PolicyCondition(CONDITION, True, "Known", "the settings know every route that the policy names")


def _left_behind(context: Context) -> dict[Topic, TroubleState]:
    known = context.state.written.status.get("notified", ())
    return {trouble.topic: TroubleState(told=trouble.topic.value in known) for trouble in _TROUBLES}


def _stand(
    notifications: NotificationState, trouble: _Trouble, text: str | None, context: Context
) -> NotificationState:
    """The same once a trouble is known to stand (a text) or not: told when it has for long enough, and so its end.

    None: whether it stands cannot be known just now.
    """
    topic, now = trouble.topic, context.now
    standing = (notifications.standing or {}).get(topic, TroubleState())
    if text is None or bool(text) is standing.told:
        return _standing(notifications, topic, TroubleState(standing.told))
    since = standing.since if standing.since is not None else now
    if now - since < (trouble.fall if standing.told else trouble.rise):
        return _standing(notifications, topic, TroubleState(standing.told, since))
    notifications = _standing(notifications, topic, TroubleState(not standing.told))
    if text:
        return _due(notifications, _Told(topic, trouble.severity, text, trouble.in_production), context)
    if topic is Topic.DATA_LOST:
        trusted = ", and the registry is trusted" if context.view.policy.registry is not None else ""
        recovered = f"every metric has an answer again{trusted}"
        return _due(notifications, _Told(Topic.DATA_RECOVERED, Severity.INFO, recovered), context)
    return notifications


def _standing(notifications: NotificationState, topic: Topic, standing: TroubleState) -> NotificationState:
    if notifications.standing is not None and notifications.standing.get(topic) == standing:
        return notifications
    return replace(notifications, standing={**(notifications.standing or {}), topic: standing})


class _Told(NamedTuple):
    topic: Topic
    severity: Severity
    text: str
    in_production: Severity | None = None
    fields: Mapping[str, str] = {}


def _due(notifications: NotificationState, told: _Told, context: Context) -> NotificationState:
    target = context.view.target
    notice = Notification(
        number=notifications.number + 1,
        topic=told.topic,
        severity=told.severity,
        severity_in_production=told.in_production,
        at=context.now,
        target=f"{target.kind} {target.name}" if target is not None else "",
        text=told.text,
        fields=told.fields,
    )
    return replace(notifications, number=notice.number, due=(*notifications.due, notice)[-_WAITING_AT_MOST:])


def _scaled(step: Scaling) -> _Told:
    by, reason = f" by {step.by}" if step.by else "", f": {step.why}" if step.why else ""
    text = f"scaled from {step.before} to {step.after}{by}{reason}"
    fields = {"from": str(step.before), "to": str(step.after), "why": step.why}
    return _Told(Topic.SCALED, Severity.INFO, text, fields=fields)


# --- troubles: a text where there is one, else nothing; None where that cannot be known ---


def _found(topic: Topic, context: Context, findings: Mapping[str, PolicyCondition]) -> str | None:
    assessment = context.view.assessment
    assert assessment is not None
    match topic:
        case Topic.VERSION_MISMATCH:
            finding = findings.get(versions.CONDITION)
            return finding.message if finding is not None and not finding.is_true else ""
        case Topic.MASS_PULL_OUT:
            return _pulled_out(assessment, context.settings.notifications.mass_pull_out_percent)
        case Topic.DATA_LOST:
            return _lost(assessment, context)
        case _:
            return _at_maximum(assessment, context)


def _pulled_out(assessment: Assessment, percent: int) -> str:
    """Pods that are out, and those that would be if so many at once were believed."""
    running = [reading for reading in assessment.pods if reading.state in _RUNNING]
    out = [one for one in running if one.state is PodState.PULLED_OUT]
    guarded = [
        one
        for one in running
        if one.state is PodState.DOUBTFUL
        and (one.evidence == GUARDED_ABSENCE or one.reason.startswith(ALL_WOULD_BE_OUT))
    ]
    count = len(out) + len(guarded)
    if count < FEWEST_OUT or count * 100 < len(running) * percent:
        return ""
    example = (out + guarded)[0]
    doubt = f", {len(guarded)} of them not believed yet" if guarded else ""
    return f"{count} of {len(running)} running pods are pulled out{doubt}; {example.pod.name}: {example.reason}"


def _lost(assessment: Assessment, context: Context) -> str | None:
    if context.decision is None or context.decision.current == 0:
        return None  # without pods there is nothing to hear
    errors = metric_errors(assessment.policy, assessment.metrics)
    return "; ".join(filter(None, [errors, assessment.conditions.get("RegistryTrusted")]))


def _at_maximum(assessment: Assessment, context: Context) -> str:
    decision, bounds = context.decision, context.view.bounds
    if decision is None or bounds is None or decision.held_by is not HeldBy.BOUNDS:
        return ""
    if decision.verdict is not Verdict.ABOVE or decision.desired != bounds.maximum:
        return ""
    return f"more is needed than the HPA's maximum of {bounds.maximum}: {why(assessment, decision)}"
