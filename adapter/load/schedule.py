"""Times of day at which a service is kept at least, or at most, so large."""

from collections.abc import Iterable
from datetime import datetime, timedelta
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


class Limits(NamedTuple):
    """The largest floor and the smallest cap of the windows that are open, with the schedules that set them."""

    floor: int | None = None
    cap: int | None = None
    floor_of: str = ""
    cap_of: str = ""


def windows(schedules: Iterable[Schedule], now: float) -> tuple[Window, ...]:
    """Of each schedule the window that opened last and the one that opens next, as far as they are not over.

    Where the clocks are put forward over a start, it is the first moment after the gap; where they are put back, the
    first of the two.
    """
    found = []
    for schedule in schedules:
        # Cron counts in whole seconds, and the moment of the start itself is in the window.
        moment = datetime.fromtimestamp(int(now), schedule.zone) + timedelta(seconds=1)
        last = next(CronSim(schedule.cron, moment, reverse=True), None)
        following = next(CronSim(schedule.cron, moment - timedelta(seconds=1)), None)
        found += [_window(schedule, start.timestamp()) for start in (last, following) if start is not None]
    return tuple(window for window in found if window.end > now)


def _window(schedule: Schedule, start: float) -> Window:
    return Window(schedule.name, start, start + schedule.duration, schedule.minimum, schedule.maximum)


def limits(among: Iterable[Window], now: float) -> Limits:
    """What the open windows demand."""
    is_open = [window for window in among if window.start <= now < window.end]
    floor, floor_of = max(((w.minimum, w.name) for w in is_open if w.minimum is not None), default=(None, ""))
    cap, cap_of = min(((w.maximum, w.name) for w in is_open if w.maximum is not None), default=(None, ""))
    return Limits(floor, cap, floor_of, cap_of)
