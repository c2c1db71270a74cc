"""A platform of one's own as a registry: it is asked, or it tells, which pods serve (`docs/registries.md`).

Only what it says outright counts. A pod that it does not mention is one that it does not know, and serves; so a
platform may mention only the pods that it pulled out.

Asked with ETags over a few connections (`pool`), hundreds of services cost little while nothing changes; every two
minutes each is asked about without one (`tags`). What the platform tells by itself holds until its time to live ends;
then nothing is known any more, and every pod serves.
"""

import asyncio
from collections.abc import Iterable, Sequence
from http import HTTPStatus
from typing import NamedTuple

from adapter.load.roster import Roster
from adapter.registries.client import limit_of, refusal
from adapter.registries.http import wire
from adapter.registries.polling.http1 import RawReply
from adapter.registries.polling.pool import Pool, Unanswered
from adapter.registries.polling.schedule import PollSchedule
from adapter.registries.polling.tags import Tags
from adapter.registries.roster import ServiceKey
from adapter.registries.roster_cache import RosterCache
from adapter.runtime.answer_budget import Body
from adapter.runtime.source_errors import (
    SourceError,
    SourceFailing,
    SourceUnreachable,
    UnknownService,
    WrongRegistryAnswer,
)
from adapter.settings.registries import HttpRegistry

CONFIRM_SECONDS = 5.0
"""How often what was told is looked at: whether it still holds."""


class _Answered(NamedTuple):
    """What was answered about a service: a document with its tag, or None: what was answered before."""

    document: wire.Document | None
    etag: str


class HttpSource:
    """Follows services of one platform; what it hears goes into the book, and failures too."""

    def __init__(self, settings: HttpRegistry, book: RosterCache) -> None:
        self._settings = settings
        self._book = book
        self._turns = PollSchedule(settings.interval_seconds, lambda: book.followed_for)
        self._etags = Tags(book.clock)
        self._holds_until: dict[ServiceKey, float] = {}
        self._telling = asyncio.Lock()
        self._pool, self._late_pool = (
            Pool(
                settings.url,
                settings.access,
                timeout=settings.timeout_seconds,
                source=f"registry/{settings.name}",
                limit=limit_of(settings),
                on_surplus=self._etags.drop,
            )
            for _ in range(2)
        )

    def watch(self, keys: Iterable[ServiceKey]) -> None:
        """Follow exactly these services from now on; new ones are asked about at once."""
        before = self._book.keys
        self._book.watch(keys)
        after = self._book.keys
        self._etags.keep(after)
        for key in self._holds_until.keys() - after:
            del self._holds_until[key]
        self._turns.change(after - before, after)

    def roster(self, key: ServiceKey) -> Roster | None:
        """The latest word about a service, from memory."""
        return self._book.roster(key)

    async def run(self) -> None:
        """Follow the services until cancelled."""
        try:
            async with asyncio.TaskGroup() as tasks:
                if self._settings.url:
                    tasks.create_task(self._turns.follow(self._look))
                if self._settings.push:
                    tasks.create_task(self._keep())
        finally:
            self._pool.close()
            self._late_pool.close()

    # --- asked ---

    async def _look(self, keys: Sequence[ServiceKey], late: bool) -> bool:
        """Ask about these services, and write down what is answered. False where the platform cannot be asked."""
        # Those that failed come last: where the platform never answers for some, the others do not wait for them.
        keys = sorted(keys, key=lambda key: self._book.trouble(key) is not None)
        tags = [self._etags.of(key) for key in keys]
        questions = [
            wire.request(key.service, key.namespace, key.group, tag) for key, tag in zip(keys, tags, strict=True)
        ]

        async def read(index: int, reply: RawReply) -> _Answered:
            return await self._read(reply, has_tag=bool(tags[index]))

        try:
            pool = self._late_pool if late else self._pool
            outcomes = await self._turns.ask(pool, keys, questions, read, late=late)
        except SourceError as error:
            self._book.failed(error)
            return False
        unchanged = [
            key
            for key, outcome in zip(keys, outcomes, strict=True)
            if not isinstance(outcome, Unanswered) and self._note(key, outcome)
        ]
        if unchanged:
            self._book.confirm(unchanged)
        return True

    async def _read(self, reply: RawReply, *, has_tag: bool) -> "_Answered":
        if reply.status == HTTPStatus.NOT_MODIFIED and has_tag:
            return _Answered(None, "")
        try:
            if reply.status != HTTPStatus.OK:
                raise _refused(reply)
            document = await wire.document(reply.body)
        except SourceError as error:
            raise error.at(self._settings.url) from error
        return _Answered(document, (reply.header(b"etag") or b"").decode("latin-1"))

    def _note(self, key: ServiceKey, outcome: "_Answered | SourceError") -> bool:
        """Write down what was answered about a service; True where it is what was answered before."""
        if key not in self._book.keys:
            return False  # it was let go while the question was under way
        if not isinstance(outcome, SourceError):
            if outcome.document is None:
                return True
            try:
                self._hear(key, outcome.document)
            except SourceError as error:
                outcome = error.at(self._settings.url)
        if isinstance(outcome, SourceError):
            self._book.failed(outcome, [key])
            return False
        self._holds_until.pop(key, None)
        # An answer that was not believed shall not be confirmed by its tag.
        self._etags.put(key, outcome.etag if self._book.trouble(key) is None else "")
        return False

    def _hear(self, key: ServiceKey, found: wire.Document) -> None:
        if found.service and found.service != key.service:
            raise WrongRegistryAnswer(f"the document is of service {found.service!r}, not of {key.service!r}")
        self._book.heard(key, found.instances, partial=not found.complete, index=found.revision, absence_counts=False)

    # --- told ---

    async def tell(self, key: ServiceKey, body: bytes) -> None:
        """Take the platform's word about a service. Raises SourceError where it cannot be taken."""
        async with self._telling:  # a long document is read in slices, and shall not be overtaken by a later one
            found = await wire.document(Body(body))
            if found.ttl_seconds is None:
                raise WrongRegistryAnswer("the document has no ttlSeconds: say for how long it holds")
            self._take(key, found)

    def _take(self, key: ServiceKey, found: wire.Document) -> None:
        if key not in self._book.keys:
            raise UnknownService("no policy follows this service any more; it is not kept")
        self._hear(key, found)
        if trouble := self._book.trouble(key):
            raise SourceFailing(trouble.sentence, public=trouble.public)
        self._etags.drop([key])  # what is answered next is a word of its own
        self._holds_until[key] = self._book.clock() + (found.ttl_seconds or 0.0)

    async def _keep(self) -> None:
        """Confirm what was told while it holds, and forget it then."""
        while True:
            self.look_at_clock()
            await asyncio.sleep(CONFIRM_SECONDS)

    def look_at_clock(self) -> None:
        """Confirm what was told and still holds; what does not is not known any more."""
        now = self._book.clock()
        over = [key for key, until in self._holds_until.items() if until <= now]
        for key in over:
            del self._holds_until[key]
            self._book.heard(key, (), absence_counts=False)
            silent = "the platform's word has expired; it has to tell again before its ttlSeconds are over"
            self._book.failed(SourceUnreachable(silent, public=silent), [key])
        if self._holds_until:
            self._book.confirm(list(self._holds_until))


def _refused(reply: RawReply) -> SourceError:
    if reply.status == HTTPStatus.NOT_FOUND:
        return UnknownService(
            "HTTP 404: the platform knows no such service; check its name, or the url",
            public="HTTP 404: the platform knows no such service; check its name",
        )
    return refusal(reply.plain)
