"""From what shall be checked to the report: the cluster's policies, then every registry, then the pods."""

import asyncio
import time
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from fractions import Fraction

from adapter.check import health
from adapter.check.cluster import Cluster, ClusterError, ListedPolicy, TargetPods
from adapter.check.findings import PROBE_SERVICE, add_pod_matches, fullest_roster, registry_section, service_section
from adapter.check.report import ReportSection, SubjectKind
from adapter.check.rights import rights_section
from adapter.check.strays import dangling_hpas
from adapter.kube.credentials import service_account_token_file
from adapter.kube.errors import KubeError
from adapter.kube.session import Session
from adapter.load.membership import KUBERNETES, uses_registry
from adapter.load.roster import Roster
from adapter.load.spec import Policy
from adapter.policy.conformance import Wiring, flaws
from adapter.registries.probe import ProbeResult, probe
from adapter.registries.roster import ServiceKey, service_of
from adapter.registries.service_allowlist import ServiceAllowlist
from adapter.settings import Settings
from adapter.settings.registries import Registry


class ScopeError(Exception):
    """What shall be checked does not fit together; the text says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """What shall be checked; empty: all there is. `policy` is NAMESPACE/NAME, and excludes the others."""

    registry: str = ""
    service: str = ""
    namespace: str = ""
    group: str = ""
    policy: str = ""


async def run_checks(settings: Settings, wanted: Scope, kubeconfig: str | None) -> list[ReportSection]:
    """Check what is wanted, and say what was found. Raises Unusable."""
    registries = {one.name: one for one in settings.registries}
    wanted = _completed(wanted, registries)
    notes: list[ReportSection] = []
    async with _cluster(kubeconfig, settings, wanted, notes) as cluster:
        if cluster:
            notes.append(await rights_section(cluster.session, settings.kubernetes.namespaces))
        found = await _found(cluster, settings, wanted, notes) if cluster else []
        policies = [one.policy for one in found if one.policy and wanted.registry in {"", _registry_of(one.policy)}]
        services = _services(wanted, registries, policies)
        looks = await _look_at_all(registries, services)
        sections = [registry_section(registries[name], looks[name]) for name in sorted(looks)]
        named = sorted(key for keys in services.values() for key in keys if key.service != PROBE_SERVICE)
        sections += [service_section(key, looks[key.registry]) for key in named]
        for policy in policies:
            key = service_of(policy)
            roster = fullest_roster(key, looks.get(key.registry, ())) if key else None
            sections += await _policy_sections(cluster, settings, policy, roster)
        if cluster:
            sections += _told(cluster, settings, found, sections)
            if wanted == Scope():
                sections += await _whole(cluster, settings, found)
    return notes + sections


def _completed(wanted: Scope, registries: Mapping[str, Registry]) -> Scope:
    """What is wanted, the only registry put in where a service needs one. Raises Unusable."""
    known = ", ".join(sorted(registries)) or "none"
    if wanted.service and not registries:
        raise ScopeError("the settings name no registries, so no service can be looked for")
    if wanted.registry and wanted.registry not in registries:
        raise ScopeError(f"registry {wanted.registry!r} is not in the settings; there are {known}")
    if wanted.policy and not all(wanted.policy.partition("/")):
        raise ScopeError(f"--policy {wanted.policy!r}: write NAMESPACE/NAME")
    if wanted.policy and (wanted.service or wanted.registry):
        raise ScopeError("a policy knows its registry and service; leave --registry and --service away")
    if (wanted.namespace or wanted.group) and not wanted.service:
        raise ScopeError("--namespace and --group are those of a service in its registry; name it with --service")
    if wanted.service and not wanted.registry:
        if len(registries) > 1:
            raise ScopeError(f"the settings name several registries ({known}); say with --registry which one is asked")
        return replace(wanted, registry=known)
    return wanted


@asynccontextmanager
async def _cluster(
    kubeconfig: str | None, settings: Settings, wanted: Scope, notes: list[ReportSection]
) -> AsyncIterator[Cluster | None]:
    """The cluster, None where none is needed or none can be reached. That is wrong only where there is nothing else
    to check, or it was asked for.
    """
    if wanted.service:
        yield None
        return
    section = ReportSection("cluster")
    tell = section.wrong if kubeconfig or wanted.policy or not settings.registries else section.note
    try:
        session = await Session.open(kubeconfig)
    except KubeError as error:
        tell(f"no cluster can be asked, so no policy is looked at: {error}")
        notes.append(section)
        yield None
        return
    async with session:
        yield Cluster(session, Fraction(settings.kubernetes.hpa_tolerance), kubeconfig)


async def _found(cluster: Cluster, settings: Settings, wanted: Scope, notes: list[ReportSection]) -> list[ListedPolicy]:
    """The policies to check. Those that are not valid, and what the API server refuses, are noted as wrong."""
    section = ReportSection("cluster")
    try:
        found = await _named(cluster, settings, wanted)
    except (KubeError, ClusterError) as error:
        section.wrong(f"policies cannot be read: {error}")
        notes.append(section)
        return []
    for one in found:
        if one.policy is None:
            section.wrong(f"policy {one} is not valid: {one.fault}")
    if section.findings:
        notes.append(section)
    return found


def _told(
    cluster: Cluster, settings: Settings, found: Sequence[ListedPolicy], sections: Sequence[ReportSection]
) -> list[ReportSection]:
    """What the running adapter says of these policies, in their own sections and in those that are returned."""
    by_name = {section.about: section for section in sections}
    checked = [one for one in found if f"policy {one}" in by_name]
    for one in checked:
        health.add_policy_error(by_name[f"policy {one}"], one, cluster.now())
    return health.status_sections(checked, cluster.now(), written=settings.companion.features.status)


async def _whole(cluster: Cluster, settings: Settings, found: Sequence[ListedPolicy]) -> list[ReportSection]:
    """What is told of a cluster only as a whole: HPAs that name no policy there is, and what its servers say."""
    try:
        sections = list(dangling_hpas(await cluster.hpas(settings.kubernetes.namespaces), found))
    except KubeError as error:
        section = ReportSection("cluster")
        section.wrong(f"HPAs cannot be read: {error}")
        sections = [section]
    where = settings.server.tls
    try:
        addresses = await cluster.addresses(where.namespace, where.service)
    except KubeError as error:
        section = ReportSection("servers")
        section.note(f"it cannot be told where they are: {error}")
        return [*sections, section]
    if not addresses:
        section = ReportSection("servers")
        section.note(f"Service {where.service} of namespace {where.namespace} has no pod that could be asked")
        return [*sections, section]
    return sections + await health.server_sections(addresses, await _account(cluster, settings))


async def _account(cluster: Cluster, settings: Settings) -> health.ServerAccess | None:
    """The service account of this pod; None outside of one, for no other credential is shown to a server."""
    token_file, authority = service_account_token_file(cluster.kubeconfig), await cluster.authority()
    where = settings.server.tls
    if not token_file or not authority:
        return None
    return health.ServerAccess(token_file, authority, f"{where.service}.{where.namespace}.svc")


def _registry_of(policy: Policy) -> str:
    registry = uses_registry(policy)
    return registry.name if registry is not None else KUBERNETES


async def _named(cluster: Cluster, settings: Settings, wanted: Scope) -> list[ListedPolicy]:
    if not wanted.policy:
        return await cluster.policies(settings.kubernetes.namespaces)
    namespace, _, name = wanted.policy.partition("/")
    return [await cluster.policy(namespace, name)]


def _services(
    wanted: Scope, registries: Mapping[str, Registry], policies: Iterable[Policy]
) -> dict[str, set[ServiceKey]]:
    """The services that each registry is asked about: at least one, or nothing would be learnt of the connection."""
    if wanted.service:
        key = ServiceKey(wanted.registry, wanted.service, wanted.namespace, wanted.group)
        return {wanted.registry: {key}}
    asked: dict[str, set[ServiceKey]] = {}
    admission = ServiceAllowlist(registries.values())
    for policy in policies:
        named = service_of(policy)
        if named is not None and not admission.refusal(named, policy.namespace):
            asked.setdefault(named.registry, set()).add(named)
    chosen = (wanted.registry,) if wanted.registry else asked if wanted.policy else registries
    return {name: asked.get(name) or {ServiceKey(name, PROBE_SERVICE)} for name in chosen}


async def _look_at_all(
    registries: Mapping[str, Registry], services: Mapping[str, set[ServiceKey]]
) -> dict[str, Sequence[ProbeResult]]:
    found = await asyncio.gather(*(probe(registries[name], keys, time.time) for name, keys in services.items()))
    return dict(zip(services, found, strict=True))


async def _policy_sections(
    cluster: Cluster | None, settings: Settings, policy: Policy, roster: Roster | None
) -> list[ReportSection]:
    """Whether a policy may name its service, which of its pods match what the registry listed, and its HPA."""
    section = ReportSection(f"policy {policy.namespace}/{policy.name}", SubjectKind.POLICY)
    assert cluster is not None
    if not _may_name_its_service(section, settings, policy):
        return [section]
    try:
        found = await cluster.pods(policy)
    except (KubeError, ClusterError) as error:
        section.wrong(str(error))
        return [section]
    _match(section, policy, found, roster)
    return [section, _hpa_section(found.wiring)]


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


def _match(section: ReportSection, policy: Policy, found: TargetPods, roster: Roster | None) -> None:
    registry = uses_registry(policy)
    pods = f"{len(found.pods)} pods of {found.target.kind} {found.target.name}"
    if registry is None:
        section.ok(f"it names no service registry: Kubernetes itself says which of the {pods} serve")
    elif roster is None:
        section.note(f"{pods} wait for a valid answer")
    else:
        add_pod_matches(section, registry, found.target, found.pods, roster)


def _hpa_section(wiring: Wiring) -> ReportSection:
    """What is unwise about how policy and HPA are joined."""
    section = ReportSection(
        f"HPA {wiring.hpa.namespace}/{wiring.hpa.name} of policy {wiring.policy.name}", SubjectKind.HPA
    )
    for flaw in flaws(wiring):
        section.note(flaw.message)
    if not section.findings:
        asked = wiring.hpa.asks_for(wiring.policy.name)
        section.ok("it sets the count that is decided" if asked else "it is left as it is: the policy only observes")
    return section
