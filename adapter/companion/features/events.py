"""Events about policies: on scalings, and on conditions that have changed for longer than a moment.

An Event about a condition is not repeated within ten minutes, unless its cause is another one.
"""

import hashlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

from adapter.companion.actions import ActionResult, Event, WriteEvent
from adapter.companion.debounce import Debounced
from adapter.companion.replica_history import ReplicaHistory
from adapter.companion.state import Context, State
from adapter.policy.conditions import ConditionType, Reason

REPEATED_SECONDS = 600.0
"""How long an Event is not repeated, and how long one that cannot be written is tried."""
STEADY_SECONDS = 10.0
"""How long a condition must have changed before an Event says so."""
HPA_SYNCS_SECONDS = 45.0
"""Three syncs of the HPA controller: an HPA that is as new as its policy finds no metric at its first one."""
MOST_PER_HOUR = 30
"""The most Events of one policy within an hour; the next one says how many were left out."""
SCALINGS_PER_HOUR = 20
"""After this many a scaling gets none: a service that scales all the time must not silence its own trouble."""
HOUR = 3600.0
LONGEST_NOTE = 1024
"""In bytes, by the API's rule."""
_TIME = re.compile(r"\d{4}-\d\d-\d\dT[\d:]+Z")
_LONGEST_NAME = 253 - 17
"""Of the part before the dot and the 16 digits that tell Events apart, by the API's rule for names."""

SCALED, SCALE, ASSESS = "Scaled", "Scale", "Assess"
"""The reason of a scaling's Event, and the actions of Events."""
_COVERED_BY_READY = {Reason.NOT_ASSESSED, Reason.HPA_MISSING, Reason.NOT_DECIDING, Reason.REFUSED}
"""Reasons without an Event: nothing is known yet, or the Event of condition Ready, or of InputsFresh, says it."""


class ConditionState(NamedTuple):
    """A condition as the last Event, or the status, has it."""

    is_true: bool
    reason: str


Known = Debounced[ConditionState | None]
"""A condition by the last Event; None: it is not shown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EventState:
    """What Events have said. `scaling` is the number of the last scaling among them.

    `conditions` is None before the first look. `due` are the Events that are not written yet, `lately` those of the
    last hour; `dropped` counts those that the hourly limit has left out since.
    """

    scaling: int = 0
    conditions: Mapping[str, Known] | None = None
    due: tuple[Event, ...] = ()
    lately: tuple[Event, ...] = ()
    dropped: int = 0


def observe(context: Context) -> State:
    """The state with the Events that are due after this look."""
    history, events = context.state.of(ReplicaHistory), context.state.of(EventState)
    if not context.settings.features.events:
        # What happens now gets no Event later either.
        return context.state.having(EventState(scaling=history.number))
    due = tuple(event for event in events.due if context.now - event.at < REPEATED_SECONDS)
    events = replace(events, due=due) if due != events.due else events
    for scaling in (one for one in history.done if one.number > events.scaling):
        events = replace(_added(events, context, SCALED, "", str(scaling)), scaling=scaling.number)
    return context.state.having(_with_conditions(events, context))


def plan(context: Context) -> Iterator[WriteEvent]:
    """Writes the Events that are due."""
    policy = context.view.policy
    for event in context.state.of(EventState).due if policy.uid else ():
        yield WriteEvent(key=context.key, uid=policy.uid, event=event, target=context.view.target)


def after(state: State, action: WriteEvent, result: ActionResult, _now: float) -> State:
    """The state once an Event was written, or exists already by an earlier attempt."""
    if result not in {ActionResult.DONE, ActionResult.OVERTAKEN}:
        return state
    events = state.of(EventState)
    return state.having(replace(events, due=tuple(event for event in events.due if event != action.event)))


def _added(
    events: EventState, context: Context, reason: str, about: str, note: str, *, warning: bool = False
) -> EventState:
    """The state with one more Event, unless it repeats another one or exceeds the hourly limit."""
    now, is_scaling = context.now, reason == SCALED
    lately = tuple(event for event in events.lately if now - event.at < HOUR)
    # Notes of the same cause differ in times alone. Modes and counts are changed on purpose, each time.
    cause = _TIME.sub("", _cut(note, ""))
    for event in () if is_scaling or about == ConditionType.ACTIVE else lately:
        is_same = (event.reason, event.about, event.warning) == (reason, about, warning)
        if is_same and now - event.at < REPEATED_SECONDS and _TIME.sub("", event.note).startswith(cause):
            return events
    if len(lately) >= (SCALINGS_PER_HOUR if is_scaling else MOST_PER_HOUR):
        return replace(events, lately=lately, dropped=events.dropped + 1)
    dropped = f" (the hourly limit left out {events.dropped} before this one)" if events.dropped else ""
    # The same name if the same write is tried again, another one for everything else.
    identity = repr((context.view.policy.uid, now, reason, about, warning, note))
    prefix = context.key.name[:_LONGEST_NAME].rstrip("-.")
    event = Event(
        name=f"{prefix}.{hashlib.sha256(identity.encode()).hexdigest()[:16]}",
        reason=reason,
        about=about,
        warning=warning,
        action=SCALE if is_scaling else ASSESS,
        note=_cut(note, dropped),
        at=now,
    )
    return replace(events, due=(*events.due, event), lately=(*lately, event), dropped=0)


def _cut(note: str, end: str) -> str:
    room = LONGEST_NOTE - len(end.encode())
    if len(note.encode()) <= room:
        return note + end
    return note.encode()[: room - 3].decode(errors="ignore") + "…" + end


def _with_conditions(events: EventState, context: Context) -> EventState:
    """The state with Events about the conditions that have changed for long enough."""
    known = events.conditions
    if known is None:  # another leader may have left some in the status
        known = {
            type_: Debounced(ConditionState(condition["status"] == "True", condition["reason"]))
            for type_, condition in context.written.conditions.items()
        }
    current = {
        type_: ConditionState(condition.is_true, condition.reason)
        for type_, condition in context.conditions.items()
        if condition.reason not in _COVERED_BY_READY
    }
    settled: dict[str, Known] = {}
    for type_ in {**known, **current}:
        before, now_is = known.get(type_, Debounced(None)), current.get(type_)
        if now_is is None and context.view.assessment is None:  # conditions that need one stay as they were
            settled[type_] = before
            continue
        is_idle = now_is is not None and now_is.reason == Reason.HPA_INACTIVE
        seconds = HPA_SYNCS_SECONDS if is_idle else STEADY_SECONDS
        settled[type_] = before.seen(now_is, 0.0 if type_ == ConditionType.ACTIVE else seconds, context.now)
        if settled[type_].value == before.value or not (_is_trouble(type_, before.value) or _is_trouble(type_, now_is)):
            continue
        if now_is is None:
            events = _added(events, context, f"{type_}Over", type_, f"{type_}: no longer so")
        else:
            warning = _is_trouble(type_, now_is) and type_ != ConditionType.ACTIVE  # a mode of rest is no trouble
            note = f"{type_}: {context.conditions[type_].message}"
            events = _added(events, context, now_is.reason, type_, note, warning=warning)
    shown = {type_: one for type_, one in settled.items() if one != Debounced(None)}
    return replace(events, conditions=shown) if shown != events.conditions else events


def _is_trouble(type_: str, state: ConditionState | None) -> bool:
    """Of a type that only another version knows, whose leader wrote the status, False is trouble."""
    troubled_by_true = {kind for kind in ConditionType if kind.is_trouble_while}
    return state is not None and state.is_true is (type_ in troubled_by_true)
