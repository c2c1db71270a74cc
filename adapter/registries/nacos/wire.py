"""The JSON of Nacos' instance lists, and the protobuf envelope of its gRPC messages.

The envelope is one small message, encoded and decoded here by hand:

    Payload  { Metadata metadata = 2; Any body = 3; }
    Metadata { string type = 3; map<string, string> headers = 7; string clientIp = 8; }
    Any      { bytes value = 2; }                            # JSON
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Generic, NamedTuple, TypeVar

import msgspec

from adapter.load.roster import Instance
from adapter.runtime.concurrency import Slices
from adapter.runtime.decoding import Decoder
from adapter.runtime.source_errors import WrongRegistryAnswer

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_SEPARATOR = "@@"
_MOST_FIELDS = 1000
"""Limit of a message's fields; Nacos sends a few, and one per header."""

T = TypeVar("T")


class NacosService(NamedTuple):
    """The full name of a service in Nacos, or of one of its clusters."""

    namespace: str
    group: str
    name: str
    cluster: str = ""

    @property
    def grouped_name(self) -> str:
        """Group and service as `group@@service`."""
        return f"{self.group}{_SEPARATOR}{self.name}"


class Host(msgspec.Struct, rename="camel"):
    """One instance in Nacos' JSON; omitted fields have Nacos' defaults."""

    ip: str
    port: int
    weight: float = 1.0
    healthy: bool = True
    enabled: bool = True
    ephemeral: bool = True
    cluster_name: str = ""
    metadata: dict[str, str | None] | None = None


class ServiceName(msgspec.Struct, rename="camel"):
    """Which service a message is about."""

    name: str = ""
    group_name: str = ""

    @property
    def grouped_name(self) -> str:
        """Group and service as `group@@service`; servers write them either in `name` or in two fields."""
        return self.name if _SEPARATOR in self.name else f"{self.group_name}{_SEPARATOR}{self.name}"


class ServiceInfo(ServiceName, rename="camel", kw_only=True):
    """A service as a client may see it: the server omits disabled instances."""

    hosts: list[Host] | None
    reach_protection_threshold: bool = False


class NacosResult(msgspec.Struct, Generic[T]):
    """The wrapper of an answer in versions 2 and 3 of the HTTP API; `code` 0 is success."""

    code: int
    data: T | None = None
    message: str | None = None


class CatalogPage(msgspec.Struct):
    """A page of the catalog of Nacos 2; the list is omitted where the service has no instances."""

    count: int
    instances: list[Host] | None = None


class ServiceDetail(msgspec.Struct, rename="camel"):
    """The names of a service's clusters, in Nacos 3."""

    cluster_map: dict[str, object]


class LoginResponse(msgspec.Struct, rename="camel"):
    """The answer to a login: a token, and its lifetime in seconds."""

    access_token: str
    token_ttl: float


class ResponseHead(msgspec.Struct, rename="camel"):
    """The fields that every gRPC response has."""

    result_code: int = 0
    error_code: int = 0
    message: str | None = None


class SubscribeServiceResponse(msgspec.Struct, rename="camel"):
    """The response to a subscription, with the current state of the service."""

    service_info: ServiceInfo


class ServerRequest(msgspec.Struct, rename="camel"):
    """A request that the server sends. A NotifySubscriberRequest has `service_info`; Nacos omits the namespace."""

    request_id: str = ""
    namespace: str | None = None
    service_info: ServiceInfo | None = None


class UnreadableRequest(msgspec.Struct, rename="camel"):
    """The same where an instance cannot be decoded: whoever registers one must not end everybody's connection."""

    request_id: str = ""
    namespace: str | None = None
    service_info: ServiceName | None = None


class ServiceInstances(NamedTuple):
    """The instances of one service. `protected`: health is not reliable. `partial`: some instances are missing.

    `clusters`: those that have some.
    """

    instances: tuple[Instance, ...]
    protected: bool = False
    partial: bool = False
    clusters: frozenset[str] = frozenset()


class InstanceDecoder:
    """Converts hosts of the given clusters (empty: all) to instances; `pod_name_key` is a metadata key."""

    def __init__(self, clusters: Iterable[str], pod_name_key: str) -> None:
        self._clusters = frozenset(clusters)
        self._pod_name_key = pod_name_key

    def decode(self, hosts: Iterable[Host] | None) -> tuple[Instance, ...]:
        """The instances of the selected clusters, sorted: some servers change the order with every answer."""
        return tuple(map(self._instance, self._selected(hosts or ())))

    async def decode_in_slices(self, hosts: Iterable[Host]) -> tuple[Instance, ...]:
        """Same as `decode`, in slices, for long lists."""
        slices = Slices()
        instances: list[Instance] = []
        for host in self._selected(hosts):
            instances.append(self._instance(host))
            await slices.breathe()
        return tuple(instances)

    def _selected(self, hosts: Iterable[Host]) -> list[Host]:
        selected = (host for host in hosts if not self._clusters or host.cluster_name in self._clusters)
        return sorted(selected, key=lambda host: (host.ip, host.port, host.cluster_name))

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


def decode_body(decoder: Decoder[T], body: bytes | bytearray, source: str) -> T:
    """Decodes a body. Raises WrongRegistryAnswer that names `source`: a URL or a connection."""
    try:
        return decoder.decode(body)
    except msgspec.MsgspecError as error:
        raise WrongRegistryAnswer(f"{source}: not what Nacos answers there: {error}") from error


# --- the gRPC envelope ---


class Payload(NamedTuple):
    """A gRPC message: the name of its type, and its body in JSON."""

    type: str
    body: bytes


def encode_payload(payload: Payload, headers: Mapping[str, str]) -> bytes:
    """Encodes the envelope."""
    entries = b"".join(_field(7, _field(1, key.encode()) + _field(2, value.encode())) for key, value in headers.items())
    return _field(2, _field(3, payload.type.encode()) + entries) + _field(3, _field(2, payload.body))


def decode_payload(data: bytes) -> Payload:
    """Decodes the envelope. Raises WrongRegistryAnswer."""
    try:
        parts = dict(_fields(data))
        metadata, body = dict(_fields(parts.get(2, b""))), dict(_fields(parts.get(3, b"")))
        return Payload(metadata.get(3, b"").decode(), body.get(2, b""))
    except (IndexError, ValueError) as error:
        raise WrongRegistryAnswer("a gRPC message that Nacos does not send; is this its gRPC port?") from error


def _field(number: int, value: bytes) -> bytes:
    """A length-delimited field: tag, length as a varint, value."""
    head, left = bytearray([number << 3 | _BYTES]), len(value)
    while left > 0x7F:
        head.append(left & 0x7F | 0x80)
        left >>= 7
    return bytes([*head, left]) + value


def _fields(data: bytes) -> Iterator[tuple[int, bytes]]:
    """The length-delimited fields with their numbers; skips fields of other wire types."""
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
