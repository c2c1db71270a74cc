"""The services of a run: from the policies of a cluster or of a folder, and which of them a shard has."""

import contextlib
import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

from adapter.commands.replay.fleet.parts import MOST_SHARDS, ServiceRow, Shard
from adapter.commands.replay.manifests import Manifests, Workload, read_manifests, sums
from adapter.kube.api import MERGE_PATCH, WATERMARK_POLICIES
from adapter.kube.cluster import Cluster, ClusterError, ListedPolicy
from adapter.kube.errors import KubeError, NotFound
from adapter.kube.session import Session
from adapter.load.spec import Policy
from adapter.policy.hpa import Hpa
from adapter.runtime import document_text
from adapter.runtime.faults import Fault, FaultyDocument

_SHARD = re.compile(r"([0-9]{1,6})/([0-9]{1,6})", re.ASCII)
_FILES = {".yaml", ".yml", ".json"}
RECOMMENDATION = "effective-load.io/recommendation"
"""The annotation of a policy in which people find what a search recommends; nothing reads it."""
_TITLE = "the services to replay cannot be told"


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetService:
    """A policy with its HPA and what its pods request; or `fault`, why it cannot be replayed."""

    namespace: str
    name: str
    policy: Policy | None = None
    hpa: Hpa | None = None
    workload: Workload | None = None
    fault: str = ""


def read_shard(text: str | None) -> Shard:
    """The shard of `--shard I/N`; all services without one. Raises FaultyDocument."""
    if text is None:
        return Shard()
    match = _SHARD.fullmatch(text)
    shard = Shard(*map(int, match.groups())) if match else Shard(1, 1)
    if not 0 <= shard.index < shard.count <= MOST_SHARDS:
        advice = f"write I/N with I from 0 to N-1 and N up to {MOST_SHARDS}, such as 0/8"
        raise FaultyDocument([Fault("--shard", text, advice)], _TITLE)
    return shard


def services_of_folder(folder: Path, namespace: str, shard: Shard) -> list[FleetService]:
    """The services of all YAML and JSON files in a folder and below it, in order of their names.

    A file that cannot be read is a service with a fault: its policies are not known. Raises FaultyDocument for a folder
    that is none.
    """
    if not folder.is_dir():
        raise FaultyDocument([Fault("--policies", str(folder), "is no folder; name one with the YAML files")], _TITLE)
    read, faulty = [], []
    for path in sorted(path for path in folder.rglob("*") if path.suffix in _FILES and path.is_file()):
        try:
            read.append(_read(path))
        except FaultyDocument as error:
            faulty.append(FleetService(namespace="", name=str(path.relative_to(folder)), fault=str(error)))
    whole = Manifests(
        policies=tuple(policy for manifests in read for policy in manifests.policies),
        hpas=tuple(hpa for manifests in read for hpa in manifests.hpas),
        workloads=tuple(workload for manifests in read for workload in manifests.workloads),
    )
    services = [
        FleetService(
            namespace=policy.namespace,
            name=policy.name,
            policy=policy,
            hpa=(hpa := whole.hpa_of(policy)),
            workload=whole.workload_of(policy, hpa),
        )
        for policy in whole.policies
        if namespace in {"", policy.namespace}
    ]
    return _sorted(service for service in (*services, *faulty) if shard.has(service.namespace, service.name))


def _read(path: Path) -> Manifests:
    try:
        if path.stat().st_size > document_text.LARGEST_BYTES:
            raise FaultyDocument([document_text.too_large_fault()], path.name)
        return read_manifests(path.read_text(encoding="utf-8"), path.name)
    except (OSError, UnicodeDecodeError) as error:
        raise FaultyDocument([Fault("", None, f"cannot be read: {error}")], path.name) from error


async def services_of_cluster(
    kubeconfig: str | None, namespaces: Sequence[str], shard: Shard, tolerance: Fraction
) -> list[FleetService]:
    """The services of these namespaces (empty: of all), in order of their names. `tolerance`: of HPAs that set none.

    Raises KubeError where its policies cannot be read.
    """
    async with await Session.open(kubeconfig) as session:
        cluster = Cluster(session, tolerance)
        listed = await cluster.policies(namespaces)
        return _sorted(
            [
                await _of_policy(cluster, listed_policy)
                for listed_policy in listed
                if shard.has(listed_policy.namespace, listed_policy.name)
            ]
        )


async def annotate(kubeconfig: str | None, rows: Iterable[ServiceRow], until: str) -> None:
    """Write the recommendations of these services, each with the time up to which it was searched.

    A policy that is gone meanwhile is passed over. Raises KubeError, as where the right is missing.
    """
    async with await Session.open(kubeconfig) as session:
        for row in rows:
            if row.recommendation is None:
                continue
            body = {"metadata": {"annotations": {RECOMMENDATION: f"{until}: {row.recommendation}"}}}
            path = WATERMARK_POLICIES.path(row.policy.namespace, row.policy.name)
            with contextlib.suppress(NotFound):
                await session.request("PATCH", path, body=json.dumps(body).encode(), content_type=MERGE_PATCH)


async def _of_policy(cluster: Cluster, listed: ListedPolicy) -> FleetService:
    namespace, name, policy = listed.namespace, listed.name, listed.policy
    if policy is None:
        return FleetService(namespace=namespace, name=name, fault=f"the policy is not valid: {listed.fault}")
    try:
        target = await cluster.pods(policy)
    except (KubeError, ClusterError) as error:
        return FleetService(namespace=namespace, name=name, fault=str(error))
    hpa = target.wiring.hpa
    workload = None
    if newest := max(target.pods, key=lambda pod: pod.created_at, default=None):
        workload = Workload(
            namespace=newest.namespace,
            name=hpa.target.name,
            requests=sums([container.requests for container in newest.containers]) | dict(newest.pod_requests),
            limits=sums([container.limits for container in newest.containers]) | dict(newest.pod_limits),
        )
    return FleetService(namespace=namespace, name=name, policy=policy, hpa=hpa, workload=workload)


def _sorted(services: Iterable[FleetService]) -> list[FleetService]:
    return sorted(services, key=lambda service: (service.namespace, service.name))
