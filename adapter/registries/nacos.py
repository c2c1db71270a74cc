"""Nacos: each service is listed over HTTP once in an interval, by calls that differ by version and by the user's role.

Nacos omits disabled instances from the lists for clients, and shows all instances as healthy while too few are. The
lists for administrators have neither flaw.
"""

import contextlib
import re
import time
from collections.abc import Callable, Mapping
from operator import attrgetter
from typing import Any, Generic, NamedTuple, TypeVar

import msgspec

from adapter.load.roster import Instance
from adapter.registries.nacos_login import NO_SUCH_CALL, Credentials, Login, http_credentials
from adapter.registries.poll import Polled, PolledSource, digest
from adapter.registries.servers import refusal
from adapter.registries.source import Answer, PartialAnswer, ServiceKey, decoded
from adapter.runtime.decoding import Decoder
from adapter.runtime.http import Reply
from adapter.runtime.source_errors import NotAllowed, SourceError, WrongRegistryAnswer
from adapter.settings.registries import NacosRegistry

T = TypeVar("T")

PAGE_SIZE = 100_000
"""Page size of the catalog, large enough for all instances of a service."""


class NacosService(NamedTuple):
    """The full name of a service in Nacos."""

    namespace: str
    group: str
    name: str

    @property
    def grouped_name(self) -> str:
        """Group and service as `group@@service`."""
        return f"{self.group}@@{self.name}"


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


class Listed(NamedTuple):
    """What an answer says. `protected`: health is not reliable."""

    hosts: list[Host]
    protected: bool = False


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
_DEFAULT_CLUSTER = "DEFAULT"
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
        service = NacosService(*self.settings.place(key.namespace, key.group), key.service)

        async def ask(credentials: Credentials) -> list[tuple[ListCall, bytes]]:
            call, body = await self._list(server, service, credentials)
            if call is not ADMIN_3 or body == _NO_SERVICE:
                return [(call, body)]
            # Nacos 3.1 lists one cluster a call, later versions list all.
            reply = await self._get(server, _CLUSTERS_PATH, _by_name(service), credentials)
            if reply.status != 200:
                raise self._refused(reply, _CLUSTERS_PATH)
            has = {host.cluster_name for host in listed_in(call, body).hosts} | {_DEFAULT_CLUSTER}
            clusters = _data(_CLUSTERS, reply.body).cluster_map.keys() - has
            return [(call, body), *[await self._list(server, service, credentials, name) for name in sorted(clusters)]]

        answers = await self._login.authenticated(server, service.grouped_name, ask)
        found = digest(b"\n".join(body for _, body in answers))
        if found == tag:
            return None
        lists = [listed_in(call, body) for call, body in answers]
        hosts = [host for each in lists for host in each.hosts]
        # A proxy or a broken connection may answer with another service's list.
        if stranger := next((host for host in hosts if not _names(host.service_name, service)), None):
            raise WrongRegistryAnswer(f"the answer is about another service: {stranger.service_name}")
        clusters = self.settings.clusters
        selected = [host for host in hosts if not clusters or host.cluster_name in clusters]
        # Sorted, because some servers change the order with every answer.
        selected.sort(key=attrgetter("ip", "port", "cluster_name"))
        instances = tuple(instance_of(host, self.settings.pod_name_key) for host in selected)
        return Polled(Answer(instances, protected=any(each.protected for each in lists)), found)

    async def _list(
        self, server: str, service: NacosService, credentials: Credentials, cluster: str = ""
    ) -> tuple[ListCall, bytes]:
        """The first call that the server has, and the body of its answer."""
        first = self._supported.get(server, self._calls[0])
        for call in [first, *(other for other in self._calls if other is not first)]:
            params = _by_name(service, cluster)
            if call.by_grouped_name:
                params |= {"serviceName": service.grouped_name, "pageNo": "1", "pageSize": str(PAGE_SIZE)}
            reply = await self._get(server, call.path, params, credentials)
            if reply.status not in {200, *NO_SUCH_CALL}:
                raise self._refused(reply, call.path)
            body = reply.body if reply.status == 200 else _empty(reply, service)
            if body is not None:
                self._supported[server] = call
                return call, body
        paths = " or ".join(call.path for call in self._calls)
        advice = "does the address end with Nacos' context path (/nacos)?"
        raise WrongRegistryAnswer(
            f"it has no {paths}; {'set `admin: false`, or: ' if self.settings.admin else ''}{advice}"
        )

    async def _get(self, server: str, path: str, params: Mapping[str, str], credentials: Credentials) -> Reply:
        signed, headers = http_credentials(credentials)
        return await self.servers.send("GET", server, path, params={**params, **signed}, headers=headers)

    def _refused(self, reply: Reply, path: str) -> SourceError:
        error, advice = refusal(reply), ""
        if isinstance(error, NotAllowed):
            advice = "give its user the right to read this service"
            if self.settings.admin:
                advice = "give its user a role that may read (`r`) the namespace, or set `admin: false`"
        return error.with_context(path, advice)


def listed_in(call: ListCall, body: bytes) -> Listed:
    """What an answer to this call says. Raises WrongRegistryAnswer."""
    if body == _NO_SERVICE:
        return Listed([])
    if call is CLIENT_1:
        answer: _ClientList = decoded(call.decoder, body, _UNEXPECTED)
        return Listed(answer.hosts or [], answer.reach_protection_threshold)
    data = _data(call.decoder, body)
    if isinstance(data, _CatalogPage):
        hosts = data.instances or []
        if len(hosts) < data.count:
            raise PartialAnswer(f"{PartialAnswer.summary}: {len(hosts)} of {data.count} instances")
        return Listed(hosts)
    # The clients' call of Nacos 3 hides the protection threshold: only an unhealthy instance proves that it is not
    # reached.
    return Listed(data, call is CLIENT_3 and all(host.healthy for host in data))


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


def _by_name(service: NacosService, cluster: str = "") -> dict[str, str]:
    names = {"namespaceId": service.namespace, "groupName": service.group, "serviceName": service.name}
    return {**names, "clusterName": cluster} if cluster else names


def _names(name: str | None, service: NacosService) -> bool:
    return not name or name in {service.name, service.grouped_name}


def _empty(reply: Reply, service: NacosService) -> bytes | None:
    """The list that a refusal stands for: there is no such service, or no instance. None if the call is missing."""
    with contextlib.suppress(msgspec.MsgspecError):
        failure = _FAILURE.decode(reply.body)
        message = str(failure.data) if failure.code else ""
        if service.grouped_name in message:
            return _NO_SERVICE
        if re.match("cluster .* is not found", message):  # Nacos 3.1, for a cluster without instances
            return _NO_INSTANCES
    return None


def _data(decoder: Decoder[_Result[T]], body: bytes) -> T:
    result = decoded(decoder, body, _UNEXPECTED)
    if result.code != 0 or result.data is None:
        raise WrongRegistryAnswer(f"code {result.code}: {result.message}")
    return result.data
