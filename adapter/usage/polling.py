"""What the pollers of metrics.k8s.io and Prometheus share: pauses, the sentence of a failure, dates that are ahead."""

import random
from collections.abc import Hashable, Iterator

from adapter.load.samples import time_text
from adapter.runtime.backoff import LONGEST_SECONDS, exponential

JITTER = 0.1
MIN_RETRY_SECONDS = 1.0


def interval_shares() -> Iterator[float]:
    """Pauses between polls as shares of the interval: first a random part, which spreads the polls, then about 1."""
    yield random.random()  # noqa: S311  spreads load, guards nothing
    while True:
        yield random.uniform(1 - JITTER, 1 + JITTER)  # noqa: S311  as above


def retry_delay(interval: float, elapsed: float, failures: int) -> float:
    """Seconds to wait after a failed poll that took `elapsed`.

    Polls start one interval apart after the first of `failures` in a row, then twice as far each, up to 30 s.
    """
    apart = exponential(failures - 1, interval, max(interval, LONGEST_SECONDS))
    return max(apart - elapsed, min(interval, MIN_RETRY_SECONDS))


def with_last_answer(cause: str, fetched_at: float | None) -> str:
    """The cause of a failure, and the time of the last result (epoch seconds; None: there is none)."""
    last = "no answer so far" if fetched_at is None else f"last answer at {time_text(fetched_at)}"
    return f"{cause} ({last})"


class AheadDates:
    """Dates samples that are ahead of the answer that brought them, as of a source whose clock is ahead of ours.

    Such a sample gets the date of its answer, and the same sample keeps that when it is read again. By its own date one
    of a frozen source would stay fresh for as long as the source's clock is ahead.
    """

    def __init__(self) -> None:
        self._seen: dict[Hashable, tuple[float, float]] = {}
        """By sample: the date that it came with, and the one that it was given."""
        self._next: dict[Hashable, tuple[float, float]] = {}
        self._answered = 0.0
        self.seconds = 0.0
        """How far a date of the last answer was ahead of it, at most."""

    def begin(self, answered: float) -> None:
        """Begin with an answer of this time (epoch seconds)."""
        self._seen, self._next, self._answered, self.seconds = self._next, {}, answered, 0.0

    def clamped(self, key: Hashable, at: float) -> float:
        """The date of the answer's sample of this key that is dated `at`."""
        if at <= self._answered:
            return at
        self.seconds = max(self.seconds, at - self._answered)
        before = self._seen.get(key)
        self._next[key] = given = before if before is not None and before[0] == at else (at, self._answered)
        return given[1]
