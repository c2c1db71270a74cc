"""Consul: a blocking query for each service, so that changes arrive by themselves, and a pulse for the connection.

The pulse asks for Consul's own servers every few seconds. It is what tells a quiet service from a dead server, the
witness that an empty list is not for want of rights, and the first to see that another cluster answers. While it
succeeds, what waiting queries last answered is confirmed; when it fails, all of them end, and begin anew after it.
What it says nothing of is whether registrations and the results of checks survived a restart: an empty list then needs
another witness (`roster.Ledger`), and checks that turned critical are doubt for a while (`consul_doubt`).
"""

import asyncio
import random
from collections.abc import Iterable, Mapping
from http import HTTPStatus

from adapter.load.roster import Roster
from adapter.registries.client import Failover, answering, registry_client, send
from adapter.registries.consul import wire
from adapter.registries.consul.critical_checks import CriticalChecks
from adapter.registries.roster import ServiceKey
from adapter.registries.roster_cache import RosterCache
from adapter.runtime.answer_budget import MIB, Limit
from adapter.runtime.backoff import Backoff
from adapter.runtime.outbound import Answer, Client, Reply
from adapter.runtime.source_errors import NotAllowed, SourceError, SourceUnreachable, WrongRegistryAnswer
from adapter.settings.registries import ConsulRegistry

PULSE_SECONDS = 5.0
"""How often the connection is proven."""
GAP_SECONDS = 0.2
"""How far apart the answers about one service are at least: a rollout of 500 pods would be 500 answers of 1 MiB."""
LARGEST_PULSE = Limit(MIB)
"""What Consul says of its own servers."""
AT_ONCE = 8
"""First questions under way at a time: after a reconnect all services are asked about together."""

_SHORTEST_WAIT = 0.75
_SERVER_JITTER = 17 / 16  # Consul adds up to a sixteenth to the wait, so that not all queries end together


class ConsulSource:
    """Follows services in one Consul datacenter; what it hears goes into the book, and failures too."""

    def __init__(self, settings: ConsulRegistry, book: RosterCache) -> None:
        self._settings = settings
        self._book = book
        self._peers = Failover(settings.servers, self._lose)
        self._wake = asyncio.Event()
        self._looks = asyncio.Semaphore(AT_ONCE)
        self._followers: dict[ServiceKey, asyncio.Task[None]] = {}
        self._waiting: set[ServiceKey] = set()
        """Services whose last answer was valid, and of which a query now waits for the next."""
        self._indexes: dict[ServiceKey, int] = {}
        self._criticals: dict[ServiceKey, CriticalChecks] = {}
        self._servers: frozenset[str] = frozenset()
        self._alive = False
        self._hidden = False
        """Whether an empty list may stand for want of rights, without a word of it."""
        self._lost = False

    def watch(self, keys: Iterable[ServiceKey]) -> None:
        """Follow exactly these services from now on."""
        self._book.watch(keys)
        self._end([key for key in self._followers if key not in self._book.keys])
        for known in (self._indexes, self._criticals):
            for key in known.keys() - self._book.keys:
                del known[key]
        self._wake.set()

    def roster(self, key: ServiceKey) -> Roster | None:
        """The latest answer about a service, from memory."""
        return self._book.roster(key)

    async def run(self) -> None:
        """Follow the services until cancelled."""
        # The pulse has a connection of its own: where Consul allows no more of them, it is not the one to go without.
        pulse = Client(self._settings.access, timeout=self._settings.timeout_seconds, at_once=1, limit=LARGEST_PULSE)
        client = registry_client(self._settings, at_once=0)  # one connection for each service
        try:
            async with asyncio.TaskGroup() as group:
                await self._keep_pulse(pulse, client, group)
        finally:
            self._followers.clear()
            await client.close()
            await pulse.close()

    # --- the connection ---

    async def _keep_pulse(self, pulse: Client, client: Client, group: asyncio.TaskGroup) -> None:
        backoff = Backoff()
        while True:
            self._wake.clear()
            try:
                await self._peers.ask(lambda server: self._beat(pulse, server))
            except SourceError as error:
                self._lose()
                self._end(list(self._followers))
                self._book.failed(error)
                await asyncio.sleep(min(backoff.next(), PULSE_SECONDS))
                continue
            backoff.reset()
            self._tend(client, group)
            self._book.confirm(self._waiting)
            await self._rest()

    async def _beat(self, pulse: Client, server: str) -> None:
        """Learn of Consul's own servers whether it is alive, and whether it is still the same cluster."""
        # `stale` is answered at once, with or without a leader; other questions wait 7 s for one before they say so.
        params = {**self._datacenter(), "stale": ""}
        reply = await send(pulse, "GET", server + wire.path(wire.CONSUL), params=params)
        found = wire.headers(reply, server)
        servers = wire.server_ids(reply.body, server)
        if servers and self._servers and not servers & self._servers:
            self._lose()
        self._servers = servers or self._servers
        self._hidden = found.default_deny and not self._settings.token_file
        self._alive = bool(servers) and not self._hidden

    def _lose(self) -> None:
        self._lost = True

    async def _rest(self) -> None:
        """Wait for the next beat, or for a service that is new, or failed."""
        try:
            async with asyncio.timeout(PULSE_SECONDS):
                await self._wake.wait()
        except TimeoutError:
            return
        await asyncio.sleep(GAP_SECONDS)  # when a server dies, all services fail one after the other

    def _tend(self, client: Client, group: asyncio.TaskGroup) -> None:
        """Follow what shall be followed; everything anew where the connection was lost."""
        if self._lost:
            self._lost = False
            self._book.reconnected()
            self._end(list(self._followers))
        for key in self._book.keys - self._followers.keys():
            self._followers[key] = group.create_task(self._follow(client, key))

    def _end(self, keys: Iterable[ServiceKey]) -> None:
        for key in keys:
            self._followers.pop(key).cancel()
            self._waiting.discard(key)

    # --- one service ---

    async def _follow(self, client: Client, key: ServiceKey) -> None:
        backoff = Backoff()
        index = 0
        while True:
            asked_at = asyncio.get_running_loop().time()
            try:
                index = await self._ask(client, key, index)
            except SourceError as error:
                self._book.failed(error, [key])
                self._wake.set()
                if index and isinstance(error, SourceUnreachable):
                    self._lose()  # a restart can be over before the next beat, which begins anew
                    return
                index = 0
                await asyncio.sleep(backoff.next())
            else:
                backoff.reset()
                await asyncio.sleep(asked_at + GAP_SECONDS - asyncio.get_running_loop().time())

    async def _ask(self, client: Client, key: ServiceKey, index: int) -> int:
        """Ask for what is newer than an index, or with 0 for what there is. The index to ask with next."""
        if key.group:
            raise SourceError(
                f"{self._peers.current}: Consul has no groups; take group {key.group!r} out of the policy"
            )
        server = self._peers.current
        if not index:
            return await self._look_at(client, server, key)
        reply = await self._wait(client, server, key, index)
        if reply.status >= HTTPStatus.INTERNAL_SERVER_ERROR:
            self._lose()  # so does an agent end what waits when it ends itself
        found = wire.headers(reply, server)
        # What has waited tells only when to look: it is answered from a stream, which never says that it is filtered
        # (1.13), and is an empty list for a token that lost its rights. Looked at without news, too: nothing that a
        # stream missed stays unseen for longer than a wait, and a sign of life is as new as the list.
        later = await self._look_at(client, server, key)
        return max(later, found.revision) if later and found.revision >= index else 0

    async def _look_at(self, client: Client, server: str, key: ServiceKey) -> int:
        """Hear what there is now. The index to wait with; 0 where it went back, and the list is to be heard again."""
        url = server + wire.path(key.service)
        async with self._looks, answering(client, "GET", url, params=self._where(key)) as reply:
            return await self._read(key, server, reply)

    async def _read(self, key: ServiceKey, server: str, reply: Answer) -> int:
        found = wire.headers(reply, server)
        if found.revision < 1:
            raise WrongRegistryAnswer(f"{server}: the answer carries no X-Consul-Index; ask Consul without a cache")
        if found.filtered:
            raise NotAllowed(
                f"{server}: the token may not see all of {key}; give it service:read on the service and node:read"
            )
        went_back = found.revision < self._indexes.get(key, 0)
        await self._hear(key, server, reply, found.revision, went_back=went_back)
        self._indexes[key] = found.revision
        return 0 if went_back else found.revision

    async def _hear(self, key: ServiceKey, server: str, reply: Answer, index: int, *, went_back: bool) -> None:
        settings = self._settings
        heard = await wire.instances(
            reply.body, server, pod_name_key=settings.pod_name_key, warning_is_out=settings.warning_is_out
        )
        if not heard and self._hidden:
            raise NotAllowed(
                f"{server}: an empty list for {key} without a token, where Consul denies by default, means nothing; "
                "set tokenFile to a token with service:read and node:read"
            )
        if not went_back:  # else it is the first that is heard of a restart, and is not believed
            criticals = self._criticals.setdefault(key, CriticalChecks())
            heard = criticals.judged(heard, self._book.clock(), self._book.hold_until)
        self._book.heard(key, heard, index=index, alive=self._alive)

    async def _wait(self, client: Client, server: str, key: ServiceKey, index: int) -> Reply:
        # Of different length each time, so that queries that began together do not end together.
        wait = self._settings.wait_seconds * random.uniform(_SHORTEST_WAIT, 1)  # noqa: S311  spreads load
        params = {**self._where(key), "index": str(index), "wait": f"{wait * 1000:.0f}ms"}
        deadline = wait * _SERVER_JITTER + self._settings.timeout_seconds
        self._waiting.add(key)
        try:
            url = server + wire.path(key.service)
            return await send(client, "GET", url, params=params, deadline=deadline, keep=False)
        finally:
            self._waiting.discard(key)

    def _where(self, key: ServiceKey) -> dict[str, str]:
        """The query parameters that place a service."""
        places = {"ns": key.namespace or self._settings.namespace, "partition": self._settings.partition}
        return {**self._datacenter(), **{name: value for name, value in places.items() if value}}

    def _datacenter(self) -> Mapping[str, str]:
        return {"dc": self._settings.datacenter} if self._settings.datacenter else {}
