"""The services of a run: from the policies of a cluster, and what came out for each."""

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import NamedTuple

from adapter.commands.cluster import Cluster, ClusterError, ListedPolicy
from adapter.commands.replay.manifests import Workload, sums
from adapter.kube.errors import KubeError
from adapter.kube.session import Session
from adapter.load.spec import Policy
from adapter.policy.hpa import Hpa
from adapter.runtime.faults import Fault, FaultyDocument


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetService:
    """A policy with its HPA and what its pods request; or `fault`, why it cannot be replayed."""

    namespace: str
    name: str
    policy: Policy | None = None
    hpa: Hpa | None = None
    workload: Workload | None = None
    fault: str = ""


class Figures(NamedTuple):
    """What a run needs: pod-hours, seconds over a high watermark, the shortfall (0 to 1) and cost; None: not known."""

    pod_hours: float
    over_high: float
    shortfall: float | None
    cost: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceRow:
    """A service with the figures of the stock HPA on the raw average and of its policy, or its error."""

    namespace: str
    name: str
    error: str | None = None
    figures: tuple[Figures, Figures] | None = None

    def __str__(self) -> str:
        """As people name it."""
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True)
class Shard:
    """Part `index` (from 0) of `count`: each service is in one of them, by its name alone."""

    index: int = 0
    count: int = 1

    def has(self, namespace: str, name: str) -> bool:
        """Whether the service is in this part."""
        digest = hashlib.sha256(f"{namespace}/{name}".encode()).digest()
        return int.from_bytes(digest[:8], "big") % self.count == self.index


def read_shard(text: str) -> Shard:
    """The part that --shard names. Raises FaultyDocument."""
    match = re.fullmatch(r"(\d{1,5})/(\d{1,5})", text, re.ASCII)
    if match is None or int(match[1]) >= int(match[2]):
        advice = "write I/N: part I of N, counted from 0, such as 0/4"
        raise FaultyDocument([Fault("--shard", text, advice)], "this cannot be replayed")
    return Shard(int(match[1]), int(match[2]))


async def services_of_cluster(
    kubeconfig: str | None, namespaces: Sequence[str], tolerance: Fraction, shard: Shard
) -> list[FleetService]:
    """The services of these namespaces (empty: of all) in this part, in order of their names.

    `tolerance` is that of HPAs that set none.

    Raises KubeError where its policies cannot be read.
    """
    async with await Session.open(kubeconfig) as session:
        cluster = Cluster(session, tolerance)
        services = [
            await _of_policy(cluster, listed)
            for listed in await cluster.policies(namespaces)
            if shard.has(listed.namespace, listed.name)
        ]
    return sorted(services, key=lambda service: (service.namespace, service.name))


async def _of_policy(cluster: Cluster, listed: ListedPolicy) -> FleetService:
    namespace, name, policy = listed.namespace, listed.name, listed.policy
    if policy is None:
        return FleetService(namespace=namespace, name=name, fault=f"the policy is not valid: {listed.fault}")
    try:
        target = await cluster.pods(policy)
    except (KubeError, ClusterError) as error:
        return FleetService(namespace=namespace, name=name, fault=str(error))
    hpa = target.hpa
    workload = None
    if newest := max(target.pods, key=lambda pod: pod.created_at, default=None):
        workload = Workload(
            namespace=newest.namespace,
            name=hpa.target.name,
            requests=sums([container.requests for container in newest.containers]) | dict(newest.pod_requests),
            limits=sums([container.limits for container in newest.containers]) | dict(newest.pod_limits),
        )
    return FleetService(namespace=namespace, name=name, policy=policy, hpa=hpa, workload=workload)
