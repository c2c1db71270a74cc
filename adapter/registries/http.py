"""A platform of one's own as a registry: it is polled for which pods serve (`docs/registries-http.md`).

Only explicit statements count. A pod that the platform does not list serves; so a platform may list only the pods that
it pulled out. Polled with ETags over a few connections, hundreds of services cost little while nothing changes.
"""

import ipaddress
import sys
from http import HTTPStatus
from typing import Annotated, Literal, NamedTuple
from urllib.parse import urlencode

import msgspec

from adapter.load.roster import Instance
from adapter.registries.client import refusal
from adapter.registries.polling import UNCHANGED, PollingSource, Unchanged
from adapter.registries.roster import ServiceKey
from adapter.registries.roster_cache import RosterCache
from adapter.runtime.answer_budget import Body
from adapter.runtime.concurrency import Slices
from adapter.runtime.decoding import Decoder, array, read_array
from adapter.runtime.http1 import RawReply, Request
from adapter.runtime.source_errors import SourceError, UnknownService, WrongRegistryAnswer
from adapter.settings.registries import HttpRegistry

OUT = "OUT_OF_SERVICE"
UNKNOWN = "UNKNOWN"

Port = Annotated[int, msgspec.Meta(ge=1, le=65535)]
Weight = Annotated[float, msgspec.Meta(ge=0)]


class StatedPod(msgspec.Struct):
    """The platform's statement about one pod."""

    state: Literal["in", "out", "unknown"]
    ip: str = ""
    port: Port | None = None
    pod: str = ""
    uid: str = ""
    weight: msgspec.Raw = msgspec.Raw(b"null")
    """A number or null, decoded later: 1e-400 is not 0."""
    reason: str = ""


class _Envelope(msgspec.Struct, rename="camel"):
    complete: bool
    instances: list[StatedPod]
    service: str = ""


class RosterDocument(NamedTuple):
    """The registrations of one service, sorted.

    `service`: its name, empty where the platform leaves it out. `etag` is empty where the answer has none.
    """

    complete: bool
    instances: tuple[Instance, ...]
    service: str
    etag: str = ""


_ENVELOPE = Decoder(_Envelope)
_PODS = Decoder(list[StatedPod])
_WEIGHT = Decoder(Weight | None)
_ARRAY = array("instances")


async def read_document(body: Body) -> RosterDocument:
    """Decode a document in slices. Raises WrongRegistryAnswer that names the fault and its place."""
    try:
        stated, envelope = await read_array(body, _ARRAY, _PODS, _ENVELOPE)
    except msgspec.MsgspecError as error:
        raise WrongRegistryAnswer(f"the document is not what docs/registries.md asks for: {error}") from error
    slices = Slices()
    instances: list[Instance] = []
    for place, pod in enumerate((*stated, *envelope.instances)):
        instances.append(_instance(pod, f"the document's instances[{place}]"))
        await slices.breathe()
    # Sorted, so that a list in another order is no change.
    instances.sort(key=lambda each: (each.ip, each.port or 0, each.pod_name, each.pod_uid))
    return RosterDocument(envelope.complete, tuple(instances), envelope.service)


def _instance(pod: StatedPod, place: str) -> Instance:
    """The instance, with its address in the form of pod IPs. Raises WrongRegistryAnswer where it can match no pod."""
    try:
        weight = _WEIGHT.decode(pod.weight)
    except msgspec.MsgspecError as error:
        raise WrongRegistryAnswer(f"{place}.weight: {error}") from error
    if weight == 0 and bytes(pod.weight).lower().partition(b"e")[0].strip(b"-0."):
        weight = sys.float_info.min  # it is too small for a float, and 0 means pulled out
    ip = pod.ip
    try:
        address = ipaddress.ip_address(ip.strip().strip("[]").partition("%")[0])
        mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
        ip = str(mapped or address)
    except ValueError:
        if not (pod.pod or pod.uid):
            fault = (
                f".ip {ip!r} is no IP address and matches nobody: write the address alone, its port under port, a "
                "pod's name under pod"
            )
            raise WrongRegistryAnswer(place + (fault if ip else " names no pod: give ip, pod or uid")) from None
    return Instance(
        ip=ip,
        port=pod.port,
        weight=weight,
        status={"out": OUT, "unknown": UNKNOWN}.get(pod.state, ""),
        pod_uid=pod.uid,
        pod_name=pod.pod,
        metadata={"reason": pod.reason} if pod.reason else {},
    )


class HttpSource(PollingSource[RosterDocument]):
    """Follows services of one platform."""

    def __init__(self, settings: HttpRegistry, cache: RosterCache) -> None:
        super().__init__(settings, [settings.url], cache)

    def request(self, key: ServiceKey, tag: str) -> Request:
        """The question about a service; `tag` is the ETag of the last answer."""
        parameters = {"service": key.service, "namespace": key.namespace, "group": key.group}
        query = urlencode({name: value for name, value in parameters.items() if value})
        return Request("GET", f"?{query}", (("If-None-Match", tag),) if tag else ())

    async def read(
        self, key: ServiceKey, tag: str, server: str, reply: RawReply
    ) -> RosterDocument | Unchanged | SourceError:
        """The document; every error concerns this service alone."""
        etag = (reply.header(b"etag") or b"").decode("latin-1")
        try:
            if reply.status == HTTPStatus.NOT_MODIFIED and tag:
                # A proxy that compresses adds the mark of weakness to some answers and not to others.
                if etag and etag.removeprefix("W/") != tag.removeprefix("W/"):
                    raise WrongRegistryAnswer(f"HTTP 304 confirms ETag {etag}, not {tag}, which was sent")
                return UNCHANGED
            if reply.status != HTTPStatus.OK:
                if reply.status == HTTPStatus.NOT_FOUND:
                    raise UnknownService(
                        "HTTP 404: the platform knows no such service; check its name, or the url",
                        public="HTTP 404: the platform knows no such service; check its name",
                    )
                raise refusal(reply.plain)
            document = await read_document(reply.body)
            if not document.service:
                raise WrongRegistryAnswer(
                    f'the document does not name its service: write "service": "{key.service}" into it, as requested'
                )
            if document.service != key.service:
                raise WrongRegistryAnswer(f"the document is of service {document.service!r}, not of {key.service!r}")
        except SourceError as error:
            return error.with_context(server)
        return document._replace(etag=etag)

    def write(self, key: ServiceKey, answer: RosterDocument) -> str:
        """Write the instances; the tag is the document's ETag."""
        self._cache.update(key, answer.instances, partial=not answer.complete, absence_counts=False)
        return answer.etag
