"""Events about policies: on scalings, and on conditions that have changed for longer than a moment.

Events that repeat within ten minutes are a series, whose count is written at most once a minute. The API lets no note
change, so a condition with another cause begins a new series: the latest Event has the latest cause.
"""

import hashlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import NamedTuple

from adapter.companion.actions import ActionResult, WriteEvent
from adapter.companion.state import (
    ConditionState,
    Context,
    EventSeries,
    EventState,
    PendingChange,
    PolicyCondition,
    SeriesKey,
    State,
)
from adapter.load.conditions import ConditionType, Reason

SERIES_SECONDS = 600.0
"""An Event that was not repeated for this time begins a new series when it comes again."""
WRITTEN_APART_SECONDS = 60.0
"""The shortest time between two writes of a series."""
STEADY_SECONDS = 10.0
"""How long a condition must have changed before an Event says so."""
HPA_SYNCS_SECONDS = 45.0
"""Three syncs of the HPA controller."""
MOST_PER_HOUR = 30
"""The most series of one policy that begin within an hour; the next one says how many were left out."""
SCALINGS_PER_HOUR = 20
"""After this many no scaling begins one: a service that scales all the time must not silence its own trouble."""
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


class Occurrence(NamedTuple):
    """One occurrence of a series; action and note are those of the first."""

    key: SeriesKey
    action: str
    note: str


def observe(context: Context) -> State:
    """The state with the Events that are due after this look."""
    state, scaling = context.state, context.state.history.last
    if not context.settings.features.events:
        # What happens now gets no Event later either.
        skipped = EventState(scaling=scaling.number if scaling is not None else 0)
        return replace(state, events=state.events if state.events == skipped else skipped)
    events = _expired(state.events, context.now)
    if scaling is not None and scaling.number > events.scaling:
        key = SeriesKey(SCALED, f"{scaling.before} {scaling.after}", warning=False)
        events = replace(_added(events, Occurrence(key, SCALE, str(scaling)), context), scaling=scaling.number)
    return replace(state, events=_with_conditions(events, context))


def plan(context: Context) -> Iterator[WriteEvent]:
    """Writes the series that have news."""
    policy, now = context.view.policy, context.now
    if not policy.uid:
        return
    for key, series in context.state.events.series.items():
        if series.count == series.written or (series.written and now - series.written_at < WRITTEN_APART_SECONDS):
            continue
        yield WriteEvent(key=context.key, uid=policy.uid, subject=key, series=series, target=context.view.target)


def after(state: State, action: WriteEvent, now: float) -> State:
    """The state once an Event was written."""
    events = state.events
    series = events.series.get(action.subject)
    if series is None or series.name != action.series.name:
        return state
    written = replace(series, written=action.series.count, written_at=now)
    return replace(state, events=replace(events, series={**events.series, action.subject: written}))


def missed(state: State, action: WriteEvent, result: ActionResult, now: float) -> State:
    """The state once an Event was not written. After a conflict it exists already, or a user has deleted it."""
    if result is not ActionResult.OVERTAKEN:
        return state
    if not action.series.written:
        return after(state, action, now)
    series = {key: one for key, one in state.events.series.items() if key != action.subject}
    return replace(state, events=replace(state.events, series=series))


def _expired(events: EventState, now: float) -> EventState:
    started = tuple(at for at in events.started if now - at < HOUR)
    series = {key: one for key, one in events.series.items() if now - one.last < SERIES_SECONDS}
    if len(started) == len(events.started) and len(series) == len(events.series):
        return events
    return replace(events, started=started, series=series)


def _added(events: EventState, occurrence: Occurrence, context: Context) -> EventState:
    """The state with one more occurrence: it repeats a series, begins one, or is dropped by the hourly limit."""
    now, known, is_scaling = context.now, events.series.get(occurrence.key), occurrence.action == SCALE
    is_full = len(events.started) >= (SCALINGS_PER_HOUR if is_scaling else MOST_PER_HOUR)
    begins = _TIME.sub("", _cut(occurrence.note, ""))  # notes of the same cause differ in times alone
    if known is not None and (is_full or is_scaling or _TIME.sub("", known.note).startswith(begins)):
        repeated = replace(known, count=known.count + 1, last=now)
        return replace(events, series={**events.series, occurrence.key: repeated})
    if is_full:
        return replace(events, dropped=events.dropped + 1)
    dropped = f" (the hourly limit left out {events.dropped} before this one)" if events.dropped else ""
    # The same name if the same write is tried again, another one for everything else.
    identity = repr((context.view.policy.uid, context.leads_since, context.now, occurrence.key))
    prefix = context.key.name[:_LONGEST_NAME].rstrip("-.")
    begun = EventSeries(
        name=f"{prefix}.{hashlib.sha256(identity.encode()).hexdigest()[:16]}",
        note=_cut(occurrence.note, dropped),
        action=occurrence.action,
        first=now,
        last=now,
    )
    series = {**events.series, occurrence.key: begun}
    return replace(events, series=series, started=(*events.started, now), dropped=0)


def _cut(note: str, end: str) -> str:
    room = LONGEST_NOTE - len(end.encode())
    if len(note.encode()) <= room:
        return note + end
    return note.encode()[: room - 3].decode(errors="ignore") + "…" + end


# --- conditions ---


def _with_conditions(events: EventState, context: Context) -> EventState:
    """The state with an Event for each condition that has changed for long enough."""
    conditions = events.conditions if events.conditions is not None else _left_behind(context)
    current = _current(conditions, context)
    pending: dict[str, PendingChange] = {}
    for type_ in {**conditions, **current}:
        before, now_is = conditions.get(type_), current.get(type_)
        if now_is == before:
            continue
        waiting = events.pending.get(type_)
        since = waiting.since if waiting is not None and waiting.state == now_is else context.now
        if context.now - since < _steady_after(type_, now_is):
            pending[type_] = PendingChange(now_is, since)
            continue
        if _is_trouble(type_, before) or _is_trouble(type_, now_is):
            events = _added(events, _occurrence(type_, context.conditions.get(type_), now_is), context)
        conditions = {name: one for name, one in {**conditions, type_: now_is}.items() if one is not None}
    if pending == events.pending and conditions is events.conditions:
        return events
    return replace(events, conditions=conditions, pending=pending)


def _left_behind(context: Context) -> Mapping[str, ConditionState]:
    """The conditions in the status, as another leader may have left it."""
    conditions = context.state.written.status.get("conditions", ())
    return {
        condition["type"]: ConditionState(condition["status"] == "True", condition["reason"])
        for condition in conditions
    }


def _current(before: Mapping[str, ConditionState], context: Context) -> Mapping[str, ConditionState]:
    """The conditions at this look. Without an assessment, those that need one stay as they are known."""
    current: dict[str, ConditionState] = {
        type_: ConditionState(one.is_true, one.reason)
        for type_, one in context.conditions.items()
        if one.reason not in _COVERED_BY_READY
    }
    return current if context.view.assessment is not None else {**before, **current}


def _steady_after(type_: str, state: ConditionState | None) -> float:
    """How long a condition must have changed. A mode is set on purpose.

    An HPA that is as new as its policy finds no metric at its first sync.
    """
    if type_ == ConditionType.ACTIVE:
        return 0.0
    return HPA_SYNCS_SECONDS if state is not None and state.reason == Reason.HPA_INACTIVE else STEADY_SECONDS


def _is_trouble(type_: str, state: ConditionState | None) -> bool:
    """Of a type that only another version knows, whose leader wrote the status, False is trouble."""
    troubled_by_true = {one for one in ConditionType if one.is_trouble_while}
    return state is not None and state.is_true is (type_ in troubled_by_true)


def _occurrence(type_: str, condition: PolicyCondition | None, state: ConditionState | None) -> Occurrence:
    if state is None or condition is None:
        return Occurrence(SeriesKey(f"{type_}Over", type_, warning=False), ASSESS, f"{type_}: no longer so")
    # A mode of rest is no trouble.
    warning = _is_trouble(type_, state) and type_ != ConditionType.ACTIVE
    return Occurrence(SeriesKey(state.reason, type_, warning), ASSESS, f"{type_}: {condition.message}")
