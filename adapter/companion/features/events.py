"""Events about policies: on scalings, and on conditions that have changed for longer than a moment.

An Event about a condition is not repeated within ten minutes.
"""

import socket
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from adapter.companion.replica_history import ReplicaHistory
from adapter.companion.state import ActionResult, Context, Debounced, State, Write
from adapter.kube.api import EVENTS, JSON
from adapter.policy.conditions import ConditionType, Reason
from adapter.policy.watermark_policy import API_VERSION, GROUP, KIND
from adapter.runtime.times import format_micro_time

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
CONTROLLER = f"{GROUP}/companion"
_INSTANCE = socket.gethostname()[:128]
_LONGEST_NAME = 253 - 24
"""In characters, of a policy within the name of an Event: the API's rule, without the time and number after it."""

_COVERED_BY_READY = {Reason.NOT_ASSESSED, Reason.HPA_MISSING, Reason.NOT_DECIDING, Reason.REFUSED}
"""Reasons without an Event: nothing is known yet, or the Event of condition Ready, or of InputsFresh, says it."""


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


Known = Debounced[tuple[bool, str] | None]
"""Whether a condition is true, and its reason, by the last Event; None: it is not shown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EventState:
    """What Events have said. `scaling` is the number of the last scaling among them.

    `conditions` is None before the first look. `due` are the Events that are not written yet, `lately` those of the
    last hour.
    """

    scaling: int = 0
    conditions: Mapping[str, Known] | None = None
    due: tuple[Event, ...] = ()
    lately: tuple[Event, ...] = ()


def observe(context: Context) -> State:
    """The state with the Events that are due after this look."""
    history, events = context.state.of(ReplicaHistory), context.state.of(EventState)
    if not context.settings.features.events:
        # What happens now gets no Event later either.
        return context.state.having(EventState(scaling=history.number))
    due = tuple(event for event in events.due if context.now - event.at < REPEATED_SECONDS)
    events = replace(events, due=due) if due != events.due else events
    for scaling in (one for one in history.done if one.number > events.scaling):
        events = replace(_added(events, context, "Scaled", "", str(scaling)), scaling=scaling.number)
    return context.state.having(_with_conditions(events, context))


def plan(context: Context) -> Iterator[Write]:
    """Writes the Events that are due."""
    for event in context.state.of(EventState).due if context.view.policy.uid else ():
        path = EVENTS.collection(context.key.namespace)
        yield Write(
            key=context.key, kind="WriteEvent", method="POST", path=path, body=_body(context, event), content_type=JSON,
            noted=event,
        )  # fmt: skip


def after(state: State, action: Write, result: ActionResult, _now: float) -> State:
    """The state once an Event was written, or exists already by an earlier attempt."""
    if result not in {ActionResult.DONE, ActionResult.OVERTAKEN}:
        return state
    events = state.of(EventState)
    return state.having(replace(events, due=tuple(event for event in events.due if event != action.noted)))


def _body(context: Context, event: Event) -> dict[str, Any]:
    """The Event as events.k8s.io/v1 has it. Its name is the same if the same write is tried again."""
    key, target = context.key, context.view.target
    name = f"{key.name[:_LONGEST_NAME].rstrip('-.')}.{int(event.at * 1e6):x}.{event.number:x}"
    policy = {"apiVersion": API_VERSION, "kind": KIND, "uid": context.view.policy.uid, **key._asdict()}
    body: dict[str, Any] = {
        "apiVersion": EVENTS.api_version,
        "kind": "Event",
        "metadata": {"name": name, "namespace": key.namespace},
        "eventTime": format_micro_time(event.at),
        "type": "Warning" if event.warning else "Normal",
        "reason": event.reason,
        "action": "Assess" if event.about else "Scale",
        "note": event.note,
        "regarding": policy,
        "reportingController": CONTROLLER,
        "reportingInstance": _INSTANCE,
    }
    if target is not None:
        named = {"apiVersion": target.api_version, "kind": target.kind, "uid": target.uid, "name": target.name}
        body["related"] = named | {"namespace": key.namespace}
    return body


def _added(
    events: EventState, context: Context, reason: str, about: str, note: str, *, warning: bool = False
) -> EventState:
    """The state with one more Event, unless it repeats another one or exceeds the hourly limit."""
    now = context.now
    lately = tuple(event for event in events.lately if now - event.at < HOUR)
    # Modes and counts are changed on purpose, each time.
    said = {event[:3] for event in lately if now - event.at < REPEATED_SECONDS and event.about}
    if about != ConditionType.ACTIVE and (reason, about, warning) in said:
        return events
    if len(lately) >= (MOST_PER_HOUR if about else SCALINGS_PER_HOUR):
        return replace(events, lately=lately)
    if len(note.encode()) > LONGEST_NOTE:
        note = note.encode()[: LONGEST_NOTE - 3].decode(errors="ignore") + "…"
    event = Event(reason, about, warning, note, now, len(lately))
    return replace(events, due=(*events.due, event), lately=(*lately, event))


def _with_conditions(events: EventState, context: Context) -> EventState:
    """The state with Events about the conditions that have changed for long enough."""
    known = events.conditions
    if known is None:  # another leader may have left some in the status
        written = context.written.conditions
        known = {type_: Debounced((one["status"] == "True", one["reason"])) for type_, one in written.items()}
    current = {
        type_: (condition.is_true, condition.reason)
        for type_, condition in context.conditions.items()
        if condition.reason not in _COVERED_BY_READY
    }
    settled: dict[str, Known] = {}
    for type_ in {**known, **current}:
        before, now_is = known.get(type_, Debounced(None)), current.get(type_)
        if now_is is None and context.view.assessment is None:  # conditions that need one stay as they were
            settled[type_] = before
            continue
        seconds = HPA_SYNCS_SECONDS if now_is and now_is[1] == Reason.HPA_INACTIVE else STEADY_SECONDS
        settled[type_] = before.seen(now_is, 0.0 if type_ == ConditionType.ACTIVE else seconds, context.now)
        if settled[type_].value == before.value or not (_is_trouble(type_, before.value) or _is_trouble(type_, now_is)):
            continue
        if now_is is None:
            events = _added(events, context, f"{type_}Over", type_, f"{type_}: no longer so")
        else:
            warning = _is_trouble(type_, now_is) and type_ != ConditionType.ACTIVE  # a mode of rest is no trouble
            note = f"{type_}: {context.conditions[type_].message}"
            events = _added(events, context, now_is[1], type_, note, warning=warning)
    shown = {type_: one for type_, one in settled.items() if one != Debounced(None)}
    return replace(events, conditions=shown) if shown != events.conditions else events


def _is_trouble(type_: str, state: tuple[bool, str] | None) -> bool:
    """Of a type that only another version knows, whose leader wrote the status, False is trouble."""
    return state is not None and state[0] is any(type_ == kind and kind.is_trouble_while for kind in ConditionType)
