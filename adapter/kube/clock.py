"""The API server's clock, read off its `Date` headers."""

import email.utils
import statistics
import time
from collections import deque
from collections.abc import Callable

_SAMPLES = 15
_HALF_SECOND = 0.5  # a Date header is cut to whole seconds: on average half of one is missing


class ServerClock:
    """Epoch seconds as the API server counts them: a monotonic clock plus the median of the last offsets seen.

    Until a header was seen it is this machine's clock. The median may move it by fractions of a second either way.
    """

    def __init__(self, monotonic: Callable[[], float] = time.monotonic, wall: Callable[[], float] = time.time) -> None:
        self.monotonic = monotonic
        self._wall = wall
        self._offsets: deque[float] = deque(maxlen=_SAMPLES)
        self._offset = wall() - monotonic()

    def observe(self, date: str) -> None:
        """Take in a `Date` header that arrived just now; one that cannot be read is passed over."""
        try:
            told = email.utils.parsedate_to_datetime(date).timestamp()
        except (ValueError, OverflowError):
            return
        self._offsets.append(told + _HALF_SECOND - self.monotonic())
        self._offset = statistics.median(self._offsets)

    def now(self) -> float:
        """Epoch seconds."""
        return self.monotonic() + self._offset

    @property
    def skew(self) -> float:
        """Seconds by which this machine's clock is ahead of the API server's; 0 until the latter is known."""
        return self._wall() - self.now() if self._offsets else 0.0
