"""A platform of one's own as a registry: it is asked, or it tells, which pods serve (`docs/registries.md`).

Only what it says outright counts. A pod that it does not mention is one that it does not know, and serves; so a
platform may mention only the pods that it pulled out.

Asked with ETags over one connection (`pipelined`), hundreds of services cost little while nothing changes. What the
platform tells by itself holds until its time to live ends; then nothing is known any more, and every pod serves.
"""

import asyncio
from collections.abc import Iterable, Sequence
from http import HTTPStatus

from adapter.kube.backoff import Backoff
from adapter.kube.slices import Slices
from adapter.load.roster import Roster
from adapter.outbound import Access, Reply
from adapter.registries import http_wire as wire
from adapter.registries.book import Book
from adapter.registries.errors import RegistryError, RegistryFailing, RegistryUnreachable, WrongRegistryAnswer
from adapter.registries.peers import refusal
from adapter.registries.pipelined import Pipeline, RawReply
from adapter.registries.roster import ServiceKey
from adapter.registries.turns import Turns
from adapter.settings_registries import HttpRegistry

LONGEST_PAUSE = 5.0
"""Seconds between questions to a platform that cannot be reached."""
CONFIRM_SECONDS = 5.0
"""How often what was told is looked at: whether it still holds."""


class HttpSource:
    """Follows services of one platform; what it hears goes into the book, and failures too."""

    def __init__(self, settings: HttpRegistry, book: Book) -> None:
        self._settings = settings
        self._book = book
        self._turns = Turns(settings.interval_seconds)
        self._etags: dict[ServiceKey, str] = {}
        self._holds_until: dict[ServiceKey, float] = {}
        self._pipeline = Pipeline(
            settings.url, _access(settings), timeout=settings.timeout_seconds, on_loss=lambda: None
        )

    def watch(self, keys: Iterable[ServiceKey]) -> None:
        """Follow exactly these services from now on; new ones are asked about at once."""
        before = self._book.keys
        self._book.watch(keys)
        after = self._book.keys
        for known in (self._etags, self._holds_until):
            for key in known.keys() - after:
                del known[key]
        self._turns.change(after - before, after)

    def roster(self, key: ServiceKey) -> Roster | None:
        """The latest word about a service, from memory."""
        return self._book.roster(key)

    async def run(self) -> None:
        """Follow the services until cancelled."""
        try:
            async with asyncio.TaskGroup() as tasks:
                if self._settings.url:
                    tasks.create_task(self._poll())
                if self._settings.push:
                    tasks.create_task(self._keep())
        finally:
            self._pipeline.close()

    # --- asked ---

    async def _poll(self) -> None:
        backoff = Backoff()
        while True:
            began = asyncio.get_running_loop().time()
            if await self._look(self._turns.take()):
                backoff.reset()
                await self._turns.rest(began)
            else:
                await asyncio.sleep(min(backoff.next(), LONGEST_PAUSE))

    async def _look(self, keys: Sequence[ServiceKey]) -> bool:
        """Ask about these services, and write down what is answered. False where the platform cannot be asked."""
        if not keys:
            return True
        questions = [wire.request(key.service, key.namespace, key.group, self._etags.get(key, "")) for key in keys]
        try:
            replies = await self._pipeline.ask(questions)
        except RegistryError as error:
            self._book.failed(error)
            return False
        unchanged = []
        slices = Slices()
        for key, reply in zip(keys, replies, strict=True):
            if self._note(key, reply):
                unchanged.append(key)
            await slices.breathe()
        if unchanged:
            self._book.confirm(unchanged)
        return True

    def _note(self, key: ServiceKey, reply: RawReply) -> bool:
        """Write down what was answered about a service; True where it is what was answered before."""
        if key not in self._book.keys:
            return False  # it was let go while the question was under way
        if reply.status == HTTPStatus.NOT_MODIFIED and key in self._etags:
            return True
        try:
            if reply.status != HTTPStatus.OK:
                raise _refused(reply)
            self._hear(key, wire.document(reply.body))
        except RegistryError as error:
            self._book.failed(error, [key])
            return False
        self._holds_until.pop(key, None)
        self._etags.pop(key, None)
        # An answer that was not believed shall not be confirmed by its tag.
        if self._book.trouble(key) is None and (etag := reply.header(b"etag")):
            self._etags[key] = etag.decode("latin-1")
        return False

    def _hear(self, key: ServiceKey, found: wire.Document) -> None:
        self._book.heard(
            key, wire.instances(found), partial=not found.complete, index=found.revision, absence_counts=False
        )

    # --- told ---

    def tell(self, key: ServiceKey, body: bytes) -> None:
        """Take the platform's word about a service. Raises RegistryError where it cannot be taken."""
        found = wire.document(body)
        if found.ttl_seconds is None:
            raise WrongRegistryAnswer("the document has no ttlSeconds: say for how long it holds")
        self._hear(key, found)
        if trouble := self._book.trouble(key):
            raise RegistryFailing(trouble.sentence)
        self._etags.pop(key, None)  # what is answered next is a word of its own
        self._holds_until[key] = self._book.clock() + found.ttl_seconds

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
            self._book.failed(RegistryUnreachable(silent), [key])
        if self._holds_until:
            self._book.confirm(list(self._holds_until))


def _refused(reply: RawReply) -> RegistryError:
    if reply.status == HTTPStatus.NOT_FOUND:
        return WrongRegistryAnswer("HTTP 404: the platform knows no such service; check its name, or the url")
    return refusal(Reply(reply.status, {}, reply.body))


def _access(settings: HttpRegistry) -> Access:
    tls = settings.tls
    return Access(
        username=settings.username,
        password_file=settings.password_file,
        bearer_token_file=settings.bearer_token_file,
        headers=settings.headers,
        ca_file=tls.ca_file,
        cert_file=tls.cert_file,
        key_file=tls.key_file,
        insecure_skip_verify=tls.insecure_skip_verify,
    )
