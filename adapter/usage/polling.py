"""What the pollers of metrics.k8s.io and Prometheus share: intervals with jitter, retries, and the circuit breaker."""

import asyncio
import math
import random
from collections.abc import Iterator
from typing import NamedTuple

JITTER = 0.1
SPREAD_SECONDS = 1.0
"""Time over which waiting queries are spread when the circuit breaker closes."""
MIN_RETRY_SECONDS = 1.0


def interval_shares() -> Iterator[float]:
    """Pauses between polls as shares of the interval: first a random part, which spreads the polls, then about 1."""
    yield random.random()  # noqa: S311  spreads load, guards nothing
    while True:
        yield random.uniform(1 - JITTER, 1 + JITTER)  # noqa: S311  as above


def retry_delay(interval: float, elapsed: float) -> float:
    """Seconds to wait after a failed poll that took `elapsed`: polls start one interval apart."""
    return max(interval - elapsed, min(interval, MIN_RETRY_SECONDS))


def with_age(cause: str, fetched_at: float | None, now: float) -> str:
    """The cause of a failure, and the age of the last result (epoch seconds; None: there is none)."""
    age = "no answer so far" if fetched_at is None else f"last answer {max(0.0, now - fetched_at):.0f} s ago"
    return f"{cause} ({age})"


class _Waiting(NamedTuple):
    interval: float
    probe: asyncio.Future[None]


class CircuitBreaker:
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
    if not waiting.probe.done():
        waiting.probe.set_result(None)
