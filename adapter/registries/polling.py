"""The source of registries that are polled service by service: HTTP platforms and Polaris.

A question carries the tag (ETag, revision) of the last answer, so that mostly "not modified" comes back. Each service
is asked about without a tag once in two minutes.
"""

import asyncio
import contextlib
import math
import random
from abc import ABC, abstractmethod
from collections import defaultdict, deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from enum import Enum, auto
from itertools import chain, zip_longest
from typing import Generic, NamedTuple, TypeVar

from adapter.registries.client import Failover, limit_of, source_name
from adapter.registries.polling_pool import Answers, Pool, Read, Unanswered
from adapter.registries.roster import ServiceKey
from adapter.registries.roster_cache import RosterCache
from adapter.runtime.backoff import Backoff
from adapter.runtime.concurrency import Slices, wait_for_event
from adapter.runtime.http1 import RawReply, Request, SurplusAnswer
from adapter.runtime.source_errors import SourceError, SourceUnreachable
from adapter.settings.registries import PolledRegistry

TRUSTED_SECONDS = 120.0
"""How long a tag is sent at most: a server may answer "not modified" because it mixed two services up."""
_SOONEST = 0.75

T = TypeVar("T")

STEPS = 4
"""Parts of an interval that the questions are spread over. Few: questions are cheaper together."""
TOGETHER = 50
"""New services that are asked about at a time."""
LATE_TOGETHER = 8
"""Late services that are: as many as there are connections, because each may take the whole timeout."""
LATE_AFTER_SECONDS = 0.5
"""The shortest wait before an answer is late."""
LONGEST_PAUSE = 5.0
"""Seconds between questions to a server that cannot be reached."""

Poll = Callable[[Sequence[ServiceKey], bool], Awaitable[bool]]
"""Asks about services, late ones or others, and writes the answers; False where no server can be asked."""


class Unchanged(Enum):
    """The answer that the last one still holds."""

    UNCHANGED = auto()


UNCHANGED = Unchanged.UNCHANGED


class _ServerFault(NamedTuple):
    """An answer that may concern the server rather than the service."""

    error: SourceError


class PollingSource(ABC, Generic[T]):
    """Asks about each followed service in its turn and writes the answers into the cache; `T` is a decoded answer.

    `servers` are base addresses: the current one is asked until it fails, then the next.
    """

    def __init__(self, settings: PolledRegistry, servers: Sequence[str], cache: RosterCache) -> None:
        self._settings = settings
        self._cache = cache
        self._failover = Failover(servers)
        self._schedule = PollSchedule(settings.interval_seconds)
        self._tags: dict[ServiceKey, tuple[str, float]] = {}
        """The tags of the last whole answers (empty: it had none), and until when they are sent (epoch seconds)."""
        self._pools: dict[tuple[str, bool], Pool] = {}
        """By server, and whether they are for late services."""
        self._served_at = -math.inf
        """When a server last answered about some service (the loop's time)."""
        self._surpluses = 0
        """Answers without a request, of all servers."""

    @abstractmethod
    def request(self, key: ServiceKey, tag: str) -> Request:
        """The question about a service; `tag` is empty where the whole answer is wanted."""

    @abstractmethod
    async def read(self, key: ServiceKey, tag: str, server: str, reply: RawReply) -> T | Unchanged | SourceError:
        """Decode the answer of `server` to such a question; an error is returned where it concerns this service alone.

        Raises the SourceError that may be the server's.
        """

    @abstractmethod
    def write(self, key: ServiceKey, answer: T) -> str:
        """Write a whole answer into the cache; its tag, empty where it has none. Raises SourceError."""

    def refresh(self) -> None:
        """Follow the services of the cache from now on; new ones are asked about at once."""
        self._tags = {key: tag for key, tag in self._tags.items() if key in self._cache.keys}
        self._schedule.follow(self._cache.namespaces)

    async def run(self) -> None:
        """Poll until cancelled."""
        try:
            await self._schedule.run(self._poll)
        finally:
            for pool in self._pools.values():
                pool.close()
            self._pools.clear()

    async def _poll(self, keys: Sequence[ServiceKey], late: bool) -> bool:
        # Failing services come last: the others do not wait for a server that never answers for some.
        keys = sorted(keys, key=lambda key: self._cache.trouble(key) is not None)
        before = self._surpluses

        def ask(server: str) -> Awaitable[list[T | Unchanged | SourceError | Unanswered]]:
            return self._ask(server, keys, late=late)

        try:
            outcomes = None
            with contextlib.suppress(SurplusAnswer):
                outcomes = await self._failover.ask(ask)
            if outcomes is None or self._surpluses != before:
                # A server sent more answers than requests, so any of this round may be another service's.
                outcomes = await self._failover.ask(ask)
        except SourceError as error:
            self._cache.failed(error)
            return False
        await self._write_all(keys, outcomes)
        return True

    def _on_surplus(self) -> None:
        self._surpluses += 1
        self._tags.clear()

    async def _ask(
        self, server: str, keys: Sequence[ServiceKey], *, late: bool
    ) -> list[T | Unchanged | SourceError | Unanswered]:
        """The answers of one server. Raises SourceError where it can answer none."""
        now = self._cache.clock()
        last = [self._tags.get(key, ("", now)) for key in keys]
        tags = [tag if 0 <= until - now <= TRUSTED_SECONDS else "" for tag, until in last]
        requests = [self.request(key, tag) for key, tag in zip(keys, tags, strict=True)]

        async def read(index: int, reply: RawReply) -> T | Unchanged | SourceError | _ServerFault:
            try:
                return await self.read(keys[index], tags[index], server, reply)
            except SourceError as error:
                return _ServerFault(error)

        if (server, late) not in self._pools:
            self._pools[server, late] = Pool(
                server,
                self._settings.access,
                timeout=self._settings.timeout_seconds,
                source=source_name(self._settings),
                limit=limit_of(self._settings),
                on_surplus=self._on_surplus,
            )
        answers = await self._schedule.ask(self._pools[server, late], keys, requests, read, late=late)
        moment = asyncio.get_running_loop().time()
        faults = [answer.error for answer in answers if isinstance(answer, _ServerFault)]
        if not all(isinstance(answer, _ServerFault | SourceUnreachable | Unanswered) for answer in answers):
            self._served_at = moment
        # While others are answered, it is a fault of the service alone: each is asked about once in an interval.
        if faults and moment - self._served_at > 2 * self._settings.interval_seconds:
            raise faults[0]
        return [answer.error if isinstance(answer, _ServerFault) else answer for answer in answers]

    async def _write_all(
        self, keys: Sequence[ServiceKey], answers: Sequence[T | Unchanged | SourceError | Unanswered]
    ) -> None:
        unchanged = []
        slices = Slices()
        for key, answer in zip(keys, answers, strict=True):
            if key not in self._cache.keys or isinstance(answer, Unanswered):
                continue  # no longer followed, or no answer yet
            if isinstance(answer, Unchanged):
                unchanged.append(key)
            elif isinstance(answer, SourceError):
                self._cache.failed(answer, [key])
            else:
                try:
                    tag = self.write(key, answer)
                except SourceError as error:
                    self._cache.failed(error, [key])
                else:
                    # Random lifetimes: services that were asked about together do not all send their lists again at
                    # once. An answer that the cache did not accept must not be confirmed by its tag.
                    until = self._cache.clock() + TRUSTED_SECONDS * random.uniform(_SOONEST, 1)  # noqa: S311
                    self._tags[key] = (tag if self._cache.trouble(key) is None else "", until)
            await slices.breathe()
        if unchanged:
            self._cache.confirm(unchanged)


class PollSchedule:
    """The services of one registry in turn, new ones first. `interval` in seconds."""

    def __init__(self, interval: float) -> None:
        self._interval = interval
        self._namespaces: Mapping[ServiceKey, str] = {}
        self._all: deque[ServiceKey] = deque()
        self._new: list[ServiceKey] = []
        self._late: dict[ServiceKey, float] = {}
        """When each is due again (the loop's time)."""
        self._shared_at = -math.inf
        """When known services had their last turn (the loop's time); they keep it while new ones come."""
        self._news = asyncio.Event()
        self._late_news = asyncio.Event()
        self._answered_at = -math.inf
        """When an answer came in time last (the loop's time)."""

    async def run(self, poll: Poll) -> None:
        """Poll services as their turns come, late ones apart from the others, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._repeat(poll, late=False))
            tasks.create_task(self._repeat(poll, late=True))

    async def _repeat(self, poll: Poll, *, late: bool) -> None:
        backoff = Backoff()
        while True:
            began = asyncio.get_running_loop().time()
            keys = await self.pop_late() if late else self.pop()
            if keys and not await poll(keys, late):
                await asyncio.sleep(min(backoff.next(), LONGEST_PAUSE))
                continue
            backoff.reset()
            if not late:
                await self.rest(began)

    @property
    def patience(self) -> float:
        """Seconds until an answer is late: the next turn comes by then."""
        return max(self._interval / STEPS, LATE_AFTER_SECONDS)

    def follow(self, services: Mapping[ServiceKey, str]) -> None:
        """Poll exactly these services from now on, each for a Kubernetes namespace."""
        followed = {*self._all, *self._new, *self._late}
        self._all = deque(key for key in self._all if key in services)
        self._late = {key: at for key, at in self._late.items() if key in services}
        self._new = [*(key for key in self._new if key in services), *sorted(services.keys() - followed)]
        self._namespaces = services
        self._news.set()

    def pop(self) -> Sequence[ServiceKey]:
        """The services to ask about now: new ones, else a share of all, so that each comes once in an interval."""
        self._news.clear()
        if not self._new:
            return self._fair(self._share())
        share = self._share() if self._steps() else []
        ordered = self._fair(self._new)
        keys, self._new = ordered[:TOGETHER], ordered[TOGETHER:]
        self._all.extend(keys)
        return self._fair([*keys, *share])

    def _share(self) -> list[ServiceKey]:
        share = -(-len(self._all) * max(1, self._steps()) // STEPS)
        keys = [self._all[place] for place in range(share)]
        self._all.rotate(-share)
        self._shared_at = asyncio.get_running_loop().time()
        return keys

    def _steps(self) -> int:
        """Steps of the interval that passed since the last share, at most all."""
        return int(min((asyncio.get_running_loop().time() - self._shared_at) * STEPS / self._interval, STEPS))

    async def rest(self, began: float) -> None:
        """Wait for the next turn or for new services; `began` is the begin of the last turn (the loop's time)."""
        if self._new:
            return
        until = began + self._interval / min(len(self._all), STEPS) if self._all else None
        await wait_for_event(self._news, None if until is None else until - asyncio.get_running_loop().time())

    # --- late services ---

    async def ask(
        self, pool: Pool, keys: Sequence[ServiceKey], requests: Sequence[Request], read: Read[T], *, late: bool
    ) -> Sequence[T | SourceError | Unanswered]:
        """The outcomes of the questions about these services, which `pop` or `pop_late` gave.

        Raises the SourceError of a server that answers no question at all.
        """
        try:
            answers = await pool.ask(requests, read, seconds=None if late else self.patience)
        except SourceError as error:
            if not late or asyncio.get_running_loop().time() - self._answered_at > self._interval + self.patience:
                raise
            answers = Answers([error] * len(keys), {})
        if late:
            for index, key in enumerate(keys):
                if key in self._late and answers.seconds.get(index, math.inf) < self.patience / 2:
                    del self._late[key]  # a prompt service is late no more
                    self._all.append(key)
                    self._news.set()
                elif key in self._late:
                    self._late[key] = asyncio.get_running_loop().time() + self._interval
            return answers.outcomes
        if answers.seconds:
            self._answered_at = asyncio.get_running_loop().time()
        in_turn = set(self._all)
        by_key = {key: outcome for key, outcome in zip(keys, answers.outcomes, strict=True) if key in in_turn}
        overdue = {key: 0.0 for key, outcome in by_key.items() if outcome is Unanswered.LATE}
        if overdue:
            self._late |= overdue
            self._late_news.set()
        # Time ended before their turn: they come first the next time, as new ones do.
        unasked = [key for key, outcome in by_key.items() if outcome is Unanswered.NOT_ASKED]
        self._new = [*unasked, *self._new]
        left = overdue.keys() | unasked
        self._all = deque(key for key in self._all if key not in left)
        return answers.outcomes

    async def pop_late(self) -> Sequence[ServiceKey]:
        """Wait for late services that are due, at most LATE_TOGETHER of them."""
        while True:
            self._late_news.clear()
            now = asyncio.get_running_loop().time()
            due = sorted((at, key) for key, at in self._late.items() if at <= now)
            if due:
                return self._fair([key for _, key in due])[:LATE_TOGETHER]
            next_at = min(self._late.values(), default=None)
            await wait_for_event(self._late_news, None if next_at is None else next_at - now)

    def _fair(self, keys: Sequence[ServiceKey]) -> list[ServiceKey]:
        """The first service of every namespace, then the second of each, and so on; within one in their order."""
        by_namespace: dict[str, list[ServiceKey]] = defaultdict(list)
        for key in keys:
            by_namespace[self._namespaces.get(key, "")].append(key)
        if len(by_namespace) < 2:
            return list(keys)
        return [key for key in chain.from_iterable(zip_longest(*by_namespace.values())) if key is not None]
