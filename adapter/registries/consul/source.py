"""Consul: a blocking query for each service, so that changes arrive at once, and a liveness probe for the connection.

The liveness probe asks for Consul's own servers every few seconds. It tells a quiet service from a dead server, shows
that an empty list is not due to missing rights, and is the first to see that another cluster answers. While it
succeeds, the last answers of waiting queries are confirmed; when it fails, all queries end, and start again after it.
It does not show whether registrations and the results of checks survived a restart: an empty list then needs other
evidence (`AnswerHistory.is_alive`), and checks that turned critical are in doubt for a while (`CriticalChecks`).
"""

import asyncio
import random
from collections.abc import Iterable
from dataclasses import replace
from http import HTTPStatus
from typing import NamedTuple

from adapter.load.roster import Instance
from adapter.registries.client import Failover, answering, base_urls, registry_client, send
from adapter.registries.consul import wire
from adapter.registries.roster import RECOVERY_SECONDS, ServiceKey
from adapter.registries.roster_cache import RosterCache
from adapter.runtime.answer_budget import MIB, Limit
from adapter.runtime.backoff import Backoff
from adapter.runtime.concurrency import wait_for_event
from adapter.runtime.outbound import Client
from adapter.runtime.source_errors import NotAllowed, SourceError, SourceUnreachable, WrongRegistryAnswer
from adapter.settings.registries import ConsulRegistry

LIVENESS_SECONDS = 5.0
"""The interval of the liveness probe."""
GAP_SECONDS = 0.2
"""The shortest time between two answers about one service: a rollout of 500 pods would be 500 answers of 1 MiB."""
LARGEST_PROBE = Limit(MIB)
"""The limit of the list of Consul's own servers."""
AT_ONCE = 8
"""Concurrent lists: after a reconnect all services are listed together."""

_SHORTEST_WAIT = 0.75
_SERVER_JITTER = 17 / 16  # Consul adds up to a sixteenth to the wait, so that not all queries end together


class ConsulSource:
    """Follows services in one Consul datacenter."""

    def __init__(self, settings: ConsulRegistry, cache: RosterCache) -> None:
        self._settings = settings
        self._cache = cache
        self._failover = Failover(base_urls(settings.servers), self._mark_lost)
        self._wake = asyncio.Event()
        self._list_slots = asyncio.Semaphore(AT_ONCE)
        self._followers: dict[ServiceKey, asyncio.Task[None]] = {}
        self._waiting: set[ServiceKey] = set()
        """Services with a valid last answer and a query that waits for the next."""
        self._indexes: dict[ServiceKey, int] = {}
        self._criticals: dict[ServiceKey, CriticalChecks] = {}
        self._server_ids: frozenset[str] = frozenset()
        self._alive = False
        self._hidden = False
        """Whether an empty list may be due to missing rights, without a sign of it."""
        self._lost = False

    def refresh(self) -> None:
        """Follow the services of the cache from now on."""
        self._end([key for key in self._followers if key not in self._cache.keys])
        for remembered in (self._indexes, self._criticals):
            for key in remembered.keys() - self._cache.keys:
                del remembered[key]
        self._wake.set()

    async def run(self) -> None:
        """Follow the services until cancelled."""
        # The liveness probe has a connection of its own, so that Consul's limit of connections does not stop it.
        liveness = Client(self._settings.access, timeout=self._settings.timeout_seconds, at_once=1, limit=LARGEST_PROBE)
        client = registry_client(self._settings, at_once=0)  # one connection for each service
        try:
            async with asyncio.TaskGroup() as group:
                backoff = Backoff()
                while True:
                    self._wake.clear()
                    try:
                        await self._failover.ask(lambda server: self._probe(liveness, server))
                    except SourceError as error:
                        self._mark_lost()
                        self._end(list(self._followers))
                        self._cache.failed(error)
                        await asyncio.sleep(min(backoff.next(), LIVENESS_SECONDS))
                        continue
                    backoff.reset()
                    if self._lost:
                        self._lost = False
                        self._cache.reconnected()
                        self._end(list(self._followers))
                    for key in self._cache.keys - self._followers.keys():
                        self._followers[key] = group.create_task(self._follow(client, key))
                    self._cache.confirm(self._waiting)
                    if await wait_for_event(self._wake, LIVENESS_SECONDS):
                        await asyncio.sleep(GAP_SECONDS)  # when a server dies, the services fail one after another
        finally:
            self._followers.clear()
            await client.close()
            await liveness.close()

    async def _probe(self, liveness: Client, server: str) -> None:
        """List Consul's own servers: whether it is alive, and still the same cluster."""
        # `stale` is answered at once, even without a leader; other requests wait 7 s for one before they fail.
        params = {**self._where(), "stale": ""}
        reply = await send(liveness, "GET", server + wire.path(wire.CONSUL), params=params)
        headers = wire.headers(reply, server)
        servers = wire.server_ids(reply.body, server)
        if servers and self._server_ids and not servers & self._server_ids:
            self._mark_lost()
        self._server_ids = servers or self._server_ids
        self._hidden = headers.default_deny and not self._settings.token_file
        self._alive = bool(servers) and not self._hidden

    def _mark_lost(self) -> None:
        self._lost = True

    def _end(self, keys: Iterable[ServiceKey]) -> None:
        for key in keys:
            self._followers.pop(key).cancel()
            self._waiting.discard(key)

    async def _follow(self, client: Client, key: ServiceKey) -> None:
        backoff = Backoff()
        index = 0
        while True:
            asked_at = asyncio.get_running_loop().time()
            try:
                index = await self._query(client, key, index)
            except SourceError as error:
                self._cache.failed(error, [key])
                self._wake.set()
                if self._lost:
                    return  # the next probe that succeeds starts the query again
                index = 0
                await asyncio.sleep(backoff.next())
            else:
                backoff.reset()
                await asyncio.sleep(asked_at + GAP_SECONDS - asyncio.get_running_loop().time())

    async def _query(self, client: Client, key: ServiceKey, index: int) -> int:
        """Ask for a list newer than `index`, or with 0 for the current one; the index to ask with next."""
        server = self._failover.current
        if key.group:
            raise SourceError(f"{server}: Consul has no groups; take group {key.group!r} out of the policy")
        if not index:
            return await self._list(client, server, key)
        # A random length, so that queries that began together do not end together.
        wait = self._settings.wait_seconds * random.uniform(_SHORTEST_WAIT, 1)  # noqa: S311  spreads load
        params = {**self._where(key), "index": str(index), "wait": f"{wait * 1000:.0f}ms"}
        deadline = wait * _SERVER_JITTER + self._settings.timeout_seconds
        url = server + wire.path(key.service)
        self._waiting.add(key)
        try:
            reply = await send(client, "GET", url, params=params, deadline=deadline, keep=False)
        except SourceUnreachable:
            self._mark_lost()  # a restart can be over before the next probe
            raise
        finally:
            self._waiting.discard(key)
        if reply.status >= HTTPStatus.INTERNAL_SERVER_ERROR and reply.status != HTTPStatus.GATEWAY_TIMEOUT:
            self._mark_lost()  # an agent that stops ends its waiting queries so; a proxy cuts long ones with a 504
        headers = wire.headers(reply, server)
        # A waiting query only tells when to list: it is answered from a stream, which never reports that it is filtered
        # (1.13), and is an empty list for a token that lost its rights. The list is read without news too: a change
        # that the stream missed is seen after one wait, and the sign of life is as new as the list.
        later = await self._list(client, server, key)
        return max(later, headers.revision) if later and headers.revision >= index else 0

    async def _list(self, client: Client, server: str, key: ServiceKey) -> int:
        """Read the current list; the index to wait with, 0 where it decreased and the list must be read again."""
        url = server + wire.path(key.service)
        async with self._list_slots, answering(client, "GET", url, params=self._where(key)) as reply:
            headers = wire.headers(reply, server)
            if headers.revision < 1:
                raise WrongRegistryAnswer(f"{server}: the answer carries no X-Consul-Index; ask Consul without a cache")
            if headers.filtered:
                raise NotAllowed(
                    f"{server}: the token may not see all of {key}; give it service:read on the service and node:read"
                )
            listed = await wire.registrations(
                reply.body,
                server,
                pod_name_key=self._settings.pod_name_key,
                warning_is_out=self._settings.warning_is_out,
            )
        if not listed and self._hidden:
            raise NotAllowed(
                f"{server}: an empty list for {key} without a token, where Consul denies by default, means nothing; "
                "set tokenFile to a token with service:read and node:read"
            )
        instances = tuple(registration.instance for registration in listed)
        went_back = headers.revision < self._indexes.get(key, 0)
        if not went_back:  # else it is the first answer after a restart, which the cache rejects
            criticals = self._criticals.setdefault(key, CriticalChecks())
            instances = criticals.judge(listed, self._cache.clock(), self._cache.hold_until)
        self._cache.update(key, instances, index=headers.revision, alive=self._alive)
        self._indexes[key] = headers.revision
        return 0 if went_back else headers.revision

    def _where(self, key: ServiceKey | None = None) -> dict[str, str]:
        """The query parameters that place a service; without one those of the datacenter."""
        places = {"dc": self._settings.datacenter}
        if key is not None:
            places |= {"ns": key.namespace or self._settings.namespace, "partition": self._settings.partition}
        return {name: value for name, value in places.items() if value}


class _Seen(NamedTuple):
    """A registration in the last answer. Times are epoch seconds.

    `since`: since when it has been critical, or in maintenance, as `status` says; None where it is neither. `until`:
    when the doubt after a reconnect ends. `back_until`: until when its agent, just back, may report its checks anew.
    `unreported`: in doubt, because its checks that may be silent have not been reported since then.
    """

    status: str = ""
    since: float | None = None
    until: float = 0.0
    node_failed: bool = False
    back_until: float = 0.0
    unreported: bool = False


_Key = tuple[str, str, str, int | None]
"""The node's id, the registration's, its address and port."""
_OUT = {wire.CRITICAL, wire.MAINTENANCE}


class CriticalChecks:
    """What the earlier answers about one service say of its critical registrations. Times are epoch seconds.

    An agent reports every check as critical from its start until its first run or report, without an output. A run
    that fails has one; a script, or a service that reports a failure, may give none. So such checks are in doubt where
    the registration is new or its node had failed, and every check that turned critical after a reconnect for a while.
    A registration that has been critical, or in maintenance, since before a pod started is of another pod, which had
    the address before (`registered_at`). Maintenance is a statement, and never in doubt.
    """

    def __init__(self) -> None:
        self._seen: dict[_Key, _Seen] | None = None

    def judge(self, listed: Iterable[wire.Registration], now: float, hold_until: float) -> tuple[Instance, ...]:
        """The instances, the doubtful ones marked. `hold_until`: when the doubt after a reconnect ends."""
        before, self._seen = self._seen, {}
        judged = []
        for registration in listed:
            instance = registration.instance
            key = *registration.id, instance.ip, instance.port
            # Of the first answer it is not known how its registrations came to be.
            last = before.get(key, _Seen(node_failed=True)) if before is not None else _Seen()
            is_back = last.node_failed and not registration.node_failed
            back_until = now + RECOVERY_SECONDS if is_back else last.back_until
            is_critical = instance.status == wire.CRITICAL
            unreported = is_critical and registration.unreported and (last.unreported or now < back_until)
            since = None
            if instance.status in _OUT:
                since = last.since if last.status == instance.status else now
            was_critical = is_critical and last.status == instance.status
            until = last.until if was_critical and last.until <= now else hold_until
            if last.unreported and not unreported:
                back_until = 0.0
            self._seen[key] = _Seen(instance.status, since, until, registration.node_failed, back_until, unreported)
            if is_critical:
                until = max(until, instance.doubtful_until or 0.0, wire.UNTIL_CHECKED if unreported else 0.0)
                instance = replace(instance, doubtful_until=until if until > now else None)
            judged.append(instance if since is None else replace(instance, registered_at=since))
        return tuple(judged)
