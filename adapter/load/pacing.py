"""How fast a count may move: schedules first, then velocity, then cooldown."""

from typing import NamedTuple

from adapter.load.assessment import Assessment, HeldBy
from adapter.load.schedule import ScheduleLimits
from adapter.load.spec import Bounds, Policy


class Paced(NamedTuple):
    """A count, and the last stage that changed it."""

    desired: int
    held_by: HeldBy | None


def pace(
    wanted: Paced, current: int, policy: Policy, limits: ScheduleLimits, last_scale: float | None, now: float
) -> Paced:
    """The count that may be asked for now, of the one that is wanted. `last_scale`: when the count last changed.

    A schedule's floor waits for nothing.
    """
    paced = _cooled(_limited(_scheduled(wanted, limits), current, policy), current, policy, last_scale, now)
    return raise_to_floor(paced, limits.floor)


def raise_to_floor(paced: Paced, floor: int | None) -> Paced:
    """The count, or the floor where that is more."""
    return Paced(floor, HeldBy.SCHEDULE) if floor is not None and floor > paced.desired else paced


def _scheduled(wanted: Paced, limits: ScheduleLimits) -> Paced:
    capped = Paced(limits.cap, HeldBy.SCHEDULE) if limits.cap is not None and limits.cap < wanted.desired else wanted
    return raise_to_floor(capped, limits.floor)


def _limited(wanted: Paced, current: int, policy: Policy) -> Paced:
    up, down = policy.velocity.up, policy.velocity.down
    if wanted.desired > current and up is not None:
        furthest = current + _step(current, up)
        return Paced(furthest, HeldBy.VELOCITY) if furthest < wanted.desired else wanted
    if wanted.desired < current and down is not None:
        furthest = current - _step(current, down)
        return Paced(furthest, HeldBy.VELOCITY) if furthest > wanted.desired else wanted
    return wanted


def _step(current: int, percent: int) -> int:
    """So many percent of the count, but a pod at least; no percent is no step."""
    return max(1, current * percent // 100) if percent else 0


def _cooled(wanted: Paced, current: int, policy: Policy, last_scale: float | None, now: float) -> Paced:
    if last_scale is None or wanted.desired == current:
        return wanted
    seconds = policy.cooldown.up if wanted.desired > current else policy.cooldown.down
    # A scaling in the future is a clock's fault: it counts as made just now.
    return Paced(current, HeldBy.COOLDOWN) if seconds and now - min(last_scale, now) < seconds else wanted


HPA_SYNC_SECONDS = 20.0
"""So long after a change that was not its own an HPA has synced, which it usually does every 15 s.

What it was never asked for at a sync, its stabilization does not keep.
"""
CLOCK_SKEW_SECONDS = 5.0
"""By so much the HPA's time of a scaling may be before the moment in which it was seen."""


def held_by_fast_scale_up(assessment: Assessment, current: int, bounds: Bounds) -> bool:
    """Whether the count rose after the samples were taken, where somebody may have known newer ones.

    A fast scale-up follows the companion's samples; this process may not have them yet, and its pods may not exist yet.
    And what it raised stays until the HPA was asked for it once, so that a spike between two syncs is stabilized like
    any other. A fall needs no such rule: the load of the pods that left counts (`departures`).
    """
    memory, sampled_at = assessment.memory, assessment.sampled_at
    if not assessment.policy.fast_scale_up:
        return False
    if memory.last_replicas is not None and memory.last_replicas < current:
        return True
    if memory.last_rise is None or sampled_at is None:
        return False
    by_hpa = bounds.last_scale is not None and bounds.last_scale >= memory.last_rise - CLOCK_SKEW_SECONDS
    return sampled_at < memory.last_rise + (0.0 if by_hpa else HPA_SYNC_SECONDS)
