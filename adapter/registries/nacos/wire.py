"""What Nacos says, as far as it is read: lists of instances in JSON, and the envelope of its gRPC messages.

The envelope is one small protobuf message, so it is written and read here by hand:

    Payload  { Metadata metadata = 2; Any body = 3; }
    Metadata { string type = 3; map<string, string> headers = 7; string clientIp = 8; }
    Any      { bytes value = 2; }                            # JSON
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from heapq import merge
from typing import Generic, NamedTuple, TypeVar

import msgspec

from adapter.load.roster import Instance
from adapter.runtime.slices import Slices
from adapter.runtime.source_errors import WrongRegistryAnswer

PUBLIC = "public"
"""The id of the namespace that is meant where none is named."""

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_SEPARATOR = "@@"
_MOST_FIELDS = 1000
"""Of a message; Nacos sends a few, and a header each."""
_RUN = 500
"""Hosts that are put in order in one step."""

T = TypeVar("T")


class Place(NamedTuple):
    """A service as Nacos names it."""

    namespace: str
    group: str
    service: str

    @property
    def grouped(self) -> str:
        """Group and service in one name."""
        return f"{self.group}{_SEPARATOR}{self.service}"


class Host(msgspec.Struct, rename="camel"):
    """One instance. What is left out has Nacos' own default."""

    ip: str
    port: int
    weight: float = 1.0
    healthy: bool = True
    enabled: bool = True
    ephemeral: bool = True
    cluster_name: str = ""
    metadata: dict[str, str | None] | None = None


class ServiceInfo(msgspec.Struct, rename="camel"):
    """All instances of a service that a client may use; disabled ones are left out by the server."""

    hosts: list[Host] | None
    name: str = ""
    group_name: str = ""
    reach_protection_threshold: bool = False

    @property
    def grouped(self) -> str:
        """Group and service in one name, whichever of the two ways the server writes them."""
        return self.name if _SEPARATOR in self.name else f"{self.group_name}{_SEPARATOR}{self.name}"


class Result(msgspec.Struct, Generic[T]):
    """How the second and third generation of the HTTP API wrap an answer; `code` 0 is success."""

    code: int
    data: T | None = None
    message: str | None = None


class Page(msgspec.Struct):
    """A page of the catalog of Nacos 2; without instances the list is left out."""

    count: int
    instances: list[Host] | None = None


class Token(msgspec.Struct, rename="camel"):
    """What a login gives: a token, and for how many seconds."""

    access_token: str
    token_ttl: float


class Response(msgspec.Struct, rename="camel"):
    """The head of every gRPC answer."""

    result_code: int = 0
    error_code: int = 0
    message: str | None = None


class Subscribed(msgspec.Struct, rename="camel"):
    """The answer to a subscription: what the service is now."""

    service_info: ServiceInfo


class Notification(msgspec.Struct, rename="camel"):
    """A request of the server; a changed service where it is that. Nacos itself leaves the namespace out."""

    request_id: str = ""
    namespace: str | None = None
    service_info: ServiceInfo | None = None


class Listed(NamedTuple):
    """An answer about one service. `protected`: health says nothing. `partial`: instances are lacking."""

    instances: tuple[Instance, ...]
    protected: bool = False
    partial: bool = False


class Reader:
    """Makes instances of hosts: those of the given clusters (empty: all); `pod_name_key` is a metadata key."""

    def __init__(self, clusters: Iterable[str], pod_name_key: str) -> None:
        self._clusters = frozenset(clusters)
        self._pod_name_key = pod_name_key

    def instances(self, hosts: Iterable[Host] | None) -> tuple[Instance, ...]:
        """The instances that count, in an order of their own: some servers give them in another one each time."""
        counting = [host for host in hosts or () if self._counts(host)]
        counting.sort(key=_order)
        return tuple(self._instance(host) for host in counting)

    async def instances_in_slices(self, hosts: Iterable[Host]) -> tuple[Instance, ...]:
        """As `instances`, of hosts that may be many."""
        slices = Slices()
        counting = [host for host in hosts if self._counts(host)]
        runs: list[list[Host]] = []
        for at in range(0, len(counting), _RUN):
            runs.append(sorted(counting[at : at + _RUN], key=_order))
            await slices.breathe()
        found: list[Instance] = []
        for host in merge(*runs, key=_order):
            found.append(self._instance(host))
            await slices.breathe()
        return tuple(found)

    def listed(self, info: ServiceInfo) -> Listed:
        """What a service's own description says."""
        return Listed(self.instances(info.hosts), protected=info.reach_protection_threshold)

    def _counts(self, host: Host) -> bool:
        return not self._clusters or host.cluster_name in self._clusters

    def _instance(self, host: Host) -> Instance:
        metadata = {key: value for key, value in (host.metadata or {}).items() if value is not None}
        return Instance(
            ip=host.ip,
            port=host.port,
            enabled=host.enabled,
            healthy=host.healthy,
            weight=host.weight,
            pod_name=metadata.get(self._pod_name_key, "") if self._pod_name_key else "",
            metadata=metadata,
        )


def _order(host: Host) -> tuple[str, int, str]:
    return host.ip, host.port, host.cluster_name


def reading(decode: Callable[[bytes | bytearray], T], body: bytes | bytearray, what: str) -> T:
    """What a body says. Raises WrongRegistryAnswer, which names `what` was read."""
    try:
        return decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise WrongRegistryAnswer(f"{what}: not what Nacos answers there: {error}") from error


# --- the gRPC envelope ---


class Payload(NamedTuple):
    """A gRPC message: the name of its type, and its JSON."""

    type: str
    body: bytes


def encode(payload: Payload, headers: Mapping[str, str]) -> bytes:
    """The envelope's bytes."""
    entries = b"".join(_field(7, _text(1, key) + _text(2, value)) for key, value in headers.items())
    return _field(2, _text(3, payload.type) + entries) + _field(3, _field(2, payload.body))


def decode(data: bytes) -> Payload:
    """The envelope of these bytes. Raises WrongRegistryAnswer."""
    try:
        parts = dict(_fields(data))
        metadata, body = dict(_fields(parts.get(2, b""))), dict(_fields(parts.get(3, b"")))
        return Payload(metadata.get(3, b"").decode(), body.get(2, b""))
    except (IndexError, ValueError) as error:
        raise WrongRegistryAnswer("a gRPC message that Nacos does not send; is this its gRPC port?") from error


def _text(number: int, value: str) -> bytes:
    return _field(number, value.encode())


def _field(number: int, value: bytes) -> bytes:
    return bytes([number << 3 | _BYTES]) + _varint(len(value)) + value


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def _fields(data: bytes) -> Iterator[tuple[int, bytes]]:
    """The fields that hold bytes, by number; others are passed over."""
    at = count = 0
    while at < len(data):
        count += 1
        if count > _MOST_FIELDS:
            raise ValueError("too many fields")
        tag, at = _read_varint(data, at)
        size = {_FIXED64: 8, _FIXED32: 4}.get(tag & 7, 0)
        if tag & 7 == _VARINT:
            _, at = _read_varint(data, at)
        elif tag & 7 == _BYTES:
            size, at = _read_varint(data, at)
        elif not size:
            raise ValueError(f"wire type {tag & 7}")
        if at + size > len(data):
            raise ValueError("cut off")
        if tag & 7 == _BYTES:
            yield tag >> 3, data[at : at + size]
        at += size


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at
        if shift > 63:
            raise ValueError("a number without end")
