"""Polaris by its clients' discovery API: each service is asked for in turn, and mostly nothing has changed.

Isolated instances stay listed, which is the clearest evidence there is. Its HTTP API is asked with the revision that
was heard last; 500 services are 250 small requests a second at the default interval, so they go over a few connections
(`pool`), and every two minutes each is asked for without a revision (`tags`). Its gRPC stream would be dearer here, and
Polaris 1.18 keeps every answer of a stream in memory until the stream ends.

`registered_at` stays unknown: Polaris gives local times without a zone, and a registration keeps the time of the first
one of that address.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from adapter.load.roster import Roster
from adapter.registries.client import Failover, limit_of
from adapter.registries.polaris import wire
from adapter.registries.polling.http1 import RawReply
from adapter.registries.polling.pool import Pool, Unanswered
from adapter.registries.polling.schedule import PollSchedule
from adapter.registries.polling.tags import Tags
from adapter.registries.roster import ServiceKey
from adapter.registries.roster_cache import RosterCache
from adapter.runtime.slices import Slices
from adapter.runtime.source_errors import SourceError, WrongRegistryAnswer
from adapter.settings.registries import PolarisRegistry


class _Refused(NamedTuple):
    """An answer that says more of the server than of the service."""

    error: SourceError


class PolarisSource:
    """Follows services in one Polaris; what it hears goes into the book, and failures too."""

    def __init__(self, settings: PolarisRegistry, book: RosterCache) -> None:
        self._settings = settings
        self._book = book
        self._peers = Failover(settings.servers, book.reconnected)
        self._turns = PollSchedule(settings.interval_seconds, lambda: book.followed_for)
        self._revisions = Tags(book.clock)
        self._pools: dict[tuple[str, bool], Pool] = {}
        """By server, and whether they are for late ones."""
        self._failing = False

    def watch(self, keys: Iterable[ServiceKey]) -> None:
        """Follow exactly these services from now on; new ones are asked for at once."""
        before = self._book.keys
        self._book.watch(keys)
        after = self._book.keys
        self._revisions.keep(after)
        self._turns.change(after - before, after)

    def roster(self, key: ServiceKey) -> Roster | None:
        """The latest answer about a service, from memory."""
        return self._book.roster(key)

    async def run(self) -> None:
        """Follow the services until cancelled."""
        try:
            await self._turns.follow(self._look)
        finally:
            for pool in self._pools.values():
                pool.close()
            self._pools.clear()

    async def _look(self, keys: Sequence[ServiceKey], late: bool) -> bool:
        """Ask for these services, and write down what is answered. False where Polaris cannot be asked."""
        # Those that failed come last: where Polaris never answers for some, the others do not wait for them.
        keys = sorted(keys, key=lambda key: self._book.trouble(key) is not None)
        try:
            answers = await self._peers.ask(lambda server: self._ask(server, keys, late=late))
        except SourceError as error:
            self._failing = True
            self._book.failed(error)
            return False
        if self._failing:
            self._failing = False
            self._book.reconnected()
        await self._note(keys, answers)
        return True

    async def _ask(self, server: str, keys: Sequence[ServiceKey], *, late: bool) -> Sequence[wire.Answer | Unanswered]:
        """What one server says of these services. Raises SourceError where it says nothing of any."""
        revisions = [self._revisions.of(key) for key in keys]
        asked = zip(keys, revisions, strict=True)
        requests = [wire.request(*self._name(key), revision) for key, revision in asked]

        async def read(index: int, reply: RawReply) -> wire.Answer | _Refused:
            try:
                answer = await wire.answer(reply, server, *self._name(keys[index]))
            except SourceError as error:
                return _Refused(error)
            if answer is wire.UNCHANGED and not revisions[index]:
                return WrongRegistryAnswer(f"{server}: it says that nothing has changed, and was asked for all")
            return answer

        answers: list[wire.Answer | Unanswered] = []
        for answer in await self._turns.ask(self._pool(server, late=late), keys, requests, read, late=late):
            if isinstance(answer, _Refused):
                raise answer.error
            answers.append(answer)
        return answers

    async def _note(self, keys: Sequence[ServiceKey], answers: Sequence[wire.Answer | Unanswered]) -> None:
        unchanged = []
        slices = Slices()
        for key, answer in zip(keys, answers, strict=True):
            if key not in self._book.keys:
                continue  # it was let go while the question was under way
            if answer is wire.UNCHANGED:
                unchanged.append(key)
            elif isinstance(answer, wire.Listed):
                self._book.heard(key, await wire.instances(answer, self._settings.pod_name_key))
                self._revisions.put(key, answer.revision)
            elif isinstance(answer, SourceError):
                self._book.failed(answer, [key])
            await slices.breathe()
        if unchanged:
            self._book.confirm(unchanged)

    def _name(self, key: ServiceKey) -> tuple[str, str]:
        return key.service, key.namespace or self._settings.namespace

    def _pool(self, server: str, *, late: bool) -> Pool:
        if (server, late) not in self._pools:
            self._pools[server, late] = Pool(
                server,
                self._settings.access,
                timeout=self._settings.timeout_seconds,
                source=f"registry/{self._settings.name}",
                limit=limit_of(self._settings),
                on_loss=self._book.reconnected,
                on_surplus=self._revisions.drop,
            )
        return self._pools[server, late]
