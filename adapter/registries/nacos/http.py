"""Instance lists from Nacos' HTTP API, whose calls differ by version and by the user's role."""

import asyncio
import base64
import contextlib
import copy
import hashlib
import hmac
import re
from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any, NamedTuple, TypeVar

import msgspec

from adapter.registries.client import answering, read_secret, refusal, send
from adapter.registries.nacos.wire import (
    CatalogPage,
    Host,
    InstanceDecoder,
    LoginResponse,
    NacosResult,
    NacosService,
    ServiceDetail,
    ServiceInfo,
    ServiceInstances,
    decode_body,
)
from adapter.runtime.answer_budget import Body
from adapter.runtime.backoff import Backoff
from adapter.runtime.decoding import Decoder, array, read_array
from adapter.runtime.outbound import Client, Reply
from adapter.runtime.source_errors import (
    NotAllowed,
    NotAuthenticated,
    SourceError,
    WrongRegistryAnswer,
)
from adapter.settings.registries import NacosRegistry

T = TypeVar("T")

PAGE_SIZE = 100_000
"""Page size of the catalog, large enough for all instances."""
DEFAULT_CLUSTER = "DEFAULT"
"""The cluster that the administrators' list of Nacos 3.1 shows where none is named."""

_HOSTS = Decoder(list[Host])
_INFO = Decoder(ServiceInfo)
_LIST = Decoder(NacosResult[list[Host]])
_PAGE = Decoder(NacosResult[CatalogPage])
_DETAIL = Decoder(NacosResult[ServiceDetail])
_FAILURE = Decoder(NacosResult[object])


_NO_CLUSTER = re.compile(r"cluster .* is not found")
"""Nacos 3.1's error for a cluster without instances."""

YOUNG_TOKEN_SECONDS = 30.0
"""A refused token older than this is renewed; a younger one was refused for lack of rights."""

NO_SUCH_CALL = frozenset({404, 405, 410, 501})
"""Statuses with which servers of other versions answer a call that they do not have."""

_LOGINS = ("/v3/auth/user/login", "/v1/auth/login", "/v1/auth/users/login")
_PASSWORD_500 = b"No message available"
_RENEW_SHARE = 0.9
_TOKEN = Decoder(LoginResponse)


class LoginRefused(NotAuthenticated):
    """The login was refused: without a token no request can be sent."""


@dataclass(frozen=True, slots=True)
class RequestCredentials:
    """The credentials of one request: a token, the fields of a signature, or neither."""

    token: str = field(default="", repr=False)
    signature: Mapping[str, str] = field(default_factory=dict, repr=False)

    @property
    def http_headers(self) -> dict[str, str]:
        """The token as HTTP headers: two, because some versions read only one of them."""
        return {"accessToken": self.token, "Authorization": f"Bearer {self.token}"} if self.token else {}

    @property
    def grpc_headers(self) -> dict[str, str]:
        """Token or signature as headers of a gRPC message."""
        return {"accessToken": self.token} if self.token else dict(self.signature)


@dataclass(slots=True)
class _FailedLogins:
    """The last login in a row of failed ones, and until when none is tried (the loop's time)."""

    error: SourceError | None = None
    until: float = 0.0
    backoff: Backoff = field(default_factory=Backoff)


class CredentialProvider:
    """Provides credentials for each request. All servers share one token; `clock` returns epoch seconds."""

    def __init__(self, settings: NacosRegistry, client: Client, clock: Callable[[], float]) -> None:
        self._settings = settings
        self._client = client
        self._clock = clock
        self._token = ""
        self._logged_in_at = 0.0
        self._renew_at = 0.0
        self._login_lock = asyncio.Lock()
        self._failed: defaultdict[str, _FailedLogins] = defaultdict(_FailedLogins)
        """By server."""

    async def authenticated(
        self, server: str, service: NacosService, request: Callable[[RequestCredentials], Awaitable[T]]
    ) -> T:
        """Sends a request with credentials; if they are refused and a new login may help, logs in and retries once."""
        credentials = await self._current_credentials(server, service)
        try:
            return await request(credentials)
        except (NotAuthenticated, NotAllowed):
            if not credentials.token or not await self._has_newer(server, credentials.token):
                raise
        return await request(await self._current_credentials(server, service))

    async def _has_newer(self, server: str, refused: str) -> bool:
        """Whether there is a newer token than the refused one; logs in for one where that is not young."""
        async with self._login_lock:
            is_young = 0 <= self._clock() - self._logged_in_at < YOUNG_TOKEN_SECONDS
            if refused == self._token and not is_young:
                try:
                    await self._login(server)
                except LoginRefused as error:
                    raise NotAuthenticated(str(error)) from error  # of this service: others may be accepted still
            return refused != self._token

    async def _current_credentials(self, server: str, service: NacosService) -> RequestCredentials:
        if self._settings.access_key_file:
            access_key = await read_secret(self._settings.access_key_file)
            key = await read_secret(self._settings.secret_key_file)
            return RequestCredentials(signature=signature(access_key, key, service.grouped_name, self._clock()))
        if not self._settings.username:
            return RequestCredentials()
        if self._token and (self._clock() < self._renew_at or self._login_lock.locked()):
            return RequestCredentials(self._token)
        async with self._login_lock:
            if not self._token or self._clock() >= self._renew_at:
                try:
                    await self._login(server)
                except SourceError:
                    if not self._token:
                        raise  # otherwise the old one may be accepted still
            return RequestCredentials(self._token)

    async def _login(self, server: str) -> None:
        """Gets a new token; after a failure with back-off, in which every request fails as the login did."""
        failed, loop = self._failed[server], asyncio.get_running_loop()
        if failed.error is not None and loop.time() < failed.until:
            await asyncio.sleep(0)  # it may be thousands of requests that fail so
            raise copy.copy(failed.error)  # each with a traceback of its own
        try:
            token = await self._ask_for_token(server)
        except SourceError as error:
            failed.error, failed.until = copy.copy(error), loop.time() + failed.backoff.next()
            raise
        del self._failed[server]
        self._token, self._logged_in_at = token.access_token, self._clock()
        # Before the token expires, but at most once a second, so that not every request logs in.
        self._renew_at = self._logged_in_at + max(token.token_ttl * _RENEW_SHARE, 1.0)

    async def _ask_for_token(self, server: str) -> LoginResponse:
        form = {"username": self._settings.username, "password": await read_secret(self._settings.password_file)}
        for path in _LOGINS:
            reply = await send(self._client, "POST", server + path, data=form)
            if reply.status not in NO_SUCH_CALL:
                break
        else:
            raise WrongRegistryAnswer(
                f"{server} has no login: end the address with Nacos' context path (/nacos), or leave `username` empty"
            )
        if reply.status != 200:
            error = refusal(reply)
            # Nacos 3.1 answers a wrong password with this 500, and an unknown user with 403.
            if reply.status in {400, 401, 403} or (reply.status == 500 and _PASSWORD_500 in reply.body):
                raise LoginRefused(f"login at {server}: {error}; look at `username` and `passwordFile`")
            raise error.with_context(f"login at {server}")
        token = decode_body(_TOKEN, reply.body, f"login at {server}")
        if not token.access_token:
            raise WrongRegistryAnswer(
                f"login at {server}: no token in the answer; leave `username` empty for this server"
            )
        return token


def signature(access_key: str, secret_key: str, grouped_name: str, at: float) -> dict[str, str]:
    """The three fields that authenticate a request about a service to a managed Nacos; `at` is in epoch seconds."""
    data = f"{int(at * 1000)}@@{grouped_name}"
    digest = hmac.new(secret_key.encode(), data.encode(), hashlib.sha1).digest()  # the protocol's own choice
    return {"ak": access_key, "data": data, "signature": base64.b64encode(digest).decode()}


def _by_name_and_group(service: NacosService) -> Mapping[str, str]:
    cluster = {"clusterName": service.cluster} if service.cluster else {}
    return {"namespaceId": service.namespace, "groupName": service.group, "serviceName": service.name, **cluster}


def _by_grouped_name(service: NacosService) -> Mapping[str, str]:
    # The group is part of the name, because some servers ignore `groupName`.
    return {"namespaceId": service.namespace, "groupName": service.group, "serviceName": service.grouped_name}


class _ListCall(NamedTuple):
    """One of the API calls that list a service's instances.

    `key` is that of the list in its answer, `whole` decodes the answer. `infers_protection`: the answer omits the
    protection flag; where all instances are healthy, protection is assumed.
    """

    path: str
    params: Callable[[NacosService], Mapping[str, str]]
    key: str
    whole: Decoder[Any]
    infers_protection: bool = False

    async def read(self, decoder: InstanceDecoder, body: Body, source: str) -> ServiceInstances:
        """Decodes an answer. Raises WrongRegistryAnswer that names `source`."""
        try:
            hosts, answer = await read_array(body, array(self.key), _HOSTS, self.whole)
        except msgspec.MsgspecError as error:
            raise WrongRegistryAnswer(f"{source}: not what Nacos answers there: {error}") from error
        last = answer if isinstance(answer, ServiceInfo) else _data(answer, source)
        protected = partial = False
        if isinstance(last, ServiceInfo):
            hosts += last.hosts or ()
            protected = last.reach_protection_threshold
        elif isinstance(last, CatalogPage):
            hosts += last.instances or ()
            partial = len(hosts) < last.count
        else:
            hosts += last
        instances = await decoder.decode_in_slices(hosts)
        protected = protected or (self.infers_protection and all(instance.healthy for instance in instances))
        return ServiceInstances(instances, protected, partial, frozenset(host.cluster_name for host in hosts))


ADMIN_CALLS = (
    _ListCall("/v3/admin/ns/instance/list", _by_name_and_group, "data", _LIST),
    _ListCall(
        "/v2/ns/catalog/instances",
        lambda service: {**_by_grouped_name(service), "pageNo": "1", "pageSize": str(PAGE_SIZE)},
        "instances",
        _PAGE,
    ),
)
"""Calls that include disabled instances and their real health; they need the right to read the namespace."""

CLIENT_CALLS = (
    _ListCall("/v1/ns/instance/list", _by_grouped_name, "hosts", _INFO),
    _ListCall("/v3/client/ns/instance/list", _by_name_and_group, "data", _LIST, infers_protection=True),
)
"""Calls that need no special right. The older one comes first, because it reports the protection threshold."""


class InstanceListClient:
    """Lists instances with the first call that a server supports; remembers that call until it disappears."""

    def __init__(
        self, client: Client, credentials: CredentialProvider, decoder: InstanceDecoder, *, admin: bool
    ) -> None:
        self._client = client
        self._credentials = credentials
        self._decoder = decoder
        self._admin = admin
        self._calls = ADMIN_CALLS if admin else CLIENT_CALLS
        self._call_index: dict[str, int] = {}
        """By server."""

    async def list_instances(self, server: str, service: NacosService) -> ServiceInstances:
        """Reads the instances of a service from a server (address with context path). Raises SourceError."""

        async def list_all(credentials: RequestCredentials) -> ServiceInstances:
            listed, missing = await self._try_calls(server, service, credentials)
            if missing == "service" or self._calls[self._call_index[server]] is not ADMIN_CALLS[0]:
                return listed
            # Nacos 3.1 lists one cluster a call, later versions list all.
            url, params = f"{server}/v3/admin/ns/service", {**_by_name_and_group(service), **credentials.signature}
            async with answering(self._client, "GET", url, params=params, headers=credentials.http_headers) as answer:
                if answer.status != 200:
                    raise self._refused(answer.plain, url)
                clusters = _data(decode_body(_DETAIL, answer.plain.body, url), url).cluster_map
            instances = list(listed.instances)
            for cluster in sorted(clusters.keys() - listed.clusters - {DEFAULT_CLUSTER}):
                of_cluster, _ = await self._try_calls(server, service._replace(cluster=cluster), credentials)
                instances += of_cluster.instances
            return listed._replace(instances=tuple(sorted(instances, key=attrgetter("ip", "port"))))

        return await self._credentials.authenticated(server, service, list_all)

    async def _try_calls(
        self, server: str, service: NacosService, credentials: RequestCredentials
    ) -> tuple[ServiceInstances, str]:
        """The list of the first supported call, and what a 404 reports as missing: `service`, `cluster` or nothing."""
        first = self._call_index.get(server, 0)
        for position in range(first, first + len(self._calls)):
            index = position % len(self._calls)
            call = self._calls[index]
            url, params = server + call.path, {**call.params(service), **credentials.signature}
            async with answering(self._client, "GET", url, params=params, headers=credentials.http_headers) as answer:
                if answer.status == 200:
                    self._call_index[server] = index
                    return await call.read(self._decoder, answer.body, url), ""
                reply = answer.plain
            message = ""
            with contextlib.suppress(msgspec.MsgspecError):
                failure = _FAILURE.decode(reply.body)
                message = str(failure.data) if failure.code else ""
            missing = "service" if service.grouped_name in message else "cluster" if _NO_CLUSTER.match(message) else ""
            if reply.status in NO_SUCH_CALL and not missing:
                continue
            self._call_index[server] = index
            if reply.status not in NO_SUCH_CALL:
                raise self._refused(reply, url)
            return ServiceInstances(()), missing
        paths = " or ".join(call.path for call in self._calls)
        advice = "does the address end with Nacos' context path (/nacos)?"
        raise WrongRegistryAnswer(
            f"{server} has no {paths}; {'set `admin: false`, or: ' if self._admin else ''}{advice}"
        )

    def _refused(self, reply: Reply, url: str) -> SourceError:
        error = refusal(reply)
        if not isinstance(error, NotAllowed):
            return error.with_context(url)
        advice = "give its user the right to read this service"
        if self._admin:
            advice = "give its user a role that may read (`r`) the namespace, or set `admin: false`"
        return error.with_context(url, advice)


def _data(result: NacosResult[T], source: str) -> T:
    if result.code != 0 or result.data is None:
        raise WrongRegistryAnswer(f"{source}: code {result.code}: {result.message}")
    return result.data
