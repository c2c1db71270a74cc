"""The API server's time, by the Date headers of its answers."""

import email.utils
import functools
import time
from collections import deque
from collections.abc import Callable, Iterable
from datetime import UTC

_CLOCK_SAMPLES = 15
_SECOND = 1.0
"""A Date header is cut to whole seconds."""
_YEARS = range(1970, 9999)
"""Times in these years, and those that soon follow, can be written as Kubernetes writes them."""
_DRIFT = 1e-3
"""Seconds by which the two clocks may part in each second: NTP slews one by half of that."""


class ServerClock:
    """The API server's time in epoch seconds: the monotonic clock plus an offset.

    A header says that the offset lies within one second; the headers together narrow that down to about the pause
    between answers (K. Marzullo, S. Owicki: Maintaining the time in a distributed system, 1983). One that contradicts
    the others does not count, until all of the last ones do: a server whose clock was set is followed, and two servers
    behind one address whose clocks differ do not make it swing. Before the first header it is this machine's time.
    """

    def __init__(self, monotonic: Callable[[], float] = time.monotonic, wall: Callable[[], float] = time.time) -> None:
        self.monotonic = monotonic
        self._wall = wall
        self._least: deque[float] = deque(maxlen=_CLOCK_SAMPLES)
        """The smallest offsets that the last headers allow."""
        self._low = self._high = wall() - monotonic()
        self._observed_at = 0.0

    def observe(self, date: str) -> None:
        """Records a `Date` header that has just arrived; an unreadable one is ignored."""
        server_time = _epoch(date)
        if server_time is None:
            return
        now = self.monotonic()
        least = server_time - now
        self._least.append(least)
        if len(self._least) == 1:
            self._low, self._high = least, least + _SECOND
        else:
            drift = _DRIFT * (now - self._observed_at)
            self._low, self._high = self._low - drift, self._high + drift
            if self._agrees(least):
                self._low, self._high = max(self._low, least), min(self._high, least + _SECOND)
            elif not any(map(self._agrees, self._least)):
                self._low, self._high = _most_agreed(self._least)
        self._observed_at = now

    def _agrees(self, least: float) -> bool:
        return least <= self._high and self._low <= least + _SECOND

    @property
    def _offset(self) -> float:
        return (self._low + self._high) / 2

    def now(self) -> float:
        """Epoch seconds."""
        return self.monotonic() + self._offset

    @property
    def skew(self) -> float:
        """Seconds by which this machine's clock is ahead of the API server's; 0 until that is known."""
        return self._wall() - self.now() if self._least else 0.0


def _most_agreed(least: Iterable[float]) -> tuple[float, float]:
    """What most of the intervals of a second that begin here have in common, the latest of them in doubt."""
    begins = list(least)
    groups = ([other for other in begins if begin <= other <= begin + _SECOND] for begin in reversed(begins))
    best = max(groups, key=len)
    return max(best), min(best) + _SECOND


@functools.lru_cache(8)
def _epoch(date: str) -> float | None:
    """Epoch seconds of a Date header, None for an unreadable one. Many answers have the same one.

    One without a zone is in UTC, as HTTP wants all of them to be.
    """
    try:
        moment = email.utils.parsedate_to_datetime(date)
    except (ValueError, OverflowError):
        return None
    return moment.replace(tzinfo=moment.tzinfo or UTC).timestamp() if moment.year in _YEARS else None
