"""What a Eureka server says, as JSON: the fields that count, in whichever of its forms.

Servers and their versions differ: numbers and booleans come as text, a list of one as the one itself, keys in another
case, and what is not known as null.
"""

import math
from collections.abc import Iterator
from typing import Any, NamedTuple, TypeVar

import msgspec

from adapter.load.roster import Instance
from adapter.runtime.answer_budget import MIB, Body
from adapter.runtime.decoding import Decoder
from adapter.runtime.json_pieces import array, pieces

_Number = int | float | str | None
LARGEST_APPLICATION = 16 * MIB
"""Bytes of one application's instances: they are looked for in one step, and decoded in several."""
_NONE = msgspec.Raw(b"null")
_PULLED_OUT = {"OUT_OF_SERVICE", "DOWN"}


class InstanceSummary(msgspec.Struct, rename="camel"):
    """An instance as far as one must know it whose application nobody asked for."""

    instance_id: str | None = None
    host_name: str | None = None
    status: str | None = None
    action_type: str | None = None

    @property
    def id(self) -> str:
        """What tells it from the others of its application; early servers know the host name alone."""
        return self.instance_id or self.host_name or ""

    @property
    def state(self) -> str:
        """The status that its server counts it by."""
        return self.status or "UNKNOWN"


class _Port(msgspec.Struct):
    number: _Number = msgspec.field(name="$", default=None)
    enabled: bool | str | None = msgspec.field(name="@enabled", default=None)


class _Lease(msgspec.Struct, rename="camel"):
    duration_in_secs: _Number = None
    registration_timestamp: _Number = None
    last_renewal_timestamp: _Number = None


class InstanceInfo(InstanceSummary):
    """An instance with all that counts."""

    ip_addr: str | None = None
    overridden_status: str | None = None
    overridden_before: str | None = msgspec.field(name="overriddenstatus", default=None)
    port: _Port | int | str | None = None
    secure_port: _Port | int | str | None = None
    lease_info: _Lease | None = None
    metadata: dict[str, Any] | None = None

    @property
    def word(self) -> str:
        """Its status, or the override that it will have once it is UP by itself.

        The server puts an override above the instance's own UP, but below its DOWN and STARTING.
        """
        override = (self.overridden_status or self.overridden_before or "").upper()
        word = self.state.upper()
        return override if override in _PULLED_OUT and word != "UP" else word

    @property
    def lease(self) -> "LeaseTimes | None":
        """Its lease; None where the server does not say, as Polaris does not."""
        if self.lease_info is None:
            return None
        duration, renewed = _number(self.lease_info.duration_in_secs), _number(self.lease_info.last_renewal_timestamp)
        return LeaseTimes(duration, renewed / 1000) if duration and renewed else None

    def instance(self, pod_name_key: str) -> Instance:
        """The registration as every registry's are written; host name and id stand among its metadata."""
        told = {key: str(value) for key, value in (self.metadata or {}).items() if not key.startswith("@")}
        metadata = {"hostName": self.host_name or "", "instanceId": self.id, **told}
        registered = _number(self.lease_info.registration_timestamp) if self.lease_info else None
        return Instance(
            ip=self.ip_addr or "",
            port=_enabled(self.port, usual=True) or _enabled(self.secure_port, usual=False),
            status=self.word,
            pod_name=metadata.get(pod_name_key, "") if pod_name_key else "",
            registered_at=registered / 1000 if registered else None,
            metadata=metadata,
        )


class LeaseTimes(NamedTuple):
    """How long a lease lasts, and when it was renewed, in seconds.

    A server writes a renewal down as the time at which it came *plus* the duration, and evicts after a further one.
    """

    duration: float
    renewed: float

    @property
    def ends(self) -> float:
        """When the server may evict the instance."""
        return self.renewed + self.duration

    @property
    def heard(self) -> float:
        """When the instance gave its last sign of life, at the earliest."""
        return self.renewed - self.duration


class Application(msgspec.Struct):
    """An application, whose instances are not read yet."""

    name: str
    instance: msgspec.Raw = _NONE


class _Applications(msgspec.Struct):
    hashcode: str | None = msgspec.field(name="apps__hashcode", default=None)
    application: list[Application] | Application | None = None


class _Answer(msgspec.Struct):
    applications: _Applications


_T = TypeVar("_T")

_ARRAY, _INSTANCES = array("application"), array("")
_ANSWER = Decoder(_Answer)
_MANY = Decoder(list[Application])
_ENTRIES = Decoder(list[InstanceSummary] | InstanceSummary | None)
_REGISTRATIONS = Decoder(list[InstanceInfo] | InstanceInfo | None)


class Applications:
    """The applications of an answer: all of them, or those that changed. Iterating uses the answer up.

    `hashcode` counts the instances of *all* by status; it is known once the last application was read. Iterating raises
    msgspec.MsgspecError and Uncut for anything else than such an answer.
    """

    def __init__(self, body: Body) -> None:
        self._body = body
        self.hashcode: str | None = None

    def __iter__(self) -> Iterator[Application]:
        for piece in pieces(self._body, _ARRAY, most=LARGEST_APPLICATION):
            if not piece.is_last:
                yield from _MANY.decode(piece.text)
                continue
            found = _ANSWER.decode(piece.text).applications
            self.hashcode = found.hashcode
            yield from _many(found.application)


def instance_summaries(application: Application) -> Iterator[InstanceSummary]:
    """An application's instances by status alone. Raises msgspec.MsgspecError and Uncut."""
    return _each(application, _ENTRIES)


def instance_infos(application: Application) -> Iterator[InstanceInfo]:
    """An application's instances with all that counts. Raises msgspec.MsgspecError and Uncut."""
    return _each(application, _REGISTRATIONS)


def _each(application: Application, decoder: Decoder[list[_T] | _T | None]) -> Iterator[_T]:
    for piece in pieces(bytes(application.instance), _INSTANCES):
        yield from _many(decoder.decode(piece.text))


def _many(found: list[_T] | _T | None) -> list[_T]:
    if found is None:
        return []
    return found if isinstance(found, list) else [found]


def _number(value: _Number) -> float | None:
    try:
        number = float(value or 0)
    except (ValueError, OverflowError):
        return None
    return number if value is not None and math.isfinite(number) else None


def _enabled(port: _Port | int | str | None, *, usual: bool) -> int | None:
    """The port's number where it is in use; `usual` holds where the server does not say."""
    if not isinstance(port, _Port):
        port = _Port(port)
    used = usual if port.enabled is None else str(port.enabled).lower() == "true"
    number = _number(port.number)
    return int(number) if used and number else None
