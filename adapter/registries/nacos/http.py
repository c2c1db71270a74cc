"""Instance lists from Nacos' HTTP API, whose calls differ by version and by the user's role."""

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import NamedTuple, TypeVar

import msgspec

from adapter.registries.client import answering, refusal
from adapter.registries.nacos.credentials import NO_SUCH_CALL, CredentialProvider, RequestCredentials
from adapter.registries.nacos.wire import (
    CatalogPage,
    Host,
    InstanceDecoder,
    NacosService,
    Result,
    ServiceInfo,
    ServiceInstances,
    decode_body,
)
from adapter.runtime.answer_budget import Body
from adapter.runtime.decoding import Decoder
from adapter.runtime.json_pieces import Uncut, array, pieces
from adapter.runtime.outbound import Client, Reply
from adapter.runtime.slices import Slices
from adapter.runtime.source_errors import NotAllowed, SourceError, WrongRegistryAnswer

T = TypeVar("T")

PAGE_SIZE = 100_000
"""Page size of the catalog, large enough for all instances."""

_HOSTS = Decoder(list[Host]).decode
_INFO = Decoder(ServiceInfo).decode
_LIST = Decoder(Result[list[Host]]).decode
_PAGE = Decoder(Result[CatalogPage]).decode
_FAILURE = Decoder(Result[object]).decode
_IN_INFO, _IN_LIST, _IN_PAGE = array("hosts"), array("data"), array("instances")


_NO_CLUSTER = re.compile(r"cluster .* is not found")
"""Nacos 3.1's error for a service without instances."""


class _ListCall(NamedTuple):
    """One of the API calls that list a service's instances."""

    path: str
    params: Callable[[NacosService], Mapping[str, str]]
    read: Callable[[InstanceDecoder, Body, str], Awaitable[ServiceInstances]]


def _by_name_and_group(service: NacosService) -> Mapping[str, str]:
    return {"namespaceId": service.namespace, "groupName": service.group, "serviceName": service.name}


def _by_grouped_name(service: NacosService) -> Mapping[str, str]:
    # The group is part of the name, because some servers ignore `groupName`.
    return {"namespaceId": service.namespace, "groupName": service.group, "serviceName": service.grouped_name}


def _catalog_page(service: NacosService) -> Mapping[str, str]:
    return {**_by_grouped_name(service), "pageNo": "1", "pageSize": str(PAGE_SIZE)}


async def _read_info(decoder: InstanceDecoder, body: Body, source: str) -> ServiceInstances:
    hosts, info = await _read(body, _IN_INFO, _INFO, source)
    hosts += info.hosts or ()
    return ServiceInstances(await decoder.decode_in_slices(hosts), protected=info.reach_protection_threshold)


async def _read_hosts(decoder: InstanceDecoder, body: Body, source: str) -> ServiceInstances:
    hosts, result = await _read(body, _IN_LIST, _LIST, source)
    last = _data(result, source)
    hosts += last
    return ServiceInstances(await decoder.decode_in_slices(hosts))


async def _read_client_hosts(decoder: InstanceDecoder, body: Body, source: str) -> ServiceInstances:
    """The client API of Nacos 3 omits the protection flag: where all instances are healthy, protection is assumed."""
    answer = await _read_hosts(decoder, body, source)
    return answer._replace(protected=all(instance.healthy for instance in answer.instances))


async def _read_page(decoder: InstanceDecoder, body: Body, source: str) -> ServiceInstances:
    hosts, result = await _read(body, _IN_PAGE, _PAGE, source)
    page = _data(result, source)
    hosts += page.instances or ()
    return ServiceInstances(await decoder.decode_in_slices(hosts), partial=len(hosts) < page.count)


async def _read(
    body: Body, form: re.Pattern[bytes], decode: Callable[[bytes | bytearray], T], source: str
) -> tuple[list[Host], T]:
    """The hosts before the body's last piece, and that piece decoded. Raises WrongRegistryAnswer."""
    slices = Slices()
    hosts: list[Host] = []
    try:
        for piece in pieces(body, form):
            await slices.breathe()
            if piece.is_last:
                return hosts, decode_body(decode, piece.text, source)
            hosts += decode_body(_HOSTS, piece.text, source)
    except Uncut as error:
        raise WrongRegistryAnswer(f"{source}: not what Nacos answers there: {error}") from error
    raise AssertionError("pieces() ended without a last piece")


ADMIN_CALLS = (
    _ListCall("/v3/admin/ns/instance/list", _by_name_and_group, _read_hosts),
    _ListCall("/v2/ns/catalog/instances", _catalog_page, _read_page),
)
"""Calls that include disabled instances and their real health; they need the right to read the namespace."""

CLIENT_CALLS = (
    _ListCall("/v1/ns/instance/list", _by_grouped_name, _read_info),
    _ListCall("/v3/client/ns/instance/list", _by_name_and_group, _read_client_hosts),
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
        self._call_index: dict[tuple[str, Sequence[_ListCall]], int] = {}

    async def list_instances(self, server: str, service: NacosService) -> ServiceInstances:
        """Reads the instances of a service from a server (address with context path). Raises SourceError."""
        return await self._credentials.authenticated(
            server, service, lambda credentials: self._list(server, service, credentials)
        )

    async def _list(self, server: str, service: NacosService, credentials: RequestCredentials) -> ServiceInstances:
        calls = ADMIN_CALLS if self._admin else CLIENT_CALLS
        instances, missing = await self._try_calls(server, service, credentials, calls)
        if missing == "cluster":
            await self._check_clusters(server, service, credentials)
        return instances

    async def _try_calls(
        self, server: str, service: NacosService, credentials: RequestCredentials, calls: Sequence[_ListCall]
    ) -> tuple[ServiceInstances, str]:
        """The list of the first supported call, and what a 404 reports as missing: `service`, `cluster` or nothing."""
        first = self._call_index.get((server, calls), 0)
        for position in range(first, first + len(calls)):
            index = position % len(calls)
            call = calls[index]
            url, params = server + call.path, {**call.params(service), **credentials.signature}
            async with answering(self._client, "GET", url, params=params, headers=credentials.http_headers) as answer:
                if answer.status == 200:
                    self._call_index[server, calls] = index
                    return await call.read(self._decoder, answer.body, url), ""
                reply = answer.plain
            missing = _missing(reply, service)
            if reply.status in NO_SUCH_CALL and not missing:
                continue
            self._call_index[server, calls] = index
            if reply.status not in NO_SUCH_CALL:
                raise self._refused(reply, url)
            return ServiceInstances(()), missing
        raise WrongRegistryAnswer(self._no_supported_call(server, calls))

    async def _check_clusters(self, server: str, service: NacosService, credentials: RequestCredentials) -> None:
        """Raises WrongRegistryAnswer if the service has instances in clusters that the administrators' list omits."""
        visible, _ = await self._try_calls(server, service, credentials, CLIENT_CALLS)
        if visible.instances:
            raise WrongRegistryAnswer(
                f"{server}: the administrators' list of this Nacos shows cluster DEFAULT alone, and the service has "
                "instances in other clusters; set `admin: false`",
                public="the administrators' list of this Nacos shows cluster DEFAULT alone",
            )

    def _refused(self, reply: Reply, url: str) -> SourceError:
        error = refusal(reply)
        if not isinstance(error, NotAllowed):
            return error.at(url)
        advice = "give its user the right to read this service"
        if self._admin:
            advice = "give its user a role that may read (`r`) the namespace, or set `admin: false`"
        return error.at(url, advice)

    def _no_supported_call(self, server: str, calls: Sequence[_ListCall]) -> str:
        paths = " or ".join(call.path for call in calls)
        advice = "does the address end with Nacos' context path (/nacos)?"
        return f"{server} has no {paths}; {'set `admin: false`, or: ' if self._admin else ''}{advice}"


def _data(result: Result[T], source: str) -> T:
    if result.code != 0 or result.data is None:
        raise WrongRegistryAnswer(f"{source}: code {result.code}: {result.message}")
    return result.data


def _missing(reply: Reply, service: NacosService) -> str:
    """What a 404 reports as missing: `service` or `cluster`; empty if it is the call itself, or anything else."""
    try:
        failure = _FAILURE(reply.body)
    except msgspec.MsgspecError:
        return ""
    message = str(failure.data) if failure.code else ""
    return "service" if service.grouped_name in message else "cluster" if _NO_CLUSTER.match(message) else ""
