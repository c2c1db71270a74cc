"""The next memory: after a roster, the pods' states, departures, samples, a rollout, the watched scale, a decision.

Departed pods: they left or were pulled out, and their load went to others whose samples do not show it yet.

Without this, the same samples shrink a service again at every assessment: 20 pods at 300m under a low watermark of 400m
need 15; once five have left, the same samples say 15 pods at 300m, which need 11.
"""

import math
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import accumulate, chain
from typing import Any, TypeGuard

from adapter.load.assessment import AssessmentInputs, MetricAssessment, PodAssessment
from adapter.load.matching import Registrations, registrations
from adapter.load.memory import Departed, Listed, Memory, PodMemory, Replacement, SampleMemory, recent
from adapter.load.pod_samples import NO_READINGS
from adapter.load.pods import AWAY, GONE, Pod, PodState
from adapter.load.roster import Roster
from adapter.load.samples import Samples
from adapter.load.spec import Bounds, Policy, Scale, Target
from adapter.load.states import out_reason_of, service_registry

RECOVERY_SECONDS = 90.0
COLLAPSE_PERCENT = 30
COLLAPSE_MORE_THAN = 2
"""So many instances may leave at once whatever the total: one of three is a deregistration."""
ROLLOUT_SECONDS = 600.0
_SETTLED = "NewReplicaSetAvailable"
_TIMES = "last_scale", "last_rise", "rollout_since", "error_since", "zero_since", "observing_since"
_OF_REGISTRY = (
    "ever_in_roster", "roster_at", "last_valid", "rosters", "rosters_since", "empty_since", "roster_total",
    "roster_unfollowed", "reconnected_at", "hold_until",
)  # fmt: skip
_NOTHING = Memory()
_COUNTED = {PodState.SERVING, PodState.DOUBTFUL}
_LEFT = GONE | {PodState.PULLED_OUT}


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
    remembered, at, hold_until = memory.pods, roster.at, _hold_until(memory, pods, roster, listed, now)
    before = memory.roster_at if memory.ever_in_roster else None
    recovering = hold_until is not None and (at < hold_until or hold_until != memory.hold_until)

    def listing(uid: str) -> Listed:
        if uid not in listed:
            return Listed.ABSENT
        return Listed.OUT if out_reason_of(listed[uid], registry, protected=roster.protected) else Listed.IN

    return replace(
        memory,
        pods={
            pod.uid: _after_listing(remembered.get(pod.uid), pod, at, listing(pod.uid), recovering, before)
            for pod in pods
        },
        ever_in_roster=memory.ever_in_roster or bool(listed),
        roster_at=roster.at,
        last_valid=roster,
        rosters=memory.rosters + 1,
        rosters_since=lasting(memory.rosters_since, holds=True, at=roster.at),
        empty_since=lasting(memory.empty_since, not roster.instances, roster.at),
        roster_total=roster.registry_total if roster.registry_total is not None else memory.roster_total,
        roster_unfollowed=memory.roster_unfollowed if roster.registry_total is None else roster.registry_unfollowed,
        reconnected_at=roster.reconnected_at if roster.reconnected_at is not None else memory.reconnected_at,
        hold_until=hold_until,
    )


def without_registry(memory: Memory) -> Memory:
    """The memory without all that came from the registry, for a policy that names another service now."""
    forgotten: dict[str, Any] = {name: getattr(_NOTHING, name) for name in _OF_REGISTRY}
    pods = {
        uid: PodMemory(
            out_since=remembered.out_since,
            back_since=remembered.back_since,
            doubt_since=remembered.doubt_since,
            served=remembered.served,
        )
        for uid, remembered in memory.pods.items()
    }
    return replace(memory, pods=pods, **forgotten)


def _after_listing(
    remembered: PodMemory | None, pod: Pod, at: float, listing: Listed, recovering: bool, before: float | None
) -> PodMemory:
    """The memory of a pod after a roster of time `at`. `recovering`: what it lacks, the registry may have lost.

    `before`: the time of the roster before, if the registry had listed pods of this target by then. A pod that was
    Ready then and is registered only now comes into service now.
    """
    pod_memory, is_listed = remembered or PodMemory(), listing is not Listed.ABSENT
    absent_since, absent_count, lost = None, 0, pod_memory.registration_lost and not is_listed
    if not is_listed and pod_memory.seen is not None:
        lost = lost or recovering
        if pod.is_ready and pod.ready_since <= at:
            is_first = pod_memory.absent_since is None or pod_memory.absent_since < pod.ready_since
            absent_since = at if is_first else lasting(pod_memory.absent_since, holds=True, at=at)
            absent_count = 1 if is_first else pod_memory.absent_count + 1
    seen, back_since = pod_memory.seen, pod_memory.back_since
    if seen is None and is_listed:
        seen = at
        if remembered is not None and before is not None and pod.is_ready and pod.ready_since <= before:
            back_since = at
    return replace(
        pod_memory,
        seen=seen,
        absent_since=absent_since,
        absent_count=absent_count,
        listing=None if seen is None else listing,
        registration_lost=lost,
        back_since=back_since,
    )


def without_future_times(memory: Memory, now: float) -> Memory:
    """The memory with times in the future, which a wrong clock left, set to now."""
    latest = dict.fromkeys(_TIMES, now) | {"hold_until": now + RECOVERY_SECONDS}
    ahead: dict[str, Any] = {name: at for name, at in latest.items() if (getattr(memory, name) or 0.0) > at}
    beyond = {
        name: spell._replace(since=min(spell.since, now), until=min(spell.until, now))
        for name, spell in memory.beyond.items()
    }
    return replace(memory, beyond=beyond, **ahead) if ahead or beyond else memory


def _hold_until(memory: Memory, pods: Sequence[Pod], roster: Roster, listed: Registrations, now: float) -> float | None:
    """Until when the registry recovers: RECOVERY_SECONDS after a reconnect, or a collapse of its total.

    Either may be a loss of data. What was registered before it is no evidence after it, and what was restored with it
    (a ZooKeeper session, a cache) may vanish a while later.
    """
    holds = [memory.hold_until] if memory.hold_until is not None else []
    if roster.reconnected_at is not None and roster.reconnected_at != memory.reconnected_at:
        holds.append(min(roster.reconnected_at, now) + RECOVERY_SECONDS)
    if memory.roster_total is not None and roster.registry_total is not None:
        unfollowed = max(0, roster.registry_unfollowed - memory.roster_unfollowed)
        if _is_collapse(memory.roster_total - unfollowed, roster.registry_total):
            holds.append(now + RECOVERY_SECONDS)
    if memory.roster_total is None and roster.registry_total is not None:
        # The first answer of a process, which cannot know the total before it: the target's own pods stand in for it.
        at = -math.inf if memory.roster_at is None else memory.roster_at
        ready = [pod.uid for pod in pods if pod.is_ready and not pod.deleting and pod.ready_since <= at]
        listed_before = [
            uid for uid in ready if memory.pod(uid).seen is not None and memory.pod(uid).absent_since is None
        ]
        if _is_collapse(len(listed_before), sum(uid in listed for uid in listed_before)):
            holds.append(now + RECOVERY_SECONDS)
    return max(holds, default=None)


def _is_collapse(before: int, after: int) -> bool:
    """Whether so many instances less in one answer may be a loss of data."""
    lost = before - after
    return lost > COLLAPSE_MORE_THAN and lost * 100 > before * COLLAPSE_PERCENT


def after_states(
    memory: Memory, states: Mapping[str, PodAssessment], now: float, back_until: float = math.inf
) -> Memory:
    """The memory after classifying the pods; pods that no longer exist are forgotten.

    For `back_until` seconds it matters that a pod came back.
    """
    pods = {}
    for uid, assessed in states.items():
        remembered, state = memory.pod(uid), assessed.state
        # It was out before and is not any more; while it is doubtful after that, it may still be out.
        is_back = state is not PodState.PULLED_OUT
        if remembered.out_since is None:
            in_doubt_since_out = remembered.doubt_since is not None and remembered.back_since == remembered.doubt_since
            is_back = in_doubt_since_out and state not in AWAY
        back_since = now if is_back else remembered.back_since
        after: dict[str, Any] = {
            "out_since": lasting(remembered.out_since, state is PodState.PULLED_OUT, now),
            "by_absence": assessed.by_absence,
            "back_since": None if back_since is not None and now - back_since > back_until else back_since,
            "doubt_since": lasting(remembered.doubt_since, state is PodState.DOUBTFUL, now),
            "served": (remembered.served or state in _COUNTED) and state not in GONE,
        }
        was = remembered
        before = (was.out_since, was.by_absence, was.back_since, was.doubt_since, was.served)
        pods[uid] = remembered if before == (*after.values(),) else replace(remembered, **after)
    return replace(memory, pods=pods)


def after_samples(inputs: AssessmentInputs, metrics: Sequence[MetricAssessment]) -> Memory:
    """The memory with the newest samples that counted; a pod that no longer counts keeps its last ones."""
    memory, now, uids = inputs.memory, inputs.now, [pod.uid for pod in inputs.pods]
    doubts_zero = any(metric.scenarios and metric.scenarios[-1].is_doubted_zero for metric in metrics)
    departed = {uid: departure._replace(at=min(departure.at, now)) for uid, departure in memory.departed.items()}
    remembered, samples = remembered_seconds(inputs.samples), {}
    for metric in metrics:
        seen, readings = memory.samples_of(metric.name), metric.readings or NO_READINGS
        newest = {sample.pod.uid: sample.newest for sample in chain(readings.serving, readings.doubtful)}
        kept = ((uid, recent(seen.last.get(uid), now)) for uid in uids if uid not in newest) if seen.last else ()
        samples[metric.name] = SampleMemory(
            last={uid: last for uid, last in chain(kept, newest.items()) if last is not None},
            ahead={sample.pod.uid: sample.ahead for sample in readings.all if sample.ahead is not None},
            lacking=frozenset([sample.pod.uid for sample in readings.all if sample.usage is None]),
            read=metric.read,
        )
    return replace(
        memory,
        samples=samples,
        ahead={metric.name: metric.ahead for metric in metrics if metric.ahead is not None},
        beyond={metric.name: metric.beyond for metric in metrics if metric.beyond is not None},
        departed={uid: departure for uid, departure in departed.items() if now - departure.at <= remembered},
        zero_since=lasting(memory.zero_since, doubts_zero, now),
    )


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
    return replace(
        memory,
        last_replicas=scale.replicas,
        last_scale=memory.last_scale if before is None else now,
        last_rise=memory.last_rise if before is None or scale.replicas < before else now,
    )


def last_scaled(memory: Memory, bounds: Bounds, now: float, *, earliest: bool = False) -> float | None:
    """When the count last changed, as observed or from the HPA's status.

    A change that a process finds as it takes over may be as old as the HPA's last; `earliest`: it counts as that old.
    A time in the future is of a wrong clock. The HPA keeps its own until it scales again, which a cooldown prevents: it
    counts as when this process began to observe, for later changes are observed; elsewhere as now.
    """
    by_hpa = bounds.last_scale
    if by_hpa is not None and by_hpa > now and memory.observing_since is not None:
        by_hpa = memory.observing_since
    is_found = memory.last_scale is not None and memory.last_scale == memory.observing_since
    times = (by_hpa if earliest and is_found and by_hpa is not None else memory.last_scale, by_hpa)
    return max((min(at, now) for at in times if at is not None), default=None)


def after_replacing_step(memory: Memory, scale: Scale, *, is_away: bool) -> Memory:
    """The memory after a possible replacing step: the count rose above the noted one.

    Without any pulled-out or doubtful pod (`is_away`), the whole replacement is forgotten.
    """
    noted = memory.replacement
    if not is_away:
        noted = Replacement()
    elif noted.noted_current is not None and scale.replicas > noted.noted_current:
        noted = Replacement(first_step=noted.first_step if noted.first_step is not None else noted.noted_at)
    return memory if noted == memory.replacement else replace(memory, replacement=noted)


def after_replacement_request(memory: Memory, current: int, replaced: int, desired: int | None, now: float) -> Memory:
    """The memory after asking for more than the current count to replace pods; the first request is noted."""
    noted = memory.replacement
    if replaced == 0 or desired is None or desired <= current:
        noted = Replacement(first_step=noted.first_step)
    elif noted.noted_current != current:
        noted = replace(noted, noted_at=now, noted_current=current)
    return memory if noted == memory.replacement else replace(memory, replacement=noted)


def lasting(since: float | None, holds: bool, at: float) -> float | None:
    """Since when something holds without a break, which it does at `at` or not (seconds); None where it does not.

    A beginning in the future (the clock was put back) is now instead.
    """
    return None if not holds else at if since is None else min(since, at)


def replacement_ineffective(memory: Memory, pods: Sequence[PodAssessment]) -> bool:
    """Whether at least two, and at least half, of the pods made since the first replacing step are out or doubtful."""
    if memory.replacement.first_step is None:
        return False
    created = [assessed for assessed in pods if assessed.state not in GONE and since_first_step(memory, assessed.pod)]
    away = sum(1 for assessed in created if assessed.state in AWAY)
    return away >= 2 and away * 2 >= len(created)


def since_first_step(memory: Memory, pod: Pod) -> bool:
    """Whether the pod was created since the first replacing step (the API counts creation in whole seconds)."""
    first = memory.replacement.first_step
    return first is not None and pod.created_at >= math.floor(first)


# --- departed pods ---

DEPARTED_SECONDS = 900.0
"""Departed pods are remembered for this long at least, whatever the windows of the samples."""
BEYOND_WINDOW_SECONDS = 300.0
"""And for this, or the age that samples may have, longer than the longest window: one server of a source may answer
older samples than another."""
MARGIN_SECONDS = 5.0
"""The clocks that date samples and departures may differ by this much: the load of a pod that left so short a time
before a sample began may not be in that sample yet."""


class DepartedLoad:
    """The load of departed pods in one metric. `lasts` are their last samples (nano-units; 0 for one without)."""

    def __init__(self, lasts: Iterable[int] = (), *, is_unknown: bool = False) -> None:
        self.is_unknown = is_unknown
        """Whether the samples began before this process observed the pods: nobody knows which have left since."""
        self._lasts = sorted(lasts)
        self._sums = [0, *accumulate(self._lasts)]

    def __len__(self) -> int:
        return len(self._lasts)

    def over(self, average: Fraction) -> Fraction:
        """The sum over the pods of the larger of their last sample and this average (nano-units)."""
        if not self._lasts:
            return Fraction(0)
        smaller = bisect_right(self._lasts, average)
        return smaller * average + self._sums[-1] - self._sums[smaller]


NO_DEPARTURES = DepartedLoad()
UNKNOWN_DEPARTURES = DepartedLoad(is_unknown=True)


def departed_load(memory: Memory, metric: str, began_at: float | None) -> DepartedLoad:
    """The load of the pods that left from MARGIN_SECONDS before `began_at` on: when the oldest sample began.

    None: no sample counts.
    """
    if began_at is None:
        return NO_DEPARTURES
    since = began_at - MARGIN_SECONDS
    if memory.observing_since is not None and memory.observing_since >= since:
        return UNKNOWN_DEPARTURES
    left = [pod.last_sample.get(metric) for pod in memory.departed.values() if pod.at >= since]
    return DepartedLoad(sample.value if sample is not None else 0 for sample in left) if left else NO_DEPARTURES


def after_departures(
    memory: Memory, before: Mapping[str, PodMemory], states: Mapping[str, PodAssessment], now: float
) -> Memory:
    """The memory after classifying the pods: those that served and are gone, or pulled out now, have departed.

    A pod that was out when it left carried no load any more. One that came back is no longer departed: it carries load
    itself, or its gap is filled. `before`: the pods that were remembered, by UID.
    """

    def is_here(uid: str) -> bool:
        return uid in states and states[uid].state not in _LEFT

    left = {
        uid: Departed(now, {name: last for name, last in memory.last_samples(uid).items() if recent(last, now)})
        for uid, remembered in before.items()
        if remembered.served and remembered.out_since is None and not is_here(uid)
    }
    departed = {uid: pod for uid, pod in memory.departed.items() if not is_here(uid)} | left
    return memory if departed == memory.departed else replace(memory, departed=departed)


def remembered_seconds(samples: Samples) -> float:
    """For how long departed pods, and those that came back, matter to these samples."""
    queries = samples.queries.values()
    return max([DEPARTED_SECONDS, *(query.window + max(BEYOND_WINDOW_SECONDS, query.max_age) for query in queries)])
