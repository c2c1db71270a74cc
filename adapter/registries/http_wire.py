"""The contract with a platform of one's own: what it answers or tells (`docs/registry-http.schema.json`)."""

from collections.abc import Iterator
from typing import Annotated, Literal
from urllib.parse import urlencode

import msgspec

from adapter.load.roster import Instance
from adapter.registries.errors import WrongRegistryAnswer
from adapter.registries.pipelined import Request

OUT = "OUT_OF_SERVICE"
UNKNOWN = "UNKNOWN"

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


class Document(msgspec.Struct, rename="camel"):
    """What the platform says of one service; `ttl_seconds` is for what it tells by itself."""

    complete: bool
    instances: list[Told]
    revision: Revision | None = None
    ttl_seconds: Seconds | None = None


_decode = msgspec.json.Decoder(Document).decode


def document(body: bytes) -> Document:
    """The document. Raises WrongRegistryAnswer, with what is wrong and where."""
    try:
        found = _decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise WrongRegistryAnswer(f"the document is not what docs/registries.md asks for: {error}") from error
    for place, one in enumerate(found.instances):
        if not (one.ip or one.pod or one.uid):
            raise WrongRegistryAnswer(f"the document's instances[{place}] names no pod: give ip, pod or uid")
    return found


def instances(found: Document) -> Iterator[Instance]:
    """The registrations, in an order of their own, so that a list in another order is no change."""
    for one in sorted(found.instances, key=lambda one: (one.ip, one.port or 0, one.pod, one.uid)):
        yield Instance(
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
