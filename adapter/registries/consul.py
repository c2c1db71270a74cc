"""Consul: a blocking query for each service, so that changes arrive at once; each list is confirmed within 11 s.

A blocking query only says when to read: agents answer it from a stream, which never reports that ACLs filter it, and
which is an empty list for a token that lost its rights. So the list is read with a plain query after each change of
their answers, and once a minute without one.

A failing check and maintenance of the service or its node pull an instance out, as does the weight 0.
"""

import asyncio
import random
from collections.abc import AsyncGenerator, Iterator, Mapping
from functools import partial
from typing import NamedTuple

import msgspec

from adapter.load.roster import Instance, Roster
from adapter.registries.servers import Servers, digest, path_segment, refusal, sleep_until
from adapter.registries.source import ServiceKey, decoded
from adapter.runtime.decoding import Decoder
from adapter.runtime.http import Reply
from adapter.runtime.source_errors import NotAllowed, NotAuthenticated, SourceError, SourceFailing, WrongAnswer
from adapter.settings.registries import ConsulRegistry

GAP_SECONDS = 0.2
"""The shortest time between two lists of one service: a rollout of 500 pods would be 500 answers of 1 MiB."""
COMMIT_SECONDS = (0.02, 0.05, 0.1, 0.3, 1.0)
"""Pauses before a list that is older than the change is read again: a server streams a change before it commits it."""
AT_ONCE = 8
"""Concurrent lists: after a reconnect all services are listed together."""
LIST_SECONDS = 60.0
"""How long equal answers to blocking queries confirm a list."""

_SERVER_JITTER = 17 / 16  # Consul adds up to a sixteenth to the wait, so that not all queries end together
_RIGHTS = "give the token service:read on the service and node:read"


class _Address(msgspec.Struct, rename="pascal"):
    address: str = ""
    port: int = 0


class _Weights(msgspec.Struct, rename="pascal"):
    passing: int = 1
    warning: int = 1


class _Node(msgspec.Struct, rename="pascal"):
    address: str = ""


class _Service(msgspec.Struct, rename="pascal"):
    address: str = ""
    port: int = 0
    weights: _Weights = msgspec.field(default_factory=_Weights)
    meta: Mapping[str, str] | None = None
    tagged_addresses: Mapping[str, _Address] | None = None


class _Check(msgspec.Struct, rename="pascal"):
    id: str = msgspec.field(name="CheckID")
    status: str


class _Entry(msgspec.Struct, rename="pascal"):
    node: _Node
    service: _Service
    checks: list[_Check]


_ENTRIES = Decoder(list[_Entry])


class _Last(NamedTuple):
    """The last list of a service: its server, the index `at` which to wait, the digests of the bodies, and the list.

    `until` (the loop's time): how long an equal answer to a blocking query confirms it.
    """

    server: str = ""
    at: int = 0
    waited: str = ""
    listed: str = ""
    answer: Roster = Roster(())
    until: float = 0.0


class ConsulSource:
    """Follows services in one Consul datacenter."""

    def __init__(self, settings: ConsulRegistry) -> None:
        self._settings = settings
        self._servers = Servers(settings, at_once=0)  # one connection for each service
        self._list_slots = asyncio.Semaphore(AT_ONCE)

    async def instances(self, key: ServiceKey) -> AsyncGenerator[Roster, None]:
        """The instance lists of a service, after each change and after each wait without one. Raises SourceError."""
        if key.group:
            raise SourceError(f"Consul has no groups; take group {key.group!r} out of the policy")
        last, now = _Last(), asyncio.get_running_loop().time
        while True:
            earliest = now() + GAP_SECONDS
            last = await self._servers.ask(partial(self._next, key, last))
            yield last.answer
            await sleep_until(max(earliest, now()))  # a change meanwhile is in the next answer, which comes at once

    async def close(self) -> None:
        """Close the connections."""
        await self._servers.close()

    async def _next(self, key: ServiceKey, last: _Last, server: str) -> _Last:
        """Wait for a list newer than the last one of this server, if there was one, and read the list if it changed."""
        if last.server != server:
            last = _Last(server)
        now, changed_at, waited = asyncio.get_running_loop().time, 0, ""
        if last.at:
            # The first has a random length, so that queries that began together do not end together.
            wait = self._settings.wait_seconds * (1 if last.waited else random.uniform(0.1, 1))  # noqa: S311
            deadline = round(wait * _SERVER_JITTER + self._settings.timeout_seconds, 1)
            reply = await self._query(server, key, deadline, index=str(last.at), wait=f"{wait * 1000:.0f}ms")
            changed_at, waited = _index(reply), digest(reply.body)
            if changed_at == last.at and waited == last.waited and now() < last.until:
                return last
        pauses = iter(COMMIT_SECONDS)
        while True:
            async with self._list_slots:
                reply = await self._query(server, key)
            if not last.at < changed_at > _index(reply) or (pause := next(pauses, None)) is None:
                break
            await asyncio.sleep(pause)
        index, listed, answer = _index(reply), digest(reply.body), last.answer
        if index < 1:
            raise WrongAnswer("the answer carries no X-Consul-Index; ask Consul without a cache")
        if reply.headers.get("X-Consul-Results-Filtered-By-ACLs") == "true":
            raise NotAllowed(f"the token may not see all of {key}; {_RIGHTS}")
        if listed != last.listed:
            answer = read_entries(reply.body, self._settings.pod_name_key, self._settings.warning_is_out)
        denies = reply.headers.get("X-Consul-Default-ACL-Policy") == "deny"
        if not answer.instances and denies and not self._settings.token_file:
            raise NotAllowed(
                f"an empty list for {key} without a token, where Consul denies by default, means nothing; "
                "set tokenFile to a token with service:read and node:read"
            )
        # An index that went back (a restored or another server) is not waited with.
        index = 0 if changed_at < last.at else max(index, changed_at)
        return _Last(server, index, waited, listed, answer, now() + LIST_SECONDS)

    async def _query(self, server: str, key: ServiceKey, deadline: float | None = None, **waiting: str) -> Reply:
        """The health endpoint's answer about a service. Raises SourceError for one that is no list."""
        place = {
            "dc": self._settings.datacenter,
            "ns": key.namespace or self._settings.namespace,
            "partition": self._settings.partition,
        }
        params = {**{name: value for name, value in place.items() if value}, **waiting}
        url = f"{server}/v1/health/service/{path_segment(key.service)}"
        reply = await self._servers.send("GET", url, params=params, deadline=deadline)
        streamed = reply.headers.get("X-Consul-Query-Backend") == "streaming"  # a streamed answer always has "false"
        if reply.status != 200:
            raise _refused(reply)
        if reply.headers.get("X-Consul-KnownLeader") == "false" and not streamed:
            raise SourceFailing("this Consul server knows no leader; look after the cluster's quorum")
        return reply


def _index(reply: Reply) -> int:
    """The index of an answer; 0 if the header is missing or not a number."""
    index = reply.headers.get("X-Consul-Index", "")
    return int(index) if index.isdecimal() else 0


def _refused(reply: Reply) -> SourceError:
    error = refusal(reply)
    if reply.status in {401, 403} and b"ACL not found" in reply.body:
        return NotAuthenticated(f"{error}; Consul does not know the token in tokenFile", public=error.public)
    if reply.status in {401, 403}:
        return NotAllowed(f"{error}; {_RIGHTS}", public=error.public)
    if reply.status == 429:
        advice = "let each client have more connections than there are services (limits.http_max_conns_per_client)"
        return SourceFailing(f"{error}; {advice}", public=error.public)
    return error


def read_entries(body: bytes, pod_name_key: str, warning_is_out: bool) -> Roster:
    """The instances of an answer of the health endpoint. Raises WrongAnswer."""
    entries = decoded(_ENTRIES, body, "not an answer of Consul's health endpoint")
    return Roster(tuple(each for entry in entries for each in _instances(entry, pod_name_key, warning_is_out)))


def _instances(entry: _Entry, pod_name_key: str, warning_is_out: bool) -> Iterator[Instance]:
    """The instances of an entry, one for each of its LAN addresses."""
    service, status = entry.service, _status(entry.checks)
    meta = service.meta or {}
    address = service.address or entry.node.address
    # The other family's address, too. Virtual and WAN addresses belong to no pod.
    tagged = [each for name, each in (service.tagged_addresses or {}).items() if name.startswith("lan_")]
    others = [(each.address, each.port or service.port) for each in tagged if each.address not in {"", address}]
    for ip, port in [(address, service.port), *others]:
        yield Instance(
            ip=ip,
            port=port or None,
            healthy=status == "PASSING" or (status == "WARNING" and not warning_is_out),
            # A registration that states its passing weight alone gets an unintended warning weight of 0.
            weight=(service.weights.warning or None) if status == "WARNING" else service.weights.passing,
            status=status,
            # As consul-k8s names them.
            pod_uid=meta.get("pod-uid", ""),
            pod_name=meta.get(pod_name_key or "pod-name", ""),
            pod_namespace=meta.get("k8s-namespace", ""),
            metadata=meta,
        )


def _status(checks: list[_Check]) -> str:
    """Consul's own aggregate: maintenance of node or service beats critical, that beats warning.

    The check `serfHealth` of a node counts like any other. It takes all pods of an agent out at once, and rightly:
    Consul hands out none of their addresses then. If that means every pod, it is doubt (`load.states`).
    """
    if any(check.id == "_node_maintenance" or check.id.startswith("_service_maintenance:") for check in checks):
        return "MAINTENANCE"
    statuses = {check.status for check in checks}
    return "CRITICAL" if "critical" in statuses else "WARNING" if "warning" in statuses else "PASSING"
