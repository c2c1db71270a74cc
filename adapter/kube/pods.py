"""Decodes pods from the API's bytes into `Pod`s of the load package."""

import contextlib
import functools
import re
from collections.abc import Callable, Hashable, Mapping
from typing import Any, TypeVar

import msgspec

from adapter.kube.objects import (
    ContainerState,
    OwnerReference,
    PodAnnotations,
    PodSpec,
    PodStatus,
    Quantity,
    Resources,
    WirePod,
)
from adapter.load import quantity
from adapter.load.pods import Container, Owner, Pod, PodCondition
from adapter.runtime.decoding import Decoder, shared
from adapter.runtime.times import parse_time

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

_TEMPLATE_HASHES = ("pod-template-hash", "rollouts-pod-template-hash")
_SHARED_AT_MOST = 4096
"""Templates whose parts are kept: 2,000 services of 25 pods with rollouts under way."""
_LONGEST_SHARED = 8 * 1024
"""Bytes of a part that is kept: one pod, rewritten again and again, would fill memory with larger ones."""
_LONGEST = 64 * 1024
"""Bytes of labels, owners, or a container's resources or ports, and `_MOST` containers or gates. A user may write
1.5 MB of each, which takes ten times as much memory decoded; such a pod has no labels, or no known containers."""
_MOST = 256
_LONGEST_REASON = 200
_COST = re.compile(r"0|-?[1-9][0-9]{0,9}", re.ASCII)

_DECODER = Decoder(WirePod)
_LABELS: Decoder[dict[str, str] | None] = Decoder(dict[str, str] | None)
_OWNERS: Decoder[list[OwnerReference] | None] = Decoder(list[OwnerReference] | None)
_RESOURCES: Decoder[Resources | None] = Decoder(Resources | None)
_PORTS: Decoder[list[dict[str, Any]] | None] = Decoder(list[dict[str, Any]] | None)
_NONE: Mapping[str, int] = {}
_NO_GATES: Mapping[str, bool] = {}


class PodDecoder:
    """Decodes a Pod; pods share equal labels, containers and owners.

    Pods of one template have these parts in the same bytes, which are decoded once.

    Lenient as the API: absent fields have defaults, unreadable quantities and times are left out. `endpoint_serving`
    stays None: the Pod does not hold it. A pod without a creation time counts as created at the epoch. Raises
    msgspec.MsgspecError for anything but a Pod.
    """

    def __init__(self) -> None:
        self._labels = _once(_labels, len)
        self._owner = _once(_owner, len)
        self._containers = _once(_containers, _length)

    def __call__(self, body: bytes | msgspec.Raw) -> Pod:
        """The pod of these bytes."""
        wire = _DECODER.decode(body)
        meta, spec, status = wire.metadata, wire.spec, wire.status
        conditions = {condition.type: condition for condition in status.conditions or ()}
        true = {kind for kind, condition in conditions.items() if condition.status == "True"}
        ready = conditions.get("Ready")
        annotations = meta.annotations or PodAnnotations()
        # As the ReplicaSet controller reads it: 0 for anything but a 32-bit integer.
        cost = int(annotations.deletion_cost) if _COST.fullmatch(annotations.deletion_cost) else 0
        labels = self._labels(_bounded(meta.labels))
        ips = tuple(each.get("ip", "") for each in status.pod_ips or ())
        restarts = (
            at
            for each in status.container_statuses or ()
            if each.restart_count and each.state and each.state.running
            if (at := parse_time(each.state.running.get("startedAt"))) is not None
        )
        scheduled = conditions.get("PodScheduled")
        gates = {
            name: name in true for each in (spec.readiness_gates or [])[:_MOST] if (name := each.get("conditionType"))
        }
        return Pod(
            namespace=shared(meta.namespace),
            name=meta.name,
            uid=meta.uid,
            created_at=parse_time(meta.creation_timestamp) or 0.0,
            started_at=parse_time(status.start_time),
            restarted_at=max(restarts, default=None),
            deleting=meta.deletion_timestamp is not None,
            phase=shared(status.phase or "Running"),
            ready=PodCondition("Ready" in true, parse_time(ready.last_transition_time)) if ready else None,
            containers_ready="ContainersReady" in true,
            gates=gates or _NO_GATES,
            pulled_out_annotation=annotations.pulled_out == "true",
            deletion_cost=cost if -(2**31) <= cost < 2**31 else 0,
            marked=annotations.mark == "true",
            ips=ips or ((status.pod_ip,) if status.pod_ip else ()),
            host_ip=shared(status.host_ip or ""),
            host_network=bool(spec.host_network),
            owner=self._owner(_bounded(meta.owner_references)),
            template_hash=next((labels[name] for name in _TEMPLATE_HASHES if name in labels), ""),
            labels=labels,
            containers=self._containers(_raw_containers(spec, status)),
            pod_requests=resource_amounts(spec.resources.requests if spec.resources else None),
            pod_limits=resource_amounts(spec.resources.limits if spec.resources else None),
            pod_requests_in_force=resource_amounts(status.resources.requests) if status.resources else None,
            pod_limits_in_force=resource_amounts(status.resources.limits) if status.resources else None,
            waits_for=scheduled.message[:_LONGEST_REASON] if scheduled and scheduled.status == "False" else "",
        )


_RawContainer = tuple[str, bytes, bytes, bytes, bool | None, bool]
"""Its name; resources, those in force and ports as JSON; whether it runs, and whether it crashes in a loop."""


def _once(make: Callable[[K], V], length: Callable[[K], int]) -> Callable[[K], V]:
    """What `make` makes of each key, made once for each of the keys used lately that are not too long."""
    cached = functools.lru_cache(_SHARED_AT_MOST)(make)
    return lambda key: cached(key) if length(key) <= _LONGEST_SHARED else make(key)


def _bounded(body: msgspec.Raw) -> bytes:
    """A piece of JSON; null where it is longer than `_LONGEST`."""
    part = bytes(body)
    return part if len(part) <= _LONGEST else b"null"


def _labels(body: bytes) -> Mapping[str, str]:
    return {shared(name): value for name, value in (_LABELS.decode(body) or {}).items()}


def _owner(body: bytes) -> Owner | None:
    controllers = (each for each in _OWNERS.decode(body) or () if each.controller)
    return next((Owner(each.kind, each.name, each.uid) for each in controllers), None)


def _raw_containers(spec: PodSpec, status: PodStatus) -> tuple[_RawContainer, ...]:
    """Regular containers, and init containers that keep running beside them (restartPolicy Always)."""
    sidecars = [container for container in spec.init_containers or () if container.restart_policy == "Always"]
    raws: list[_RawContainer] = []
    for containers, statuses in (
        ((spec.containers or [])[: _MOST + 1], status.container_statuses),
        (sidecars, status.init_container_statuses),
    ):
        by_name = {each.name: each for each in statuses or ()}
        for container in containers:
            known = by_name.get(container.name)
            state = (known.state or ContainerState()) if known is not None else None
            waiting = (state.waiting or {}) if state is not None else {}
            in_force = _bounded(known.resources) if known is not None else b"null"
            parts = (_bounded(container.resources), in_force, _bounded(container.ports))
            running = None if state is None else state.running is not None
            raws.append((container.name, *parts, running, waiting.get("reason") == "CrashLoopBackOff"))
    return tuple(raws) if len(raws) <= _MOST else ()


def _length(raws: tuple[_RawContainer, ...]) -> int:
    return sum(len(part) for *parts, _, _ in raws for part in parts)


def _containers(raws: tuple[_RawContainer, ...]) -> tuple[Container, ...]:
    containers = []
    for name, *parts, listed, running, crash_looping in raws:
        resources, in_force = map(_RESOURCES.decode, parts)
        ports = (port.get("containerPort") for port in _PORTS.decode(listed) or ())
        containers.append(
            Container(
                name=shared(name),
                requests=resource_amounts(resources.requests if resources else None),
                limits=resource_amounts(resources.limits if resources else None),
                requests_in_force=resource_amounts(in_force.requests) if in_force else None,
                limits_in_force=resource_amounts(in_force.limits) if in_force else None,
                running=running,
                crash_looping=crash_looping,
                ports=tuple(port for port in ports if isinstance(port, int) and port),
            )
        )
    return tuple(containers)


def resource_amounts(quantities: Mapping[str, Quantity] | None) -> Mapping[str, int]:
    """The quantities in nano-units; an unreadable one is left out."""
    amounts = {}
    for name, amount in (quantities or {}).items():
        with contextlib.suppress(quantity.QuantityError):
            amounts[shared(name)] = quantity.parse_nano(str(amount))
    return amounts or _NONE
