"""One poller for metrics.k8s.io and Prometheus: pauses, back-off, the last result, and dates that are ahead."""

import asyncio
import random
from collections.abc import Awaitable, Callable, Hashable, Iterable
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

import structlog

from adapter.kube.errors import ApiStatusError
from adapter.load.samples import time_text
from adapter.runtime.backoff import LONGEST_SECONDS, LogOnce, exponential
from adapter.runtime.concurrency import wait_for_event
from adapter.runtime.source_errors import SourceError
from adapter.telemetry.metrics import Metrics

CHECK_SECONDS = 0.5
JITTER = 0.1

_log = structlog.get_logger(__name__)


class AheadDates:
    """Dates samples that are ahead of the answer that brought them, as of a source whose clock is ahead of ours.

    Such a sample gets the date of its answer, and the same sample keeps that when it is read again. By its own date one
    of a frozen source would stay fresh for as long as the source's clock is ahead. `answered`: the time of the last
    answer (epoch seconds); `seconds`: how far a date in it was ahead of that, at most.
    """

    def __init__(self) -> None:
        self._seen: dict[Hashable, tuple[float, float]] = {}  # by sample: the date that it came with, and its own
        self._next: dict[Hashable, tuple[float, float]] = {}
        self.answered = self.seconds = 0.0

    def begin(self, answered: float) -> None:
        """Begin with an answer of this time."""
        self._seen, self._next, self.answered, self.seconds = self._next, {}, answered, 0.0

    def clamped(self, key: Hashable, at: float) -> float:
        """The date of the answer's sample of this key that is dated `at`."""
        if at <= self.answered:
            return at
        self.seconds = max(self.seconds, at - self.answered)
        before = self._seen.get(key, (0.0, 0.0))
        self._next[key] = before if before[0] == at else (at, self.answered)
        return self._next[key][1]


K = TypeVar("K", bound=Hashable)
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Polled(Generic[R]):
    """The last result of a key, of the answer at `fetched_at` (epoch seconds), and why the last poll failed.

    `cause` is in words that policies may show; `failures` in a row.
    """

    result: R | None = None
    fetched_at: float | None = None
    cause: str = ""
    failures: int = 0

    @property
    def error(self) -> str | None:
        """The cause of a failure and the time of the last result; None after a success."""
        last = "no answer so far" if self.fetched_at is None else f"last answer at {time_text(self.fetched_at)}"
        return f"{self.cause} ({last})" if self.cause else None


class Poller(Generic[K, R]):
    """Polls each of the `wanted` keys at its interval, at times of its own so that they make no burst.

    `wanted` is called twice a second; a new key is fetched at once. `fetch` takes the last result and the dates of the
    key's answers, of which it begins one; it raises SourceError. `on_change` is called with a key when its result, or
    the cause of its failure, changed. `source` is the name of a key's source in metrics and logs; `interval` is in
    seconds.
    """

    def __init__(
        self,
        wanted: Callable[[], Iterable[K]],
        fetch: Callable[[K, R | None, AheadDates], Awaitable[R]],
        on_change: Callable[[K], None],
        *,
        source: Callable[[K], str],
        interval: Callable[[K], float],
        metrics: Metrics,
    ) -> None:
        self._wanted, self._fetch, self._on_change = wanted, fetch, on_change
        self._source, self._interval, self._metrics = source, interval, metrics
        self._states: dict[K, Polled[R]] = {}
        self._ahead: dict[K, AheadDates] = {}
        self._tasks: dict[K, asyncio.Task[None]] = {}
        self._log_once = LogOnce()
        self._changed = asyncio.Event()

    def state(self, key: K) -> Polled[R]:
        """The last result of a key."""
        return self._states.get(key, Polled())

    def refresh(self) -> None:
        """Look for new keys now."""
        self._changed.set()

    async def run(self) -> None:
        """Poll until cancelled."""
        async with asyncio.TaskGroup() as group:
            while True:
                self._changed.clear()
                wanted = set(self._wanted())
                for key in wanted - self._tasks.keys():
                    self._tasks[key] = group.create_task(self._poll(key), name=f"{self._source(key)}: {key}")
                for key in self._tasks.keys() - wanted:
                    self._tasks.pop(key).cancel()
                    self._states.pop(key, None)
                    self._ahead.pop(key, None)
                    self._log_once.clear(key)
                await wait_for_event(self._changed, CHECK_SECONDS)

    async def _poll(self, key: K) -> None:
        share = random.random()  # noqa: S311  spreads load, guards nothing
        while True:
            last, is_first = self.state(key), key not in self._states
            state = self._states[key] = await self._polled(key, last)
            if is_first or last.cause != state.cause or last.result != state.result:
                self._on_change(key)
            delay = self._interval(key) * share
            if state.failures:  # twice as long after each failure but the first in a row
                delay = exponential(state.failures - 1, delay, max(delay, LONGEST_SECONDS))
            await asyncio.sleep(delay)
            share = random.uniform(1 - JITTER, 1 + JITTER)  # noqa: S311  as above

    async def _polled(self, key: K, last: Polled[R]) -> Polled[R]:
        source, ahead = self._source(key), self._ahead.setdefault(key, AheadDates())
        try:
            result = await self._fetch(key, last.result, ahead)
        except SourceError as error:
            reason = f"http_{error.code}" if isinstance(error, ApiStatusError) else error.reason
            self._metrics.source_up.labels(source).set(0)
            self._metrics.source_errors.labels(source, reason).inc()
            if self._log_once.is_new(str(error), key):
                _log.warning("usage_fetch_failed", source=source, subject=str(key), error=str(error))
            return replace(last, cause=error.public, failures=last.failures + 1)
        self._log_once.clear(key)
        self._metrics.source_up.labels(source).set(1)
        self._metrics.source_success.labels(source).set(ahead.answered)
        return Polled(result, ahead.answered)
