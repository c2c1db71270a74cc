"""One list of what changed for a policy, told as Events in the cluster and as notifications of people.

It has every scaling, and every condition that has changed for longer than a moment; the same change of a condition is
told again after ten minutes at the earliest, if it stands then. A new leader goes on from what the status says.
"""

import math
import socket
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, Generic, NamedTuple, TypeVar

from adapter.companion.replica_history import ReplicaHistory
from adapter.companion.state import ActionResult, Context, PolicyCondition, State, Write
from adapter.kube.api import EVENTS, JSON
from adapter.policy.conditions import ConditionType, Reason
from adapter.policy.watermark_policy import API_VERSION, GROUP, KIND
from adapter.runtime.times import format_micro_time, parse_time
from adapter.settings.companion import Severity, Topic

REPEATED_SECONDS = 600.0
"""How long an Event is not repeated, and how long one that cannot be written is tried."""
STEADY_SECONDS = 10.0
"""How long a condition must have changed before an Event says so."""
HPA_SYNCS_SECONDS = 45.0
"""Three syncs of the HPA controller: an HPA that is as new as its policy finds no metric at its first one."""
MOST_PER_HOUR, SCALINGS_PER_HOUR = 30, 20
"""The most Events of one policy, and those about scalings: what scales all the time must not hide its trouble."""
HOUR = 3600.0
LONGEST_NOTE = 1024
"""In bytes, by the API's rule."""
_INSTANCE = socket.gethostname()[:128]
_LONGEST_NAME = 253 - 24
"""In characters, of a policy within the name of an Event: the API's rule, without the time and number after it."""
_COVERED_BY_READY = {Reason.NOT_ASSESSED, Reason.HPA_MISSING, Reason.NOT_DECIDING, Reason.REFUSED}
"""Reasons without an Event: nothing is known yet, or the Event of condition Ready, or of InputsFresh, says it."""
_AT_ONCE = {ConditionType.ACTIVE, ConditionType.MASS_PULL_OUT, ConditionType.VERSIONS_CONSISTENT}
_TOPICS: Mapping[str, tuple[Topic | None, Severity]] = {
    ConditionType.VERSIONS_CONSISTENT: (Topic.VERSION_MISMATCH, Severity.WARNING),
    ConditionType.MASS_PULL_OUT: (Topic.MASS_PULL_OUT, Severity.CRITICAL),
    ConditionType.INPUTS_FRESH: (Topic.DATA_LOST, Severity.WARNING),
    ConditionType.REGISTRY_DATA_VALID: (Topic.DATA_LOST, Severity.WARNING),
    ConditionType.AT_MAXIMUM: (Topic.AT_MAXIMUM, Severity.WARNING),
}
"""The conditions that people are notified of."""

V = TypeVar("V")


class Debounced(NamedTuple, Generic[V]):
    """The `value` that counts, and since when (seconds) it has been `candidate` instead; None: it has not."""

    value: V
    candidate: V | None = None
    since: float | None = None

    def seen(self, value: V, seconds: float, now: float) -> "Debounced[V]":
        """After this value was seen; another one counts once it has lasted for so many seconds."""
        if value == self.value:
            return Debounced(self.value)
        since = self.since if self.since is not None and self.candidate == value else now
        return Debounced(self.value, value, since) if now - since < seconds else Debounced(value)


class Event(NamedTuple):
    """An Event: its reason, the type of condition that it is about (empty: a scaling), and when it became due.

    `number` tells Events of the same moment apart.
    """

    reason: str
    about: str
    warning: bool
    note: str
    at: float
    number: int


class Notification(NamedTuple):
    """A notification, before it is written out for a route. `at` is in seconds, `fields` are for templates."""

    topic: Topic
    severity: Severity
    at: float
    target: str
    text: str
    fields: Mapping[str, str] = MappingProxyType({})


Known = Debounced[tuple[bool, str] | None]
"""Whether a condition is true, and its reason, as it was last told; None: it is not shown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """What was told. `conditions` is None before the first look.

    `events` are not written yet, `lately` are those of the last hour, and `notices` the notifications of this look.
    `changes` are those of conditions, and when each was told last, also beyond the hourly limit of Events.
    """

    conditions: Mapping[str, Known] | None = None
    events: tuple[Event, ...] = ()
    lately: tuple[Event, ...] = ()
    changes: Mapping[tuple[str, str, bool], float] = MappingProxyType({})
    notices: tuple[Notification, ...] = ()


def observe(context: Context) -> State:
    """The state with the Events and notifications that are due after this look."""
    history, told = context.state.of(ReplicaHistory), context.state.of(Told)
    has_events = context.settings.features.events
    if not (has_events or context.settings.notifications.routes):  # what happens now is not told later either
        return context.state.having(Told())
    events = tuple(event for event in told.events if has_events and context.now - event.at < REPEATED_SECONDS)
    told = replace(told, events=events, notices=())
    for scaling in history.done:
        fields = {"from": str(scaling.before), "to": str(scaling.after), "why": scaling.why}
        told = _with_event(told, context, "Scaled", "", str(scaling))
        told = _with_notice(told, context, Topic.SCALED, Severity.INFO, f"scaled {scaling}", fields)
    return context.state.having(_with_conditions(told, context))


def plan(context: Context) -> Iterator[Write]:
    """Writes the Events that are due."""
    for event in context.state.of(Told).events if context.view.policy.uid else ():

        def after(state: State, result: ActionResult, _: float, event: Event = event) -> State:
            """Once it was written, or exists already by an earlier attempt."""
            told = state.of(Told)
            left = tuple(one for one in told.events if one != event)
            is_there = result in {ActionResult.DONE, ActionResult.OVERTAKEN}
            return state.having(replace(told, events=left)) if is_there else state

        yield Write(
            key=context.key, kind="WriteEvent", method="POST", path=EVENTS.collection(context.key.namespace),
            body=_body(context, event), content_type=JSON, after=after,
        )  # fmt: skip


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


def _body(context: Context, event: Event) -> dict[str, Any]:
    """The Event as events.k8s.io/v1 has it. Its name is the same if the same write is tried again."""
    key, target = context.key, context.view.target
    name = f"{key.name[:_LONGEST_NAME].rstrip('-.')}.{int(event.at * 1e6):x}.{event.number:x}"
    body: dict[str, Any] = {
        "apiVersion": EVENTS.api_version,
        "kind": "Event",
        "metadata": {"name": name, "namespace": key.namespace},
        "eventTime": format_micro_time(event.at),
        "type": "Warning" if event.warning else "Normal",
        "reason": event.reason,
        "action": "Assess" if event.about else "Scale",
        "note": event.note,
        "regarding": {"apiVersion": API_VERSION, "kind": KIND, "uid": context.view.policy.uid, **key._asdict()},
        "reportingController": f"{GROUP}/companion",
        "reportingInstance": _INSTANCE,
    }
    if target is not None:
        named = {"apiVersion": target.api_version, "kind": target.kind, "uid": target.uid, "name": target.name}
        body["related"] = named | {"namespace": key.namespace}
    return body


def _with_conditions(told: Told, context: Context) -> Told:
    """With the conditions that have changed for long enough, if it is trouble that came, changed or went."""
    known = told.conditions if told.conditions is not None else _left(context)
    current = {
        type_: (condition.is_true, condition.reason)
        for type_, condition in context.conditions.items()
        if condition.reason not in _COVERED_BY_READY
    }
    scale, settled = context.view.scale, dict[str, Known]()
    has_no_pods = scale is not None and scale.replicas == 0  # and so no samples
    for type_ in {**known, **current}:
        before, now_is = known.get(type_, Debounced(None)), current.get(type_)
        is_unknown = now_is is None and context.view.assessment is None
        if is_unknown or (type_ == ConditionType.INPUTS_FRESH and has_no_pods):  # it stays as it was
            settled[type_] = before
            continue
        after = before.seen(now_is, _patience(type_, now_is, context), context.now)
        is_trouble = _is_trouble(type_, now_is) and type_ != ConditionType.ACTIVE  # a mode of rest is no trouble
        if after.value != before.value and (_is_trouble(type_, before.value) or _is_trouble(type_, now_is)):
            change = (f"{type_}Over" if now_is is None else now_is[1], type_, is_trouble)
            if type_ != ConditionType.ACTIVE and context.now - told.changes.get(change, -math.inf) < REPEATED_SECONDS:
                after = before._replace(candidate=now_is, since=before.since or context.now)  # told later, if it stays
            else:
                told = replace(told, changes={**told.changes, change: context.now})
                told = _with_change(told, context, type_, before.value, now_is)
        settled[type_] = after
    return replace(told, conditions={type_: one for type_, one in settled.items() if one != Debounced(None)})


def _left(context: Context) -> dict[str, Known]:
    """The conditions of the status, which another leader told of unless they had changed just before."""
    known: dict[str, Known] = {}
    for type_, one in context.written.conditions.items():
        value, since = (one["status"] == "True", one["reason"]), parse_time(one.get("lastTransitionTime")) or 0.0
        is_new = since > (context.written.at or context.now) - _patience(type_, value, context)
        known[type_] = Debounced((not value[0], ""), value, since) if is_new else Debounced(value)
    return known


def _patience(type_: str, state: tuple[bool, str] | None, context: Context) -> float:
    """How long a condition must have changed before that is told, in seconds."""
    if state is not None and state[1] == Reason.HPA_INACTIVE:
        return HPA_SYNCS_SECONDS
    if type_ in _AT_ONCE:
        return 0.0
    return context.settings.notifications.after_seconds if type_ in _TOPICS else STEADY_SECONDS


def _is_trouble(type_: str, state: tuple[bool, str] | None) -> bool:
    """Of a type that only another version knows, whose leader wrote the status, False is trouble."""
    return state is not None and state[0] is any(type_ == kind and kind.is_trouble_while for kind in ConditionType)


def _with_change(
    told: Told, context: Context, type_: str, before: tuple[bool, str] | None, now_is: tuple[bool, str] | None
) -> Told:
    """With an Event about a condition, and a notification where it has a topic."""
    if now_is is None:
        return _with_event(told, context, f"{type_}Over", type_, f"{type_}: no longer so")
    is_trouble, message = _is_trouble(type_, now_is), context.conditions[type_].message
    warning = is_trouble and type_ != ConditionType.ACTIVE
    told = _with_event(told, context, now_is[1], type_, f"{type_}: {message}", warning=warning)
    topic, severity = _TOPICS.get(type_, (None, Severity.INFO))
    if topic is None or Reason.WATCH_SILENT in {now_is[1], before and before[1]}:
        return told  # every policy has a silent watch at once, and alerts are for that
    if topic is Topic.VERSION_MISMATCH and context.settings.production.has(context.key.namespace):
        severity = Severity.CRITICAL
    if is_trouble:
        return _with_notice(told, context, topic, severity, message)
    return (
        _with_notice(told, context, Topic.DATA_RECOVERED, Severity.INFO, message) if topic is Topic.DATA_LOST else told
    )


def _with_event(told: Told, context: Context, reason: str, about: str, note: str, *, warning: bool = False) -> Told:
    """With one more Event, unless that exceeds the hourly limit."""
    lately = tuple(event for event in told.lately if context.now - event.at < HOUR)
    if len(lately) >= (MOST_PER_HOUR if about else SCALINGS_PER_HOUR):
        return replace(told, lately=lately)
    if len(note.encode()) > LONGEST_NOTE:
        note = note.encode()[: LONGEST_NOTE - 3].decode(errors="ignore") + "…"
    event = Event(reason, about, warning, note, context.now, len(lately))
    return replace(told, events=(*told.events, event), lately=(*lately, event))


def _with_notice(
    told: Told, context: Context, topic: Topic, severity: Severity, text: str, fields: Mapping[str, str] | None = None
) -> Told:
    target = context.view.target
    named = f"{target.kind} {target.name}" if target is not None else ""
    notice = Notification(topic, severity, context.now, named, text, fields or {})
    return replace(told, notices=(*told.notices, notice))
