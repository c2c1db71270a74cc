"""Consul: a blocking query for each service, so that changes arrive at once.

A query that ends without news is followed by a list too, so each list is at most `waitSeconds` old while Consul lives.
"""

import asyncio
import random
from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from typing import NamedTuple

from adapter.load.roster import Instance
from adapter.registries.client import Failover, answering, base_urls, registry_client, send
from adapter.registries.consul import wire
from adapter.registries.roster import ServiceKey
from adapter.registries.roster_cache import RosterCache
from adapter.runtime.backoff import Backoff
from adapter.runtime.outbound import Client
from adapter.runtime.source_errors import NotAllowed, SourceError, WrongRegistryAnswer
from adapter.settings.registries import ConsulRegistry

GAP_SECONDS = 0.2
"""The shortest time between two answers about one service: a rollout of 500 pods would be 500 answers of 1 MiB."""
AGENT_START_SECONDS = 90.0
"""How long after its return an agent may call checks critical that have not run."""
AT_ONCE = 8
"""Concurrent lists: after a reconnect all services are listed together."""

_SHORTEST_WAIT = 0.75
_SERVER_JITTER = 17 / 16  # Consul adds up to a sixteenth to the wait, so that not all queries end together


class ConsulSource:
    """Follows services in one Consul datacenter."""

    def __init__(self, settings: ConsulRegistry, cache: RosterCache) -> None:
        self._settings = settings
        self._cache = cache
        self._failover = Failover(base_urls(settings.servers))
        self._changed = asyncio.Event()
        self._list_slots = asyncio.Semaphore(AT_ONCE)
        self._followers: dict[ServiceKey, asyncio.Task[None]] = {}
        self._criticals: dict[ServiceKey, CriticalChecks] = {}

    def refresh(self) -> None:
        """Follow the services of the cache from now on."""
        for key in self._followers.keys() - self._cache.keys:
            self._followers.pop(key).cancel()
            self._criticals.pop(key, None)
        self._changed.set()

    async def run(self) -> None:
        """Follow the services until cancelled."""
        client = registry_client(self._settings, at_once=0)  # one connection for each service
        try:
            async with asyncio.TaskGroup() as group:
                while True:
                    self._changed.clear()
                    for key in self._cache.keys - self._followers.keys():
                        self._followers[key] = group.create_task(self._follow(client, key))
                    await self._changed.wait()
        finally:
            self._followers.clear()
            await client.close()

    async def _follow(self, client: Client, key: ServiceKey) -> None:
        backoff = Backoff()
        index = 0
        while True:
            asked_at = asyncio.get_running_loop().time()
            try:
                index = await self._failover.ask(partial(self._query, client, key, index))
            except SourceError as error:
                self._cache.failed(error, [key])
                index = 0
                await asyncio.sleep(backoff.next())
            else:
                backoff.reset()
                await asyncio.sleep(asked_at + GAP_SECONDS - asyncio.get_running_loop().time())

    async def _query(self, client: Client, key: ServiceKey, index: int, server: str) -> int:
        """Ask for a list newer than `index`, or with 0 for the current one; the index to ask with next."""
        if key.group:
            raise SourceError(f"{server}: Consul has no groups; take group {key.group!r} out of the policy")
        if not index or server != self._failover.current:
            return await self._list(client, server, key)
        # A random length, so that queries that began together do not end together.
        wait = self._settings.wait_seconds * random.uniform(_SHORTEST_WAIT, 1)  # noqa: S311  spreads load
        params = {**self._where(key), "index": str(index), "wait": f"{wait * 1000:.0f}ms"}
        deadline = wait * _SERVER_JITTER + self._settings.timeout_seconds
        url = server + wire.path(key.service)
        headers = wire.headers(await send(client, "GET", url, params=params, deadline=deadline, keep=False), server)
        # A waiting query only tells when to list: it is answered from a stream, which never reports that it is filtered
        # (1.13), and is an empty list for a token that lost its rights. The list is read without news too: a change
        # that the stream missed is seen after one wait.
        later = await self._list(client, server, key)
        return max(later, headers.revision) if headers.revision >= index else 0

    async def _list(self, client: Client, server: str, key: ServiceKey) -> int:
        """Read the current list; the index to wait with."""
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
        if not listed and headers.default_deny and not self._settings.token_file:
            raise NotAllowed(
                f"{server}: an empty list for {key} without a token, where Consul denies by default, means nothing; "
                "set tokenFile to a token with service:read and node:read"
            )
        instances = self._criticals.setdefault(key, CriticalChecks()).judge(listed, self._cache.clock())
        self._cache.update(key, instances)
        return headers.revision

    def _where(self, key: ServiceKey) -> dict[str, str]:
        """The query parameters that place a service."""
        places = {
            "dc": self._settings.datacenter,
            "ns": key.namespace or self._settings.namespace,
            "partition": self._settings.partition,
        }
        return {name: value for name, value in places.items() if value}


class _Seen(NamedTuple):
    """A registration in the last answer. Times are epoch seconds.

    `since`: since when it has been critical, or in maintenance, as `status` says; None where it is neither.
    `back_until`: until when its agent, just back, may call its checks critical without a run. `unreported`: in doubt,
    because its checks that may be silent have not been reported since then.
    """

    status: str = ""
    since: float | None = None
    node_failed: bool = False
    back_until: float = 0.0
    unreported: bool = False


_Key = tuple[str, str, str, int | None]
"""The node's id, the registration's, its address and port."""
_OUT = {wire.CRITICAL, wire.MAINTENANCE}


class CriticalChecks:
    """What the earlier answers about one service say of its critical registrations.

    An agent reports every check as critical from its start until its first run or report, without an output. A run
    that fails has one; a script, or a service that reports a failure, may give none. So such checks are in doubt where
    the registration is new or its node had failed a moment ago. A registration that has been critical, or in
    maintenance, since before a pod started is of another pod, which had the address before (`registered_at`).
    """

    def __init__(self) -> None:
        self._seen: dict[_Key, _Seen] | None = None

    def judge(self, listed: Iterable[wire.Registration], now: float) -> tuple[Instance, ...]:
        """The instances, the doubtful ones marked; `now` in epoch seconds."""
        before, self._seen = self._seen, {}
        judged = []
        for registration in listed:
            instance = registration.instance
            key = *registration.id, instance.ip, instance.port
            # Of the first answer it is not known how its registrations came to be.
            last = before.get(key, _Seen(node_failed=True)) if before is not None else _Seen()
            is_back = last.node_failed and not registration.node_failed
            back_until = now + AGENT_START_SECONDS if is_back else last.back_until
            is_critical = instance.status == wire.CRITICAL
            unreported = is_critical and registration.unreported and (last.unreported or now < back_until)
            if last.unreported and not unreported:
                back_until = 0.0
            since = None
            if instance.status in _OUT:
                since = last.since if last.status == instance.status else now
                instance = replace(instance, registered_at=since)
            if unreported:
                instance = replace(instance, doubtful_until=wire.UNTIL_CHECKED)
            self._seen[key] = _Seen(instance.status, since, registration.node_failed, back_until, unreported)
            judged.append(instance)
        return tuple(judged)
