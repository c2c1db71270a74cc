"""Polaris' discovery API: its questions, and what the answers mean."""

from typing import Final

import msgspec

from adapter.load.roster import Instance
from adapter.registries.client import refusal
from adapter.registries.polling.http1 import RawReply, Request
from adapter.runtime.decoding import Decoder
from adapter.runtime.json_pieces import Uncut, array, pieces
from adapter.runtime.slices import Slices
from adapter.runtime.source_errors import (
    NotAllowed,
    NotAuthenticated,
    SourceError,
    SourceFailing,
    UnknownService,
    WrongRegistryAnswer,
)

INSTANCES = 1
"""The kind of question that is put."""

SUCCESS = 200000
NO_CHANGE = 200001
NO_SUCH_SERVICE = 400202
API_RATE_LIMIT = 403003
_MILLE = 1000
_JSON = (("Content-Type", "application/json"),)


class Unchanged:
    """What was heard last still holds."""


UNCHANGED: Final = Unchanged()


class _Service(msgspec.Struct):
    name: str | None = None
    namespace: str | None = None
    revision: str | None = None


class _Instance(msgspec.Struct):
    host: str
    port: int | None = None
    weight: float | None = None
    healthy: bool | None = None
    isolate: bool | None = None
    metadata: dict[str, str] | None = None


class _Answer(msgspec.Struct, rename="camel"):
    code: int
    info: str | None = None
    service: _Service | None = None
    alias_for: _Service | None = None
    instances: list[_Instance] | None = None


class Listed(msgspec.Struct):
    """The instances of a service, and the revision to ask with next time."""

    revision: str
    instances: list[_Instance]


Answer = Listed | Unchanged | SourceError
"""What is said of one service; errors are of that service alone."""

_decode = Decoder(_Answer).decode
_decode_instances = Decoder(list[_Instance]).decode
_ARRAY = array("instances")
_encode = msgspec.json.Encoder().encode


def request(service: str, namespace: str, revision: str) -> Request:
    """The question for a service's instances; `revision` is the one heard last, empty where none was."""
    named = {"name": service, "namespace": namespace, "revision": revision}
    return Request("POST", "/v1/Discover", _JSON, _encode({"type": INSTANCES, "service": named}))


async def answer(reply: RawReply, server: str, service: str, namespace: str) -> Answer:
    """What a reply says of its service. Raises SourceError where it says more of the server than of the service."""
    slices = Slices()
    plain = reply.plain  # decoding uses the body up
    listed: list[_Instance] = []
    found = None
    try:
        for piece in pieces(reply.body, _ARRAY):
            if piece.is_last:
                found = _decode(piece.text)
                listed += found.instances or ()
            else:
                listed += _decode_instances(piece.text)
            await slices.breathe()
    except (msgspec.MsgspecError, UnicodeDecodeError, Uncut) as error:
        if reply.status != 200:
            raise refusal(plain).at(server) from None
        raise WrongRegistryAnswer(f"{server}: not an answer of Polaris' discovery API: {error}") from None
    assert found is not None
    if not _is_of(found, service, namespace):
        return WrongRegistryAnswer(f"{server}: the answer is of {_told(found)}, not of {service!r} in {namespace!r}")
    if found.code == NO_CHANGE:
        return UNCHANGED
    if found.code == SUCCESS and found.service is not None and found.instances is not None:
        return Listed(found.service.revision or "", listed)
    return _refusal(found, server)


def _is_of(found: _Answer, service: str, namespace: str) -> bool:
    """Whether an answer is of this service, as far as it says; an alias is answered for by what it stands for."""
    names = [one for one in (found.service, found.alias_for) if one is not None and one.name]
    return not names or any(one.name == service and one.namespace in {namespace, None, ""} for one in names)


def _told(found: _Answer) -> str:
    return f"{found.service.name!r} in {found.service.namespace!r}" if found.service is not None else "another service"


async def instances(listed: Listed, pod_name_key: str) -> tuple[Instance, ...]:
    """The registrations, in an order of their own: Polaris lists them in any."""
    slices = Slices()
    found = []
    for one in sorted(listed.instances, key=lambda one: (one.host, one.port or 0)):
        found.append(_instance(one, pod_name_key))
        await slices.breathe()
    return tuple(found)


def _instance(one: _Instance, pod_name_key: str) -> Instance:
    metadata = one.metadata or {}
    return Instance(
        ip=one.host,
        port=one.port,
        healthy=one.healthy is not False,
        weight=one.weight,
        isolated=one.isolate is True,
        pod_name=metadata.get(pod_name_key, "") if pod_name_key else "",
        metadata=metadata,
    )


def _refusal(found: _Answer, server: str) -> SourceError:
    """The error for an answer without a list. Raises it where another server may know better."""
    info = f"{server}: Polaris answers {found.code}: {found.info or 'no word'}"
    public = f"Polaris answers {found.code}"
    if found.code == NO_SUCH_SERVICE:
        return UnknownService(
            f"{server}: Polaris knows no such service there; check the service's name and its namespace"
        )
    status = found.code // _MILLE
    if status == 429 or status >= 500 or found.code == API_RATE_LIMIT:
        raise SourceFailing(info, public=public)
    if status == 401:
        return NotAuthenticated(f"{info}; check tokenFile, and whether its user may read this service", public=public)
    if status == 403:
        return NotAllowed(f"{info}; give the adapter's token the right to read this service", public=public)
    return WrongRegistryAnswer(info, public=public)
