"""Why a pod has no registration that counts, for people; told from the very claims that decide."""

from collections.abc import Iterable, Iterator, Sequence

from adapter.load.matching import Mismatch, RegistrationMatch, canonical_ip, named_pod
from adapter.load.pods import Pod
from adapter.load.roster import Instance
from adapter.load.spec import Registry


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
