"""Events about policies: on scalings, and on conditions that have changed for longer than a moment.

Events that repeat within ten minutes are a series, whose count is written at most once a minute. The API lets no note
change, so a condition with another cause begins a new series: the latest Event has the latest cause.
"""

import hashlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace

from adapter.companion.actions import ActionResult, WriteEvent
from adapter.companion.state import (
    ConditionState,
    Context,
    EventSeries,
    EventState,
    PendingChange,
    SeriesKey,
    State,
)
from adapter.policy.conditions import ConditionType, Reason

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


def observe(context: Context) -> State:
    """The state with the Events that are due after this look."""
    state, scaling = context.state, context.state.history.last
    if not context.settings.features.events:
        # What happens now gets no Event later either.
        skipped = EventState(scaling=scaling.number if scaling is not None else 0)
        return replace(state, events=state.events if state.events == skipped else skipped)
    events, now = state.events, context.now
    started = tuple(at for at in events.started if now - at < HOUR)
    series = {key: one for key, one in events.series.items() if now - one.last < SERIES_SECONDS}
    if (len(started), len(series)) != (len(events.started), len(events.series)):
        events = replace(events, started=started, series=series)
    if scaling is not None and scaling.number > events.scaling:
        key = SeriesKey(SCALED, f"{scaling.before} {scaling.after}", warning=False)
        events = replace(_added(events, context, key, SCALE, str(scaling)), scaling=scaling.number)
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
    series = {key: series for key, series in state.events.series.items() if key != action.subject}
    return replace(state, events=replace(state.events, series=series))


def _added(events: EventState, context: Context, key: SeriesKey, action: str, note: str) -> EventState:
    """The state with one more occurrence: it repeats a series, begins one, or is dropped by the hourly limit."""
    now, repeated, is_scaling = context.now, events.series.get(key), action == SCALE
    is_full = len(events.started) >= (SCALINGS_PER_HOUR if is_scaling else MOST_PER_HOUR)
    begins = _TIME.sub("", _cut(note, ""))  # notes of the same cause differ in times alone
    if repeated is not None and (is_full or is_scaling or _TIME.sub("", repeated.note).startswith(begins)):
        repeated = replace(repeated, count=repeated.count + 1, last=now)
        return replace(events, series={**events.series, key: repeated})
    if is_full:
        return replace(events, dropped=events.dropped + 1)
    dropped = f" (the hourly limit left out {events.dropped} before this one)" if events.dropped else ""
    # The same name if the same write is tried again, another one for everything else.
    identity = repr((context.view.policy.uid, context.leads_since, context.now, key))
    prefix = context.key.name[:_LONGEST_NAME].rstrip("-.")
    begun = EventSeries(
        name=f"{prefix}.{hashlib.sha256(identity.encode()).hexdigest()[:16]}",
        note=_cut(note, dropped),
        action=action,
        first=now,
        last=now,
    )
    return replace(events, series={**events.series, key: begun}, started=(*events.started, now), dropped=0)


def _cut(note: str, end: str) -> str:
    room = LONGEST_NOTE - len(end.encode())
    if len(note.encode()) <= room:
        return note + end
    return note.encode()[: room - 3].decode(errors="ignore") + "…" + end


def _with_conditions(events: EventState, context: Context) -> EventState:
    conditions = events.conditions
    if conditions is None:  # another leader may have left some in the status
        conditions = {
            type_: ConditionState(condition["status"] == "True", condition["reason"])
            for type_, condition in context.state.written.conditions.items()
        }
    current: Mapping[str, ConditionState] = {
        type_: ConditionState(condition.is_true, condition.reason)
        for type_, condition in context.conditions.items()
        if condition.reason not in _COVERED_BY_READY
    }
    if context.view.assessment is None:  # conditions that need one stay as they were
        current = {**conditions, **current}
    pending: dict[str, PendingChange] = {}
    for type_ in {**conditions, **current}:
        before, now_is = conditions.get(type_), current.get(type_)
        if now_is == before:
            continue
        waiting = events.pending.get(type_)
        since = waiting.since if waiting is not None and waiting.state == now_is else context.now
        # An HPA that is as new as its policy finds no metric at its first sync.
        is_idle = now_is is not None and now_is.reason == Reason.HPA_INACTIVE
        steady = HPA_SYNCS_SECONDS if is_idle else STEADY_SECONDS
        if type_ == ConditionType.ACTIVE:  # a mode is set on purpose
            steady = 0.0
        if context.now - since < steady:
            pending[type_] = PendingChange(now_is, since)
            continue
        if _is_trouble(type_, before) or _is_trouble(type_, now_is):
            condition = context.conditions.get(type_)
            key, note = SeriesKey(f"{type_}Over", type_, warning=False), "no longer so"
            if now_is is not None and condition is not None:
                warning = _is_trouble(type_, now_is) and type_ != ConditionType.ACTIVE  # a mode of rest is no trouble
                key, note = SeriesKey(now_is.reason, type_, warning), condition.message
            events = _added(events, context, key, ASSESS, f"{type_}: {note}")
        conditions = {
            name: condition for name, condition in {**conditions, type_: now_is}.items() if condition is not None
        }
    if pending == events.pending and conditions is events.conditions:
        return events
    return replace(events, conditions=conditions, pending=pending)


def _is_trouble(type_: str, state: ConditionState | None) -> bool:
    """Of a type that only another version knows, whose leader wrote the status, False is trouble."""
    troubled_by_true = {kind for kind in ConditionType if kind.is_trouble_while}
    return state is not None and state.is_true is (type_ in troubled_by_true)
