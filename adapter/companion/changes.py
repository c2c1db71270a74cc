"""What changed for a policy, in one list: Events in the cluster, and notifications of people.

It has every scaling, and every condition that has changed for longer than a moment. A condition is told to have the
same value again after ten minutes at the earliest, if it stands then. A new leader goes on from what the status says.
"""

import math
import socket
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, NamedTuple

from adapter.companion.replica_history import ReplicaHistory
from adapter.companion.state import ActionResult, Context, PolicyCondition, State, Write
from adapter.kube.api import EVENTS, JSON
from adapter.policy.conditions import ConditionType, Reason
from adapter.policy.watermark_policy import API_VERSION, GROUP, KIND
from adapter.runtime.times import format_micro_time, parse_time
from adapter.settings.companion import Severity, Topic

REPEATED_SECONDS = 600.0
"""How long a change is not repeated, and how long an Event that cannot be written is tried."""
STEADY_SECONDS = 10.0
"""How long a condition must have changed before an Event says so."""
HPA_SYNCS_SECONDS = 45.0
"""Three syncs of the HPA controller: an HPA that is as new as its policy finds no metric at its first one."""
SCALINGS_PER_HOUR = 20
"""The most Events about scalings of one policy; those of conditions are limited by how often a change is repeated."""
HOUR = 3600.0
LONGEST_NOTE = 1024
"""In bytes, by the API's rule."""
_INSTANCE = socket.gethostname()[:128]
_LONGEST_NAME = 253 - 24
"""In characters, of a policy within the name of an Event: the API's rule, without the time and number after it."""
_COVERED_BY_READY = {Reason.NOT_ASSESSED, Reason.HPA_MISSING, Reason.NOT_DECIDING, Reason.REFUSED}
"""Reasons without an Event: nothing is known yet, or the Event of condition Ready, or of InputsFresh, says it."""
_AT_ONCE = {ConditionType.ACTIVE, ConditionType.MASS_PULL_OUT, ConditionType.VERSIONS_CONSISTENT}
_TOPICS: Mapping[str, tuple[Topic, Severity]] = {
    ConditionType.VERSIONS_CONSISTENT: (Topic.VERSION_MISMATCH, Severity.WARNING),
    ConditionType.MASS_PULL_OUT: (Topic.MASS_PULL_OUT, Severity.CRITICAL),
    ConditionType.INPUTS_FRESH: (Topic.DATA_LOST, Severity.WARNING),
    ConditionType.REGISTRY_DATA_VALID: (Topic.DATA_LOST, Severity.WARNING),
    ConditionType.AT_MAXIMUM: (Topic.AT_MAXIMUM, Severity.WARNING),
}
"""The conditions that people are notified of."""

Value = tuple[bool, str]
"""Whether a condition is true, and its reason."""


class Change(NamedTuple):
    """A change: its reason, the type of condition that it is about (empty: a scaling), and when it became due.

    `number` tells changes of the same moment apart. People are notified of one with a `topic`; `fields` are for
    templates.
    """

    reason: str
    about: str
    text: str
    at: float
    number: int
    warning: bool = False
    topic: Topic | None = None
    severity: Severity = Severity.INFO
    fields: Mapping[str, str] = MappingProxyType({})


class Standing(NamedTuple):
    """A condition as it was last told, as it is, and since when (seconds). None: it is not shown."""

    told: Value | None = None
    now_is: Value | None = None
    since: float = -math.inf


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """What was told. `standings` is None before the first look.

    `news` are the changes of this look, `events` those whose Events are not written yet. `last` is when it was last
    told that a condition has this value, `scaled` when the scalings of the last hour were that have Events.
    """

    standings: Mapping[str, Standing] | None = None
    news: tuple[Change, ...] = ()
    events: tuple[Change, ...] = ()
    last: Mapping[tuple[str, Value | None], float] = MappingProxyType({})
    scaled: tuple[float, ...] = ()


def observe(context: Context) -> State:
    """The state with the Events and notifications that are due after this look."""
    told, now, settings = context.state.of(Told), context.now, context.settings
    if not (settings.features.events or settings.notifications.routes):  # what happens now is not told later either
        return context.state.having(Told())
    scalings = []
    for number, one in enumerate(context.state.of(ReplicaHistory).done):
        fields = {"from": str(one.before), "to": str(one.after), "why": one.why}
        scalings.append(Change("Scaled", "", str(one), now, number, topic=Topic.SCALED, fields=fields))
    scaled = [at for at in told.scaled if now - at < HOUR]
    shown = scalings[: max(0, SCALINGS_PER_HOUR - len(scaled))]
    told, changes = _of_conditions(told, context, first=len(scalings))
    waiting = [event for event in told.events if now - event.at < REPEATED_SECONDS]
    told = replace(
        told,
        news=(*scalings, *changes),
        events=(*waiting, *shown, *changes) if settings.features.events else (),
        scaled=(*scaled, *(now for _ in shown)),
    )
    return context.state.having(told)


def plan(context: Context) -> Iterator[Write]:
    """Writes the Events that are due."""
    for event in context.state.of(Told).events if context.view.policy.uid else ():

        def after(state: State, result: ActionResult, _: float, event: Change = event) -> State:
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


def _body(context: Context, event: Change) -> dict[str, Any]:
    """The Event as events.k8s.io/v1 has it. Its name is the same if the same write is tried again."""
    key, target, note = context.key, context.view.target, event.text.encode()
    if len(note) > LONGEST_NOTE:
        note = note[: LONGEST_NOTE - 3] + "…".encode()
    name = f"{key.name[:_LONGEST_NAME].rstrip('-.')}.{int(event.at * 1e6):x}.{event.number:x}"
    body: dict[str, Any] = {
        "apiVersion": EVENTS.api_version,
        "kind": "Event",
        "metadata": {"name": name, "namespace": key.namespace},
        "eventTime": format_micro_time(event.at),
        "type": "Warning" if event.warning else "Normal",
        "reason": event.reason,
        "action": "Assess" if event.about else "Scale",
        "note": note.decode(errors="ignore"),
        "regarding": {"apiVersion": API_VERSION, "kind": KIND, "uid": context.view.policy.uid, **key._asdict()},
        "reportingController": f"{GROUP}/companion",
        "reportingInstance": _INSTANCE,
    }
    if target is not None:
        named = {"apiVersion": target.api_version, "kind": target.kind, "uid": target.uid, "name": target.name}
        body["related"] = named | {"namespace": key.namespace}
    return body


def _of_conditions(told: Told, context: Context, first: int) -> tuple[Told, list[Change]]:
    """The conditions that have changed for long enough, if it is trouble that came, changed or went."""
    known = dict(told.standings if told.standings is not None else _left(context))
    current = {
        type_: (condition.is_true, condition.reason)
        for type_, condition in context.conditions.items()
        if condition.reason not in _COVERED_BY_READY
    }
    scale, now, last, changes = context.view.scale, context.now, dict(told.last), list[Change]()
    has_no_pods = scale is not None and scale.replicas == 0  # and so no samples
    for type_ in {**known, **current}:
        one, value = known.get(type_, Standing()), current.get(type_)
        is_unknown = value is None and context.view.assessment is None
        if is_unknown or (type_ == ConditionType.INPUTS_FRESH and has_no_pods):
            continue  # it stays as it was
        known[type_] = one = one if one.now_is == value else Standing(one.told, value, now)
        if one.told == value or now - one.since < _patience(type_, value, context):
            continue
        if _is_trouble(type_, one.told) or _is_trouble(type_, value):
            if now - last.get((type_, value), -math.inf) < REPEATED_SECONDS:
                continue  # told later, if it stays
            last[type_, value] = now
            known[type_] = one._replace(told=value)
            topic, severity = _topic(type_, one.told, value, known, context)
            warning, text = _is_trouble(type_, value) and type_ != ConditionType.ACTIVE, "no longer so"
            if value is not None:
                text = context.conditions[type_].message
            reason = f"{type_}Over" if value is None else value[1]
            text = f"{type_}: {text}"
            changes.append(Change(reason, type_, text, now, first + len(changes), warning, topic, severity))
        known[type_] = one._replace(told=value)
    return replace(told, standings=known, last=last), changes


def _left(context: Context) -> dict[str, Standing]:
    """The conditions of the status, which another leader told of unless they had changed just before."""
    known: dict[str, Standing] = {}
    for type_, one in context.written.conditions.items():
        value, since = (one["status"] == "True", one["reason"]), parse_time(one.get("lastTransitionTime")) or 0.0
        is_new = since > (context.written.at or context.now) - _patience(type_, value, context)
        known[type_] = Standing((not value[0], "") if is_new else value, value, since)
    return known


def _patience(type_: str, value: Value | None, context: Context) -> float:
    """How long a condition must have changed before that is told, in seconds."""
    if value is not None and value[1] == Reason.HPA_INACTIVE:
        return HPA_SYNCS_SECONDS
    if type_ in _AT_ONCE:
        return 0.0
    return context.settings.notifications.after_seconds if type_ in _TOPICS else STEADY_SECONDS


def _is_trouble(type_: str, value: Value | None) -> bool:
    """Of a type that only another version knows, whose leader wrote the status, False is trouble."""
    return value is not None and value[0] is any(type_ == kind and kind.is_trouble_while for kind in ConditionType)


def _topic(
    type_: str, before: Value | None, value: Value | None, known: Mapping[str, Standing], context: Context
) -> tuple[Topic | None, Severity]:
    """What people are notified of; lost data are back once no condition of theirs is told to be in trouble."""
    topic, severity = _TOPICS.get(type_, (None, Severity.INFO))
    if any(one is not None and one[1] == Reason.WATCH_SILENT for one in (before, value)):
        return None, severity  # every policy has a silent watch at once, and alerts are for that
    if not _is_trouble(type_, value):
        same = (one for one in known if _TOPICS.get(one, ("",))[0] is topic)
        is_back = topic is Topic.DATA_LOST and not any(_is_trouble(one, known[one].told) for one in same)
        return Topic.DATA_RECOVERED if is_back else None, Severity.INFO
    if topic is Topic.VERSION_MISMATCH and context.settings.production.has(context.key.namespace):
        severity = Severity.CRITICAL
    return topic, severity
