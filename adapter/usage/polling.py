"""What the pollers of metrics.k8s.io and Prometheus share: intervals with jitter, retries, and the circuit breaker."""

import asyncio
import contextlib
import math
import random
from collections.abc import Callable, Iterable, Iterator
from typing import Generic, NamedTuple, TypeVar

from adapter.load.samples import time_text

T = TypeVar("T")

JITTER = 0.1
SPREAD_SECONDS = 1.0
"""Time over which waiting queries are spread when the circuit breaker closes."""
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
        self._next: asyncio.Future[None] | None = None

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
        loop = asyncio.get_running_loop()
        if self._next is None or self._next.done():
            self._next = loop.create_future()
            loop.call_later(seconds, _finish, self._next)
        await asyncio.shield(self._next)


class _Waiting(NamedTuple):
    interval: float
    probe: asyncio.Future[None]


class ProbeTurns:
    """Circuit breaker of one server, shared by its queries.

    Closed: each query polls at its own interval. Open: queries that failed wait. Half-open: one of them probes the
    server, the longest waiting first, one probe in each of the shortest of their intervals (seconds). So the breaker
    closes within that interval after the server recovers, whatever the number of queries, and a query that always fails
    blocks no other. Any response closes it: all waiting queries go on.
    """

    def __init__(self) -> None:
        self.responses = 0
        """The number of responses so far."""
        self._waiting: list[_Waiting] = []
        self._probed_at = -math.inf
        self._timer: asyncio.TimerHandle | None = None

    def close(self) -> None:
        """Record a response of the server: all waiting queries go on."""
        self.responses += 1
        waiting, self._waiting = self._waiting, []
        for each in waiting:
            _release(each)

    async def wait(self, responses: int, interval: float) -> None:
        """Return when a failed query may be sent again: as the probe, or once the breaker is closed.

        `responses` is their number when the query failed; if it has grown since, the breaker is closed already.
        """
        if self.responses != responses:
            return
        waiting = _Waiting(interval, asyncio.get_running_loop().create_future())
        self._waiting.append(waiting)
        self._schedule_probe()
        try:
            await waiting.probe
        finally:
            if waiting in self._waiting:
                self._waiting.remove(waiting)
        if self.responses != responses:
            await asyncio.sleep(random.uniform(0, min(interval, SPREAD_SECONDS)))  # noqa: S311  as above

    def _schedule_probe(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        at = self._probed_at + min(each.interval for each in self._waiting)
        loop = asyncio.get_running_loop()
        self._timer = loop.call_at(max(at, loop.time()), self._probe)

    def _probe(self) -> None:
        self._timer = None
        if not self._waiting:
            return
        self._probed_at = asyncio.get_running_loop().time()
        _release(self._waiting.pop(0))
        if self._waiting:
            self._schedule_probe()


def _release(waiting: _Waiting) -> None:
    _finish(waiting.probe)


def _finish(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
