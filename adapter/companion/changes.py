"""What changed for a policy, its count and its conditions, in one list: Events, and notifications of people.

The list has every scaling with its author and cause, and every condition that has changed for longer than a moment. A
condition is told to have the same value again after ten minutes at the earliest, if it stands then. A new leader goes
on from what the status says.
"""

import math
import socket
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, NamedTuple

from adapter.companion.state import BY_SCALE, ActionResult, Context, State, Write
from adapter.kube.api import EVENTS, JSON
from adapter.load.decide import decide
from adapter.load.explanation import decision_reason
from adapter.policy.conditions import TROUBLE_WHILE_TRUE, ConditionType, Reason
from adapter.policy.hpa import FIELD_MANAGER
from adapter.policy.watermark_policy import API_VERSION, GROUP, KIND
from adapter.runtime.times import format_micro_time, parse_time
from adapter.settings.companion import Severity, Topic
from adapter.snapshot import PolicyView

HPA, OTHER_HPA, COMPANION, UNKNOWN = "the HPA", "another HPA", "the companion", "an unknown client"
ATTRIBUTION_SECONDS = 3.0
"""How long a scaling waits for the HPA's status to claim it."""
REASON_SECONDS = 20.0
"""How long a scaling of the HPA waits for its reason: a poll at the default interval, and its assessment."""
CLOCK_SKEW_SECONDS = 5.0
"""The HPA may date a scaling this long before this process observes it, and may have found another count so late."""
_CONTROLLER = "kube-controller-manager"
REPEATED_SECONDS = 600.0
"""How long a change is not repeated, and how long an Event that cannot be written is tried."""
STEADY_SECONDS = 10.0
"""How long a condition must have changed before an Event says so."""
HPA_SYNCS_SECONDS = 45.0
"""Three syncs of the HPA controller: an HPA that is as new as its policy finds no metric at its first one."""
SCALINGS_PER_HOUR = 20
"""The most Events about scalings of one policy; those of conditions are limited by how often a change is repeated."""
LONGEST_NOTE = 1024  # bytes, by the API's rule
_LONGEST_NAME = 253 - 24  # of a policy in the name of an Event: the API's rule, without the time and number after it
_COVERED_BY_READY: Collection[Reason] = {"NotAssessed", "HPAMissing", "NotDeciding", "Refused"}
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

_DATA = [type_ for type_, (topic, _) in _TOPICS.items() if topic is Topic.DATA_LOST]

Value = tuple[bool, str]
"""Whether a condition is true, and its reason."""


class Scaling(NamedTuple):
    """A change of the count: when (seconds), from and to which count, why, and by whom; both empty if unknown."""

    at: float
    before: int
    after: int
    why: str = ""
    by: str = ""

    def __str__(self) -> str:
        by, why = f" by {self.by}" if self.by else "", f": {self.why}" if self.why else ""
        return f"from {self.before} to {self.after}{by}{why}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaHistory:
    """The replica count of a target (a UID, empty before the first observation). Times are in seconds.

    Every replica of the companion observes the count `replicas`, and since when it has not risen, whoever raised it.

    The leader attributes: `pending` are the changes without author or cause, the oldest first (None before its first
    look), `desired` is what the policy last asked for before them, and why, `credited` the HPA's last scaling that was
    attributed to it, and `last` the change before `pending`.
    """

    target: str = ""
    since: float = 0.0
    replicas: int = 0
    pending: tuple[Scaling, ...] | None = None
    desired: tuple[int, str] | None = None
    credited: float | None = None
    last: Scaling | None = None


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
    last: Mapping[tuple[str, Value | None], float] = field(default_factory=dict)
    scaled: tuple[float, ...] = ()


def observe(context: Context) -> State:
    """The state after this look, with the Events and notifications that are due. `context` has its conditions."""
    told, now, settings = context.state.of(Told), context.now, context.settings
    history, done = _attributed(context)
    if not (settings.features.events or settings.notifications.routes):  # what happens now is not told later either
        return context.state.having(history, Told())
    scalings = []
    for number, one in enumerate(done):
        fields = {"from": str(one.before), "to": str(one.after), "why": one.why}
        scalings.append(Change("Scaled", "", str(one), now, number, topic=Topic.SCALED, fields=fields))
    scaled = [at for at in told.scaled if now - at < 3600.0]
    shown = scalings[: max(0, SCALINGS_PER_HOUR - len(scaled))]
    told, changes = _of_conditions(told, context, first=len(scalings))
    waiting = [event for event in told.events if now - event.at < REPEATED_SECONDS]
    told = replace(
        told,
        news=(*scalings, *changes),
        events=(*waiting, *shown, *changes) if settings.features.events else (),
        scaled=(*scaled, *(now for _ in shown)),
    )
    return context.state.having(history, told)


def plan(context: Context) -> Iterator[Write]:
    """Writes the Events that are due."""
    for event in context.state.of(Told).events if context.view.policy.uid else ():

        def after(state: State, result: ActionResult, event: Change = event) -> State:
            """Once it was written, or exists already by an earlier attempt."""
            told, is_there = state.of(Told), result in {ActionResult.DONE, ActionResult.OVERTAKEN}
            left = tuple(one for one in told.events if one != event)
            return state.having(replace(told, events=left)) if is_there else state

        yield Write(
            key=context.key, kind="WriteEvent", method="POST", path=EVENTS.collection(context.key.namespace),
            body=_body(context, event), content_type=JSON, after=after,
        )  # fmt: skip


def _body(context: Context, event: Change) -> dict[str, Any]:
    """The Event as events.k8s.io/v1 has it. Its name is the same if the same write is tried again."""
    key, text = context.key, event.text.encode()
    note = text if len(text) <= LONGEST_NOTE else text[: LONGEST_NOTE - 3] + "…".encode()
    name = f"{key.name[:_LONGEST_NAME].rstrip('-.')}.{int(event.at * 1e6):x}.{event.number:x}"
    return {
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
        "reportingInstance": socket.gethostname()[:128],
    }


def observe_count(history: ReplicaHistory, view: PolicyView, now: float) -> ReplicaHistory:
    """The history with the count of this view. Every replica of the companion observes, whether it leads or not."""
    if view.target is None or view.scale is None:
        return history
    uid, replicas, before, pending = view.target.uid, view.scale.replicas, history.replicas, history.pending
    if history.target != uid:  # its first count is no scaling
        return ReplicaHistory(target=uid, since=now, replicas=replicas, pending=None if pending is None else ())
    if replicas == before:
        return history
    pending = None if pending is None else (*pending, Scaling(now, before, replicas))
    since = now if replicas > before else history.since
    return replace(history, since=since, replicas=replicas, pending=pending)


def unattributed(history: ReplicaHistory) -> ReplicaHistory:
    """What this process observed and told, for a new term as leader; others may have led in between."""
    return replace(history, pending=None, desired=None, credited=None)


def is_new(history: ReplicaHistory, replicas: int) -> bool:
    """Whether this count is new and its author unknown."""
    pending = history.pending
    return pending is not None and (replicas != history.replicas or any(not change.by for change in pending[-1:]))


def _attributed(context: Context) -> tuple[ReplicaHistory, list[Scaling]]:
    """The leader's history after this look, and the changes whose author and cause are known by now, or that waited.

    The HPA may act on samples of the serving process that the companion gets with its next poll only: a change by the
    HPA without a reason waits for one that is seen then, at the count before it.
    """
    view, now = context.view, context.now
    history = observe_count(context.state.of(ReplicaHistory), view, now)
    if view.scale is None or view.target is None or history.target != view.target.uid:
        return history, []
    if history.pending is None:  # from the count in the status, as another leader wrote it
        replicas, last, at = view.scale.replicas, history.last, context.written.at
        left = context.written.status.get("current", replicas)
        if last is not None and at is not None and at < last.at <= now:  # told in a former term, which wrote no status
            left = last.after
        history = replace(history, pending=(Scaling(now, left, replicas),) if left != replicas else ())
    pending, credited = _credited(history, context)
    if not pending:
        return replace(history, pending=(), desired=_desired(context, view.scale.replicas)), []
    desired, done = history.desired, list[Scaling]()
    while pending:
        scaling = _named(pending[0], context)
        if scaling.by in {HPA, COMPANION} and not scaling.why:
            scaling = scaling._replace(why=_cause(scaling, context, desired))
        pending[0], lacks_reason = scaling, scaling.by == HPA and not scaling.why
        # Its reason is not waited for once the count has changed again.
        patience = REASON_SECONDS if lacks_reason and len(pending) == 1 else 0.0 if scaling.by else ATTRIBUTION_SECONDS
        if now - scaling.at < patience:
            break
        done.append(pending.pop(0)._replace(by=scaling.by or UNKNOWN))
        desired = None
    last = done[-1] if done else history.last
    return replace(history, pending=tuple(pending), desired=desired, credited=credited, last=last), done


def _credited(history: ReplicaHistory, context: Context) -> tuple[list[Scaling], float | None]:
    """The changes with the HPA's last scaling attributed to it, and when that was: it ends where its status says.

    A change that began elsewhere were two: one of which nobody knows, and the HPA's from where that left the count. But
    where it began at the count before, which changed while it synced, it wrote over that change. If the count was what
    it asked for by then, its write changed nothing: the author is the manager, unless that set the scale, as HPAs do.
    """
    changes, last = list(history.pending or ()), context.view.bounds.last_scale if context.view.bounds else None
    step = context.hpa.last_step if context.hpa is not None else None
    for index, change in enumerate(changes if last != history.credited else ()):
        is_its = last is not None and not change.by and last >= change.at - CLOCK_SKEW_SECONDS
        if is_its and (step is None or step[1] == change.after):
            if change is changes[-1] and _named(change, context).by and not context.manager.endswith(BY_SCALE):
                return changes, last
            begin, why = change.before if step is None or step[0] == change.after else step[0], ""
            former = changes[index - 1] if index else history.last
            if former is not None and former.before == begin and change.at - former.at < CLOCK_SKEW_SECONDS:
                begin, why = change.before, f"it began at {begin}, the count before"
            others = [change._replace(after=begin, by=UNKNOWN)] if begin != change.before else []
            changes[index : index + 1] = [*others, change._replace(before=begin, by=HPA, why=why)]
            return changes, last
    return changes, history.credited


def _named(scaling: Scaling, context: Context) -> Scaling:
    """The scaling with its author, if that is known by now and is not the HPA."""
    scale = context.view.scale
    if scaling.by:
        return scaling
    manager = (context.manager if scale is not None and scale.replicas == scaling.after else "").removesuffix(BY_SCALE)
    if manager == _CONTROLLER:  # the HPA that follows the policy claims it later, unless its status is late
        by = OTHER_HPA if context.neighbours.hpas else HPA
        manager = by if context.now - scaling.at >= ATTRIBUTION_SECONDS else ""
    manager = COMPANION if manager == FIELD_MANAGER else manager
    return scaling._replace(by=f"hand ({manager})" if manager.startswith("kubectl") else manager)


def _desired(context: Context, replicas: int) -> tuple[int, str] | None:
    """What the policy asks for at this count, and why; None where that is the count itself, or unknown."""
    view, decision = context.view, context.decision
    if decision is None or view.assessment is None or view.scale is None or view.bounds is None:
        return None
    if decision.current != replicas:
        decision = decide(view.assessment, replace(view.scale, replicas=replicas), view.bounds, context.now)
    if decision.desired is None or decision.desired == replicas:
        return None
    return decision.desired, decision_reason(view.assessment, decision)


def _cause(scaling: Scaling, context: Context, desired: tuple[int, str] | None) -> str:
    """Why the HPA or the companion changed the count: what the policy asked for; empty if another count."""
    before, after = scaling.before, scaling.after
    for asked, why in filter(None, (desired, _desired(context, before))):
        if asked == after:
            return why
        if before < after < asked or before > after > asked:
            return f"on the way to {asked}: {why}"
    return ""


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
        if (value is None and context.view.assessment is None) or (type_ == ConditionType.INPUTS_FRESH and has_no_pods):
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
            warning = _is_trouble(type_, value) and type_ != ConditionType.ACTIVE
            reason, text = f"{type_}Over", f"{type_}: no longer so"
            if value is not None:
                reason, text = value[1], f"{type_}: {context.conditions[type_].message}"
            changes.append(Change(reason, type_, text, now, first + len(changes), warning, topic, severity))
        known[type_] = one._replace(told=value)
    return replace(told, standings=known, last=last), changes


def _left(context: Context) -> dict[str, Standing]:
    """The conditions of the status, which another leader told of unless they had changed just before."""
    known, written = dict[str, Standing](), context.written.conditions
    # If all are of one time, that is the first assessment: what is well since then was not lost before.
    first = {str(written.get(type_, {}).get("lastTransitionTime")) for type_ in _DATA}
    for type_, one in written.items():
        value, since = (one["status"] == "True", one["reason"]), parse_time(one.get("lastTransitionTime")) or 0.0
        is_first = value[0] and type_ in _DATA and len(first) == 1
        is_new = not is_first and since > (context.written.at or context.now) - _patience(type_, value, context)
        known[type_] = Standing((not value[0], "") if is_new else value, value, since)
    return known


def _patience(type_: str, value: Value | None, context: Context) -> float:
    """How long a condition must have changed before that is told, in seconds."""
    if value is not None and value[1] == "HPAInactive":
        return HPA_SYNCS_SECONDS
    if type_ in _AT_ONCE:
        return 0.0
    return context.settings.notifications.after_seconds if type_ in _TOPICS else STEADY_SECONDS


def _is_trouble(type_: str, value: Value | None) -> bool:
    """Of a type that only another version knows, whose leader wrote the status, False is trouble."""
    return value is not None and value[0] is (type_ in TROUBLE_WHILE_TRUE)


def _topic(
    type_: str, before: Value | None, value: Value | None, known: Mapping[str, Standing], context: Context
) -> tuple[Topic | None, Severity]:
    """What people are notified of; lost data are back once no condition of theirs is told to be in trouble."""
    topic, severity = _TOPICS.get(type_, (None, Severity.INFO))
    if any(one is not None and one[1] == "WatchSilent" for one in (before, value)):
        return None, severity  # every policy has a silent watch at once, and alerts are for that
    if not _is_trouble(type_, value):
        same = (one for one in known if _TOPICS.get(one, ("",))[0] is topic)
        is_back = topic is Topic.DATA_LOST and not any(_is_trouble(one, known[one].told) for one in same)
        return Topic.DATA_RECOVERED if is_back else None, Severity.INFO
    if topic is Topic.VERSION_MISMATCH and context.settings.production.has(context.key.namespace):
        severity = Severity.CRITICAL
    return topic, severity
