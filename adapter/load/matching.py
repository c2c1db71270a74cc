"""Which registrations belong to which pod, and why a pod has none."""

import functools
import ipaddress
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import NamedTuple

from adapter.load.pods import FINISHED_PHASES, Pod
from adapter.load.roster import Instance, Roster
from adapter.load.spec import Match, Registry, Target
from adapter.load.steps import AT_ONCE, Steps, finish, mapped

CLOCK_SLACK_SECONDS = 30.0
"""How far a registry's clock may be behind the cluster's without hiding a pod that registered as soon as it started."""

_BY_REPLICA_SET = {"Deployment", "Rollout"}
_OWNING = {"StatefulSet", "ReplicaSet", "ReplicationController"}
_REPLICA_SETS = {"ReplicaSet", "ReplicationController"}


def owns_its_pods(kind: str) -> bool:
    """Whether pods of targets of this kind are recognized by owner; those of other kinds by selector alone."""
    return kind in _BY_REPLICA_SET | _OWNING


def owned_by(pod: Pod, target: Target) -> bool:
    """Whether the pod's controller is the target, or the target's ReplicaSet of the pod's own template.

    True for kinds with an unknown way of owning pods: there the selector alone decides, which callers check as well.
    """
    if pod.owner is None:
        return not owns_its_pods(target.kind)
    if pod.owner.name == target.name and pod.owner.kind == target.kind:
        return not (pod.owner.uid and target.uid) or pod.owner.uid == target.uid
    if pod.owner.kind in _REPLICA_SETS and target.kind in _BY_REPLICA_SET and pod.template_hash:
        return pod.owner.name == f"{target.name}-{pod.template_hash}"
    return not owns_its_pods(target.kind)


class Mismatch(StrEnum):
    """Why a registration is no evidence about any pod."""

    UID = "its pod UID is no pod's of the target"
    NAME = "its pod name is no pod's of the target"
    NAMESPACE = "its pod is of another namespace"
    ADDRESS = "its address is no pod's of the target"
    OTHER_PORT = "its port is not the one that the policy names"
    UNDECLARED_PORT = "its address is not one pod's own, and no pod there declares its port"
    AMBIGUOUS = "several pods have its address and port"
    OLDER = "it was made before the pod started: a leftover of another pod at this address"


class RegistrationMatch(NamedTuple):
    """A registration and its pod. With a `mismatch` it is no evidence, even where the pod is known."""

    instance: Instance
    pod: Pod | None
    mismatch: Mismatch | None


Registrations = Mapping[str, tuple[Instance, ...]]
"""The registrations of pods, by the pods' UIDs."""


def registrations(pods: Iterable[Pod], roster: Roster, registry: Registry) -> Registrations:
    """The registrations of each pod by UID, without the pods that have none.

    A registration names its pod by UID, else by name, else by address. One made clearly before the pod's start is a
    leftover of another pod, and no evidence.
    """
    return finish(registrations_in_steps(pods, roster, registry))


def registrations_in_steps(pods: Iterable[Pod], roster: Roster, registry: Registry) -> Steps[Registrations]:
    """`registrations` in short steps."""
    index = _Index(registry)
    yield from mapped(index.add, pods)
    by_uid: dict[str, list[Instance]] = defaultdict(list)
    for number, instance in enumerate(roster.instances):
        if number % AT_ONCE == AT_ONCE - 1:
            yield
        _, pod, mismatch = index.match(instance)
        if pod is not None and mismatch is None:
            by_uid[pod.uid].append(instance)
    tuples = yield from mapped(tuple, by_uid.values())
    return dict(zip(by_uid, tuples, strict=True))


def match_registrations(pods: Iterable[Pod], roster: Roster, registry: Registry) -> Iterator[RegistrationMatch]:
    """Every registration with its pod, or with the reason why it counts for no pod."""
    index = _Index(registry)
    for pod in pods:
        index.add(pod)
    yield from map(index.match, roster.instances)


def matched_by(pod: Pod) -> tuple[object, ...]:
    """All of a pod that its registrations depend on."""
    is_finished, ports = pod.phase in FINISHED_PHASES, [container.ports for container in pod.containers]
    address = (pod.ips, pod.host_network, ports, is_finished)
    return (pod.uid, pod.name, pod.namespace, address, pod.started_at, pod.created_at)


def named_pod(instance: Instance, registry: Registry) -> str:
    """The pod name in a registration's metadata; empty where there is none."""
    if registry.pod_name_key:
        return instance.metadata.get(registry.pod_name_key, instance.pod_name)
    return instance.pod_name


class _Index:
    """Pods by everything that a registration can name them by."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._by_uid: dict[str, Pod] = {}
        self._by_name: dict[str, Pod] = {}
        self._by_ip: dict[str, list[Pod]] = defaultdict(list)

    def add(self, pod: Pod) -> None:
        """Index a pod. A finished pod's status keeps an address that another pod may have by now."""
        self._by_uid[pod.uid] = pod
        self._by_name[pod.name] = pod
        if pod.phase not in FINISHED_PHASES:
            for ip in {canonical_ip(ip) for ip in pod.ips}:
                self._by_ip[ip].append(pod)

    def match(self, instance: Instance) -> RegistrationMatch:
        """A registration with its pod, or with the reason why it counts for no pod."""
        pod = self.pod_of(instance)
        if isinstance(pod, Mismatch):
            return RegistrationMatch(instance, None, pod)
        return RegistrationMatch(instance, pod, Mismatch.OLDER if _older_than(instance, pod) else None)

    def pod_of(self, instance: Instance) -> Pod | Mismatch:
        """The pod of a registration. UID and name take precedence over the address."""
        if instance.pod_uid:
            return self._by_uid.get(instance.pod_uid, Mismatch.UID)
        name = named_pod(instance, self._registry)
        pod = self._by_name.get(name, Mismatch.NAME) if name else self._by_address(instance)
        elsewhere = instance.pod_namespace and isinstance(pod, Pod) and pod.namespace != instance.pod_namespace
        return Mismatch.NAMESPACE if elsewhere else pod

    def _by_address(self, instance: Instance) -> Pod | Mismatch:
        port = self._registry.port
        here = self._by_ip.get(canonical_ip(instance.ip), [])
        if not here:
            return Mismatch.ADDRESS
        if port is not None and instance.port is not None and instance.port != port:
            return Mismatch.OTHER_PORT
        if self._registry.match is Match.IP_PORT and not _is_one_pods_own(here):
            here = [pod for pod in here if _listens(pod, instance.port, port)]
        if not here:
            return Mismatch.UNDECLARED_PORT
        return here[0] if len(here) == 1 else Mismatch.AMBIGUOUS


def _is_one_pods_own(pods: Sequence[Pod]) -> bool:
    """Whether the address identifies a pod: no other pod has it, nor the node."""
    return len(pods) == 1 and not pods[0].host_network


def _listens(pod: Pod, port: int | None, named: int | None) -> bool:
    """Whether the pod declares the port, or the policy names it."""
    return port is not None and (port == named or any(port in container.ports for container in pod.containers))


@functools.lru_cache(65_536)  # the same addresses are compared at every assessment
def canonical_ip(text: str) -> str:
    """The address in canonical form, without brackets and zone; the bare text where it is no address."""
    bare = text.strip("[]").partition("%")[0]
    try:
        return str(ipaddress.ip_address(bare))
    except ValueError:
        return bare


def _older_than(instance: Instance, pod: Pod) -> bool:
    started = pod.started_at if pod.started_at is not None else pod.created_at
    return instance.registered_at is not None and instance.registered_at < started - CLOCK_SLACK_SECONDS


def why_unmatched(pod: Pod, matches: Sequence[RegistrationMatch], registry: Registry) -> str:
    """The likeliest reason why no registration counts for a pod: a sentence without a full stop."""
    return next(_reasons(pod, matches, registry))


def address(instance: Instance) -> str:
    """Where an instance is registered: `10.0.0.1:8080`, `[fd00::1]:8080`."""
    ip = f"[{canonical_ip(instance.ip)}]" if ":" in instance.ip else instance.ip
    return ip if instance.port is None else f"{ip}:{instance.port}"


def _reasons(pod: Pod, matches: Sequence[RegistrationMatch], registry: Registry) -> Iterator[str]:
    """All possible reasons, the likeliest first."""
    yield from (
        f"{address(match.instance)}: {match.mismatch}" for match in matches if match.pod is pod and match.mismatch
    )
    ips = {canonical_ip(ip) for ip in pod.ips}
    yield from _of_its_address(pod, (match for match in matches if canonical_ip(match.instance.ip) in ips), registry)
    yield from _of_metadata(pod, matches)
    yield from _of_its_node(pod, matches)
    if not pod.is_ready:
        yield "it is not Ready, and services register once they are"
    yield f"no instance is registered at its address ({', '.join(pod.ips)})" if pod.ips else "it has no address yet"


def _of_its_address(pod: Pod, here: Iterable[RegistrationMatch], registry: Registry) -> Iterator[str]:
    for match in here:
        instance = match.instance
        where = address(instance)
        if match.pod is not None or match.mismatch in {Mismatch.NAME, Mismatch.UID}:
            named = named_pod(instance, registry) or instance.pod_uid or (match.pod.name if match.pod else "")
            yield f"{where} is registered, but as pod {named}"
        elif match.mismatch is Mismatch.NAMESPACE:
            yield f"{where} is registered, but as a pod of namespace {instance.pod_namespace}"
        elif match.mismatch is Mismatch.OTHER_PORT:
            yield f"{where} is registered, but the policy counts port {registry.port} only (registry.port)"
        elif match.mismatch is Mismatch.UNDECLARED_PORT:
            why = "it is on the host network" if pod.host_network else "it shares its address with other pods"
            yield (
                f"{where} is registered, but {why} and declares no such port; declare it as a containerPort, name it "
                "in registry.port, or let instances carry their pod's name (registry.podNameKey)"
            )
        elif match.mismatch is Mismatch.AMBIGUOUS:
            yield (
                f"{where} is registered, but several pods have that address and port; let instances carry their "
                "pod's name (registry.podNameKey)"
            )


def _of_metadata(pod: Pod, matches: Iterable[RegistrationMatch]) -> Iterator[str]:
    for match in matches:
        for key, value in match.instance.metadata.items():
            if value == pod.name:
                yield f"{address(match.instance)} carries its name under {key}; write registry.podNameKey: {key}"


def _of_its_node(pod: Pod, matches: Iterable[RegistrationMatch]) -> Iterator[str]:
    node = canonical_ip(pod.host_ip)
    for match in matches:
        if node and canonical_ip(match.instance.ip) == node:
            yield (
                f"{address(match.instance)} is registered at the address of its node; register the pod's own, or let "
                "instances carry their pod's name (registry.podNameKey)"
            )
