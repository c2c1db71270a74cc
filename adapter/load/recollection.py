"""How memory moves on: what a new roster, a new state or a new sample leaves behind."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import floor
from typing import Any

from adapter.load.assessment import PodReading
from adapter.load.effective import Gauge
from adapter.load.matching import records
from adapter.load.membership import Membership, uses_registry
from adapter.load.memory import AheadSample, LastSample, Memory, PodMemory, Replacement, recent
from adapter.load.pods import Pod, PodState
from adapter.load.roster import Roster
from adapter.load.spec import Bounds, Policy, Scale, Target

RECOVERY_SECONDS = 90.0
COLLAPSE_PERCENT = 30
ROLLOUT_SECONDS = 600.0
_SETTLED = "NewReplicaSetAvailable"
_MOMENTS = ("last_scale", "last_rise", "rollout_since", "error_since", "looking_since", "unseen_change")
_NOTHING = PodMemory()
_NEVER_REPLACED = Replacement()
_AWAY = {PodState.PULLED_OUT, PodState.DOUBTFUL}
_COUNTED = {PodState.SERVING, PodState.DOUBTFUL}
_GONE = {PodState.TERMINATING, PodState.FINISHED}


def after_roster(memory: Memory, policy: Policy, pods: Sequence[Pod], roster: Roster | None, now: float) -> Memory:
    """The memory once this roster counted; unchanged where it counted before, is no answer, or no registry is named."""
    registry = uses_registry(policy)
    if registry is None or roster is None or not roster.valid:
        return memory
    # A roster from the future is from before the clock was put back: the next one is newer all the same.
    if memory.roster_at is not None and (roster.at == memory.roster_at or roster.at < memory.roster_at <= now):
        return memory
    listed = records(pods, roster, registry)
    return replace(
        memory,
        pods={
            pod.uid: _after_listing(memory.pods.get(pod.uid, PodMemory()), pod.uid in listed, roster) for pod in pods
        },
        ever_in_roster=memory.ever_in_roster or bool(listed),
        roster_at=roster.at,
        last_valid=roster,
        rosters=memory.rosters + 1,
        rosters_since=_no_later(memory.rosters_since, roster.at),
        empty_since=None if roster.instances else _no_later(memory.empty_since, roster.at),
        roster_total=roster.registry_total if roster.registry_total is not None else memory.roster_total,
        reconnected_at=roster.reconnected_at if roster.reconnected_at is not None else memory.reconnected_at,
        hold_until=_hold_until(memory, roster, now),
    )


def _after_listing(known: PodMemory, is_listed: bool, roster: Roster) -> PodMemory:
    if is_listed:
        return replace(
            known, seen=known.seen if known.seen is not None else roster.at, absent_since=None, absent_count=0
        )
    if known.seen is None:
        return known
    return replace(known, absent_since=_no_later(known.absent_since, roster.at), absent_count=known.absent_count + 1)


def _no_later(since: float | None, at: float) -> float:
    """Since when something lasts that is so at this time; what began later by a clock that was put back begins anew."""
    return at if since is None else min(since, at)


def within_reach(memory: Memory, now: float) -> Memory:
    """The memory without times in the future: one that a wrong clock left behind would work until then."""
    held = memory.hold_until
    if held is not None and held > now + RECOVERY_SECONDS:
        memory = replace(memory, hold_until=now + RECOVERY_SECONDS)
    moments = {name: getattr(memory, name) for name in _MOMENTS}
    ahead: dict[str, Any] = {name: now for name, at in moments.items() if at is not None and at > now}
    return replace(memory, **ahead) if ahead else memory


def _hold_until(memory: Memory, roster: Roster, now: float) -> float | None:
    """Until when absence stays doubt: 90 s after a reconnect, and after the whole registry lost many instances."""
    holds = [memory.hold_until] if memory.hold_until is not None else []
    if roster.reconnected_at is not None:
        holds.append(min(roster.reconnected_at, now) + RECOVERY_SECONDS)
    if memory.roster_total and roster.registry_total is not None:
        lost = memory.roster_total - roster.registry_total
        if lost * 100 > memory.roster_total * COLLAPSE_PERCENT:
            holds.append(now + RECOVERY_SECONDS)
    return max(holds, default=None)


def after_states(memory: Memory, membership: Membership, now: float) -> Memory:
    """The memory once the pods' states are known; pods that are gone are forgotten."""
    pods = {
        uid: _after_state(memory.pods.get(uid, _NOTHING), standing.state, standing.by_absence, now)
        for uid, standing in membership.standings.items()
    }
    return replace(memory, pods=pods)


def _after_state(known: PodMemory, state: PodState, by_absence: bool, now: float) -> PodMemory:
    out = state is PodState.PULLED_OUT
    doubtful = state is PodState.DOUBTFUL
    served = known.served or state in _COUNTED
    plain = not out and not doubtful and not known.by_absence and known.out_since is None and known.doubt_since is None
    if plain and served is known.served:
        return known
    return replace(
        known,
        out_since=_no_later(known.out_since, now) if out else None,
        by_absence=by_absence,
        doubt_since=_no_later(known.doubt_since, now) if doubtful else None,
        served=served and state not in _GONE,
    )


def after_samples(
    memory: Memory,
    pods: Sequence[PodReading],
    gauges: Mapping[str, Mapping[str, Gauge]],
    ahead: Mapping[str, AheadSample | None],
    now: float,
) -> Memory:
    """The memory with the newest samples that counted; a pod that ceased to serve keeps those it had.

    `gauges` are by metric name and UID, `ahead` (of service totals) by metric name.
    """
    known = dict(memory.pods)
    for reading in pods:
        before = known.get(reading.pod.uid, _NOTHING)
        newest, early, zeros = _samples_of(reading, before.last_sample, gauges, now)
        if newest != before.last_sample or early != before.ahead or zeros != before.zeros:
            known[reading.pod.uid] = before.with_samples(newest, early, zeros)
    return replace(memory, pods=known, ahead={name: sample for name, sample in ahead.items() if sample is not None})


def _samples_of(
    reading: PodReading, known: Mapping[str, LastSample], gauges: Mapping[str, Mapping[str, Gauge]], now: float
) -> tuple[Mapping[str, LastSample], Mapping[str, AheadSample], tuple[str, ...]]:
    """Of a pod by metric: the newest samples that counted, those dated after their answer; and its doubted zeros."""
    counts = reading.state in _COUNTED
    samples, ahead, zeros = {}, {}, []
    for name, by_pod in gauges.items():
        gauge = by_pod.get(reading.pod.uid)
        newest = gauge.newest if gauge is not None and counts else recent(known.get(name), now)
        if newest is not None:
            samples[name] = newest
        if gauge is not None and gauge.ahead is not None:
            ahead[name] = gauge.ahead
        if gauge is not None and counts and gauge.is_doubted_zero:
            zeros.append(name)
    return samples, ahead, tuple(zeros)


def after_rollout(memory: Memory, target: Target | None, now: float) -> Memory:
    """The memory of when the rollout that is under way was first seen (in a file: the condition's last update)."""
    if target is None or not target.progressing or target.progressing == _SETTLED:
        return memory if memory.rollout_since is None else replace(memory, rollout_since=None)
    if memory.rollout_since is not None:
        return memory
    # Without memory nobody knows since when it is under way but the condition itself.
    first = target.progressing_since if memory.last_replicas is None else None
    return replace(memory, rollout_since=now if first is None else first)


def rolling_out(memory: Memory, now: float) -> bool:
    """Whether a rollout progresses, for at most 600 s since it was first seen."""
    return memory.rollout_since is not None and now - memory.rollout_since <= ROLLOUT_SECONDS


def after_scale(memory: Memory, scale: Scale, now: float) -> Memory:
    """The memory of the watched count and of when it was last seen to change, and to rise."""
    before = memory.last_replicas
    if before == scale.replicas:
        return memory
    changed, rose = before is not None, before is not None and scale.replicas > before
    return replace(
        memory,
        last_replicas=scale.replicas,
        last_scale=now if changed else memory.last_scale,
        last_rise=now if rose else memory.last_rise,
    )


def last_scaled(memory: Memory, bounds: Bounds, now: float) -> float | None:
    """When the count last changed, as was seen or as the HPA says; a time in the future counts as now."""
    moments = (memory.last_scale, bounds.last_scale)
    return max((min(moment, now) for moment in moments if moment is not None), default=None)


def replacing_step(memory: Memory, scale: Scale, pods: Sequence[PodReading]) -> Memory:
    """The memory of replacing: a count above the noted one is a replacing step; all ends when no pod is away."""
    noted = memory.replacement
    if not any(reading.state in _AWAY for reading in pods):
        return memory if noted == _NEVER_REPLACED else replace(memory, replacement=_NEVER_REPLACED)
    if noted.noted_current is None or scale.replicas <= noted.noted_current:
        return memory
    first = noted.first_step if noted.first_step is not None else noted.noted_at
    return replace(memory, replacement=Replacement(first_step=first))


def note_replacing(memory: Memory, current: int, replaced: int, desired: int | None, now: float) -> Memory:
    """The memory of having asked for more than there is because of pods that are out; the first such note stays."""
    noted = memory.replacement
    asks = replaced > 0 and desired is not None and desired > current
    if not asks:
        left = Replacement(first_step=noted.first_step)
        return memory if noted == left else replace(memory, replacement=left)
    if noted.noted_current == current:
        return memory
    return replace(memory, replacement=replace(noted, noted_at=now, noted_current=current))


def after_errors(memory: Memory, in_error: bool, now: float) -> Memory:
    """The memory of since when no metric gave an answer."""
    if in_error is (memory.error_since is not None):
        return memory
    return replace(memory, error_since=now if in_error else None)


def replacement_ineffective(memory: Memory, pods: Sequence[PodReading]) -> bool:
    """Whether at least two, and at least half, of the pods created since the first replacing step are away."""
    created = [reading for reading in pods if since_first_step(memory, reading.pod)]
    away = sum(1 for reading in created if reading.state in _AWAY)
    return away >= 2 and away * 2 >= len(created)


def since_first_step(memory: Memory, pod: Pod) -> bool:
    """Whether the pod was created since the first replacing step (the API counts creation in whole seconds)."""
    first = memory.replacement.first_step
    return first is not None and pod.created_at >= floor(first)
