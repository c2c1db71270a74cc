"""The documents that a platform of one's own answers or pushes (`docs/registry-http.schema.json`)."""

import ipaddress
from collections.abc import Generator
from heapq import merge
from typing import Annotated, Literal, NamedTuple
from urllib.parse import urlencode

import msgspec

from adapter.load.roster import Instance
from adapter.runtime.answer_budget import Body
from adapter.runtime.decoding import Decoder
from adapter.runtime.http1 import Request
from adapter.runtime.json_pieces import Uncut, array, pieces
from adapter.runtime.slices import Slices
from adapter.runtime.source_errors import WrongRegistryAnswer

OUT = "OUT_OF_SERVICE"
UNKNOWN = "UNKNOWN"
_RUN = 500
"""Instances that are sorted in one step."""

Port = Annotated[int, msgspec.Meta(ge=1, le=65535)]
Weight = Annotated[float, msgspec.Meta(ge=0)]
Revision = Annotated[int, msgspec.Meta(ge=0)]
Seconds = Annotated[float, msgspec.Meta(ge=1, le=86_400)]


class StatedPod(msgspec.Struct):
    """The platform's statement about one pod."""

    state: Literal["in", "out", "unknown"]
    ip: str = ""
    port: Port | None = None
    pod: str = ""
    uid: str = ""
    weight: Weight | None = None
    reason: str = ""


class _Envelope(msgspec.Struct, rename="camel"):
    complete: bool
    instances: list[StatedPod]
    service: str = ""
    revision: Revision | None = None
    ttl_seconds: Seconds | None = None


class RosterDocument(NamedTuple):
    """The registrations of one service, sorted.

    `service`: its name, empty where the platform leaves it out; `ttl_seconds` is for pushed documents.
    """

    complete: bool
    instances: tuple[Instance, ...]
    service: str
    revision: int | None
    ttl_seconds: float | None


class TaggedDocument(NamedTuple):
    """The answer to a poll; `etag` is empty where it has none."""

    document: RosterDocument
    etag: str


_envelope = Decoder(_Envelope).decode
_many = Decoder(list[StatedPod]).decode
_ARRAY = array("instances")


async def document(body: Body) -> RosterDocument:
    """Decode a document in slices. Raises WrongRegistryAnswer that names the fault and its place."""
    slices, steps = Slices(), _steps(body)
    while True:
        try:
            next(steps)
        except StopIteration as end:
            document: RosterDocument = end.value
            return document
        await slices.breathe()


def _steps(body: Body) -> Generator[None, None, RosterDocument]:
    """Decode a document in short steps."""
    stated: list[StatedPod] = []
    envelope = None
    try:
        for piece in pieces(body, _ARRAY):
            if piece.is_last:
                envelope = _envelope(piece.text)
            for one in envelope.instances if envelope is not None else _many(piece.text):
                _check(one, len(stated))
                stated.append(one)
            yield
    except (msgspec.MsgspecError, UnicodeDecodeError, Uncut) as error:
        raise WrongRegistryAnswer(f"the document is not what docs/registries.md asks for: {error}") from error
    assert envelope is not None
    # Sorted, so that a list in another order is no change.
    ordered: list[Instance] = []
    for one in merge(*[sorted(stated[at : at + _RUN], key=_order) for at in range(0, len(stated), _RUN)], key=_order):
        ordered.append(_instance(one))
        yield
    return RosterDocument(envelope.complete, tuple(ordered), envelope.service, envelope.revision, envelope.ttl_seconds)


def _check(one: StatedPod, place: int) -> None:
    """Normalize the address to the form of pod IPs. Raises WrongRegistryAnswer where it can match no pod."""
    if not one.ip:
        if not (one.pod or one.uid):
            raise WrongRegistryAnswer(f"the document's instances[{place}] names no pod: give ip, pod or uid")
        return
    try:
        address = ipaddress.ip_address(one.ip.strip().strip("[]").partition("%")[0])
    except ValueError:
        if one.pod or one.uid:
            return
        raise WrongRegistryAnswer(
            f"the document's instances[{place}].ip {one.ip!r} is no IP address and matches nobody: write the address "
            "alone, its port under port, a pod's name under pod"
        ) from None
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    one.ip = str(mapped or address)


def _order(one: StatedPod) -> tuple[str, int, str, str]:
    return one.ip, one.port or 0, one.pod, one.uid


def _instance(one: StatedPod) -> Instance:
    return Instance(
        ip=one.ip,
        port=one.port,
        weight=one.weight,
        status={"out": OUT, "unknown": UNKNOWN}.get(one.state, ""),
        pod_uid=one.uid,
        pod_name=one.pod,
        metadata={"reason": one.reason} if one.reason else {},
    )


def request(service: str, namespace: str, group: str, etag: str) -> Request:
    """The request about a service; `etag` is that of the last answer, empty where it had none."""
    parameters = {"service": service, "namespace": namespace, "group": group}
    query = urlencode({name: value for name, value in parameters.items() if value})
    return Request("GET", f"?{query}", (("If-None-Match", etag),) if etag else ())
