"""The source of registries that are polled service by service: HTTP platforms and Polaris.

A question carries the tag (ETag, revision) of the last answer, so that mostly "not modified" comes back. Each service
is asked about without a tag once in two minutes.
"""

import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from enum import Enum, auto
from typing import Generic, NamedTuple, TypeVar

from adapter.registries.client import Failover, limit_of, source_name
from adapter.registries.polling.pool import Pool, Unanswered
from adapter.registries.polling.schedule import PollSchedule
from adapter.registries.roster import ServiceKey
from adapter.registries.roster_cache import RosterCache
from adapter.runtime.http1 import RawReply, Request
from adapter.runtime.slices import Slices
from adapter.runtime.source_errors import SourceError
from adapter.settings.registries import HttpRegistry, PolarisRegistry

TRUSTED_SECONDS = 120.0
"""How long a tag is sent at most: a server may answer "not modified" because it mixed two services up."""
_SOONEST = 0.75

T = TypeVar("T")


class Unchanged(Enum):
    """The answer that the last one still holds."""

    UNCHANGED = auto()


UNCHANGED = Unchanged.UNCHANGED


class _ServerFault(NamedTuple):
    """An answer that concerns the server rather than the service."""

    error: SourceError


class PollingSource(ABC, Generic[T]):
    """Asks about each followed service in its turn and writes the answers into the cache; `T` is a decoded answer.

    `servers` are base addresses: the current one is asked until it fails, then the next.
    """

    def __init__(self, settings: HttpRegistry | PolarisRegistry, servers: Sequence[str], cache: RosterCache) -> None:
        self._settings = settings
        self._cache = cache
        self._failover = Failover(servers, self.reconnected)
        self._schedule = PollSchedule(settings.interval_seconds)
        self._tags = Tags(cache.clock)
        self._pools: dict[tuple[str, bool], Pool] = {}
        """By server, and whether they are for late services."""
        self._failing = False

    @abstractmethod
    def request(self, key: ServiceKey, tag: str) -> Request:
        """The question about a service; `tag` is empty where the whole answer is wanted."""

    @abstractmethod
    async def read(self, key: ServiceKey, tag: str, server: str, reply: RawReply) -> T | Unchanged | SourceError:
        """Decode the answer of `server` to such a question; an error is returned where it concerns this service alone.

        Raises the SourceError of a server that is not to be asked further.
        """

    @abstractmethod
    def write(self, key: ServiceKey, answer: T) -> str:
        """Write a whole answer into the cache; its tag, empty where it has none. Raises SourceError."""

    def reconnected(self) -> None:
        """The server was changed, or a connection was lost, or the first answer came after a failure."""
        self._cache.reconnected()

    def refresh(self) -> None:
        """Follow the services of the cache from now on; new ones are asked about at once."""
        self._tags.keep(self._cache.keys)
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
        """Ask about these services and write the answers; False where no server can be asked."""
        # Failing services come last: the others do not wait for a server that never answers for some.
        keys = sorted(keys, key=lambda key: self._cache.trouble(key) is not None)
        try:
            outcomes = await self._failover.ask(lambda server: self._ask(server, keys, late=late))
        except SourceError as error:
            self._failing = True
            self._cache.failed(error)
            return False
        if self._failing:
            self._failing = False
            self.reconnected()
        await self._write_all(keys, outcomes)
        return True

    async def _ask(
        self, server: str, keys: Sequence[ServiceKey], *, late: bool
    ) -> list[T | Unchanged | SourceError | Unanswered]:
        """The answers of one server. Raises SourceError where it can answer none."""
        tags = [self._tags.of(key) for key in keys]
        requests = [self.request(key, tag) for key, tag in zip(keys, tags, strict=True)]

        async def read(index: int, reply: RawReply) -> T | Unchanged | SourceError | _ServerFault:
            try:
                return await self.read(keys[index], tags[index], server, reply)
            except SourceError as error:
                return _ServerFault(error)

        answers = []
        for answer in await self._schedule.ask(self._pool(server, late=late), keys, requests, read, late=late):
            if isinstance(answer, _ServerFault):
                raise answer.error
            answers.append(answer)
        return answers

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
                self._write(key, answer)
            await slices.breathe()
        if unchanged:
            self._cache.confirm(unchanged)

    def _write(self, key: ServiceKey, answer: T) -> None:
        try:
            tag = self.write(key, answer)
        except SourceError as error:
            self._cache.failed(error, [key])
            return
        # An answer that the cache did not accept must not be confirmed by its tag.
        self._tags.put(key, tag if self._cache.trouble(key) is None else "")

    def _pool(self, server: str, *, late: bool) -> Pool:
        if (server, late) not in self._pools:
            self._pools[server, late] = Pool(
                server,
                self._settings.access,
                timeout=self._settings.timeout_seconds,
                source=source_name(self._settings),
                limit=limit_of(self._settings),
                on_loss=self.reconnected,
                on_surplus=self._tags.drop,
            )
        return self._pools[server, late]


class _Tag(NamedTuple):
    tag: str
    until: float


class Tags:
    """The tags of the last answers, by service. `clock` gives epoch seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._tags: dict[ServiceKey, _Tag] = {}

    def of(self, key: ServiceKey) -> str:
        """The tag to send; empty where the whole answer is wanted."""
        known = self._tags.get(key)
        return known.tag if known is not None and 0 <= known.until - self._clock() <= TRUSTED_SECONDS else ""

    def put(self, key: ServiceKey, tag: str) -> None:
        """Keep the tag of a whole answer that came just now; empty: it has none."""
        # Random lifetimes: services that were asked about together do not all send their lists together again.
        until = self._clock() + TRUSTED_SECONDS * random.uniform(_SOONEST, 1)  # noqa: S311  spreads load
        self._tags[key] = _Tag(tag, until)

    def drop(self, keys: Iterable[ServiceKey] | None = None) -> None:
        """Send no tag for these services (default: all) next time."""
        for key in list(self._tags) if keys is None else keys:
            self._tags.pop(key, None)

    def keep(self, keys: Iterable[ServiceKey]) -> None:
        """Forget all but these services."""
        self.drop(self._tags.keys() - keys)
