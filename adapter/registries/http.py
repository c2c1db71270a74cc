"""A platform of one's own as a registry: polled for which pods serve, with ETags (`docs/registries-http.md`).

Only explicit statements count. A pod that the platform does not list serves; so a platform may list only the pods that
it pulled out.
"""

import ipaddress
from functools import lru_cache
from typing import Annotated, Literal

import msgspec
from yarl import URL

from adapter.load.roster import Instance, Roster
from adapter.registries.servers import Polled, PolledSource, refusal
from adapter.registries.source import ServiceKey, decoded
from adapter.runtime.decoding import Decoder
from adapter.runtime.source_errors import UnknownService, WrongAnswer
from adapter.settings.registries import HttpRegistry


class _StatedPod(msgspec.Struct):
    """The platform's statement about one pod."""

    state: Literal["in", "out", "unknown"]
    ip: str = ""
    port: Annotated[int, msgspec.Meta(ge=1, le=65535)] | None = None
    pod: str = ""
    uid: str = ""
    weight: Annotated[float, msgspec.Meta(ge=0)] | None = None
    reason: str = ""


class _Document(msgspec.Struct):
    complete: bool
    instances: list[_StatedPod]
    service: str = ""


_DOCUMENT = Decoder(_Document)


class HttpSource(PolledSource[HttpRegistry]):
    """Follows services of one platform: a GET in each interval, with the ETag of the last document."""

    async def read(self, server: str, key: ServiceKey, tag: str) -> Polled | None:
        """As `PolledSource` describes; the tag is the document's ETag."""
        reply = await self.servers.send("GET", _url(server, key), headers={"If-None-Match": tag} if tag else None)
        found = reply.headers.get("ETag", "")
        if reply.status == 304 and tag:
            # A proxy that compresses adds the mark of weakness to some answers and not to others.
            if found and found.removeprefix("W/") != tag.removeprefix("W/"):
                raise WrongAnswer(f"HTTP 304 confirms ETag {found}, not {tag}, which was sent")
            return None
        if reply.status == 404:
            raise UnknownService("HTTP 404: the platform knows no such service; check its name, or the url")
        if reply.status != 200:
            raise refusal(reply)
        return Polled(read_document(reply.body, key.service), found)


@lru_cache(4096)
def _url(server: str, key: ServiceKey) -> URL:
    """What is asked about a service; made once, as it costs a tenth of a question."""
    names = {"service": key.service, "namespace": key.namespace, "group": key.group}
    return URL(server).update_query({name: value for name, value in names.items() if value})


def read_document(body: bytes, service: str) -> Roster:
    """The answer of a document about this service. Raises WrongAnswer that names the fault and its place."""
    document = decoded(_DOCUMENT, body, "the document does not follow docs/registries-http.md")
    if not document.service:
        raise WrongAnswer(f'the document does not name its service: write "service": "{service}" into it, as requested')
    if document.service != service:
        raise WrongAnswer(f"the document is of service {document.service!r}, not of {service!r}")
    if not document.complete:
        raise WrongAnswer("the answer is incomplete")
    instances = [_instance(pod, f"the document's instances[{place}]") for place, pod in enumerate(document.instances)]
    # Sorted, so that a list in another order is no change.
    instances.sort(key=lambda each: (each.ip, each.port or 0, each.pod_name, each.pod_uid))
    return Roster(tuple(instances), absence_counts=False)


def _instance(pod: _StatedPod, place: str) -> Instance:
    """The instance. Raises WrongAnswer if it can match no pod."""
    if not (pod.pod or pod.uid):
        try:
            ipaddress.ip_address(pod.ip.strip().strip("[]").partition("%")[0])
        except ValueError:
            fault = f".ip {pod.ip!r} is not an IP address and matches no pod: write the address alone, its port under "
            fault += "port, a pod's name under pod"
            raise WrongAnswer(place + (fault if pod.ip else " names no pod: give ip, pod or uid")) from None
    return Instance(
        ip=pod.ip.strip(),
        port=pod.port,
        weight=pod.weight,
        status={"out": "OUT_OF_SERVICE", "unknown": "UNKNOWN"}.get(pod.state, ""),
        pod_uid=pod.uid,
        pod_name=pod.pod,
        metadata={"reason": pod.reason} if pod.reason else {},
    )
