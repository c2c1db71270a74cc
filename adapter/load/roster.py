"""A service registry's answer for one service, the same for every kind; and which registrations belong to which pod."""

import functools
import ipaddress
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from adapter.load.pods import FINISHED_PHASES, Pod
from adapter.load.spec import Registry

CLOCK_SLACK_SECONDS = 30.0
"""How far a registry's clock may be behind the cluster's without hiding a pod that registered as soon as it started."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Instance:
    """One registration. Times are seconds since the epoch.

    `status` is a word that `states` reads: DOWN, OUT_OF_SERVICE, MAINTENANCE and CRITICAL are out, STARTING takes no
    traffic yet, any other is not evidence. `registered_at` is None where the registry does not tell. `pod_uid` and
    `pod_name` come from metadata and take precedence over the address; a `pod_namespace` must be that of the pod.
    """

    ip: str = ""
    port: int | None = None
    enabled: bool = True
    healthy: bool = True
    weight: float | None = None
    isolated: bool = False
    status: str = ""
    pod_uid: str = ""
    pod_name: str = ""
    pod_namespace: str = ""
    registered_at: float | None = None
    metadata: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Roster:
    """A registry's complete answer for one service, read or confirmed at `at` (seconds).

    `valid` is False where it was no usable answer. `protected`: the registry currently reports unhealthy instances as
    healthy, so health is not considered. `error`: why the latest answer is not valid; if `valid` is True, the instances
    are those of the last valid one. `absence_counts`: False where the registry lists only pods that are out; then one
    that it does not list is serving.
    """

    instances: tuple[Instance, ...] = ()
    at: float = 0.0
    valid: bool = True
    protected: bool = False
    error: str | None = None
    absence_counts: bool = True


class Mismatch(StrEnum):
    """Why a registration is no evidence about any pod."""

    UID = "no pod of the target has its pod UID"
    NAME = "no pod of the target has its pod name"
    NAMESPACE = "its pod is of another namespace"
    ADDRESS = "no pod of the target has its address"
    OTHER_ADDRESS = "it names a pod that has another address"
    OTHER_PORT = "its port is not the one that the policy names"
    UNDECLARED_PORT = "its address is not one pod's own, and no pod there declares its port"
    AMBIGUOUS = "several pods have its address and port"
    OLDER = "it was made before the pod started: a leftover of another pod at this address"
    REPLACED = "it was made before a container of the pod restarted, and the pod has a newer one"


class RegistrationMatch(NamedTuple):
    """A registration and its pod. With a `mismatch` it is no evidence, even where the pod is known."""

    instance: Instance
    pod: Pod | None
    mismatch: Mismatch | None


def registrations(pods: Iterable[Pod], roster: Roster, registry: Registry) -> Mapping[str, Sequence[Instance]]:
    """The registrations of each pod by UID, without the pods that have none.

    A registration names its pod by UID, else by name, else by address; one that names it must be at an address of the
    pod or of its node as well. One made clearly before the pod's start is a leftover of another pod, and no evidence.
    One made before a container restarted is a leftover of the process before if the pod has one made after that.
    """
    by_uid: dict[str, list[Instance]] = defaultdict(list)
    for match in match_registrations(pods, roster, registry):
        if match.pod is not None and match.mismatch is None:
            by_uid[match.pod.uid].append(match.instance)
    return by_uid


def match_registrations(pods: Iterable[Pod], roster: Roster, registry: Registry) -> Iterator[RegistrationMatch]:
    """Every registration with its pod, or with the reason why it counts for no pod."""
    index = _Index(pods, registry)
    matched = [(instance, index.pod_of(instance)) for instance in roster.instances]
    renewed = {
        pod.uid
        for instance, pod in matched
        if isinstance(pod, Pod) and pod.restarted_at is not None and _is_since(instance, pod.restarted_at) is True
    }
    for instance, pod in matched:
        if isinstance(pod, Mismatch):
            yield RegistrationMatch(instance, None, pod)
            continue
        mismatch = None
        if _is_since(instance, pod.created_at if pod.started_at is None else pod.started_at) is False:
            mismatch = Mismatch.OLDER
        elif pod.uid in renewed and _is_since(instance, pod.restarted_at or 0.0) is False:
            mismatch = Mismatch.REPLACED
        yield RegistrationMatch(instance, pod, mismatch)


def _is_since(instance: Instance, at: float) -> bool | None:
    """Whether a registration was made after this time, by a clock that may be behind; None where that is not known."""
    return None if instance.registered_at is None else instance.registered_at >= at - CLOCK_SLACK_SECONDS


def named_pod(instance: Instance, registry: Registry) -> str:
    """The pod name in a registration's metadata; empty where there is none."""
    if registry.pod_name_key:
        return instance.metadata.get(registry.pod_name_key, instance.pod_name)
    return instance.pod_name


class _Index:
    """Pods by everything that a registration can name them by."""

    def __init__(self, pods: Iterable[Pod], registry: Registry) -> None:
        self._registry = registry
        self._by_uid = {pod.uid: pod for pod in pods}
        self._by_name = {pod.name: pod for pod in self._by_uid.values()}
        self._by_ip: dict[str, list[Pod]] = defaultdict(list)
        for pod in self._by_uid.values():
            # The status of a pod that ends keeps an address that another pod may have by now.
            ends = pod.deleting or pod.phase in FINISHED_PHASES
            for ip in {canonical_ip(ip) for ip in pod.ips} if not ends else ():
                self._by_ip[ip].append(pod)

    def pod_of(self, instance: Instance) -> Pod | Mismatch:
        """The pod of a registration. UID and name take precedence over the address, which has to fit them."""
        port, name = self._registry.port, named_pod(instance, self._registry)
        if port is not None and instance.port is not None and instance.port != port:
            return Mismatch.OTHER_PORT
        if instance.pod_uid:
            pod: Pod | Mismatch = self._by_uid.get(instance.pod_uid, Mismatch.UID)
        elif name:
            pod = self._by_name.get(name, Mismatch.NAME)
        else:
            pod = self._by_address(instance)
        if isinstance(pod, Mismatch):
            return pod
        if not instance.pod_uid and instance.pod_namespace and pod.namespace != instance.pod_namespace:
            return Mismatch.NAMESPACE
        if (instance.pod_uid or name) and not _has_address(pod, instance.ip):
            return Mismatch.OTHER_ADDRESS
        return pod

    def _by_address(self, instance: Instance) -> Pod | Mismatch:
        port, named = instance.port, self._registry.port
        here = self._by_ip.get(canonical_ip(instance.ip), [])
        if not here:
            return Mismatch.ADDRESS
        is_one_pods_own = len(here) == 1 and not here[0].host_network
        if self._registry.match == "IPPort" and not is_one_pods_own:
            declared = [pod for pod in here if any(port in container.ports for container in pod.containers)]
            here = [] if port is None else here if port == named else declared
        if not here:
            return Mismatch.UNDECLARED_PORT
        return here[0] if len(here) == 1 else Mismatch.AMBIGUOUS


@functools.lru_cache(65_536)  # the same addresses are compared at every assessment
def canonical_ip(text: str) -> str:
    """The address in canonical form, without brackets and zone; the bare text where it is no address."""
    bare = text.strip("[]").partition("%")[0]
    try:
        ip = ipaddress.ip_address(bare)
    except ValueError:
        return bare
    return str(ip.ipv4_mapped or ip) if isinstance(ip, ipaddress.IPv6Address) else str(ip)


def _has_address(pod: Pod, text: str) -> bool:
    """Whether a registration that names the pod may be at this address: the pod's, its node's, or a host name."""
    try:
        ipaddress.ip_address(canonical_ip(text))
    except ValueError:
        return True
    return canonical_ip(text) in {canonical_ip(ip) for ip in (*pod.ips, pod.host_ip)}
