"""Eureka, of Netflix or Spring Cloud, as a registry: changes are polled for, of all services in one request.

A poll asks for the delta, which tells of the changes of the last minutes, and compares the hash that comes with it. The
whole list is read at the start, where the hash says that a change was missed, after a gap or on another peer, where a
new service is asked for, and once in a while: the hash counts statuses, and cannot see two that were exchanged.

What is evidence: OUT_OF_SERVICE and DOWN, as the instance's status or as an override that waits behind STARTING; not
STARTING and UNKNOWN, for such an instance is registered, and nobody pulled it out. An instance that lingers although
its lease ended (self-preservation) counts by its status, and its service is marked as protected. A restarted server is
empty until its clients have registered anew: the book hears of a reconnect.

By default a server answers from a copy that is up to 30 s old. With `eureka.server.use-read-only-response-cache: false`
it shows changes at once, but for those that come while it puts an answer together: these it shows with the next change,
or once its cache expires (180 s; `eureka.server.response-cache-auto-expiration-in-seconds`).
"""

import asyncio
from collections.abc import Collection, Iterable
from typing import NamedTuple

import msgspec

from adapter.load.roster import Instance, Roster
from adapter.registries.client import Failover, answering, registry_client
from adapter.registries.eureka.state import RegistryCopy
from adapter.registries.eureka.wire import Applications
from adapter.registries.roster import ServiceKey
from adapter.registries.roster_cache import RosterCache
from adapter.runtime.answer_budget import Body
from adapter.runtime.backoff import Backoff
from adapter.runtime.json_pieces import Uncut
from adapter.runtime.outbound import Answer, Client, Reply
from adapter.runtime.slices import Slices
from adapter.runtime.source_errors import (
    NotAuthenticated,
    SourceError,
    SourceFailing,
    SourceUnreachable,
    WrongRegistryAnswer,
)
from adapter.settings.registries import EurekaRegistry

LONGEST_GAP_SECONDS = 45.0
"""After so long without an answer a delta may lack changes: servers keep them for 180 s, Polaris for 60 s."""
RELIST_SECONDS = 120.0
LEAST_RELIST_SECONDS = 10.0
"""How often a hash that does not match may make the whole list be read."""


class _Page(NamedTuple):
    """What the book heard of a service. `alive`: the service is empty, but others of this Eureka are not."""

    instances: tuple[Instance, ...]
    protected: bool
    alive: bool


class EurekaSource:
    """Follows services of one Eureka. `settings` are of this registry, `book` keeps what it says."""

    def __init__(self, settings: EurekaRegistry, book: RosterCache) -> None:
        self._settings = settings
        self._book = book
        self._peers = Failover(settings.servers, self._on_switch)
        self._wanted: dict[str, frozenset[ServiceKey]] = {}
        """By name of the application, in capitals: Eureka does not tell cases apart."""
        self._told: dict[ServiceKey, _Page] = {}
        self._copy: RegistryCopy | None = None
        self._verified = b""
        """The digest of the last delta after which the hash matched: while it comes again, nothing has changed."""
        self._lost = False
        self._answered_at = self._listed_at = float("-inf")
        self._news = asyncio.Event()

    def watch(self, keys: Iterable[ServiceKey]) -> None:
        """Follow exactly these services from now on. Namespace and group mean nothing to Eureka."""
        self._book.watch(keys)
        wanted: dict[str, set[ServiceKey]] = {}
        for key in self._book.keys:
            wanted.setdefault(key.service.upper(), set()).add(key)
        self._wanted = {name: frozenset(of_one) for name, of_one in wanted.items()}
        self._told = {key: page for key, page in self._told.items() if key in self._book.keys}
        self._news.set()

    def roster(self, key: ServiceKey) -> Roster | None:
        """The latest answer about a service, valid or not; None where there was none yet."""
        return self._book.roster(key)

    async def run(self) -> None:
        """Follow the services until cancelled."""
        client = registry_client(self._settings)
        backoff = Backoff()
        self._copy = None  # an earlier run may have ended in the midst of a change
        try:
            while True:
                while not self._wanted:
                    self._news.clear()
                    await self._news.wait()
                self._news.clear()
                await self._rest(await self._turn(client, backoff))
        finally:
            await client.close()

    async def _turn(self, client: Client, backoff: Backoff) -> float:
        """Ask once; the answer is how long to rest, in seconds."""
        try:
            await self._peers.ask(lambda server: self._look(client, server))
        except SourceError as error:
            self._lost = self._lost or isinstance(error, SourceUnreachable | SourceFailing)
            self._book.failed(error)
            return max(backoff.next(), self._settings.interval_seconds)
        backoff.reset()
        return self._settings.interval_seconds

    async def _rest(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._news.wait()
        except TimeoutError:
            return

    def _on_switch(self) -> None:
        # Peers tell each other of changes later: what another one says is not measured against what the first said.
        self._copy = None
        self._book.reconnected()

    # --- asking ---

    async def _look(self, client: Client, server: str) -> None:
        copy, gap = self._copy, self._book.clock() - self._answered_at
        if copy is None or self._is_list_due(copy) or not 0 <= gap <= LONGEST_GAP_SECONDS:
            await self._list(client, server)
            return
        async with answering(client, "GET", f"{server}/apps/delta") as reply:
            # 403: the server was told not to offer deltas. 404: it is another's implementation.
            told = reply.status not in {403, 404} and await self._change(copy, self._accept(server, reply))
        if not told:
            await self._list(client, server)

    def _is_list_due(self, copy: RegistryCopy) -> bool:
        if not self._wanted.keys() <= copy.kept:
            return True
        return self._book.clock() - self._listed_at > RELIST_SECONDS

    async def _change(self, copy: RegistryCopy, body: Body) -> bool:
        """Take over a delta; False where the whole list is to be read."""
        digest = body.digest()
        if digest and digest == self._verified:
            await self._tell(copy, ())
            self._book.confirm()
            return True
        self._verified = b""
        try:
            found = Applications(body)
            changed = await copy.apply(found)
        except (msgspec.MsgspecError, Uncut):
            return False
        matches = found.hashcode == copy.hashcode
        self._verified = digest if matches else b""
        if not matches and self._book.clock() - self._listed_at > LEAST_RELIST_SECONDS:
            return False
        await self._tell(copy, changed)
        if matches:
            self._book.confirm()
        return True

    async def _list(self, client: Client, server: str) -> None:
        async with answering(client, "GET", f"{server}/apps/") as reply:
            body = self._accept(server, reply)
            before, copy = self._copy, RegistryCopy(self._wanted, self._settings.pod_name_key)
            self._copy = None
            try:
                await copy.fill(Applications(body), self._book.clock(), before)
            except (msgspec.MsgspecError, Uncut) as error:
                raise _unreadable(server, error) from error
        if before is not None and before.count and not copy.count:
            self._book.reconnected()  # the server was restarted: nobody leaves all at once
        self._copy, self._verified, self._listed_at = copy, b"", self._book.clock()
        await self._tell(copy, copy.kept)
        self._book.confirm()

    async def _tell(self, copy: RegistryCopy, changed: Collection[str]) -> None:
        """Write down what these applications are now, those that were asked for lately, and those that are empty."""
        slices = Slices()
        for name, keys in list(self._wanted.items()):
            if name not in copy.kept or not (name in changed or name not in copy or not keys <= self._told.keys()):
                continue
            instances = copy.instances(name)
            page = _Page(instances, name in copy.protected, alive=not instances and copy.count > 0)
            for key in self._wanted.get(name, ()):
                if self._told.get(key) != page:
                    self._told[key] = page
                    self._book.heard(key, page.instances, protected=page.protected, alive=page.alive)
            await slices.breathe()

    def _accept(self, server: str, reply: Answer) -> Body:
        """The body of a good answer. Raises SourceError for others."""
        if reply.status != 200:
            raise _refused(server, reply.plain)
        if self._lost:
            self._lost = False
            self._book.reconnected()  # it may have been restarted meanwhile, and lack who has not come back yet
        self._answered_at = self._book.clock()
        return reply.body


def _refused(server: str, reply: Reply) -> SourceError:
    """The error for a status that is no answer. The server's own words are long, and say less than these."""
    status = reply.status
    where = f" (it redirects to {reply.headers['Location']})" if "Location" in reply.headers else ""
    kind, why = _kind_and_cause(status)
    return kind(f"{server}: HTTP {status}: {why}{where}", public=f"HTTP {status}: {why}")


def _kind_and_cause(status: int) -> tuple[type[SourceError], str]:
    if status == 401:
        return NotAuthenticated, "wrong user or password; check username and passwordFile"
    if status == 403:
        # Eureka itself knows no rights. It refuses so while it waits for its peers after its start.
        return SourceFailing, "it has just started and waits for its peers, or this user may not read it"
    if status == 404:
        return WrongRegistryAnswer, "no Eureka here; check the prefix, mostly /eureka, or /eureka/v2 of Netflix"
    if status == 429 or status >= 500:
        return SourceFailing, "the server is in trouble itself; see its log"
    return WrongRegistryAnswer, "this is no answer of Eureka; check the address"


def _unreadable(server: str, error: Exception) -> SourceError:
    return WrongRegistryAnswer(f"{server}: not the JSON of Eureka ({error}); check the address")
