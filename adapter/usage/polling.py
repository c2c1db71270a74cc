"""One poller for metrics.k8s.io and Prometheus: pauses, back-off, the last result, and dates that are ahead."""

import asyncio
import random
from collections.abc import Awaitable, Callable, Hashable, Iterable
from dataclasses import dataclass, replace
from typing import Generic, Protocol, TypeVar

import structlog

from adapter.kube.errors import ApiStatusError
from adapter.load.samples import time_text
from adapter.runtime.backoff import LONGEST_SECONDS, LogOnce, exponential
from adapter.runtime.concurrency import wait_for_event
from adapter.runtime.source_errors import SourceError
from adapter.telemetry.metrics import Metrics

CHECK_SECONDS = 0.5
JITTER = 0.1
MIN_RETRY_SECONDS = 1.0

_log = structlog.get_logger(__name__)


class AheadDates:
    """Dates samples that are ahead of the answer that brought them, as of a source whose clock is ahead of ours.

    Such a sample gets the date of its answer, and the same sample keeps that when it is read again. By its own date one
    of a frozen source would stay fresh for as long as the source's clock is ahead. `seconds`: how far a date of the
    last answer was ahead of it, at most.
    """

    def __init__(self) -> None:
        self._seen: dict[Hashable, tuple[float, float]] = {}  # by sample: the date that it came with, and its own
        self._next: dict[Hashable, tuple[float, float]] = {}
        self._answered = self.seconds = 0.0

    def begin(self, answered: float) -> None:
        """Begin with an answer of this time (epoch seconds)."""
        self._seen, self._next, self._answered, self.seconds = self._next, {}, answered, 0.0

    def clamped(self, key: Hashable, at: float) -> float:
        """The date of the answer's sample of this key that is dated `at`."""
        if at <= self._answered:
            return at
        self.seconds = max(self.seconds, at - self._answered)
        before = self._seen.get(key, (0.0, 0.0))
        self._next[key] = before if before[0] == at else (at, self._answered)
        return self._next[key][1]


class Result(Protocol):
    """The answer to one poll, at `fetched_at` (epoch seconds). Equal ones say the same, whenever they were fetched."""

    @property
    def fetched_at(self) -> float: ...


K = TypeVar("K", bound=Hashable)
R = TypeVar("R", bound=Result)


@dataclass(frozen=True, slots=True)
class Polled(Generic[R]):
    """The last result of a key, and why the last poll failed, in words that policies may show; `failures` in a row."""

    result: R | None = None
    cause: str = ""
    failures: int = 0

    @property
    def error(self) -> str | None:
        """The cause of a failure and the time of the last result; None after a success."""
        last = "no answer so far" if self.result is None else f"last answer at {time_text(self.result.fetched_at)}"
        return f"{self.cause} ({last})" if self.cause else None


class Poller(Generic[K, R]):
    """Polls each of the `wanted` keys at its interval, at times of its own so that they make no burst.

    `wanted` is called twice a second, after `prepare`; a new key is fetched at once. `fetch` takes the last result and
    raises SourceError. `on_change` is called with a key when its result, or the cause of its failure, changed. `source`
    is the name of a key's source in metrics and logs; `interval` is in seconds.
    """

    def __init__(
        self,
        wanted: Callable[[], Iterable[K]],
        fetch: Callable[[K, R | None, AheadDates], Awaitable[R]],
        on_change: Callable[[K], None],
        *,
        source: Callable[[K], str],
        interval: Callable[[K], float],
        prepare: Callable[[], Awaitable[None]] | None = None,
        metrics: Metrics,
    ) -> None:
        self._wanted, self._fetch, self._on_change, self._prepare = wanted, fetch, on_change, prepare
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

    async def stop(self, holds: Callable[[K], bool]) -> None:
        """End the polls of these keys, those in progress too. The wanted ones begin again without a pause."""
        tasks = [self._tasks.pop(key) for key in list(self._tasks) if holds(key)]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._states |= {key: replace(state, failures=0) for key, state in self._states.items() if holds(key)}

    async def run(self) -> None:
        """Poll until cancelled."""
        try:
            async with asyncio.TaskGroup() as group:
                while True:
                    self._changed.clear()
                    if self._prepare is not None:
                        await self._prepare()
                    wanted = set(self._wanted())
                    for key in wanted - self._tasks.keys():
                        self._tasks[key] = group.create_task(self._poll(key), name=f"{self._source(key)}: {key}")
                    for key in self._tasks.keys() - wanted:
                        self._tasks.pop(key).cancel()
                        self._states.pop(key, None)
                        self._ahead.pop(key, None)
                        self._log_once.clear(key)
                    await wait_for_event(self._changed, CHECK_SECONDS)
        finally:
            self._tasks.clear()

    async def _poll(self, key: K) -> None:
        loop = asyncio.get_running_loop()
        share = random.random()  # noqa: S311  spreads load, guards nothing
        while True:
            began, last = loop.time(), self.state(key)
            is_first = key not in self._states
            state = self._states[key] = await self._polled(key, last)
            if is_first or last.cause != state.cause or last.result != state.result:
                self._on_change(key)
            interval = self._interval(key)
            delay = interval * share
            if state.failures:
                # One interval apart after the first failure in a row, then twice as far each.
                interval = min(delay, interval)
                apart = exponential(state.failures - 1, interval, max(interval, LONGEST_SECONDS))
                delay = max(apart - (loop.time() - began), min(interval, MIN_RETRY_SECONDS))
            await asyncio.sleep(delay)
            share = random.uniform(1 - JITTER, 1 + JITTER)  # noqa: S311  as above

    async def _polled(self, key: K, last: Polled[R]) -> Polled[R]:
        source = self._source(key)
        try:
            result = await self._fetch(key, last.result, self._ahead.setdefault(key, AheadDates()))
        except SourceError as error:
            reason = f"http_{error.code}" if isinstance(error, ApiStatusError) else error.reason
            self._metrics.source_up.labels(source).set(0)
            self._metrics.source_errors.labels(source, reason).inc()
            if self._log_once.is_new(str(error), key):
                _log.warning("usage_fetch_failed", source=source, subject=str(key), error=str(error))
            return Polled(last.result, error.public, last.failures + 1)
        self._log_once.clear(key)
        self._metrics.source_up.labels(source).set(1)
        self._metrics.source_success.labels(source).set(result.fetched_at)
        return Polled(result)
