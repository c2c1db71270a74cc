"""Why no registration counts for a pod."""

from collections.abc import Iterable, Iterator, Sequence

from adapter.load.matching import Mismatch, RegistrationMatch, canonical_ip, named_pod
from adapter.load.pods import Pod
from adapter.load.roster import Instance
from adapter.load.spec import Registry


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
        elif match.mismatch is Mismatch.OTHER_ADDRESS:
            yield f"{where} is registered, but as pod {named_pod(instance, registry) or instance.pod_uid}"
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
