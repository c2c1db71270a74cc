"""The contract with a platform of one's own: what it answers or tells (`docs/registry-http.schema.json`)."""

import ipaddress
from collections.abc import Generator
from heapq import merge
from typing import Annotated, Literal, NamedTuple
from urllib.parse import urlencode

import msgspec

from adapter.load.roster import Instance
from adapter.registries.polling.http1 import Request
from adapter.runtime.answer_budget import Body
from adapter.runtime.decoding import Decoder
from adapter.runtime.json_pieces import Uncut, array, pieces
from adapter.runtime.slices import Slices
from adapter.runtime.source_errors import WrongRegistryAnswer

OUT = "OUT_OF_SERVICE"
UNKNOWN = "UNKNOWN"
_RUN = 500
"""Instances that are put in order in one step."""

Port = Annotated[int, msgspec.Meta(ge=1, le=65535)]
Weight = Annotated[float, msgspec.Meta(ge=0)]
Revision = Annotated[int, msgspec.Meta(ge=0)]
Seconds = Annotated[float, msgspec.Meta(ge=1, le=86_400)]


class Told(msgspec.Struct):
    """What the platform says of one pod."""

    state: Literal["in", "out", "unknown"]
    ip: str = ""
    port: Port | None = None
    pod: str = ""
    uid: str = ""
    weight: Weight | None = None
    reason: str = ""


class _Envelope(msgspec.Struct, rename="camel"):
    complete: bool
    instances: list[Told]
    service: str = ""
    revision: Revision | None = None
    ttl_seconds: Seconds | None = None


class Document(NamedTuple):
    """What the platform says of one service: the registrations, in an order of their own.

    `service`: its name, empty where the platform leaves it out; `ttl_seconds` is for what it tells by itself.
    """

    complete: bool
    instances: tuple[Instance, ...]
    service: str
    revision: int | None
    ttl_seconds: float | None


_envelope = Decoder(_Envelope).decode
_many = Decoder(list[Told]).decode
_ARRAY = array("instances")


async def document(body: Body) -> Document:
    """The document, which may be long. Raises WrongRegistryAnswer, with what is wrong and where."""
    slices, steps = Slices(), _steps(body)
    while True:
        try:
            next(steps)
        except StopIteration as end:
            found: Document = end.value
            return found
        await slices.breathe()


def _steps(body: Body) -> Generator[None, None, Document]:
    """Read a document in short steps."""
    told: list[Told] = []
    found = None
    try:
        for piece in pieces(body, _ARRAY):
            if piece.is_last:
                found = _envelope(piece.text)
            for one in found.instances if found is not None else _many(piece.text):
                _check(one, len(told))
                told.append(one)
            yield
    except (msgspec.MsgspecError, UnicodeDecodeError, Uncut) as error:
        raise WrongRegistryAnswer(f"the document is not what docs/registries.md asks for: {error}") from error
    assert found is not None
    # In an order of their own, so that a list in another order is no change.
    ordered: list[Instance] = []
    for one in merge(*[sorted(told[at : at + _RUN], key=_order) for at in range(0, len(told), _RUN)], key=_order):
        ordered.append(_instance(one))
        yield
    return Document(found.complete, tuple(ordered), found.service, found.revision, found.ttl_seconds)


def _check(one: Told, place: int) -> None:
    """Put the address into the form that pods have theirs in. Raises WrongRegistryAnswer where it can be nobody's."""
    if not one.ip:
        if not (one.pod or one.uid):
            raise WrongRegistryAnswer(f"the document's instances[{place}] names no pod: give ip, pod or uid")
        return
    try:
        found = ipaddress.ip_address(one.ip.strip().strip("[]").partition("%")[0])
    except ValueError:
        if one.pod or one.uid:
            return
        raise WrongRegistryAnswer(
            f"the document's instances[{place}].ip {one.ip!r} is no IP address and matches nobody: write the address "
            "alone, its port under port, a pod's name under pod"
        ) from None
    mapped = found.ipv4_mapped if isinstance(found, ipaddress.IPv6Address) else None
    one.ip = str(mapped or found)


def _order(one: Told) -> tuple[str, int, str, str]:
    return one.ip, one.port or 0, one.pod, one.uid


def _instance(one: Told) -> Instance:
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
    """The question for a service; `etag` is that of the last answer, empty where it had none."""
    named = {"service": service, "namespace": namespace, "group": group}
    query = urlencode({name: value for name, value in named.items() if value})
    return Request("GET", f"?{query}", (("If-None-Match", etag),) if etag else ())
