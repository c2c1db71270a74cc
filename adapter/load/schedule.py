"""Schedules: times at which a minimum or maximum count holds."""

import functools
from collections.abc import Iterable
from datetime import datetime, tzinfo
from typing import NamedTuple

from cronsim import CronSim

from adapter.load.spec import Schedule


class Window(NamedTuple):
    """A window of a schedule, from `start` until `end` (seconds since the epoch)."""

    schedule: Schedule
    start: float
    end: float


class ScheduleLimits(NamedTuple):
    """The largest floor and the smallest cap of the open windows, with the schedules that set them."""

    floor: int | None = None
    cap: int | None = None
    floor_of: str = ""
    cap_of: str = ""


def schedule_windows(schedules: Iterable[Schedule], now: float) -> tuple[Window, ...]:
    """The last opened and the next window of each schedule, unless they are over.

    Where clocks are put forward, a skipped time is the first time after the gap; where they are put back, a repeated
    time is its first occurrence. A `*` for minutes or hours follows elapsed time.
    """
    windows = (
        Window(schedule, start, start + schedule.duration)
        for schedule in schedules
        for start in starts(schedule.cron, schedule.zone, int(now) // 60)
    )
    return tuple(window for window in windows if window.end > now)


@functools.lru_cache(16_384)  # policies are assessed many times a minute, and share times
def starts(cron: str, zone: tzinfo, minute: int) -> tuple[float, ...]:
    """The last start until this minute (since the epoch), and the following ones up to the first in the future.

    Windows start on whole minutes. Right after clocks were put back, the following starts by the wall clock may be over
    already, hence all of them.
    """
    moment = datetime.fromtimestamp(60 * minute + 59, zone)
    last = next(CronSim(cron, moment, reverse=True), None)
    starts = [] if last is None else [last.timestamp()]
    for start in CronSim(cron, moment):
        starts.append(start.timestamp())
        if starts[-1] > moment.timestamp():
            break
    return tuple(starts)


def limits_at(among: Iterable[Window], now: float) -> ScheduleLimits:
    """The limits of the windows that are open at `now`."""
    active = [window.schedule for window in among if window.start <= now < window.end]
    floor, floor_of = max(((s.minimum, s.name) for s in active if s.minimum is not None), default=(None, ""))
    cap, cap_of = min(((s.maximum, s.name) for s in active if s.maximum is not None), default=(None, ""))
    return ScheduleLimits(floor, cap, floor_of, cap_of)
