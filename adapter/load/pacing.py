"""How fast the count may change: schedules first, then velocity, then cooldown; and what fast scale-up holds."""

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
    """Limit the change from the current to the wanted count. `last_scale`: when the count last changed (seconds).

    A schedule's floor holds regardless of velocity and cooldown.
    """
    if limits.cap is not None and limits.cap < wanted.desired:
        wanted = Paced(limits.cap, HeldBy.SCHEDULE)
    wanted = raise_to_floor(wanted, limits.floor)
    percent = policy.velocity.up if wanted.desired > current else policy.velocity.down
    if percent is not None:
        step = max(1, current * percent // 100) if percent else 0
        nearest = max(current - step, min(current + step, wanted.desired))
        wanted = wanted if nearest == wanted.desired else Paced(nearest, HeldBy.VELOCITY)
    seconds = policy.cooldown.up if wanted.desired > current else policy.cooldown.down
    # A scaling in the future comes from a wrong clock and counts as of now.
    if last_scale is not None and wanted.desired != current and seconds and now - min(last_scale, now) < seconds:
        wanted = Paced(current, HeldBy.COOLDOWN)
    return raise_to_floor(wanted, limits.floor)


def raise_to_floor(paced: Paced, floor: int | None) -> Paced:
    """The count, or the floor where that is larger."""
    return Paced(floor, HeldBy.SCHEDULE) if floor is not None and floor > paced.desired else paced


HPA_SYNC_SECONDS = 20.0
"""After this long an HPA has synced, which it usually does every 15 s.

Its stabilization window only knows the values of its own syncs.
"""
CLOCK_SKEW_SECONDS = 5.0
"""The HPA may date a scaling this long before this process observes it."""


def held_by_fast_scale_up(assessment: Assessment, current: int, bounds: Bounds) -> bool:
    """Whether fast scale-up forbids a smaller count: the count rose after the samples were taken.

    A fast scale-up follows the companion's samples; this process may not have them yet, and the new pods may not exist
    yet. The raised count also holds until the HPA has synced, so that its stabilization window covers a spike between
    two syncs. A fall needs no such rule: the load of departed pods counts (`remembering.departed_load`).
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
