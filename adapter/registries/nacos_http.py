"""Lists of instances by Nacos' HTTP API, whose calls differ between its versions and between kinds of users."""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, TypeVar

import msgspec

from adapter.decoding import Decoder
from adapter.outbound import Client, Reply
from adapter.registries.errors import NotAllowed, RegistryError, WrongRegistryAnswer
from adapter.registries.nacos_identity import MOVED, Identity, Proof
from adapter.registries.nacos_wire import Host, Listed, Page, Place, Reader, Result, ServiceInfo, reading
from adapter.registries.peers import refusal, send

T = TypeVar("T")

PAGE_SIZE = 100_000
"""Instances asked for in one page of the catalog: all."""

_INFO: Callable[[bytes], ServiceInfo] = Decoder(ServiceInfo).decode
_HOSTS: Callable[[bytes], Result[list[Host]]] = Decoder(Result[list[Host]]).decode
_PAGE: Callable[[bytes], Result[Page]] = Decoder(Result[Page]).decode
_FAILURE: Callable[[bytes], Result[object]] = Decoder(Result[object]).decode


_NO_CLUSTER = re.compile(r"cluster .* is not found")
"""What Nacos 3.1 says of a service that has no instances."""


class _View(NamedTuple):
    """One of the calls that list a service's instances."""

    path: str
    params: Callable[[Place], Mapping[str, str]]
    read: Callable[[Reader, bytes, str], Listed]


def _separate(place: Place) -> Mapping[str, str]:
    return {"namespaceId": place.namespace, "groupName": place.group, "serviceName": place.service}


def _grouped(place: Place) -> Mapping[str, str]:
    # One name for both, because not every server looks at the group beside it.
    return {"namespaceId": place.namespace, "groupName": place.group, "serviceName": place.grouped}


def _paged(place: Place) -> Mapping[str, str]:
    return {**_grouped(place), "pageNo": "1", "pageSize": str(PAGE_SIZE)}


def _read_info(reader: Reader, body: bytes, what: str) -> Listed:
    return reader.listed(reading(_INFO, body, what))


def _read_hosts(reader: Reader, body: bytes, what: str) -> Listed:
    return Listed(reader.instances(_data(reading(_HOSTS, body, what), what)))


def _read_shielded(reader: Reader, body: bytes, what: str) -> Listed:
    """The client list of Nacos 3 does not tell when it reports all as healthy, so health is doubtful where all are."""
    listed = _read_hosts(reader, body, what)
    return listed._replace(protected=all(instance.healthy for instance in listed.instances))


def _read_page(reader: Reader, body: bytes, what: str) -> Listed:
    page = _data(reading(_PAGE, body, what), what)
    return Listed(reader.instances(page.instances), partial=len(page.instances or ()) < page.count)


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
        """The instances of a service, by this server (address with context path). Raises RegistryError."""
        return await self._identity.proven(server, place, lambda proof: self._ask(server, place, proof))

    async def _ask(self, server: str, place: Place, proof: Proof) -> Listed:
        view, reply = await self._answer(server, place, proof, ADMIN if self._admin else CLIENT)
        if reply.status == 200:
            return view.read(self._reader, reply.body, server + view.path)
        if _missing(reply, place) == "cluster":
            await self._check_clusters(server, place, proof)
        return Listed(())

    async def _answer(self, server: str, place: Place, proof: Proof, views: Sequence[_View]) -> tuple[_View, Reply]:
        """The first answer of a call that the server has: a list, or that there is no such service."""
        first = self._known.get((server, views), 0)
        for turn in range(first, first + len(views)):
            index = turn % len(views)
            view = views[index]
            params = {**view.params(place), **proof.signature}
            reply = await send(self._client, "GET", server + view.path, params=params, headers=proof.headers)
            if reply.status in MOVED and not _missing(reply, place):
                continue
            self._known[server, views] = index
            if reply.status != 200 and reply.status not in MOVED:
                raise self._refused(reply, server + view.path)
            return view, reply
        raise WrongRegistryAnswer(self._nowhere(server, views))

    async def _check_clusters(self, server: str, place: Place, proof: Proof) -> None:
        """Raises where the administrators' list lacks a cluster because the instances are in others."""
        view, reply = await self._answer(server, place, proof, CLIENT)
        if reply.status == 200 and view.read(self._reader, reply.body, server + view.path).instances:
            raise WrongRegistryAnswer(
                f"{server}: the administrators' list of this Nacos shows cluster DEFAULT alone, and the service has "
                "instances in other clusters; set `admin: false`"
            )

    def _refused(self, reply: Reply, url: str) -> RegistryError:
        error = refusal(reply)
        if not isinstance(error, NotAllowed):
            return type(error)(f"{url}: {error}")
        advice = "give its user the right to read this service"
        if self._admin:
            advice = "give its user a role that may read (`r`) the namespace, or set `admin: false`"
        return NotAllowed(f"{url}: {error}; {advice}")

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
