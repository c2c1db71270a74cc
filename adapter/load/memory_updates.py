"""How memory moves on: what a new roster, a new state or a new sample leaves behind."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import floor
from typing import Any, TypeGuard

from adapter.load.assessment import PodAssessment
from adapter.load.census import Census
from adapter.load.matching import Registrations, registrations
from adapter.load.membership import Membership, service_registry
from adapter.load.memory import AheadSample, Memory, PodMemory, Replacement, SampleMemory, recent
from adapter.load.pods import Pod, PodState
from adapter.load.roster import Roster
from adapter.load.sample_columns import Columns
from adapter.load.spec import Bounds, Policy, Scale, Target

RECOVERY_SECONDS = 90.0
COLLAPSE_PERCENT = 30
ROLLOUT_SECONDS = 600.0
_SETTLED = "NewReplicaSetAvailable"
_MOMENTS = ("last_scale", "last_rise", "rollout_since", "error_since", "observing_since", "unobserved_change")
_NOTHING = PodMemory()
_NEVER_REPLACED = Replacement()
_AWAY = {PodState.PULLED_OUT, PodState.DOUBTFUL}
_COUNTED = {PodState.SERVING, PodState.DOUBTFUL}
_GONE = {PodState.TERMINATING, PodState.FINISHED}


def is_new_roster(roster: Roster | None, memory: Memory, policy: Policy, now: float) -> TypeGuard[Roster]:
    """Whether this roster has yet to count: a valid answer of the policy's registry, newer than the one that did."""
    if service_registry(policy) is None or roster is None or not roster.valid:
        return False
    if memory.roster_at is None:
        return True
    # A roster from the future is from before the clock was put back: the next one is newer all the same.
    return roster.at != memory.roster_at and not roster.at < memory.roster_at <= now


def after_roster(
    memory: Memory,
    policy: Policy,
    pods: Sequence[Pod],
    roster: Roster | None,
    now: float,
    listed: Registrations | None = None,
) -> Memory:
    """The memory once this roster counted; unchanged where it is no news.

    `listed`: the registrations of each pod in it, where they have been looked up already.
    """
    registry = service_registry(policy)
    if registry is None or not is_new_roster(roster, memory, policy, now):
        return memory
    if listed is None:
        listed = registrations(pods, roster, registry)
    after = {pod.uid: _after_listing(memory.pods.get(pod.uid, _NOTHING), pod.uid in listed, roster) for pod in pods}
    return replace(
        memory,
        pods=_as_before(memory.pods, after),
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


def without_registry(memory: Memory) -> Memory:
    """The memory for a policy that names another service now: nothing that was said of the other one holds for it."""
    return replace(
        memory,
        pods={
            uid: replace(known, seen=None, absent_since=None, absent_count=0, by_absence=False)
            for uid, known in memory.pods.items()
        },
        ever_in_roster=False,
        roster_at=None,
        last_valid=None,
        rosters=0,
        rosters_since=None,
        empty_since=None,
        roster_total=None,
        reconnected_at=None,
        hold_until=None,
    )


def _as_before(before: Mapping[str, PodMemory], after: Mapping[str, PodMemory]) -> Mapping[str, PodMemory]:
    """The pods' memories, as the same object where none has changed: the census of the last look holds on then."""
    same = len(before) == len(after) and all(before.get(uid) is known for uid, known in after.items())
    return before if same else after


def _after_listing(known: PodMemory, is_listed: bool, roster: Roster) -> PodMemory:
    if is_listed:
        if known.seen is not None and known.absent_since is None and not known.absent_count:
            return known
        return replace(
            known, seen=known.seen if known.seen is not None else roster.at, absent_since=None, absent_count=0
        )
    if known.seen is None:
        return known
    return replace(known, absent_since=_no_later(known.absent_since, roster.at), absent_count=known.absent_count + 1)


def _no_later(since: float | None, at: float) -> float:
    """Since when something lasts that is so at this time; what began later by a clock that was put back begins anew."""
    return at if since is None else min(since, at)


def without_future_times(memory: Memory, now: float) -> Memory:
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
        uid: _after_state(memory.pods.get(uid, _NOTHING), classified.state, classified.by_absence, now)
        for uid, classified in membership.by_uid.items()
    }
    same = _as_before(memory.pods, pods)
    return memory if same is memory.pods else replace(memory, pods=same)


def _after_state(known: PodMemory, state: PodState, by_absence: bool, now: float) -> PodMemory:
    out = state is PodState.PULLED_OUT
    doubtful = state is PodState.DOUBTFUL
    served = known.served or state in _COUNTED
    after = (
        _no_later(known.out_since, now) if out else None,
        by_absence,
        _no_later(known.doubt_since, now) if doubtful else None,
        served and state not in _GONE,
    )
    if after == (known.out_since, known.by_absence, known.doubt_since, known.served):
        return known
    out_since, by_absence, doubt_since, served = after
    return replace(known, out_since=out_since, by_absence=by_absence, doubt_since=doubt_since, served=served)


def after_samples(
    memory: Memory, census: Census, columns: Mapping[str, Columns], ahead: Mapping[str, AheadSample | None], now: float
) -> Memory:
    """The memory with the newest samples that counted; a pod that ceased to serve keeps those it had.

    `columns` and `ahead` (of service totals) are by metric name.
    """
    samples = {name: _after_metric(memory.samples_of(name), census, found, now) for name, found in columns.items()}
    return replace(
        memory, samples=samples, ahead={name: sample for name, sample in ahead.items() if sample is not None}
    )


def _after_metric(seen: SampleMemory, census: Census, found: Columns, now: float) -> SampleMemory:
    uids = (
        [assessed.pod.uid for assessed in (census.others if found.measured else census.assessed)] if seen.last else ()
    )
    kept = {uid: sample for uid in uids if (sample := recent(seen.last.get(uid), now)) is not None}
    return SampleMemory(last=kept | found.newest, ahead=found.ahead, zeros=found.zeros)


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


def after_replacing_step(memory: Memory, scale: Scale, *, is_away: bool) -> Memory:
    """The memory of replacing: a count above the noted one is a replacing step; all ends when none `is_away`."""
    noted = memory.replacement
    if not is_away:
        return memory if noted == _NEVER_REPLACED else replace(memory, replacement=_NEVER_REPLACED)
    if noted.noted_current is None or scale.replicas <= noted.noted_current:
        return memory
    first = noted.first_step if noted.first_step is not None else noted.noted_at
    return replace(memory, replacement=Replacement(first_step=first))


def after_replacement_request(memory: Memory, current: int, replaced: int, desired: int | None, now: float) -> Memory:
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


def replacement_ineffective(memory: Memory, pods: Sequence[PodAssessment]) -> bool:
    """Whether at least two, and at least half, of the pods created since the first replacing step are away."""
    if memory.replacement.first_step is None:
        return False
    created = [assessed for assessed in pods if since_first_step(memory, assessed.pod)]
    away = sum(1 for assessed in created if assessed.state in _AWAY)
    return away >= 2 and away * 2 >= len(created)


def since_first_step(memory: Memory, pod: Pod) -> bool:
    """Whether the pod was created since the first replacing step (the API counts creation in whole seconds)."""
    first = memory.replacement.first_step
    return first is not None and pod.created_at >= floor(first)
