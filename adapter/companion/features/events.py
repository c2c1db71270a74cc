"""Events about policies: on scaling, and on conditions that have changed for longer than a moment.

What repeats within ten minutes is a series, which is counted and written at most once a minute.
"""

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import NamedTuple

from adapter.companion.context import Context, PolicyCondition, State
from adapter.companion.features import modes
from adapter.companion.state import Announced, ReplicaHistory, Scaling, Series, Shown, Subject, Turning
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

    subject: Subject
    action: str
    note: str


def look(situation: Context, findings: Mapping[str, PolicyCondition], course: ReplicaHistory) -> Announced:
    """What is to be told after another look. `findings` are the conditions as they stand, by type."""
    announced = _expired(situation.past.announced, situation.now)
    step = course.last
    if step is not None and step.number > announced.step:
        announced = replace(_told(announced, _scaled(step), situation), step=step.number)
    return _conditions(announced, findings, situation)


def silent(announced: Announced, course: ReplicaHistory) -> Announced:
    """What is remembered while nothing is told; it is not told later either."""
    passed_over = Announced(step=course.last.number if course.last is not None else 0)
    return announced if announced == passed_over else passed_over


def plan(situation: Context) -> Iterator[WriteEvent]:
    """Write what is not written yet."""
    policy, now = situation.view.policy, situation.now
    if not policy.uid:
        return
    for subject, series in situation.past.announced.series.items():
        if series.count == series.written or (series.written and now - series.written_at < WRITTEN_APART_SECONDS):
            continue
        yield WriteEvent(
            key=situation.key, uid=policy.uid, subject=subject, series=series, target=situation.view.target
        )


def after(past: State, action: WriteEvent, now: float) -> State:
    """The past once an Event was written."""
    return _marked(past, action, now)


def missed(past: State, action: WriteEvent, outcome: ActionResult, now: float) -> State:
    """The past once that was tried in vain: what is there already is written, and what is gone does not come back."""
    if outcome is not ActionResult.OVERTAKEN:
        return past
    return _forgotten(past, action) if action.series.written else _marked(past, action, now)


def _marked(past: State, action: WriteEvent, now: float) -> State:
    announced = past.announced
    series = announced.series.get(action.subject)
    if series is None or series.name != action.series.name:
        return past
    marked = replace(series, written=action.series.count, written_at=now)
    return replace(past, announced=replace(announced, series={**announced.series, action.subject: marked}))


def _forgotten(past: State, action: WriteEvent) -> State:
    """The past without this series: somebody deleted its Event, and what comes next is one of its own."""
    series = {subject: one for subject, one in past.announced.series.items() if subject != action.subject}
    return replace(past, announced=replace(past.announced, series=series))


def _expired(announced: Announced, now: float) -> Announced:
    begun = tuple(at for at in announced.begun if now - at < HOUR)
    series = {subject: one for subject, one in announced.series.items() if now - one.last < SERIES_SECONDS}
    if len(begun) == len(announced.begun) and len(series) == len(announced.series):
        return announced
    return replace(announced, begun=begun, series=series)


def _scaled(step: Scaling) -> Occurrence:
    by, reason = f" by {step.by}" if step.by else "", f": {step.why}" if step.why else ""
    subject = Subject("Scaled", f"{step.before} {step.after}", warning=False)
    return Occurrence(subject, SCALING, f"from {step.before} to {step.after}{by}{reason}")


def _told(announced: Announced, occurrence: Occurrence, situation: Context) -> Announced:
    """The same with one more occurrence: of a series, as a new one, or left out where there have been too many."""
    now, known = situation.now, announced.series.get(occurrence.subject)
    if known is not None:
        again = replace(known, count=known.count + 1, last=now)
        return replace(announced, series={**announced.series, occurrence.subject: again})
    if len(announced.begun) >= (SCALINGS_PER_HOUR if occurrence.action == SCALING else MOST_PER_HOUR):
        return replace(announced, unsaid=announced.unsaid + 1)
    unsaid = f" ({announced.unsaid} more were not told)" if announced.unsaid else ""
    fresh = Series(
        name=_name(situation, occurrence.subject),
        note=_cut(occurrence.note, unsaid),
        action=occurrence.action,
        first=now,
        last=now,
    )
    series = {**announced.series, occurrence.subject: fresh}
    return replace(announced, series=series, begun=(*announced.begun, now), unsaid=0)


def _name(situation: Context, subject: Subject) -> str:
    """The same when the same write is tried again, and another for everything else."""
    told = repr((situation.view.policy.uid, situation.leads_since, situation.now, subject))
    begin = situation.key.name[:_LONGEST_NAME].rstrip("-.")
    return f"{begin}.{hashlib.sha256(told.encode()).hexdigest()[:16]}"


def _cut(note: str, end: str) -> str:
    room = LONGEST_NOTE - len(end.encode())
    if len(note.encode()) <= room:
        return note + end
    return note.encode()[: room - 3].decode(errors="ignore") + "…" + end


# --- conditions ---


def _conditions(announced: Announced, findings: Mapping[str, PolicyCondition], situation: Context) -> Announced:
    """The same with every condition that has been another one for long enough."""
    known = announced.conditions if announced.conditions is not None else _left_behind(situation)
    shown = _shown(findings, known, situation)
    turning: dict[str, Turning] = {}
    for type_ in {**known, **shown}:
        is_now = shown.get(type_)
        if is_now == known.get(type_):
            continue
        since = _since(announced.turning.get(type_), is_now, situation.now)
        if situation.now - since < (0.0 if type_ == modes.CONDITION else STEADY_SECONDS):
            turning[type_] = Turning(is_now, since)
            continue
        if _matters(type_, known.get(type_), is_now):
            announced = _told(announced, _occurrence(type_, is_now, findings.get(type_)), situation)
        known = {name: one for name, one in {**known, type_: is_now}.items() if one is not None}
    if turning == announced.turning and known is announced.conditions:
        return announced
    return replace(announced, conditions=known, turning=turning)


def _left_behind(situation: Context) -> Mapping[str, Shown]:
    """The conditions that people know of: those in the status, as another leader may have left it."""
    found = situation.past.written.status.get("conditions", ())
    return {one["type"]: Shown(one["status"] == "True", one["reason"]) for one in found}


def _shown(
    findings: Mapping[str, PolicyCondition], known: Mapping[str, Shown], situation: Context
) -> Mapping[str, Shown]:
    """Every condition as it stands. Those of which nothing can be said without an assessment are as they were."""
    shown = {type_: Shown(one.is_true, one.reason) for type_, one in findings.items() if one.reason not in NOT_TOLD}
    return shown if situation.view.assessment is not None else {**known, **shown}


def _since(turning: Turning | None, is_now: Shown | None, now: float) -> float:
    return turning.since if turning is not None and turning.shown == is_now else now


def _is_plain(type_: str, shown: Shown | None) -> bool:
    """Whether a condition is as it should be; one that is not shown is."""
    return shown is None or shown.is_true is not (type_ in TRUE_IS_TROUBLE)


def _matters(type_: str, before: Shown | None, is_now: Shown | None) -> bool:
    """Whether a change is worth telling: for the worse, for the better, or from one trouble to another."""
    return not (_is_plain(type_, before) and _is_plain(type_, is_now))


def _occurrence(type_: str, is_now: Shown | None, finding: PolicyCondition | None) -> Occurrence:
    if is_now is None or finding is None:
        return Occurrence(Subject(f"{type_}Over", type_, warning=False), "Assess", f"{type_}: no longer so")
    # To rest is no trouble.
    warning = not _is_plain(type_, is_now) and type_ != modes.CONDITION
    return Occurrence(Subject(is_now.reason, type_, warning), "Assess", f"{type_}: {finding.message}")
