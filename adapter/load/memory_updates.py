"""The next memory: after a roster, the pods' states, samples, a rollout, the watched scale and a decision."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from math import floor
from typing import Any, TypeGuard

from adapter.load.assessment import PodAssessment
from adapter.load.census import Census
from adapter.load.matching import Registrations, registrations
from adapter.load.membership import Classification, service_registry
from adapter.load.memory import (
    AheadSample,
    Beyond,
    LastSample,
    Memory,
    PodMemory,
    Replacement,
    SampleMemory,
    pod_memory,
    recent,
)
from adapter.load.pods import Pod, PodState
from adapter.load.roster import Roster
from adapter.load.sample_columns import Columns
from adapter.load.spec import Bounds, Policy, Scale, Target
from adapter.load.steps import Steps, collected, finish, mapped

RECOVERY_SECONDS = 90.0
COLLAPSE_PERCENT = 30
ROLLOUT_SECONDS = 600.0
_SETTLED = "NewReplicaSetAvailable"
_TIMES = ("last_scale", "last_rise", "rollout_since", "error_since", "observing_since", "unobserved_change")
_NO_MEMORY = PodMemory()
_NEVER_REPLACED = Replacement()
_AWAY = {PodState.PULLED_OUT, PodState.DOUBTFUL}
_COUNTED = {PodState.SERVING, PodState.DOUBTFUL}
_GONE = {PodState.TERMINATING, PodState.FINISHED}


def is_new_roster(roster: Roster | None, memory: Memory, policy: Policy, now: float) -> TypeGuard[Roster]:
    """Whether this roster has not counted yet: valid, and newer than the last one that counted."""
    if service_registry(policy) is None or roster is None or not roster.valid:
        return False
    if memory.roster_at is None:
        return True
    # If the last one is dated in the future, the clock was put back since, and any other one is newer.
    return roster.at != memory.roster_at and not roster.at < memory.roster_at <= now


def after_roster(
    memory: Memory,
    policy: Policy,
    pods: Sequence[Pod],
    roster: Roster | None,
    now: float,
    listed: Registrations | None = None,
) -> Memory:
    """The memory after this roster; the same object unless the roster is new.

    `listed`: the registrations of the pods in it; None to match them here.
    """
    registry = service_registry(policy)
    if registry is None or not is_new_roster(roster, memory, policy, now):
        return memory
    if listed is None:
        listed = registrations(pods, roster, registry)
    return finish(after_roster_in_steps(memory, policy, pods, roster, now, listed))


def after_roster_in_steps(
    memory: Memory, policy: Policy, pods: Sequence[Pod], roster: Roster | None, now: float, listed: Registrations
) -> Steps[Memory]:
    """`after_roster` in short steps."""
    if not is_new_roster(roster, memory, policy, now):
        return memory
    remembered, counted = memory.pods, roster
    known = yield from mapped(
        lambda pod: _after_listing(remembered.get(pod.uid, _NO_MEMORY), pod.uid in listed, counted), pods
    )
    after = dict(zip((pod.uid for pod in pods), known, strict=True))
    return _with_roster(memory, roster, _unless_equal(memory.pods, after), now, lists_any=bool(listed))


def after_roster_of_some(
    memory: Memory, pods: Iterable[Pod], roster: Roster, now: float, listed: Registrations
) -> Memory:
    """The memory after a new roster that changes nothing for other pods than these."""
    before = ((pod.uid, memory.pods.get(pod.uid, _NO_MEMORY)) for pod in pods)
    after = {uid: _after_listing(known, uid in listed, roster) for uid, known in before}
    return _with_roster(memory, roster, _with_some(memory.pods, after, ()), now, lists_any=bool(listed))


def _with_roster(
    memory: Memory, roster: Roster, pods: Mapping[str, PodMemory], now: float, *, lists_any: bool
) -> Memory:
    return replace(
        memory,
        pods=pods,
        ever_in_roster=memory.ever_in_roster or lists_any,
        roster_at=roster.at,
        last_valid=roster,
        rosters=memory.rosters + 1,
        rosters_since=_earliest(memory.rosters_since, roster.at),
        empty_since=None if roster.instances else _earliest(memory.empty_since, roster.at),
        roster_total=roster.registry_total if roster.registry_total is not None else memory.roster_total,
        reconnected_at=roster.reconnected_at if roster.reconnected_at is not None else memory.reconnected_at,
        hold_until=_hold_until(memory, roster, now),
    )


def without_registry(memory: Memory) -> Steps[Memory]:
    """The memory without all that came from the registry, for a policy that names another service now."""
    pods = yield from mapped(
        lambda known: replace(known, seen=None, absent_since=None, absent_count=0, by_absence=False),
        memory.pods.values(),
    )
    return replace(
        memory,
        pods=dict(zip(memory.pods, pods, strict=True)),
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


def _unless_equal(before: Mapping[str, PodMemory], after: Mapping[str, PodMemory]) -> Mapping[str, PodMemory]:
    """The memory of the pods; `before` itself if nothing changed, so that the last census still holds."""
    same = len(before) == len(after) and all(before.get(uid) is known for uid, known in after.items())
    return before if same else after


def _with_some(
    before: Mapping[str, PodMemory], after: Mapping[str, PodMemory], gone: Iterable[str]
) -> Mapping[str, PodMemory]:
    """The memory of the pods with that of some pods, and without those that are gone; `before` if nothing changed."""
    changed = {uid: known for uid, known in after.items() if before.get(uid) is not known}
    lost = {uid for uid in gone if uid in before}
    if not changed and not lost:
        return before
    pods = {**before, **changed}
    for uid in lost:
        del pods[uid]
    return pods


def is_registered(known: PodMemory | None) -> bool:
    """Whether the memory of a pod stays as it is after a roster that lists the pod."""
    return known is not None and known.seen is not None and known.absent_since is None and not known.absent_count


def _after_listing(known: PodMemory, is_listed: bool, roster: Roster) -> PodMemory:
    if is_listed:
        if is_registered(known):
            return known
        seen, absent_since, absent_count = known.seen if known.seen is not None else roster.at, None, 0
    elif known.seen is None:
        return known
    else:
        seen, absent_count = known.seen, known.absent_count + 1
        absent_since = _earliest(known.absent_since, roster.at)
    return pod_memory(
        seen, absent_since, absent_count, known.out_since, known.by_absence, known.doubt_since, known.served
    )


def _earliest(since: float | None, at: float) -> float:
    """The beginning of a condition that holds at `at`; one in the future (the clock was put back) begins anew."""
    return at if since is None else min(since, at)


def without_future_times(memory: Memory, now: float) -> Memory:
    """The memory with times in the future, which a wrong clock left, set to now."""
    held = memory.hold_until
    if held is not None and held > now + RECOVERY_SECONDS:
        memory = replace(memory, hold_until=now + RECOVERY_SECONDS)
    times = {name: getattr(memory, name) for name in _TIMES}
    ahead: dict[str, Any] = {name: now for name, at in times.items() if at is not None and at > now}
    if any(max(one.since, one.until) > now for one in memory.beyond.values()):
        ahead["beyond"] = {
            name: one._replace(since=min(one.since, now), until=min(one.until, now))
            for name, one in memory.beyond.items()
        }
    return replace(memory, **ahead) if ahead else memory


def _hold_until(memory: Memory, roster: Roster, now: float) -> float | None:
    """Until when absence is only doubt: RECOVERY_SECONDS after a reconnect, or a collapse of the registry."""
    holds = [memory.hold_until] if memory.hold_until is not None else []
    if roster.reconnected_at is not None:
        holds.append(min(roster.reconnected_at, now) + RECOVERY_SECONDS)
    if memory.roster_total and roster.registry_total is not None:
        lost = memory.roster_total - roster.registry_total
        if lost * 100 > memory.roster_total * COLLAPSE_PERCENT:
            holds.append(now + RECOVERY_SECONDS)
    return max(holds, default=None)


def after_states(memory: Memory, states: Mapping[str, Classification], now: float) -> Memory:
    """The memory after classifying the pods; pods that no longer exist are forgotten."""
    return finish(after_states_in_steps(memory, states, now))


def after_states_in_steps(memory: Memory, states: Mapping[str, Classification], now: float) -> Steps[Memory]:
    """`after_states` in short steps."""
    known = yield from collected(
        _after_state(memory.pods.get(uid, _NO_MEMORY), classified.state, classified.by_absence, now)
        for uid, classified in states.items()
    )
    same = _unless_equal(memory.pods, dict(zip(states, known, strict=True)))
    return memory if same is memory.pods else replace(memory, pods=same)


def after_some_states(memory: Memory, states: Mapping[str, Classification], gone: Iterable[str], now: float) -> Memory:
    """The memory after classifying these pods, without those that are gone; that of all others stays as it is."""
    after = {
        uid: _after_state(memory.pods.get(uid, _NO_MEMORY), classified.state, classified.by_absence, now)
        for uid, classified in states.items()
    }
    pods = _with_some(memory.pods, after, gone)
    return memory if pods is memory.pods else replace(memory, pods=pods)


def _after_state(known: PodMemory, state: PodState, by_absence: bool, now: float) -> PodMemory:
    out = state is PodState.PULLED_OUT
    doubtful = state is PodState.DOUBTFUL
    served = known.served or state in _COUNTED
    after = (
        _earliest(known.out_since, now) if out else None,
        by_absence,
        _earliest(known.doubt_since, now) if doubtful else None,
        served and state not in _GONE,
    )
    if after == (known.out_since, known.by_absence, known.doubt_since, known.served):
        return known
    return pod_memory(known.seen, known.absent_since, known.absent_count, *after)


def after_samples(
    memory: Memory, census: Census, columns: Mapping[str, Columns], ahead: Mapping[str, AheadSample | None], now: float
) -> Steps[Memory]:
    """The memory with the newest samples that counted; a pod that no longer counts keeps its last ones.

    `columns` and `ahead` (of service totals) are by metric name.
    """
    samples = {}
    for name, read in columns.items():
        samples[name] = yield from _after_metric(memory.samples_of(name), census, read, now)
    return replace(
        memory, samples=samples, ahead={name: sample for name, sample in ahead.items() if sample is not None}
    )


def _after_metric(seen: SampleMemory, census: Census, columns: Columns, now: float) -> Steps[SampleMemory]:
    kept: Mapping[str, LastSample] = {}
    others = census.others if columns.measured else census.assessed
    if seen.last and others:
        last = yield from mapped(lambda one: (one.pod.uid, recent(seen.last.get(one.pod.uid), now)), others)
        kept = {uid: sample for uid, sample in last if sample is not None}
        yield
    return SampleMemory(last={**kept, **columns.newest}, ahead=columns.ahead, zeros=columns.zeros)


def after_delays(memory: Memory, beyond: Mapping[str, Beyond | None]) -> Memory:
    """The memory of since when the usage of each metric with a delay has been beyond a watermark."""
    kept = {name: one for name, one in beyond.items() if one is not None}
    return memory if kept == memory.beyond else replace(memory, beyond=kept)


def after_rollout(memory: Memory, target: Target | None, now: float) -> Memory:
    """The memory of when the current rollout was first observed."""
    if target is None or not target.progressing or target.progressing == _SETTLED:
        return memory if memory.rollout_since is None else replace(memory, rollout_since=None)
    if memory.rollout_since is not None:
        return memory
    # Without a memory only the condition itself knows when the rollout began.
    first = target.progressing_since if memory.last_replicas is None else None
    return replace(memory, rollout_since=now if first is None else first)


def rolling_out(memory: Memory, now: float) -> bool:
    """Whether a rollout is in progress, for at most ROLLOUT_SECONDS since it was first observed."""
    return memory.rollout_since is not None and now - memory.rollout_since <= ROLLOUT_SECONDS


def after_scale(memory: Memory, scale: Scale, now: float) -> Memory:
    """The memory of the watched count, and of its last observed change and rise."""
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
    """When the count last changed, as observed or from the HPA's status.

    A time in the future is of a wrong clock. The HPA keeps its own until it scales again, which a cooldown prevents: it
    counts as when this process began to observe, for later changes are observed; elsewhere as now.
    """
    by_hpa = bounds.last_scale
    if by_hpa is not None and by_hpa > now and memory.observing_since is not None:
        by_hpa = memory.observing_since
    times = (memory.last_scale, by_hpa)
    return max((min(at, now) for at in times if at is not None), default=None)


def after_replacing_step(memory: Memory, scale: Scale, *, is_away: bool) -> Memory:
    """The memory after a possible replacing step: the count rose above the noted one.

    Without any pulled-out or doubtful pod (`is_away`), the whole replacement is forgotten.
    """
    noted = memory.replacement
    if not is_away:
        return memory if noted == _NEVER_REPLACED else replace(memory, replacement=_NEVER_REPLACED)
    if noted.noted_current is None or scale.replicas <= noted.noted_current:
        return memory
    first = noted.first_step if noted.first_step is not None else noted.noted_at
    return replace(memory, replacement=Replacement(first_step=first))


def after_replacement_request(memory: Memory, current: int, replaced: int, desired: int | None, now: float) -> Memory:
    """The memory after asking for more than the current count to replace pods; the first request is noted."""
    noted = memory.replacement
    asks = replaced > 0 and desired is not None and desired > current
    if not asks:
        left = Replacement(first_step=noted.first_step)
        return memory if noted == left else replace(memory, replacement=left)
    if noted.noted_current == current:
        return memory
    return replace(memory, replacement=replace(noted, noted_at=now, noted_current=current))


def after_errors(memory: Memory, in_error: bool, now: float) -> Memory:
    """The memory of since when no metric has had an answer."""
    if in_error is (memory.error_since is not None):
        return memory
    return replace(memory, error_since=now if in_error else None)


def replacement_ineffective(memory: Memory, pods: Sequence[PodAssessment]) -> bool:
    """Whether at least two, and at least half, of the pods made since the first replacing step are out or doubtful."""
    if memory.replacement.first_step is None:
        return False
    created = [one for one in pods if since_first_step(memory, one.pod)]
    away = sum(1 for one in created if one.state in _AWAY)
    return away >= 2 and away * 2 >= len(created)


def since_first_step(memory: Memory, pod: Pod) -> bool:
    """Whether the pod was created since the first replacing step (the API counts creation in whole seconds)."""
    first = memory.replacement.first_step
    return first is not None and pod.created_at >= floor(first)
