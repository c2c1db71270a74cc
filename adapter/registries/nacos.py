"""Nacos: each service is listed over HTTP once in an interval, by calls that differ by version and by the user's role.

Nacos omits disabled instances from the lists for clients, and shows all instances as healthy while too few are. The
lists for administrators have neither flaw.
"""

import asyncio
import base64
import contextlib
import copy
import hashlib
import hmac
import re
import time
from collections.abc import Awaitable, Callable, Mapping
from operator import attrgetter
from typing import Any, Generic, NamedTuple, TypeVar

import msgspec

from adapter.load.roster import Instance, Roster
from adapter.registries.servers import Polled, PolledSource, Servers, digest, read_secret, refusal
from adapter.registries.source import ServiceKey, decoded
from adapter.runtime.decoding import Decoder
from adapter.runtime.http import Reply
from adapter.runtime.source_errors import NotAllowed, NotAuthenticated, SourceError, WrongAnswer
from adapter.settings.registries import NacosRegistry

T = TypeVar("T")

PAGE_SIZE = 100_000
"""Page size of the catalog, large enough for all instances of a service."""
YOUNG_TOKEN_SECONDS = 30.0
"""A refused token older than this is renewed; a younger one was refused for lack of rights."""
LOGIN_PAUSE_SECONDS = 5.0
"""Time after a failed login until the next one: 500 services with a wrong password do not lock the user out."""
NO_SUCH_CALL = frozenset({404, 405, 410, 501})
"""Statuses with which servers of other versions answer a call that they do not have."""

_LOGINS = ("/v3/auth/user/login", "/v1/auth/login", "/v1/auth/users/login")
_PASSWORD_500 = b"No message available"
_READ_AT = re.compile(rb'"lastRefTime": ?\d+')
"""The time of an answer of CLIENT_1, without which unchanged lists are equal."""

Credentials = Mapping[str, Mapping[str, str]]
"""The parameters and headers that authenticate one request."""

Names = Mapping[str, str]
"""The full name of a service, as parameters: namespace, group and service."""


def grouped(names: Names) -> str:
    """Group and service as `group@@service`."""
    return f"{names['groupName']}@@{names['serviceName']}"


class Host(msgspec.Struct, rename="camel"):
    """One instance in Nacos' JSON; omitted fields have Nacos' defaults."""

    ip: str
    port: int
    weight: float = 1.0
    healthy: bool = True
    enabled: bool = True
    cluster_name: str = ""
    service_name: str | None = None
    metadata: dict[str, str | None] | None = None


class _ClientList(msgspec.Struct, rename="camel"):
    """A service as a client of Nacos 1 and 2 sees it."""

    hosts: list[Host] | None
    reach_protection_threshold: bool = False


class _CatalogPage(msgspec.Struct):
    """A page of the catalog of Nacos 2; the list is omitted if the service has no instances."""

    count: int
    instances: list[Host] | None = None


class _ServiceDetail(msgspec.Struct, rename="camel"):
    """The names of a service's clusters, in Nacos 3."""

    cluster_map: dict[str, object]


class _Result(msgspec.Struct, Generic[T]):
    """The wrapper of an answer in versions 2 and 3 of the HTTP API; `code` 0 is success."""

    code: int
    data: T | None = None
    message: str | None = None


class ListCall(NamedTuple):
    """A call of the API that lists a service's instances.

    `by_grouped_name`: the group is part of the name, because some servers ignore `groupName`.
    """

    path: str
    decoder: Decoder[Any]
    by_grouped_name: bool


ADMIN_3 = ListCall("/v3/admin/ns/instance/list", Decoder(_Result[list[Host]]), by_grouped_name=False)
ADMIN_2 = ListCall("/v2/ns/catalog/instances", Decoder(_Result[_CatalogPage]), by_grouped_name=True)
CLIENT_1 = ListCall("/v1/ns/instance/list", Decoder(_ClientList), by_grouped_name=True)
CLIENT_3 = ListCall("/v3/client/ns/instance/list", Decoder(_Result[list[Host]]), by_grouped_name=False)

ADMIN_CALLS = (ADMIN_3, ADMIN_2)
"""Calls for users that may read the namespace."""
CLIENT_CALLS = (CLIENT_1, CLIENT_3)
"""Calls that need no special right. The older one comes first, because it reports the protection threshold."""

_CLUSTERS_PATH = "/v3/admin/ns/service"
_CLUSTERS = Decoder(_Result[_ServiceDetail])
_FAILURE = Decoder(_Result[object])
_NO_SERVICE, _NO_INSTANCES = b"", b'{"code": 0, "data": []}'
_UNEXPECTED = "not what Nacos answers there"


class NacosSource(PolledSource[NacosRegistry]):
    """Follows services in one Nacos of version 2 or 3, by the first list call that a server has, until it drops it.

    `clock`: seconds that only grow, for the age of tokens.
    """

    def __init__(self, settings: NacosRegistry, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(settings)
        self._login = Login(settings, self.servers, clock)
        self._calls = ADMIN_CALLS if settings.admin else CLIENT_CALLS
        self._supported: dict[str, ListCall] = {}
        """By server."""

    async def read(self, server: str, key: ServiceKey, tag: str) -> Polled | None:
        """As `PolledSource` describes: the list of all clusters that the settings select; the tag is a digest."""
        namespace, group = self.settings.place(key.namespace, key.group)
        names = {"namespaceId": namespace, "groupName": group, "serviceName": key.service}

        async def ask(credentials: Credentials) -> list[tuple[ListCall, bytes]]:
            call, body = await self._list(server, names, credentials)
            if call is not ADMIN_3 or body == _NO_SERVICE:
                return [(call, body)]
            # Nacos 3.1 lists one cluster a call, later versions list all.
            reply = await self._get(server, _CLUSTERS_PATH, names, credentials)
            if reply.status != 200:
                raise self._refused(reply, _CLUSTERS_PATH)
            has = {host.cluster_name for host in listed_in(call, body)[0]} | {"DEFAULT"}
            clusters = _data(_CLUSTERS, reply.body).cluster_map.keys() - has
            return [(call, body), *[await self._list(server, names, credentials, name) for name in sorted(clusters)]]

        answers = await self._login.authenticated(server, grouped(names), ask)
        found = digest(_READ_AT.sub(b"", b"\n".join(body for _, body in answers)))
        if found == tag:
            return None
        lists = [listed_in(call, body) for call, body in answers]
        hosts = [host for listed, _ in lists for host in listed]
        # A proxy or a broken connection may answer with another service's list.
        if strange := {host.service_name or key.service for host in hosts} - {key.service, grouped(names)}:
            raise WrongAnswer(f"the answer is about another service: {min(strange)}")
        chosen = self.settings.clusters
        selected = [host for host in hosts if not chosen or host.cluster_name in chosen]
        # Sorted, because some servers change the order with every answer.
        selected.sort(key=attrgetter("ip", "port", "cluster_name"))
        instances = tuple(instance_of(host, self.settings.pod_name_key) for host in selected)
        return Polled(Roster(instances, protected=any(protected for _, protected in lists)), found)

    async def _list(
        self, server: str, names: Names, credentials: Credentials, cluster: str = ""
    ) -> tuple[ListCall, bytes]:
        """The first call that the server has, and the body of its answer."""
        first = self._supported.get(server, self._calls[0])
        for call in [first, *(other for other in self._calls if other is not first)]:
            params = {**names, "clusterName": cluster} if cluster else {**names}
            if call.by_grouped_name:
                params |= {"serviceName": grouped(names), "pageNo": "1", "pageSize": str(PAGE_SIZE)}
            reply = await self._get(server, call.path, params, credentials)
            if reply.status not in {200, *NO_SUCH_CALL}:
                raise self._refused(reply, call.path)
            body = reply.body if reply.status == 200 else _empty(reply, names)
            if body is not None:
                self._supported[server] = call
                return call, body
        paths = " or ".join(call.path for call in self._calls)
        advice = "does the address end with Nacos' context path (/nacos)?"
        raise WrongAnswer(f"it has no {paths}; {'set `admin: false`, or: ' if self.settings.admin else ''}{advice}")

    async def _get(self, server: str, path: str, params: Mapping[str, str], credentials: Credentials) -> Reply:
        params = {**params, **credentials.get("params", {})}
        return await self.servers.send("GET", server + path, params=params, headers=credentials.get("headers"))

    def _refused(self, reply: Reply, path: str) -> SourceError:
        error, advice = refusal(reply), "give its user the right to read this service"
        if self.settings.admin:
            advice = "give its user a role that may read (`r`) the namespace, or set `admin: false`"
        return error.with_context(path, advice if isinstance(error, NotAllowed) else "")


def listed_in(call: ListCall, body: bytes) -> tuple[list[Host], bool]:
    """The hosts in an answer to this call, and whether health is not reliable. Raises WrongAnswer."""
    if body == _NO_SERVICE:
        return [], False
    if call is CLIENT_1:
        answer: _ClientList = decoded(call.decoder, body, _UNEXPECTED)
        return answer.hosts or [], answer.reach_protection_threshold
    data = _data(call.decoder, body)
    if isinstance(data, _CatalogPage):
        hosts = data.instances or []
        if len(hosts) < data.count:
            raise WrongAnswer(f"the answer is incomplete: {len(hosts)} of {data.count} instances")
        return hosts, False
    # The clients' call of Nacos 3 hides the protection threshold: only an unhealthy instance proves that it is not
    # reached.
    return data, call is CLIENT_3 and all(host.healthy for host in data)


def instance_of(host: Host, pod_name_key: str) -> Instance:
    """The instance of a host; its metadata has the name of its pod under `pod_name_key`, unless that is empty."""
    metadata = {key: value for key, value in (host.metadata or {}).items() if value is not None}
    return Instance(
        ip=host.ip,
        port=host.port,
        enabled=host.enabled,
        healthy=host.healthy,
        weight=host.weight,
        pod_name=metadata.get(pod_name_key, ""),
        metadata=metadata,
    )


def _empty(reply: Reply, names: Names) -> bytes | None:
    """The list that a refusal stands for: there is no such service, or no instance. None if the call is missing."""
    with contextlib.suppress(msgspec.MsgspecError):
        failure = _FAILURE.decode(reply.body)
        message = str(failure.data) if failure.code else ""
        if grouped(names) in message:
            return _NO_SERVICE
        if re.match("cluster .* is not found", message):  # Nacos 3.1, for a cluster without instances
            return _NO_INSTANCES
    return None


def _data(decoder: Decoder[_Result[T]], body: bytes) -> T:
    result = decoded(decoder, body, _UNEXPECTED)
    if result.code != 0 or result.data is None:
        raise WrongAnswer(f"code {result.code}: {result.message}")
    return result.data


# --- credentials ---


class _LoginResponse(msgspec.Struct, rename="camel"):
    access_token: str


_TOKEN = Decoder(_LoginResponse)


class Login:
    """The credentials of one registry's user. All servers share one token. `clock` returns seconds that only grow."""

    def __init__(self, settings: NacosRegistry, servers: Servers, clock: Callable[[], float] = time.monotonic) -> None:
        self._settings = settings
        self._servers = servers
        self._clock = clock
        self._token = ""
        self._logged_in_at = 0.0
        self._lock = asyncio.Lock()
        self._failed: dict[str, tuple[SourceError, float]] = {}
        """The last failed login by server, and until when none is tried (the loop's time)."""

    async def authenticated(self, server: str, grouped_name: str, request: Callable[[Credentials], Awaitable[T]]) -> T:
        """Sends a request about a service; if its token is refused, because it ended, sends it again with another."""
        if self._settings.access_key_file:
            access_key = await read_secret(self._settings.access_key_file)
            key = await read_secret(self._settings.secret_key_file)
            return await request({"params": signature(access_key, key, grouped_name, time.time())})
        if not self._settings.username:
            return await request({})
        token = self._token or await self._renewed(server, "")
        try:
            return await request(_of_token(token))
        except (NotAuthenticated, NotAllowed):
            if (newer := await self._renewed(server, token)) == token:
                raise
        return await request(_of_token(newer))

    async def _renewed(self, server: str, refused: str) -> str:
        """A newer token than the refused one, or that one if it is young. Raises SourceError."""
        async with self._lock:
            if refused == self._token and (not refused or self._clock() - self._logged_in_at >= YOUNG_TOKEN_SECONDS):
                error, until = self._failed.get(server, (None, 0.0))
                now = asyncio.get_running_loop().time()
                if error is not None and now < until:
                    raise copy.copy(error)  # each with a traceback of its own
                try:
                    self._token = await self._log_in(server)
                except SourceError as failure:
                    self._failed[server] = copy.copy(failure), now + LOGIN_PAUSE_SECONDS
                    raise
                self._logged_in_at = self._clock()
            return self._token

    async def _log_in(self, server: str) -> str:
        """A new token."""
        form = {"username": self._settings.username, "password": await read_secret(self._settings.password_file)}
        for path in _LOGINS:
            reply = await self._servers.send("POST", server + path, data=form)
            if reply.status not in NO_SUCH_CALL:
                break
        else:
            raise WrongAnswer(
                "it has no login: end the address with Nacos' context path (/nacos), or leave `username` empty"
            )
        # Nacos 3.1 answers a wrong password with this 500, and an unknown user with 403.
        if reply.status in {400, 401, 403} or (reply.status == 500 and _PASSWORD_500 in reply.body):
            raise NotAuthenticated(f"login: {refusal(reply)}; check `username` and `passwordFile`")
        if reply.status != 200:
            raise refusal(reply).with_context("login")
        token = decoded(_TOKEN, reply.body, "login: not what Nacos answers there").access_token
        if not token:
            raise WrongAnswer("login: no token in the answer; leave `username` empty for this server")
        return token


def _of_token(token: str) -> Credentials:
    """A token is sent in two headers, because some versions read only one of them."""
    return {"headers": {"accessToken": token, "Authorization": f"Bearer {token}"}}


def signature(access_key: str, secret_key: str, grouped_name: str, at: float) -> dict[str, str]:
    """The three fields that authenticate a request about a service to a managed Nacos; `at` is in epoch seconds."""
    data = f"{int(at * 1000)}@@{grouped_name}"
    digest = hmac.new(secret_key.encode(), data.encode(), hashlib.sha1).digest()  # the protocol's own choice
    return {"ak": access_key, "data": data, "signature": base64.b64encode(digest).decode()}
