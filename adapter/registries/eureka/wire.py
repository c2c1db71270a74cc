"""The JSON of Eureka servers: the fields that are read, in all forms that servers write.

Servers and versions differ: numbers and booleans may be strings, a list with one element may be that element, keys
vary in case, and unknown values may be null.
"""

import math
from collections.abc import Iterator
from typing import Any, TypeVar

import msgspec

from adapter.load.roster import Instance
from adapter.runtime.answer_budget import MIB, Body
from adapter.runtime.decoding import Decoder, array, pieces

_JsonNumber = int | float | str | None
LARGEST_APPLICATION = 16 * MIB
"""Maximum bytes of one application's instances: they are found in one step, and decoded in slices."""
_NONE = msgspec.Raw(b"null")
_PULLED_OUT = {"OUT_OF_SERVICE", "DOWN"}


class InstanceSummary(msgspec.Struct, rename="camel"):
    """The fields that are read of an instance whose application is not followed."""

    instance_id: str | None = None
    host_name: str | None = None
    status: str | None = None
    action_type: str | None = None

    @property
    def id(self) -> str:
        """The instance's id within its application; early servers have only the host name."""
        return self.instance_id or self.host_name or ""

    @property
    def counted_status(self) -> str:
        """The status under which the server's hash code counts the instance."""
        return self.status or "UNKNOWN"


class _Port(msgspec.Struct):
    number: _JsonNumber = msgspec.field(name="$", default=None)
    enabled: bool | str | None = msgspec.field(name="@enabled", default=None)


class _LeaseInfo(msgspec.Struct, rename="camel"):
    duration_in_secs: _JsonNumber = None
    registration_timestamp: _JsonNumber = None
    last_renewal_timestamp: _JsonNumber = None


class InstanceInfo(InstanceSummary):
    """All fields that are read of an instance."""

    ip_addr: str | None = None
    overridden_status: str | None = None
    overridden_status_v1: str | None = msgspec.field(name="overriddenstatus", default=None)
    port: _Port | int | str | None = None
    secure_port: _Port | int | str | None = None
    lease_info: _LeaseInfo | None = None
    metadata: dict[str, Any] | None = None

    @property
    def effective_status(self) -> str:
        """The status, or the override that takes effect once the instance reports UP.

        The server ranks an override above the instance's own UP, but below its DOWN and STARTING.
        """
        override = (self.overridden_status or self.overridden_status_v1 or "").upper()
        status = self.counted_status.upper()
        return override if override in _PULLED_OUT and status != "UP" else status

    @property
    def lease(self) -> tuple[float, float] | None:
        """When a server may evict the instance, and when it renewed its lease, at the earliest (epoch seconds).

        A server records a renewal as its arrival *plus* the duration, and evicts after one more duration. None if the
        server omits the times, as Polaris does.
        """
        if self.lease_info is None:
            return None
        duration, renewed = _number(self.lease_info.duration_in_secs), _number(self.lease_info.last_renewal_timestamp)
        if not duration or not renewed:
            return None
        return renewed / 1000 + duration, renewed / 1000 - duration

    def instance(self, pod_name_key: str) -> Instance:
        """Converts to the common form of all registries; host name and id become metadata."""
        registered_metadata = {
            key: str(value) for key, value in (self.metadata or {}).items() if not key.startswith("@")
        }
        metadata = {"hostName": self.host_name or "", "instanceId": self.id, **registered_metadata}
        registered = _number(self.lease_info.registration_timestamp) if self.lease_info else None
        return Instance(
            ip=self.ip_addr or "",
            port=_enabled(self.port, usual=True) or _enabled(self.secure_port, usual=False),
            status=self.effective_status,
            pod_name=metadata.get(pod_name_key, "") if pod_name_key else "",
            registered_at=registered / 1000 if registered else None,
            metadata=metadata,
        )


class Application(msgspec.Struct):
    """An application; its instances are decoded later."""

    name: str
    instance: msgspec.Raw = _NONE


class _Applications(msgspec.Struct):
    hashcode: str | None = msgspec.field(name="apps__hashcode", default=None)
    application: list[Application] | Application | None = None


class _Answer(msgspec.Struct):
    applications: _Applications


_T = TypeVar("_T")
_I = TypeVar("_I", bound=InstanceSummary)

_ARRAY, _INSTANCES = array("application"), array("")
_ANSWER = Decoder(_Answer)
_APPLICATION_LIST = Decoder(list[Application])
_DECODERS: dict[type, Decoder[Any]] = {
    kind: Decoder(list[kind] | kind | None)  # type: ignore[valid-type]
    for kind in (InstanceSummary, InstanceInfo)
}


class Applications:
    """The applications of an answer: all of them, or a delta. Iterating consumes the body.

    `hashcode` counts the instances of *all* applications by status; it is known after the last application. Iterating
    raises msgspec.MsgspecError and Uncut if the body is not such an answer.
    """

    def __init__(self, body: Body) -> None:
        self._body = body
        self.hashcode: str | None = None

    def __iter__(self) -> Iterator[Application]:
        for piece in pieces(self._body, _ARRAY, most=LARGEST_APPLICATION):
            if not piece.is_last:
                yield from _APPLICATION_LIST.decode(piece.text)
                continue
            last = _ANSWER.decode(piece.text).applications
            self.hashcode = last.hashcode
            yield from _as_list(last.application)


def decode_instances(application: Application, kind: type[_I]) -> Iterator[_I]:
    """Decodes an application's instances, or summaries of them. Raises msgspec.MsgspecError and Uncut."""
    for piece in pieces(bytes(application.instance), _INSTANCES):
        yield from _as_list(_DECODERS[kind].decode(piece.text))


def _as_list(value: list[_T] | _T | None) -> list[_T]:
    if value is None:
        return []
    return value if isinstance(value, list) else [value]


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
