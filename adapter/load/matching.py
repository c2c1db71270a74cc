"""Which registrations belong to which pod."""

import ipaddress
from collections import defaultdict
from collections.abc import Iterable, Mapping

from adapter.load.pods import Pod
from adapter.load.roster import Instance, Roster
from adapter.load.spec import Registry, Target

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


def records(pods: Iterable[Pod], roster: Roster, registry: Registry) -> Mapping[str, tuple[Instance, ...]]:
    """The registrations of each pod, by UID; pods without one are absent from the answer.

    A registration finds its pod by UID, else by name, else by address. An address shared by pods (host network) says
    nothing by itself. Registrations older than the pod's start are leftovers of another life and no evidence.
    """
    pods = list(pods)
    by_uid, by_name = {pod.uid: pod for pod in pods}, {pod.name: pod for pod in pods}
    by_ip = _unshared_addresses(pods)
    found: dict[str, list[Instance]] = defaultdict(list)
    for instance in roster.instances:
        pod = _pod_of(instance, registry, by_uid, by_name, by_ip)
        if pod is not None and not _older_than(instance, pod):
            found[pod.uid].append(instance)
    return {uid: tuple(instances) for uid, instances in found.items()}


def _pod_of(
    instance: Instance,
    registry: Registry,
    by_uid: Mapping[str, Pod],
    by_name: Mapping[str, Pod],
    by_ip: Mapping[str, Pod],
) -> Pod | None:
    if instance.pod_uid:
        return by_uid.get(instance.pod_uid)
    if instance.pod_name:
        return by_name.get(instance.pod_name)
    if registry.port is not None and instance.port is not None and instance.port != registry.port:
        return None
    return by_ip.get(canonical_ip(instance.ip))


def _unshared_addresses(pods: Iterable[Pod]) -> Mapping[str, Pod]:
    """Pods by address: of the living, and only where the address is one pod's own.

    A finished pod keeps the address in its status after another pod got it.
    """
    owners: dict[str, list[Pod]] = defaultdict(list)
    for pod in pods:
        if pod.host_network or pod.phase in {"Failed", "Succeeded"}:
            continue
        for ip in pod.ips:
            owners[canonical_ip(ip)].append(pod)
    return {ip: found[0] for ip, found in owners.items() if len(found) == 1}


def canonical_ip(text: str) -> str:
    """The address in canonical form, without brackets and zone; the text itself where it is no address."""
    bare = text.strip("[]").partition("%")[0]
    try:
        return str(ipaddress.ip_address(bare))
    except ValueError:
        return bare


def _older_than(instance: Instance, pod: Pod) -> bool:
    started = pod.started_at if pod.started_at is not None else pod.created_at
    return instance.registered_at is not None and instance.registered_at < started
