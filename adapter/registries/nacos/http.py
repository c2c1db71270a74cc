"""Lists of instances by Nacos' HTTP API, whose calls differ between its versions and between kinds of users."""

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import NamedTuple, TypeVar

import msgspec

from adapter.registries.client import answering, refusal
from adapter.registries.nacos.identity import MOVED, Identity, Proof
from adapter.registries.nacos.wire import Host, Listed, Page, Place, Reader, Result, ServiceInfo, reading
from adapter.runtime.answer_budget import Body
from adapter.runtime.decoding import Decoder
from adapter.runtime.json_pieces import Uncut, array, pieces
from adapter.runtime.outbound import Client, Reply
from adapter.runtime.slices import Slices
from adapter.runtime.source_errors import NotAllowed, SourceError, WrongRegistryAnswer

T = TypeVar("T")

PAGE_SIZE = 100_000
"""Instances asked for in one page of the catalog: all."""

_HOSTS = Decoder(list[Host]).decode
_INFO = Decoder(ServiceInfo).decode
_LIST = Decoder(Result[list[Host]]).decode
_PAGE = Decoder(Result[Page]).decode
_FAILURE = Decoder(Result[object]).decode
_IN_INFO, _IN_LIST, _IN_PAGE = array("hosts"), array("data"), array("instances")


_NO_CLUSTER = re.compile(r"cluster .* is not found")
"""What Nacos 3.1 says of a service that has no instances."""


class _View(NamedTuple):
    """One of the calls that list a service's instances."""

    path: str
    params: Callable[[Place], Mapping[str, str]]
    read: Callable[[Reader, Body, str], Awaitable[Listed]]


def _separate(place: Place) -> Mapping[str, str]:
    return {"namespaceId": place.namespace, "groupName": place.group, "serviceName": place.service}


def _grouped(place: Place) -> Mapping[str, str]:
    # One name for both, because not every server looks at the group beside it.
    return {"namespaceId": place.namespace, "groupName": place.group, "serviceName": place.grouped}


def _paged(place: Place) -> Mapping[str, str]:
    return {**_grouped(place), "pageNo": "1", "pageSize": str(PAGE_SIZE)}


async def _read_info(reader: Reader, body: Body, what: str) -> Listed:
    hosts, info = await _read(body, _IN_INFO, _INFO, what)
    hosts += info.hosts or ()
    return Listed(await reader.instances_in_slices(hosts), protected=info.reach_protection_threshold)


async def _read_hosts(reader: Reader, body: Body, what: str) -> Listed:
    hosts, result = await _read(body, _IN_LIST, _LIST, what)
    last = _data(result, what)
    hosts += last
    return Listed(await reader.instances_in_slices(hosts))


async def _read_shielded(reader: Reader, body: Body, what: str) -> Listed:
    """The client list of Nacos 3 does not tell when it reports all as healthy, so health is doubtful where all are."""
    listed = await _read_hosts(reader, body, what)
    return listed._replace(protected=all(instance.healthy for instance in listed.instances))


async def _read_page(reader: Reader, body: Body, what: str) -> Listed:
    hosts, result = await _read(body, _IN_PAGE, _PAGE, what)
    page = _data(result, what)
    hosts += page.instances or ()
    return Listed(await reader.instances_in_slices(hosts), partial=len(hosts) < page.count)


async def _read(
    body: Body, form: re.Pattern[bytes], decode: Callable[[bytes | bytearray], T], what: str
) -> tuple[list[Host], T]:
    """The hosts of an answer but the last ones, and its end with those. Raises WrongRegistryAnswer."""
    slices = Slices()
    hosts: list[Host] = []
    try:
        for piece in pieces(body, form):
            await slices.breathe()
            if piece.is_last:
                return hosts, reading(decode, piece.text, what)
            hosts += reading(_HOSTS, piece.text, what)
    except Uncut as error:
        raise WrongRegistryAnswer(f"{what}: not what Nacos answers there: {error}") from error
    raise AssertionError("the last piece is missing")


ADMIN = (
    _View("/v3/admin/ns/instance/list", _separate, _read_hosts),
    _View("/v2/ns/catalog/instances", _paged, _read_page),
)
"""What shows disabled instances and true health, to all who may read."""

CLIENT = (
    _View("/v1/ns/instance/list", _grouped, _read_info),
    _View("/v3/client/ns/instance/list", _separate, _read_shielded),
)
"""What every client may see. The older call comes first, for it tells of the protect threshold."""


class Lists:
    """Lists instances; which call a server has is found out once, and again when it no longer has it."""

    def __init__(self, client: Client, identity: Identity, reader: Reader, *, admin: bool) -> None:
        self._client = client
        self._identity = identity
        self._reader = reader
        self._admin = admin
        self._known: dict[tuple[str, Sequence[_View]], int] = {}

    async def ask(self, server: str, place: Place) -> Listed:
        """The instances of a service, by this server (address with context path). Raises SourceError."""
        return await self._identity.proven(server, place, lambda proof: self._ask(server, place, proof))

    async def _ask(self, server: str, place: Place, proof: Proof) -> Listed:
        listed, missing = await self._listed(server, place, proof, ADMIN if self._admin else CLIENT)
        if missing == "cluster":
            await self._check_clusters(server, place, proof)
        return listed

    async def _listed(self, server: str, place: Place, proof: Proof, views: Sequence[_View]) -> tuple[Listed, str]:
        """The list of the first call that the server has; empty where it says what is missing: service or cluster."""
        first = self._known.get((server, views), 0)
        for turn in range(first, first + len(views)):
            index = turn % len(views)
            view = views[index]
            url, params = server + view.path, {**view.params(place), **proof.signature}
            async with answering(self._client, "GET", url, params=params, headers=proof.headers) as answer:
                if answer.status == 200:
                    self._known[server, views] = index
                    return await view.read(self._reader, answer.body, url), ""
                reply = answer.plain
            missing = _missing(reply, place)
            if reply.status in MOVED and not missing:
                continue
            self._known[server, views] = index
            if reply.status not in MOVED:
                raise self._refused(reply, url)
            return Listed(()), missing
        raise WrongRegistryAnswer(self._nowhere(server, views))

    async def _check_clusters(self, server: str, place: Place, proof: Proof) -> None:
        """Raises where the administrators' list lacks a cluster because the instances are in others."""
        listed, _ = await self._listed(server, place, proof, CLIENT)
        if listed.instances:
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

    def _nowhere(self, server: str, views: Sequence[_View]) -> str:
        calls = " or ".join(view.path for view in views)
        advice = "does the address end with Nacos' context path (/nacos)?"
        return f"{server} has no {calls}; {'set `admin: false`, or: ' if self._admin else ''}{advice}"


def _data(result: Result[T], what: str) -> T:
    if result.code != 0 or result.data is None:
        raise WrongRegistryAnswer(f"{what}: code {result.code}: {result.message}")
    return result.data


def _missing(reply: Reply, place: Place) -> str:
    """What a 404 says is not found: the service, or its cluster; empty where it is the call, or anything else."""
    try:
        failure = _FAILURE(reply.body)
    except msgspec.MsgspecError:
        return ""
    said = str(failure.data) if failure.code else ""
    return "service" if place.grouped in said else "cluster" if _NO_CLUSTER.match(said) else ""
