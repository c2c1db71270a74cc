"""From the scope of a check to its report: the cluster's policies, then every registry, then the pods."""

import asyncio
import time
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from fractions import Fraction

from adapter.check import health
from adapter.check.findings import (
    PROBE_SERVICE,
    add_pod_matches,
    dangling_hpas,
    fullest_roster,
    hpa_section,
    registry_section,
    service_section,
)
from adapter.check.report import ReportSection, SubjectKind
from adapter.kube.cluster import Cluster, ClusterError, ListedPolicy, TargetPods
from adapter.kube.credentials import service_account_token_file
from adapter.kube.errors import KubeError
from adapter.kube.session import Session
from adapter.load.membership import KUBERNETES, service_registry
from adapter.load.roster import Roster
from adapter.load.spec import Policy
from adapter.registries.probe import ProbeResult, probe
from adapter.registries.roster import ServiceKey, service_of
from adapter.registries.service_allowlist import ServiceAllowlist
from adapter.settings import Settings
from adapter.settings.registries import Registry


class ScopeError(Exception):
    """The options contradict each other or the settings; the message names the contradiction."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """What to check; empty: everything. `policy` is NAMESPACE/NAME, and excludes the other fields."""

    registry: str = ""
    service: str = ""
    namespace: str = ""
    group: str = ""
    policy: str = ""


async def run_checks(settings: Settings, scope: Scope, kubeconfig: str | None) -> list[ReportSection]:
    """Check what is in scope; returns the report's sections. Raises ScopeError."""
    registries = {one.name: one for one in settings.registries}
    scope = _completed(scope, registries)
    notes: list[ReportSection] = []
    async with _cluster(kubeconfig, settings, scope, notes) as cluster:
        if cluster:
            notes.append(await health.rights_section(cluster.session, settings.kubernetes.namespaces))
        listed = await _read_policies(cluster, settings, scope, notes) if cluster else []
        policies = [one.policy for one in listed if one.policy and scope.registry in {"", _registry_of(one.policy)}]
        services = _services(scope, registries, policies)
        looks = await _look_at_all(registries, services)
        sections = [registry_section(registries[name], looks[name]) for name in sorted(looks)]
        named = sorted(key for keys in services.values() for key in keys if key.service != PROBE_SERVICE)
        sections += [service_section(key, looks[key.registry]) for key in named]
        for policy in policies:
            key = service_of(policy)
            roster = fullest_roster(key, looks.get(key.registry, ())) if key else None
            sections += await _policy_sections(cluster, settings, policy, roster)
        if cluster:
            sections += _status_sections(cluster, settings, listed, sections)
            if scope == Scope():
                sections += await _cluster_sections(cluster, settings, listed)
    return notes + sections


def _completed(scope: Scope, registries: Mapping[str, Registry]) -> Scope:
    """The scope, with the only registry filled in where a service needs one. Raises ScopeError."""
    known = ", ".join(sorted(registries)) or "none"
    if scope.service and not registries:
        raise ScopeError("the settings name no registries, so there is no service to check")
    if scope.registry and scope.registry not in registries:
        raise ScopeError(f"registry {scope.registry!r} is not in the settings; there are {known}")
    if scope.policy and not all(scope.policy.partition("/")):
        raise ScopeError(f"--policy {scope.policy!r}: write NAMESPACE/NAME")
    if scope.policy and (scope.service or scope.registry):
        raise ScopeError("a policy knows its registry and service; leave --registry and --service away")
    if (scope.namespace or scope.group) and not scope.service:
        raise ScopeError("--namespace and --group are those of a service in its registry; name it with --service")
    if scope.service and not scope.registry:
        if len(registries) > 1:
            raise ScopeError(f"the settings name several registries ({known}); choose one with --registry")
        return replace(scope, registry=known)
    return scope


@asynccontextmanager
async def _cluster(
    kubeconfig: str | None, settings: Settings, scope: Scope, notes: list[ReportSection]
) -> AsyncIterator[Cluster | None]:
    """The cluster; None where none is needed or it cannot be reached.

    The latter is wrong only where the options name the cluster or a policy, or there is nothing else to check.
    """
    if scope.service:
        yield None
        return
    section = ReportSection("cluster")
    add = section.wrong if kubeconfig or scope.policy or not settings.registries else section.note
    try:
        session = await Session.open(kubeconfig)
    except KubeError as error:
        add(f"no cluster can be reached, so no policy is checked: {error}")
        notes.append(section)
        yield None
        return
    async with session:
        yield Cluster(session, Fraction(settings.kubernetes.hpa_tolerance), kubeconfig)


async def _read_policies(
    cluster: Cluster, settings: Settings, scope: Scope, notes: list[ReportSection]
) -> list[ListedPolicy]:
    """The policies in scope. Notes those that are not valid, and refusals of the API server, as wrong."""
    section = ReportSection("cluster")
    try:
        policies = await _list_policies(cluster, settings, scope)
    except (KubeError, ClusterError) as error:
        section.wrong(f"policies cannot be read: {error}")
        notes.append(section)
        return []
    for one in policies:
        if one.policy is None:
            section.wrong(f"policy {one} is not valid: {one.fault}")
    if section.findings:
        notes.append(section)
    return policies


def _status_sections(
    cluster: Cluster, settings: Settings, policies: Sequence[ListedPolicy], sections: Sequence[ReportSection]
) -> list[ReportSection]:
    """The findings of the policies' statuses: those of one policy in its section, those of several in new ones."""
    by_name = {section.about: section for section in sections}
    checked = [one for one in policies if f"policy {one}" in by_name]
    for one in checked:
        health.add_policy_error(by_name[f"policy {one}"], one, cluster.now())
    return health.status_sections(checked, cluster.now(), written=settings.companion.features.status)


async def _cluster_sections(
    cluster: Cluster, settings: Settings, policies: Sequence[ListedPolicy]
) -> list[ReportSection]:
    """Findings about the cluster as a whole: HPAs whose policy does not exist, and the readiness of its servers."""
    try:
        sections = list(dangling_hpas(await cluster.hpas(settings.kubernetes.namespaces), policies))
    except KubeError as error:
        section = ReportSection("cluster")
        section.wrong(f"HPAs cannot be read: {error}")
        sections = [section]
    where = settings.server.tls
    try:
        addresses = await cluster.addresses(where.namespace, where.service)
    except KubeError as error:
        section = ReportSection("servers")
        section.note(f"their addresses cannot be read: {error}")
        return [*sections, section]
    if not addresses:
        section = ReportSection("servers")
        section.note(f"Service {where.service} of namespace {where.namespace} has no pods")
        return [*sections, section]
    return sections + await health.server_sections(addresses, await _server_access(cluster, settings))


async def _server_access(cluster: Cluster, settings: Settings) -> health.ServerAccess | None:
    """The service account of this pod; None outside a pod: no other credential is sent to a server."""
    token_file, authority = service_account_token_file(cluster.kubeconfig), await cluster.authority()
    where = settings.server.tls
    if not token_file or not authority:
        return None
    return health.ServerAccess(token_file, authority, f"{where.service}.{where.namespace}.svc")


def _registry_of(policy: Policy) -> str:
    registry = service_registry(policy)
    return registry.name if registry is not None else KUBERNETES


async def _list_policies(cluster: Cluster, settings: Settings, scope: Scope) -> list[ListedPolicy]:
    if not scope.policy:
        return await cluster.policies(settings.kubernetes.namespaces)
    namespace, _, name = scope.policy.partition("/")
    return [await cluster.policy(namespace, name)]


def _services(
    scope: Scope, registries: Mapping[str, Registry], policies: Iterable[Policy]
) -> dict[str, set[ServiceKey]]:
    """The services to ask each registry about: at least one, to test the connection."""
    if scope.service:
        key = ServiceKey(scope.registry, scope.service, scope.namespace, scope.group)
        return {scope.registry: {key}}
    asked: dict[str, set[ServiceKey]] = {}
    admission = ServiceAllowlist(registries.values())
    for policy in policies:
        named = service_of(policy)
        if named is not None and not admission.refusal(named, policy.namespace):
            asked.setdefault(named.registry, set()).add(named)
    chosen = (scope.registry,) if scope.registry else asked if scope.policy else registries
    return {name: asked.get(name) or {ServiceKey(name, PROBE_SERVICE)} for name in chosen}


async def _look_at_all(
    registries: Mapping[str, Registry], services: Mapping[str, set[ServiceKey]]
) -> dict[str, Sequence[ProbeResult]]:
    looks = await asyncio.gather(*(probe(registries[name], keys, time.time) for name, keys in services.items()))
    return dict(zip(services, looks, strict=True))


async def _policy_sections(
    cluster: Cluster | None, settings: Settings, policy: Policy, roster: Roster | None
) -> list[ReportSection]:
    """Findings about a policy: whether it may name its service, its pods' instances, and its HPA."""
    section = ReportSection(f"policy {policy.namespace}/{policy.name}", SubjectKind.POLICY)
    assert cluster is not None
    if not _may_name_its_service(section, settings, policy):
        return [section]
    try:
        target = await cluster.pods(policy)
    except (KubeError, ClusterError) as error:
        section.wrong(str(error))
        return [section]
    _add_pods(section, policy, target, roster)
    return [section, hpa_section(target.wiring)]


def _may_name_its_service(section: ReportSection, settings: Settings, policy: Policy) -> bool:
    service = service_of(policy)
    if service is None:
        return True
    refusal = ServiceAllowlist(settings.registries).refusal(service, policy.namespace)
    if refusal:
        section.wrong(refusal)
        return False
    section.ok(f"the settings let it name service {service.service} of registry {service.registry}")
    return True


def _add_pods(section: ReportSection, policy: Policy, scaled: TargetPods, roster: Roster | None) -> None:
    registry = service_registry(policy)
    pods = f"{len(scaled.pods)} pods of {scaled.target.kind} {scaled.target.name}"
    if registry is None:
        section.ok(f"it names no service registry: Kubernetes itself says which of the {pods} serve")
    elif roster is None:
        section.note(f"{pods} wait for a valid answer")
    else:
        add_pod_matches(section, registry, scaled.target, scaled.pods, roster)
