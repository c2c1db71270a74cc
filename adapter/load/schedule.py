"""Times of day at which a service is kept at least, or at most, so large."""

import functools
from collections.abc import Iterable
from datetime import datetime, tzinfo
from typing import NamedTuple

from cronsim import CronSim

from adapter.load.spec import Schedule


class Window(NamedTuple):
    """A schedule's time, from `start` up to `end` (seconds since the epoch), and the counts that hold in it."""

    name: str
    start: float
    end: float
    minimum: int | None
    maximum: int | None


class ScheduleLimits(NamedTuple):
    """The largest floor and the smallest cap of the windows that are open, with the schedules that set them."""

    floor: int | None = None
    cap: int | None = None
    floor_of: str = ""
    cap_of: str = ""


def schedule_windows(schedules: Iterable[Schedule], now: float) -> tuple[Window, ...]:
    """Of each schedule the window that opened last and the one that opens next, as far as they are not over.

    A time of day that the clocks are put forward over is the first moment after the gap; where they are put back, it is
    the first of the two. What comes with every minute or hour (a `*` there) goes by the time that passes.
    """
    minute = int(now) // 60
    found = (_window(one, start) for one in schedules for start in _starts(one.cron, one.zone, minute))
    return tuple(window for window in found if window.end > now)


@functools.lru_cache(16_384)  # a policy is assessed many times a minute, and many have schedules of the same time
def _starts(cron: str, zone: tzinfo, minute: int) -> tuple[float, ...]:
    """The last start up to a minute (since the epoch), and those that follow up to the first after it.

    Nothing begins within a minute. Where the clocks have just been put back, starts that follow by the wall clock are
    over: hence all up to the first that is not.
    """
    moment = datetime.fromtimestamp(60 * minute + 59, zone)
    last = next(CronSim(cron, moment, reverse=True), None)
    starts = [] if last is None else [last.timestamp()]
    for start in CronSim(cron, moment):
        starts.append(start.timestamp())
        if starts[-1] > moment.timestamp():
            break
    return tuple(starts)


def _window(schedule: Schedule, start: float) -> Window:
    return Window(schedule.name, start, start + schedule.duration, schedule.minimum, schedule.maximum)


def limits_at(among: Iterable[Window], now: float) -> ScheduleLimits:
    """What the open windows demand."""
    is_open = [window for window in among if window.start <= now < window.end]
    floor, floor_of = max(((w.minimum, w.name) for w in is_open if w.minimum is not None), default=(None, ""))
    cap, cap_of = min(((w.maximum, w.name) for w in is_open if w.maximum is not None), default=(None, ""))
    return ScheduleLimits(floor, cap, floor_of, cap_of)
