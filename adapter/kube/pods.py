"""Decodes pods from the API's bytes into `Pod`s of the load package."""

import functools
import re
import sys
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

import msgspec

from adapter.kube.objects import (
    Condition,
    ContainerPort,
    ContainerSpec,
    ContainerState,
    ContainerStatus,
    ObjectDecoder,
    OwnerReference,
    PodSpec,
    PodStatus,
    Quantity,
    ReadinessGate,
    Resources,
    WirePod,
)
from adapter.load import quantity
from adapter.load.pods import Container, Owner, Pod, PodCondition
from adapter.runtime.decoding import Decoder
from adapter.runtime.times import parse_time

_TEMPLATE_HASHES = ("pod-template-hash", "rollouts-pod-template-hash")
_SHARED_AT_MOST = 4096
_SHARED_BYTES = 4 * 1024 * 1024
_LONGEST_SHARED = 8 * 1024
_LONGEST = 64 * 1024
"""Bytes of a pod's labels, owners, or a container's resources or ports. The API server admits 1.5 MB of each, which
takes ten times as much memory decoded; only an attacker writes a hundredth of that."""
_MOST = 256
"""Containers of a pod, and readiness gates."""

_COST = re.compile(r"0|-?[1-9][0-9]{0,9}", re.ASCII)

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


_DECODER = Decoder(WirePod)
_LABELS: Decoder[dict[str, str] | None] = Decoder(dict[str, str] | None)
_OWNERS: Decoder[list[OwnerReference] | None] = Decoder(list[OwnerReference] | None)
_RESOURCES: Decoder[Resources | None] = Decoder(Resources | None)
_PORTS: Decoder[list[ContainerPort] | None] = Decoder(list[ContainerPort] | None)


class PodDecoder(ObjectDecoder[WirePod, Pod]):
    """Decodes a Pod; pods share equal labels, containers and owners.

    Pods of one template have these parts in the same bytes, which are decoded once.

    Lenient as the API: absent fields have defaults, unreadable quantities and times are left out. So are oversized
    parts (`_LONGEST`, `_MOST`): such a pod has no labels, or no known containers. `endpoint_serving` stays None: the
    Pod does not hold it. A pod without a creation time counts as created at the epoch. Raises msgspec.MsgspecError for
    anything but a Pod.
    """

    kind = WirePod

    def __init__(self) -> None:
        self._labels: _Shared[_Labels] = _Shared()
        self._containers: _Shared[tuple[Container, ...]] = _Shared()
        self._owners: _Shared[Owner | None] = _Shared()

    def __call__(self, body: bytes | msgspec.Raw) -> Pod:
        """The pod of these bytes."""
        return self.build(_DECODER.decode(body))

    def build(self, wire: WirePod) -> Pod:
        """The pod of a decoded object."""
        meta, spec, status = wire.metadata, wire.spec, wire.status
        conditions = {condition.type: condition for condition in status.conditions or ()}
        named = self._labels.once(_bounded(meta.labels), _labels, len)
        return Pod(
            namespace=sys.intern(meta.namespace),
            name=meta.name,
            uid=meta.uid,
            created_at=parse_time(meta.creation_timestamp) or 0.0,
            started_at=parse_time(status.start_time),
            restarted_at=_restarted_at(status.container_statuses),
            deleting=meta.deletion_timestamp is not None,
            phase=sys.intern(status.phase or "Running"),
            ready=_ready(conditions.get("Ready")),
            containers_ready=_is_true(conditions.get("ContainersReady")),
            gates=_gates(spec.readiness_gates, conditions),
            pulled_out_annotation=meta.annotations is not None and meta.annotations.pulled_out == "true",
            deletion_cost=_cost(meta.annotations.deletion_cost) if meta.annotations is not None else 0,
            marked=meta.annotations is not None and meta.annotations.mark == "true",
            ips=_ips(status),
            host_ip=sys.intern(status.host_ip or ""),
            host_network=bool(spec.host_network),
            owner=self._owners.once(_bounded(meta.owner_references), _owner, len),
            template_hash=named.template_hash,
            labels=named.labels,
            containers=self._running_containers(spec, status),
            pod_requests=_amounts(spec.resources.requests) if spec.resources else _NONE,
            pod_limits=_amounts(spec.resources.limits) if spec.resources else _NONE,
        )

    def _running_containers(self, spec: PodSpec, status: PodStatus) -> tuple[Container, ...]:
        """Regular containers, and init containers that keep running beside them (restartPolicy Always)."""
        if len(spec.containers or ()) > _MOST or len(spec.init_containers or ()) > _MOST:
            return ()
        states = {one.name: one.state or _NO_STATE for one in status.container_statuses or ()}
        made = [_raw_container(one, states) for one in spec.containers or ()]
        if spec.init_containers:
            states = {one.name: one.state or _NO_STATE for one in status.init_container_statuses or ()}
            made += [_raw_container(one, states) for one in spec.init_containers if one.restart_policy == "Always"]
        return self._containers.once(tuple(made), _parse_containers, _length)


class _Shared(Generic[V]):
    """A cache of values by key; it is emptied when it has grown too large, which costs only memory.

    Large values are not cached: one pod, rewritten again and again, would fill memory with them.
    """

    def __init__(self) -> None:
        self._values: dict[Any, V] = {}
        self._bytes = 0

    def once(self, key: K, make: Callable[[K], V], length_of: Callable[[K], int]) -> V:
        """The value of this key, whose length in bytes `length_of` returns."""
        try:
            return self._values[key]
        except KeyError:
            value, length = make(key), length_of(key)
        if length <= _LONGEST_SHARED:
            if len(self._values) >= _SHARED_AT_MOST or self._bytes + length > _SHARED_BYTES:
                self._values.clear()
                self._bytes = 0
            self._values[key] = value
            self._bytes += length
        return value


class _Labels(NamedTuple):
    labels: Mapping[str, str]
    template_hash: str


class _RawContainer(NamedTuple):
    """The decoded parts of a container; `resources` and `ports` are still JSON."""

    name: str
    image: str
    resources: bytes
    ports: bytes
    running: bool | None
    crash_looping: bool


_NONE: Mapping[str, int] = {}
_NO_GATES: Mapping[str, bool] = {}
_NO_STATE = ContainerState()


def _bounded(body: msgspec.Raw) -> bytes:
    """A piece of JSON; null where it is longer than `_LONGEST`."""
    part = bytes(body)
    return part if len(part) <= _LONGEST else b"null"


def _length(containers: Iterable[_RawContainer]) -> int:
    return sum(len(one.name) + len(one.image) + len(one.resources) + len(one.ports) for one in containers)


def _labels(body: bytes) -> _Labels:
    labels = {sys.intern(name): value for name, value in (_LABELS.decode(body) or {}).items()}
    return _Labels(labels, next((labels[name] for name in _TEMPLATE_HASHES if name in labels), ""))


def _owner(body: bytes) -> Owner | None:
    for reference in _OWNERS.decode(body) or ():
        if reference.controller:
            return Owner(reference.kind, reference.name, reference.uid)
    return None


def _ready(condition: Condition | None) -> PodCondition | None:
    if condition is None:
        return None
    return PodCondition(condition.status == "True", parse_time(condition.last_transition_time))


def _restarted_at(statuses: Iterable[ContainerStatus] | None) -> float | None:
    running = (one.state.running for one in statuses or () if one.restart_count and one.state and one.state.running)
    return max((at for one in running if (at := parse_time(one.started_at)) is not None), default=None)


def _is_true(condition: Condition | None) -> bool:
    return condition is not None and condition.status == "True"


def _cost(text: str) -> int:
    """A deletion cost as the ReplicaSet controller reads it: 0 for anything but a 32-bit integer."""
    if not text or not _COST.fullmatch(text):
        return 0
    return cost if -(2**31) <= (cost := int(text)) < 2**31 else 0


def _gates(gates: Sequence[ReadinessGate] | None, conditions: Mapping[str, Condition]) -> Mapping[str, bool]:
    if not gates:
        return _NO_GATES
    return {gate.condition_type: _is_true(conditions.get(gate.condition_type)) for gate in gates[:_MOST]}


def _ips(status: PodStatus) -> tuple[str, ...]:
    if status.pod_ips:
        return tuple(one.ip for one in status.pod_ips)
    return (status.pod_ip,) if status.pod_ip else ()


def _raw_container(spec: ContainerSpec, states: Mapping[str, ContainerState]) -> _RawContainer:
    state = states.get(spec.name)
    running = None if state is None else state.running is not None
    crash_looping = state is not None and state.waiting is not None and state.waiting.reason == "CrashLoopBackOff"
    return _RawContainer(spec.name, spec.image, _bounded(spec.resources), _bounded(spec.ports), running, crash_looping)


def _parse_containers(containers: Iterable[_RawContainer]) -> tuple[Container, ...]:
    return tuple(_container(raw) for raw in containers)


def _container(raw: _RawContainer) -> Container:
    resources = _RESOURCES.decode(raw.resources)
    return Container(
        name=sys.intern(raw.name),
        requests=_amounts(resources.requests if resources else None),
        limits=_amounts(resources.limits if resources else None),
        running=raw.running,
        crash_looping=raw.crash_looping,
        ports=tuple(port.container_port for port in _PORTS.decode(raw.ports) or () if port.container_port),
        image=sys.intern(raw.image),
    )


def _amounts(quantities: Mapping[str, Quantity] | None) -> Mapping[str, int]:
    if not quantities:
        return _NONE
    read = ((sys.intern(name), _nano(str(amount))) for name, amount in quantities.items())
    return {name: nano for name, nano in read if nano is not None}


@functools.lru_cache(maxsize=8192)
def _nano(text: str) -> int | None:
    try:
        return quantity.parse_nano(text)
    except quantity.QuantityError:
        return None
