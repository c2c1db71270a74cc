"""The API server's time, by the Date headers of its answers."""

import email.utils
import functools
import statistics
import time
from collections import deque
from collections.abc import Callable

_CLOCK_SAMPLES = 15
_HALF_SECOND = 0.5
"""A Date header is cut to whole seconds: on average half of one is missing."""


class ServerClock:
    """The API server's time in epoch seconds: the monotonic clock plus the median of its last offsets.

    Before the first `Date` header it is this machine's time. The median may move it by a fraction of a second.
    """

    def __init__(self, monotonic: Callable[[], float] = time.monotonic, wall: Callable[[], float] = time.time) -> None:
        self.monotonic = monotonic
        self._wall = wall
        self._offsets: deque[float] = deque(maxlen=_CLOCK_SAMPLES)
        self._offset = wall() - monotonic()

    def observe(self, date: str) -> None:
        """Records a `Date` header that has just arrived; an unreadable one is ignored."""
        server_time = _epoch(date)
        if server_time is None:
            return
        self._offsets.append(server_time + _HALF_SECOND - self.monotonic())
        self._offset = statistics.median(self._offsets)

    def now(self) -> float:
        """Epoch seconds."""
        return self.monotonic() + self._offset

    @property
    def skew(self) -> float:
        """Seconds by which this machine's clock is ahead of the API server's; 0 until that is known."""
        return self._wall() - self.now() if self._offsets else 0.0


@functools.lru_cache(8)
def _epoch(date: str) -> float | None:
    """Epoch seconds of a Date header, None for an unreadable one. Many answers have the same one."""
    try:
        return email.utils.parsedate_to_datetime(date).timestamp()
    except (ValueError, OverflowError):
        return None
