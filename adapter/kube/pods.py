"""Pods from the bytes of the API: decoded narrowly, then turned into what the arithmetic sees."""

import functools
import sys
from collections.abc import Iterable, Mapping
from typing import Generic, TypeVar

import msgspec

from adapter.kube.objects import Condition as WireCondition
from adapter.kube.objects import OwnerReference, Quantity
from adapter.kube.times import known_time
from adapter.load import quantity
from adapter.load.pods import Condition, Container, Owner, Pod

PULLED_OUT_ANNOTATION = "effective-load.io/pulled-out"
_TEMPLATE_HASHES = ("pod-template-hash", "rollouts-pod-template-hash")
_SHARED_AT_MOST = 4096

V = TypeVar("V")


class _Narrow(msgspec.Struct, frozen=True, kw_only=True, rename="camel", gc=False):
    pass


class _Annotations(msgspec.Struct, frozen=True, gc=False):
    pulled_out: str = msgspec.field(name=PULLED_OUT_ANNOTATION, default="")


class _Metadata(_Narrow, frozen=True):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    labels: dict[str, str] | None = None
    annotations: _Annotations | None = None
    owner_references: list[OwnerReference] | None = None


class _Resources(_Narrow, frozen=True):
    requests: dict[str, Quantity] | None = None
    limits: dict[str, Quantity] | None = None


class _ContainerSpec(_Narrow, frozen=True):
    name: str = ""
    restart_policy: str | None = None
    resources: _Resources | None = None


class _Gate(_Narrow, frozen=True):
    condition_type: str = ""


class _Spec(_Narrow, frozen=True):
    containers: list[_ContainerSpec] | None = None
    init_containers: list[_ContainerSpec] | None = None
    readiness_gates: list[_Gate] | None = None
    host_network: bool | None = None
    resources: _Resources | None = None


class _Waiting(_Narrow, frozen=True):
    reason: str | None = None


class _Nothing(_Narrow, frozen=True):
    pass


class _State(_Narrow, frozen=True):
    running: _Nothing | None = None
    waiting: _Waiting | None = None


class _ContainerStatus(_Narrow, frozen=True):
    name: str = ""
    state: _State | None = None


class _Ip(_Narrow, frozen=True):
    ip: str = ""


class _Status(_Narrow, frozen=True):
    phase: str | None = None
    start_time: str | None = None
    conditions: list[WireCondition] | None = None
    container_statuses: list[_ContainerStatus] | None = None
    init_container_statuses: list[_ContainerStatus] | None = None
    pod_ip: str | None = msgspec.field(name="podIP", default=None)
    pod_ips: list[_Ip] | None = msgspec.field(name="podIPs", default=None)
    host_ip: str | None = msgspec.field(name="hostIP", default=None)


class _Pod(_Narrow, frozen=True):
    metadata: _Metadata = _Metadata()
    spec: _Spec = _Spec()
    status: _Status = _Status()


_DECODER = msgspec.json.Decoder(_Pod)


class PodDecoder:
    """Turns a Pod's JSON into a `Pod`; equal labels, containers and owners are kept once among the pods it made.

    Lenient where the API is: what is absent has a default, a quantity or time that cannot be read is left out.
    `endpoint_serving` stays None: it is not in the Pod. A pod without a creation time counts as made at the epoch.
    Raises msgspec.MsgspecError for what is no Pod.
    """

    def __init__(self) -> None:
        self._labels: _Shared[Mapping[str, str]] = _Shared()
        self._containers: _Shared[tuple[Container, ...]] = _Shared()
        self._owners: _Shared[Owner] = _Shared()

    def __call__(self, body: bytes | msgspec.Raw) -> Pod:
        wire = _DECODER.decode(body)
        meta, spec, status = wire.metadata, wire.spec, wire.status
        conditions = {condition.type: condition for condition in status.conditions or ()}
        labels = meta.labels or {}
        return Pod(
            namespace=sys.intern(meta.namespace),
            name=meta.name,
            uid=meta.uid,
            created_at=known_time(meta.creation_timestamp) or 0.0,
            started_at=known_time(status.start_time),
            deleting=meta.deletion_timestamp is not None,
            phase=sys.intern(status.phase or "Running"),
            ready=_ready(conditions.get("Ready")),
            containers_ready=_is_true(conditions.get("ContainersReady")),
            gates=_gates(spec.readiness_gates, conditions),
            pulled_out_annotation=meta.annotations is not None and meta.annotations.pulled_out == "true",
            ips=_ips(status),
            host_ip=sys.intern(status.host_ip or ""),
            host_network=bool(spec.host_network),
            owner=self._owner(meta.owner_references),
            template_hash=_template_hash(labels),
            labels=self._labels.once(tuple(labels.items()), labels),
            containers=self._run(spec, status),
            pod_requests=_amounts(spec.resources.requests if spec.resources else None),
            pod_limits=_amounts(spec.resources.limits if spec.resources else None),
        )

    def _owner(self, references: Iterable[OwnerReference] | None) -> Owner | None:
        for reference in references or ():
            if reference.controller:
                key = (reference.kind, reference.name, reference.uid)
                return self._owners.once(key, Owner(*key))
        return None

    def _run(self, spec: _Spec, status: _Status) -> tuple[Container, ...]:
        """Regular containers, and init containers that keep running beside them (restartPolicy Always)."""
        made = [_container(one, _states(status.container_statuses)) for one in spec.containers or ()]
        sidecars = [one for one in spec.init_containers or () if one.restart_policy == "Always"]
        made += [_container(one, _states(status.init_container_statuses)) for one in sidecars]
        key = tuple((c.name, c.running, c.crash_looping, _key(c.requests), _key(c.limits)) for c in made)
        return self._containers.once(key, tuple(made))


class _Shared(Generic[V]):
    """Equal values kept once; forgets all of them when it has grown too large, which costs only memory."""

    def __init__(self) -> None:
        self._known: dict[object, V] = {}

    def once(self, key: object, value: V) -> V:
        """The value first seen under this key."""
        if len(self._known) >= _SHARED_AT_MOST and key not in self._known:
            self._known.clear()
        return self._known.setdefault(key, value)


_NONE: Mapping[str, int] = {}
_NO_GATES: Mapping[str, bool] = {}


def _ready(condition: WireCondition | None) -> Condition | None:
    if condition is None:
        return None
    return Condition(condition.status == "True", known_time(condition.last_transition_time))


def _is_true(condition: WireCondition | None) -> bool:
    return condition is not None and condition.status == "True"


def _gates(gates: Iterable[_Gate] | None, conditions: Mapping[str, WireCondition]) -> Mapping[str, bool]:
    if not gates:
        return _NO_GATES
    return {gate.condition_type: _is_true(conditions.get(gate.condition_type)) for gate in gates}


def _ips(status: _Status) -> tuple[str, ...]:
    if status.pod_ips:
        return tuple(one.ip for one in status.pod_ips)
    return (status.pod_ip,) if status.pod_ip else ()


def _template_hash(labels: Mapping[str, str]) -> str:
    return next((labels[label] for label in _TEMPLATE_HASHES if label in labels), "")


def _states(statuses: Iterable[_ContainerStatus] | None) -> Mapping[str, _State]:
    return {one.name: one.state or _State() for one in statuses or ()}


def _container(spec: _ContainerSpec, states: Mapping[str, _State]) -> Container:
    state = states.get(spec.name)
    resources = spec.resources
    return Container(
        name=sys.intern(spec.name),
        requests=_amounts(resources.requests if resources else None),
        limits=_amounts(resources.limits if resources else None),
        running=None if state is None else state.running is not None,
        crash_looping=state is not None and state.waiting is not None and state.waiting.reason == "CrashLoopBackOff",
    )


def _amounts(quantities: Mapping[str, Quantity] | None) -> Mapping[str, int]:
    if not quantities:
        return _NONE
    read = ((sys.intern(name), _nano(str(amount))) for name, amount in quantities.items())
    return {name: nano for name, nano in read if nano is not None}


def _key(amounts: Mapping[str, int]) -> tuple[object, ...]:
    return tuple(amounts.items())


@functools.lru_cache(maxsize=8192)
def _nano(text: str) -> int | None:
    try:
        return quantity.parse_nano(text)
    except quantity.QuantityError:
        return None
