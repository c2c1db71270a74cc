"""Eureka (Netflix, Spring Cloud or Polaris): each application is polled by its name.

OUT_OF_SERVICE and DOWN pull an instance out, as its status or as an override behind STARTING. STARTING and UNKNOWN do
not: such an instance is registered. Self-preservation keeps instances whose lease expired: they count by their status.

By default a server answers from a read-only cache that is up to 30 s old. With
`eureka.server.use-read-only-response-cache: false` it shows changes at once, except those that arrive while it builds
an answer: these appear with the next change, or when its cache expires (180 s;
`eureka.server.response-cache-auto-expiration-in-seconds`).

Servers and versions write JSON differently: numbers and booleans may be strings, a list with one element may be that
element, keys vary in case, and unknown values may be null.
"""

import math
from typing import Any

import msgspec

from adapter.load.roster import Instance, Roster
from adapter.registries.servers import Polled, PolledSource, digest, path_segment, refusal
from adapter.registries.source import ServiceKey, decoded
from adapter.runtime.decoding import Decoder
from adapter.runtime.http import Reply
from adapter.runtime.source_errors import SourceError, SourceFailing, UnknownService, WrongAnswer
from adapter.settings.registries import EurekaRegistry

_JsonNumber = int | float | str | None


class _Port(msgspec.Struct):
    number: _JsonNumber = msgspec.field(name="$", default=None)
    enabled: bool | str | None = msgspec.field(name="@enabled", default=None)


class _Lease(msgspec.Struct, rename="camel"):
    registration_timestamp: _JsonNumber = None


class _Info(msgspec.Struct, rename="camel"):
    """The fields that are read of an instance."""

    instance_id: str | None = None
    host_name: str | None = None
    status: str | None = None
    ip_addr: str | None = None
    overridden_status: str | None = None
    overridden_status_v1: str | None = msgspec.field(name="overriddenstatus", default=None)
    port: _Port | int | str | None = None
    secure_port: _Port | int | str | None = None
    lease_info: _Lease | None = None
    metadata: dict[str, Any] | None = None


class _Application(msgspec.Struct):
    name: str
    instance: list[_Info] | _Info | None = None


class _Document(msgspec.Struct):
    application: _Application


_DOCUMENT = Decoder(_Document)


class EurekaSource(PolledSource[EurekaRegistry]):
    """Follows applications of one Eureka: a GET of each in an interval. Eureka has no namespaces and groups."""

    async def read(self, server: str, key: ServiceKey, tag: str) -> Polled | None:
        """As `PolledSource` describes. Eureka knows no ETags, but unchanged answers are equal: the tag is a digest."""
        name = key.service.upper()  # Eureka's names are case-insensitive
        reply = await self.servers.send("GET", f"{server}/apps/{path_segment(name)}")
        if reply.status != 200:
            raise _refused(reply)
        found = digest(reply.body)
        return Polled(read_application(reply.body, name, self.settings.pod_name_key), found) if found != tag else None


def read_application(body: bytes, name: str, pod_name_key: str) -> Roster:
    """The instances of this application, by id. Raises WrongAnswer."""
    application = decoded(_DOCUMENT, body, "not the JSON of Eureka; check the address").application
    if application.name.upper() != name.upper():
        raise WrongAnswer(f"the answer is of {application.name!r}, not of {name!r}")
    listed = application.instance or []
    infos = listed if isinstance(listed, list) else [listed]
    infos = sorted(infos, key=lambda each: each.instance_id or each.host_name or "")
    return Roster(tuple(_instance(info, pod_name_key) for info in infos))


def _instance(info: _Info, pod_name_key: str) -> Instance:
    """The instance; its host name and id become metadata."""
    # The server ranks an override above the instance's own UP, but below its DOWN and STARTING.
    override = (info.overridden_status or info.overridden_status_v1 or "").upper()
    status = (info.status or "UNKNOWN").upper()
    written = {key: str(value) for key, value in (info.metadata or {}).items() if not key.startswith("@")}
    # Early servers have only the host name.
    metadata = {"hostName": info.host_name or "", "instanceId": info.instance_id or info.host_name or "", **written}
    registered = _number(info.lease_info.registration_timestamp) if info.lease_info else None
    return Instance(
        ip=info.ip_addr or "",
        port=_enabled(info.port, usual=True) or _enabled(info.secure_port, usual=False),
        status=override if override in {"OUT_OF_SERVICE", "DOWN"} and status != "UP" else status,
        pod_name=metadata.get(pod_name_key, ""),
        registered_at=registered / 1000 if registered else None,
        metadata=metadata,
    )


def _number(value: _JsonNumber) -> float | None:
    try:
        number = float(value or 0)
    except (ValueError, OverflowError):
        return None
    return number if value is not None and math.isfinite(number) else None


def _enabled(port: _Port | int | str | None, *, usual: bool) -> int | None:
    """The port's number if it is enabled; `usual` is the default if the server omits `@enabled`."""
    if not isinstance(port, _Port):
        port = _Port(port)
    used = usual if port.enabled is None else str(port.enabled).lower() == "true"
    number = _number(port.number)
    return int(number) if used and number else None


def _refused(reply: Reply) -> SourceError:
    """The error of an answer without a list."""
    if reply.status == 403:  # Eureka has no authorization
        why = "HTTP 403: it has just started and waits for its peers, or this user may not read it"
        return SourceFailing(why, public=why)
    if reply.status == 404:  # some servers answer a wrong prefix in the same way
        why = "HTTP 404: Eureka knows no such application; check its name, and the prefix of the address"
        return UnknownService(why, public=why)
    return refusal(reply)
