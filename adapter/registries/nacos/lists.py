"""Instance lists of Nacos' HTTP API, whose calls differ by version and by the user's role.

Nacos omits disabled instances from the lists for clients, and shows all instances as healthy while too few are. The
lists for administrators have neither flaw.
"""

import contextlib
import re
from collections.abc import Callable, Mapping
from operator import attrgetter
from typing import Any, Generic, NamedTuple, TypeVar

import msgspec

from adapter.load.roster import Instance
from adapter.registries.nacos.login import NO_SUCH_CALL, Login, RequestCredentials
from adapter.registries.servers import Servers, refusal
from adapter.registries.source import Answer, PartialAnswer
from adapter.runtime.decoding import Decoder
from adapter.runtime.http import Reply
from adapter.runtime.source_errors import NotAllowed, SourceError, WrongRegistryAnswer
from adapter.settings.registries import NacosRegistry

T = TypeVar("T")

PAGE_SIZE = 100_000
"""Page size of the catalog, large enough for all instances of a service."""


class NacosService(NamedTuple):
    """The full name of a service in Nacos, or of one of its clusters."""

    namespace: str
    group: str
    name: str
    cluster: str = ""

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


class ServiceInfo(msgspec.Struct, rename="camel"):
    """A service as a client of Nacos 1 and 2 sees it."""

    hosts: list[Host] | None
    reach_protection_threshold: bool = False


class CatalogPage(msgspec.Struct):
    """A page of the catalog of Nacos 2; the list is omitted if the service has no instances."""

    count: int
    instances: list[Host] | None = None


class ServiceDetail(msgspec.Struct, rename="camel"):
    """The names of a service's clusters, in Nacos 3."""

    cluster_map: dict[str, object]


class NacosResult(msgspec.Struct, Generic[T]):
    """The wrapper of an answer in versions 2 and 3 of the HTTP API; `code` 0 is success."""

    code: int
    data: T | None = None
    message: str | None = None


class Listed(NamedTuple):
    """What a list call says. `protected`: health is not reliable. `exists`: the server knows the service."""

    hosts: list[Host]
    protected: bool = False
    exists: bool = True


class ListCall(NamedTuple):
    """One of the API calls that list a service's instances."""

    path: str
    params: Callable[[NacosService], Mapping[str, str]]
    decoder: Decoder[Any]


def _by_name_and_group(service: NacosService) -> Mapping[str, str]:
    cluster = {"clusterName": service.cluster} if service.cluster else {}
    return {"namespaceId": service.namespace, "groupName": service.group, "serviceName": service.name, **cluster}


def _by_grouped_name(service: NacosService) -> Mapping[str, str]:
    # The group is part of the name, because some servers ignore `groupName`.
    return {"namespaceId": service.namespace, "groupName": service.group, "serviceName": service.grouped_name}


def _page(service: NacosService) -> Mapping[str, str]:
    return {**_by_grouped_name(service), "pageNo": "1", "pageSize": str(PAGE_SIZE)}


ADMIN_3 = ListCall("/v3/admin/ns/instance/list", _by_name_and_group, Decoder(NacosResult[list[Host]]))
ADMIN_2 = ListCall("/v2/ns/catalog/instances", _page, Decoder(NacosResult[CatalogPage]))
CLIENT_1 = ListCall("/v1/ns/instance/list", _by_grouped_name, Decoder(ServiceInfo))
CLIENT_3 = ListCall("/v3/client/ns/instance/list", _by_name_and_group, Decoder(NacosResult[list[Host]]))

ADMIN_CALLS = (ADMIN_3, ADMIN_2)
"""Calls for users that may read the namespace."""
CLIENT_CALLS = (CLIENT_1, CLIENT_3)
"""Calls that need no special right. The older one comes first, because it reports the protection threshold."""

_CLUSTERS_PATH = "/v3/admin/ns/service"
_CLUSTERS = Decoder(NacosResult[ServiceDetail])
_FAILURE = Decoder(NacosResult[object])
_DEFAULT_CLUSTER = "DEFAULT"


class InstanceLists:
    """Reads lists with the first call that a server has, and remembers that call until the server drops it."""

    def __init__(self, settings: NacosRegistry, servers: Servers, login: Login) -> None:
        self._settings = settings
        self._servers = servers
        self._login = login
        self._calls = ADMIN_CALLS if settings.admin else CLIENT_CALLS
        self._supported: dict[str, ListCall] = {}
        """By server."""

    async def read(self, server: str, service: NacosService) -> Answer:
        """The list of a service, of all clusters that the settings select. Raises SourceError."""

        async def ask(credentials: RequestCredentials) -> Listed:
            listed = await self._list(server, service, credentials)
            if not listed.exists or self._supported[server] is not ADMIN_3:
                return listed
            # Nacos 3.1 lists one cluster a call, later versions list all.
            place = server + _CLUSTERS_PATH
            reply = await self._get(server, _CLUSTERS_PATH, _by_name_and_group(service), credentials)
            if reply.status != 200:
                raise self._refused(reply, place)
            clusters = _data(_decode(_CLUSTERS, reply.body, place), place).cluster_map
            for cluster in sorted(clusters.keys() - {host.cluster_name for host in listed.hosts} - {_DEFAULT_CLUSTER}):
                listed.hosts.extend((await self._list(server, service._replace(cluster=cluster), credentials)).hosts)
            return listed

        listed = await self._login.authenticated(server, service.grouped_name, ask)
        # A proxy or a broken connection may answer with another service's list.
        if stranger := next((host for host in listed.hosts if not _names(host.service_name, service)), None):
            raise WrongRegistryAnswer(f"{server}: the answer is about another service: {stranger.service_name}")
        clusters = self._settings.clusters
        selected = [host for host in listed.hosts if not clusters or host.cluster_name in clusters]
        # Sorted, because some servers change the order with every answer.
        selected.sort(key=attrgetter("ip", "port", "cluster_name"))
        return Answer(tuple(instance_of(host, self._settings.pod_name_key) for host in selected), listed.protected)

    async def _list(self, server: str, service: NacosService, credentials: RequestCredentials) -> Listed:
        """The answer to the first call that the server has."""
        first = self._supported.get(server, self._calls[0])
        for call in [first, *(other for other in self._calls if other is not first)]:
            reply = await self._get(server, call.path, call.params(service), credentials)
            if reply.status not in {200, *NO_SUCH_CALL}:
                raise self._refused(reply, server + call.path)
            if reply.status == 200:
                listed = listed_in(call, reply.body, server + call.path)
            elif (missing := _missing(reply, service)) is not None:
                listed = Listed([], exists=missing != "service")
            else:
                continue
            self._supported[server] = call
            return listed
        paths = " or ".join(call.path for call in self._calls)
        advice = "does the address end with Nacos' context path (/nacos)?"
        raise WrongRegistryAnswer(
            f"{server} has no {paths}; {'set `admin: false`, or: ' if self._settings.admin else ''}{advice}"
        )

    async def _get(self, server: str, path: str, params: Mapping[str, str], credentials: RequestCredentials) -> Reply:
        signed = {**params, **credentials.signature}
        return await self._servers.send("GET", server, path, params=signed, headers=credentials.http_headers)

    def _refused(self, reply: Reply, place: str) -> SourceError:
        error, advice = refusal(reply), ""
        if isinstance(error, NotAllowed):
            advice = "give its user the right to read this service"
            if self._settings.admin:
                advice = "give its user a role that may read (`r`) the namespace, or set `admin: false`"
        return error.with_context(place, advice)


def listed_in(call: ListCall, body: bytes, place: str) -> Listed:
    """What an answer to this call says. Raises WrongRegistryAnswer."""
    answer = _decode(call.decoder, body, place)
    if isinstance(answer, ServiceInfo):
        return Listed(answer.hosts or [], answer.reach_protection_threshold)
    data = _data(answer, place)
    if isinstance(data, CatalogPage):
        hosts = data.instances or []
        if len(hosts) < data.count:
            raise PartialAnswer(f"{place}: {PartialAnswer.summary}: {len(hosts)} of {data.count} instances")
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
        pod_name=metadata.get(pod_name_key, "") if pod_name_key else "",
        metadata=metadata,
    )


def _names(name: str | None, service: NacosService) -> bool:
    return not name or name in {service.name, service.grouped_name}


def _missing(reply: Reply, service: NacosService) -> str | None:
    """What a refusal reports as missing: `service` or `cluster`; None if it is the call."""
    with contextlib.suppress(msgspec.MsgspecError):
        failure = _FAILURE.decode(reply.body)
        message = str(failure.data) if failure.code else ""
        if service.grouped_name in message:
            return "service"
        if re.match("cluster .* is not found", message):  # Nacos 3.1, for a cluster without instances
            return "cluster"
    return None


def _decode(decoder: Decoder[T], body: bytes, place: str) -> T:
    try:
        return decoder.decode(body)
    except msgspec.MsgspecError as error:
        raise WrongRegistryAnswer(f"{place}: not what Nacos answers there: {error}") from error


def _data(result: NacosResult[T], place: str) -> T:
    if result.code != 0 or result.data is None:
        raise WrongRegistryAnswer(f"{place}: code {result.code}: {result.message}")
    return result.data
