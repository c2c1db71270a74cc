"""Which registrations belong to which pod."""

import functools
import ipaddress
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import NamedTuple

from adapter.load.pods import FINISHED_PHASES, Pod
from adapter.load.roster import Instance, Roster
from adapter.load.spec import Match, Registry, Target

CLOCK_SLACK_SECONDS = 30.0
"""How far a registry's clock may be behind the cluster's without hiding a pod that registered as soon as it started."""

_BY_REPLICA_SET = {"Deployment", "Rollout"}
_OWNING = {"StatefulSet", "ReplicaSet", "ReplicationController"}
_REPLICA_SETS = {"ReplicaSet", "ReplicationController"}


def owns_its_pods(kind: str) -> bool:
    """Whether pods of targets of this kind are known by their controller; those of other kinds by selector alone."""
    return kind in _BY_REPLICA_SET | _OWNING


def owned_by(pod: Pod, target: Target) -> bool:
    """Whether the pod's controller is the target, or the target's ReplicaSet of the pod's own template.

    Kinds whose way of owning pods is not known are taken by selector alone, which is always checked besides.
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
    """A registration and the pod that it is of; with a `miss` it is no evidence, even where the pod is known."""

    instance: Instance
    pod: Pod | None
    miss: Mismatch | None


Registrations = Mapping[str, tuple[Instance, ...]]
"""The registrations of pods, by the pods' UIDs."""


def registrations(pods: Iterable[Pod], roster: Roster, registry: Registry) -> Registrations:
    """The registrations of each pod, by UID; pods without one are absent from the answer.

    A registration finds its pod by UID, else by name, else by address. Registrations that are clearly older than the
    pod's start are leftovers of another life and no evidence.
    """
    found: dict[str, list[Instance]] = defaultdict(list)
    for instance, pod, miss in match_registrations(pods, roster, registry):
        if pod is not None and miss is None:
            found[pod.uid].append(instance)
    return {uid: tuple(instances) for uid, instances in found.items()}


def match_registrations(pods: Iterable[Pod], roster: Roster, registry: Registry) -> Iterator[RegistrationMatch]:
    """Every registration with its pod, or with the reason why it counts for none."""
    index = _Index(pods, registry)
    for instance in roster.instances:
        found = index.pod_of(instance)
        if isinstance(found, Mismatch):
            yield RegistrationMatch(instance, None, found)
        else:
            yield RegistrationMatch(instance, found, Mismatch.OLDER if _older_than(instance, found) else None)


def named_pod(instance: Instance, registry: Registry) -> str:
    """The pod's name that a registration carries; empty where it carries none."""
    if registry.pod_name_key:
        return instance.metadata.get(registry.pod_name_key, instance.pod_name)
    return instance.pod_name


class _Index:
    """Pods by all that a registration may name them by."""

    def __init__(self, pods: Iterable[Pod], registry: Registry) -> None:
        pods = list(pods)
        self._registry = registry
        self._by_uid = {pod.uid: pod for pod in pods}
        self._by_name = {pod.name: pod for pod in pods}
        self._by_ip = _addresses(pods)

    def pod_of(self, instance: Instance) -> Pod | Mismatch:
        """The pod of a registration; what it says of a pod's identity beats its address."""
        if instance.pod_uid:
            return self._by_uid.get(instance.pod_uid, Mismatch.UID)
        name = named_pod(instance, self._registry)
        found = self._by_name.get(name, Mismatch.NAME) if name else self._by_address(instance)
        elsewhere = instance.pod_namespace and isinstance(found, Pod) and found.namespace != instance.pod_namespace
        return Mismatch.NAMESPACE if elsewhere else found

    def _by_address(self, instance: Instance) -> Pod | Mismatch:
        port = self._registry.port
        here = self._by_ip.get(canonical_ip(instance.ip), ())
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
    """Whether an address says enough by itself: no other pod has it, nor has the node."""
    return len(pods) == 1 and not pods[0].host_network


def _listens(pod: Pod, port: int | None, named: int | None) -> bool:
    """Whether a port is the pod's: it is declared, or it is the one that the policy names."""
    return port is not None and (port == named or any(port in container.ports for container in pod.containers))


def _addresses(pods: Iterable[Pod]) -> Mapping[str, Sequence[Pod]]:
    """The living pods by address. A finished pod keeps the address in its status after another pod got it."""
    found: dict[str, list[Pod]] = defaultdict(list)
    for pod in pods:
        if pod.phase not in FINISHED_PHASES:
            for ip in {canonical_ip(ip) for ip in pod.ips}:
                found[ip].append(pod)
    return found


@functools.lru_cache(65_536)  # the addresses of the same pods and registrations are compared at every look
def canonical_ip(text: str) -> str:
    """The address in canonical form, without brackets and zone; the text itself where it is no address."""
    bare = text.strip("[]").partition("%")[0]
    try:
        return str(ipaddress.ip_address(bare))
    except ValueError:
        return bare


def _older_than(instance: Instance, pod: Pod) -> bool:
    started = pod.started_at if pod.started_at is not None else pod.created_at
    return instance.registered_at is not None and instance.registered_at < started - CLOCK_SLACK_SECONDS


def why_unmatched(pod: Pod, claims: Sequence[RegistrationMatch], registry: Registry) -> str:
    """The likeliest reason why no registration counts for a pod, in a sentence without its end."""
    return next(_reasons(pod, claims, registry))


def address(instance: Instance) -> str:
    """Where an instance is registered: `10.0.0.1:8080`, `[fd00::1]:8080`."""
    ip = f"[{canonical_ip(instance.ip)}]" if ":" in instance.ip else instance.ip
    return ip if instance.port is None else f"{ip}:{instance.port}"


def _reasons(pod: Pod, claims: Sequence[RegistrationMatch], registry: Registry) -> Iterator[str]:
    """All that may be the reason, the likeliest first."""
    yield from (f"{address(claim.instance)}: {claim.miss}" for claim in claims if claim.pod is pod and claim.miss)
    ips = {canonical_ip(ip) for ip in pod.ips}
    yield from _of_its_address(pod, (claim for claim in claims if canonical_ip(claim.instance.ip) in ips), registry)
    yield from _of_metadata(pod, claims)
    yield from _of_its_node(pod, claims)
    if not pod.is_ready:
        yield "it is not Ready, and services register once they are"
    yield f"no instance is registered at its address ({', '.join(pod.ips)})" if pod.ips else "it has no address yet"


def _of_its_address(pod: Pod, here: Iterable[RegistrationMatch], registry: Registry) -> Iterator[str]:
    for claim in here:
        instance = claim.instance
        where = address(instance)
        if claim.pod is not None or claim.miss in {Mismatch.NAME, Mismatch.UID}:
            named = named_pod(instance, registry) or instance.pod_uid or (claim.pod.name if claim.pod else "")
            yield f"{where} is registered, but as pod {named}"
        elif claim.miss is Mismatch.NAMESPACE:
            yield f"{where} is registered, but as a pod of namespace {instance.pod_namespace}"
        elif claim.miss is Mismatch.OTHER_PORT:
            yield f"{where} is registered, but the policy counts port {registry.port} only (registry.port)"
        elif claim.miss is Mismatch.UNDECLARED_PORT:
            why = "it is on the host network" if pod.host_network else "it shares its address with other pods"
            yield (
                f"{where} is registered, but {why} and declares no such port; declare it as a containerPort, name it "
                "in registry.port, or let instances carry their pod's name (registry.podNameKey)"
            )
        elif claim.miss is Mismatch.AMBIGUOUS:
            yield (
                f"{where} is registered, but several pods have that address and port; let instances carry their "
                "pod's name (registry.podNameKey)"
            )


def _of_metadata(pod: Pod, claims: Iterable[RegistrationMatch]) -> Iterator[str]:
    for claim in claims:
        for key, value in claim.instance.metadata.items():
            if value == pod.name:
                yield f"{address(claim.instance)} carries its name under {key}; write registry.podNameKey: {key}"


def _of_its_node(pod: Pod, claims: Iterable[RegistrationMatch]) -> Iterator[str]:
    node = canonical_ip(pod.host_ip)
    for claim in claims:
        if node and canonical_ip(claim.instance.ip) == node:
            yield (
                f"{address(claim.instance)} is registered at the address of its node; register the pod's own, or let "
                "instances carry their pod's name (registry.podNameKey)"
            )
