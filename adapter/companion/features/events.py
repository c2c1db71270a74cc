"""Events about policies: on scaling, and on conditions that have changed for longer than a moment.

What repeats within ten minutes is a series, which is counted and written at most once a minute.
"""

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import NamedTuple

from adapter.companion.context import Context, PolicyCondition, State
from adapter.companion.features import modes
from adapter.companion.state import (
    ConditionState,
    EventSeries,
    EventState,
    PendingChange,
    ReplicaHistory,
    Scaling,
    SeriesKey,
)
from adapter.companion.writes.actions import ActionResult, WriteEvent

SERIES_SECONDS = 600.0
"""What was not repeated for so long is news again."""
WRITTEN_APART_SECONDS = 60.0
"""So often the count of a series is written at most."""
STEADY_SECONDS = 10.0
"""A condition is told of once it has been so for so long."""
MOST_PER_HOUR = 30
"""So many series of one policy begin within an hour at most; the first one after that says how many were left out."""
SCALINGS_PER_HOUR = 20
"""Where so many have begun no scaling does: a service that scales all the time must not silence its own trouble."""
HOUR = 3600.0
LONGEST_NOTE = 1024
"""In bytes, by the API's rule."""
_LONGEST_NAME = 253 - 17
"""Of what stands before the 16 digits that tell Events apart and their dot, by the API's rule for names."""

SCALING = "Scale"
TRUE_IS_TROUBLE = {"ReplacementIneffective", "UndersizedByUnready"}
"""Conditions that are shown while they are found; all others are trouble where they are False."""
NOT_TOLD = {"NotAssessed", modes.HPA_MISSING, modes.NOT_DECIDING}
"""Reasons that are no news: what is not known yet, and what the Event of condition Ready says already."""


class Occurrence(NamedTuple):
    """Something to tell, and for the first of its kind the action and the note."""

    subject: SeriesKey
    action: str
    note: str


def observe(context: Context, findings: Mapping[str, PolicyCondition], history: ReplicaHistory) -> EventState:
    """What is to be told after another look. `findings` are the conditions as they stand, by type."""
    events = _expired(context.state.events, context.now)
    step = history.last
    if step is not None and step.number > events.step:
        events = replace(_told(events, _scaled(step), context), step=step.number)
    return _conditions(events, findings, context)


def silent(events: EventState, history: ReplicaHistory) -> EventState:
    """What is remembered while nothing is told; it is not told later either."""
    passed_over = EventState(step=history.last.number if history.last is not None else 0)
    return events if events == passed_over else passed_over


def plan(context: Context) -> Iterator[WriteEvent]:
    """Write what is not written yet."""
    policy, now = context.view.policy, context.now
    if not policy.uid:
        return
    for subject, series in context.state.events.series.items():
        if series.count == series.written or (series.written and now - series.written_at < WRITTEN_APART_SECONDS):
            continue
        yield WriteEvent(key=context.key, uid=policy.uid, subject=subject, series=series, target=context.view.target)


def after(state: State, action: WriteEvent, now: float) -> State:
    """The state once an Event was written."""
    return _marked(state, action, now)


def missed(state: State, action: WriteEvent, outcome: ActionResult, now: float) -> State:
    """The state once that was tried in vain: what is there already is written, and what is gone does not come back."""
    if outcome is not ActionResult.OVERTAKEN:
        return state
    return _forgotten(state, action) if action.series.written else _marked(state, action, now)


def _marked(state: State, action: WriteEvent, now: float) -> State:
    events = state.events
    series = events.series.get(action.subject)
    if series is None or series.name != action.series.name:
        return state
    marked = replace(series, written=action.series.count, written_at=now)
    return replace(state, events=replace(events, series={**events.series, action.subject: marked}))


def _forgotten(state: State, action: WriteEvent) -> State:
    """The state without this series: somebody deleted its Event, and what comes next is one of its own."""
    series = {subject: one for subject, one in state.events.series.items() if subject != action.subject}
    return replace(state, events=replace(state.events, series=series))


def _expired(events: EventState, now: float) -> EventState:
    begun = tuple(at for at in events.begun if now - at < HOUR)
    series = {subject: one for subject, one in events.series.items() if now - one.last < SERIES_SECONDS}
    if len(begun) == len(events.begun) and len(series) == len(events.series):
        return events
    return replace(events, begun=begun, series=series)


def _scaled(step: Scaling) -> Occurrence:
    by, reason = f" by {step.by}" if step.by else "", f": {step.why}" if step.why else ""
    subject = SeriesKey("Scaled", f"{step.before} {step.after}", warning=False)
    return Occurrence(subject, SCALING, f"from {step.before} to {step.after}{by}{reason}")


def _told(events: EventState, occurrence: Occurrence, context: Context) -> EventState:
    """The same with one more occurrence: of a series, as a new one, or left out where there have been too many."""
    now, known = context.now, events.series.get(occurrence.subject)
    if known is not None:
        again = replace(known, count=known.count + 1, last=now)
        return replace(events, series={**events.series, occurrence.subject: again})
    if len(events.begun) >= (SCALINGS_PER_HOUR if occurrence.action == SCALING else MOST_PER_HOUR):
        return replace(events, unsaid=events.unsaid + 1)
    unsaid = f" ({events.unsaid} more were not told)" if events.unsaid else ""
    fresh = EventSeries(
        name=_name(context, occurrence.subject),
        note=_cut(occurrence.note, unsaid),
        action=occurrence.action,
        first=now,
        last=now,
    )
    series = {**events.series, occurrence.subject: fresh}
    return replace(events, series=series, begun=(*events.begun, now), unsaid=0)


def _name(context: Context, subject: SeriesKey) -> str:
    """The same when the same write is tried again, and another for everything else."""
    told = repr((context.view.policy.uid, context.leads_since, context.now, subject))
    begin = context.key.name[:_LONGEST_NAME].rstrip("-.")
    return f"{begin}.{hashlib.sha256(told.encode()).hexdigest()[:16]}"


def _cut(note: str, end: str) -> str:
    room = LONGEST_NOTE - len(end.encode())
    if len(note.encode()) <= room:
        return note + end
    return note.encode()[: room - 3].decode(errors="ignore") + "…" + end


# --- conditions ---


def _conditions(events: EventState, findings: Mapping[str, PolicyCondition], context: Context) -> EventState:
    """The same with every condition that has been another one for long enough."""
    known = events.conditions if events.conditions is not None else _left_behind(context)
    shown = _shown(findings, known, context)
    turning: dict[str, PendingChange] = {}
    for type_ in {**known, **shown}:
        is_now = shown.get(type_)
        if is_now == known.get(type_):
            continue
        since = _since(events.turning.get(type_), is_now, context.now)
        if context.now - since < (0.0 if type_ == modes.CONDITION else STEADY_SECONDS):
            turning[type_] = PendingChange(is_now, since)
            continue
        if _matters(type_, known.get(type_), is_now):
            events = _told(events, _occurrence(type_, is_now, findings.get(type_)), context)
        known = {name: one for name, one in {**known, type_: is_now}.items() if one is not None}
    if turning == events.turning and known is events.conditions:
        return events
    return replace(events, conditions=known, turning=turning)


def _left_behind(context: Context) -> Mapping[str, ConditionState]:
    """The conditions that people know of: those in the status, as another leader may have left it."""
    found = context.state.written.status.get("conditions", ())
    return {one["type"]: ConditionState(one["status"] == "True", one["reason"]) for one in found}


def _shown(
    findings: Mapping[str, PolicyCondition], known: Mapping[str, ConditionState], context: Context
) -> Mapping[str, ConditionState]:
    """Every condition as it stands. Those of which nothing can be said without an assessment are as they were."""
    shown = {
        type_: ConditionState(one.is_true, one.reason) for type_, one in findings.items() if one.reason not in NOT_TOLD
    }
    return shown if context.view.assessment is not None else {**known, **shown}


def _since(turning: PendingChange | None, is_now: ConditionState | None, now: float) -> float:
    return turning.since if turning is not None and turning.shown == is_now else now


def _is_plain(type_: str, shown: ConditionState | None) -> bool:
    """Whether a condition is as it should be; one that is not shown is."""
    return shown is None or shown.is_true is not (type_ in TRUE_IS_TROUBLE)


def _matters(type_: str, before: ConditionState | None, is_now: ConditionState | None) -> bool:
    """Whether a change is worth telling: for the worse, for the better, or from one trouble to another."""
    return not (_is_plain(type_, before) and _is_plain(type_, is_now))


def _occurrence(type_: str, is_now: ConditionState | None, finding: PolicyCondition | None) -> Occurrence:
    if is_now is None or finding is None:
        return Occurrence(SeriesKey(f"{type_}Over", type_, warning=False), "Assess", f"{type_}: no longer so")
    # To rest is no trouble.
    warning = not _is_plain(type_, is_now) and type_ != modes.CONDITION
    return Occurrence(SeriesKey(is_now.reason, type_, warning), "Assess", f"{type_}: {finding.message}")
