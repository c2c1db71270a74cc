"""How fast the count may change: schedules first, then velocity, then cooldown."""

from typing import NamedTuple

from adapter.load.assessment import HeldBy
from adapter.load.schedule import ScheduleLimits
from adapter.load.spec import Policy


class Limited(NamedTuple):
    """A count, and the last stage that changed it."""

    desired: int
    held_by: HeldBy | None


def limit_rate(
    wanted: Limited, current: int, policy: Policy, limits: ScheduleLimits, last_scale: float | None, now: float
) -> Limited:
    """Limit the change from the current to the wanted count. `last_scale`: when the count last changed (seconds).

    A schedule's floor holds regardless of velocity and cooldown.
    """
    if limits.cap is not None and limits.cap < wanted.desired:
        wanted = Limited(limits.cap, HeldBy.SCHEDULE)
    wanted = raise_to_floor(wanted, limits.floor)
    percent = policy.velocity.up if wanted.desired > current else policy.velocity.down
    if percent is not None:
        step = max(1, current * percent // 100) if percent else 0
        nearest = max(current - step, min(current + step, wanted.desired))
        wanted = wanted if nearest == wanted.desired else Limited(nearest, HeldBy.VELOCITY)
    seconds = policy.cooldown.up if wanted.desired > current else policy.cooldown.down
    # A scaling in the future comes from a wrong clock and counts as of now.
    if last_scale is not None and wanted.desired != current and seconds and now - min(last_scale, now) < seconds:
        wanted = Limited(current, HeldBy.COOLDOWN)
    return raise_to_floor(wanted, limits.floor)


def raise_to_floor(limited: Limited, floor: int | None) -> Limited:
    """The count, or the floor where that is larger."""
    return Limited(floor, HeldBy.SCHEDULE) if floor is not None and floor > limited.desired else limited
