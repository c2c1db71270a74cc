"""How fast a count may move: schedules first, then velocity, then cooldown."""

from typing import NamedTuple

from adapter.load.assessment import HeldBy
from adapter.load.schedule import ScheduleLimits
from adapter.load.spec import Policy


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
