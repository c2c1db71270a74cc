"""What the pollers of metrics.k8s.io and Prometheus share: intervals with jitter, retries, and reports together."""

import asyncio
import contextlib
import random
from collections.abc import Callable, Iterable, Iterator
from typing import Generic, TypeVar

from adapter.load.samples import time_text

T = TypeVar("T")

JITTER = 0.1
MIN_RETRY_SECONDS = 1.0
REPORT_SECONDS = 0.5
"""How long the change of one query waits for the polls of others."""


def interval_shares() -> Iterator[float]:
    """Pauses between polls as shares of the interval: first a random part, which spreads the polls, then about 1."""
    yield random.random()  # noqa: S311  spreads load, guards nothing
    while True:
        yield random.uniform(1 - JITTER, 1 + JITTER)  # noqa: S311  as above


def retry_delay(interval: float, elapsed: float) -> float:
    """Seconds to wait after a failed poll that took `elapsed`: polls start one interval apart."""
    return max(interval - elapsed, min(interval, MIN_RETRY_SECONDS))


def with_last_answer(cause: str, fetched_at: float | None) -> str:
    """The cause of a failure, and the time of the last result (epoch seconds; None: there is none)."""
    last = "no answer so far" if fetched_at is None else f"last answer at {time_text(fetched_at)}"
    return f"{cause} ({last})"


class PollGroup(Generic[T]):
    """Pollers that go on at the same time and report their changes together.

    A policy that uses several queries of a server is so assessed once for all their new samples. A change is reported
    when no poll of the group is in progress any more, REPORT_SECONDS after it was noted at the latest.
    """

    def __init__(self, report: Callable[[frozenset[T]], None]) -> None:
        self._report = report
        self._polling = 0
        self._changed: set[T] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._next: asyncio.Event | None = None

    @contextlib.contextmanager
    def poll(self) -> Iterator[None]:
        """The time of one poll, until its result was kept."""
        self._polling += 1
        try:
            yield
        finally:
            self._polling -= 1
            if not self._polling:
                self._flush()

    def note(self, changed: Iterable[T]) -> None:
        """Note a change, of these or of none, for the next report."""
        if self._changed is None:
            self._changed = set()
            self._timer = asyncio.get_running_loop().call_later(REPORT_SECONDS, self._flush)
        self._changed.update(changed)

    def _flush(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        changed, self._changed = self._changed, None
        if changed is not None:
            self._report(frozenset(changed))

    async def pause(self, seconds: float) -> None:
        """Wait for the next polls of the group: in `seconds`, or when a poller that paused earlier goes on."""
        if self._next is None or self._next.is_set():
            self._next = asyncio.Event()
            asyncio.get_running_loop().call_later(seconds, self._next.set)
        await self._next.wait()
