"""From the options of a check to its report: the cluster's policies, then every registry, then the pods."""

import asyncio
import time
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from fractions import Fraction

from adapter.commands.check.cluster_checks import (
    NAMED,
    add_policy_error,
    hpa_sections,
    installation_sections,
    read_hpas,
    server_sections,
    status_sections,
)
from adapter.commands.check.findings import (
    PROBE_SERVICE,
    add_pod_matches,
    dangling_hpas,
    fullest_list,
    hpa_section,
    registry_section,
    service_section,
    targets_at_limit,
)
from adapter.commands.check.installation import Installation, find_installation, installed_settings
from adapter.commands.check.load_sources import (
    ONLY_WITH_SETTINGS,
    Scaled,
    check_metrics_server,
    check_prometheus,
)
from adapter.commands.check.report import ReportSection, SubjectKind, reason
from adapter.commands.cluster import Cluster, ClusterError, ListedPolicy, WiredTarget
from adapter.kube.errors import Forbidden, KubeError, NotFound, Unreachable
from adapter.kube.session import Session
from adapter.load.findings import at_limit
from adapter.load.spec import Policy
from adapter.load.states import service_registry
from adapter.policy.conformance import Wiring
from adapter.policy.hpa import Hpa
from adapter.registries.probe import ProbeResult, probe
from adapter.registries.service_allowlist import ServiceAllowlist
from adapter.registries.source import ServiceKey, service_of
from adapter.runtime.faults import first_names
from adapter.settings import Settings
from adapter.settings.registries import Registry


@dataclass(slots=True)
class _Way:
    """The way from a policy to its pods, as far as it can be read; `fault` says what ends it, unless it is refused.

    `load` has what the sources of the load say about the policy.
    """

    policy: Policy
    wiring: Wiring | None = None
    target: WiredTarget | None = None
    fault: str = ""
    load: ReportSection = field(default_factory=lambda: ReportSection("policy"))


async def run_checks(given: Settings | None, policy: str, kubeconfig: str | None) -> list[ReportSection]:
    """Check everything, or only a `policy` (NAMESPACE/NAME), with what it shares; returns the report's sections.

    `given`: the settings of the argument; None: those of the installation in the cluster.
    """
    notes: list[ReportSection] = []
    async with _cluster(kubeconfig, given, policy, notes) as cluster:
        settings, is_known, installation = given or Settings(), given is not None, None
        if cluster is not None:
            installation = await find_installation(cluster.session, settings)
            if given is None:
                settings, is_known, section = await installed_settings(cluster.session, installation)
                notes.append(section)
        check = _Check(
            settings=settings,
            policy=policy,
            cluster=cluster,
            settings_known=is_known,
            may_contact_sources=given is not None,
        )
        return notes + await check.run(installation)


@dataclass(slots=True, kw_only=True)
class _Check:
    """One run, with what its parts share.

    `settings_known`: whether they were read, not assumed. `may_contact_sources`: whether they were given for this
    place. Those that were found in the cluster name files and addresses of another place: nothing there is asked.
    """

    settings: Settings
    policy: str
    cluster: Cluster | None
    settings_known: bool
    may_contact_sources: bool
    notes: list[ReportSection] = field(default_factory=list)

    async def run(self, installation: Installation | None) -> list[ReportSection]:
        cluster, settings = self.cluster, self.settings
        causes: list[ReportSection] = []
        hpas, has_tolerance = None, None
        if cluster is not None and installation is not None:
            cluster.hpa_tolerance(settings.kubernetes.hpa_tolerance)
            of_policy = self.policy.partition("/")[0]
            hpas = await read_hpas(cluster, [of_policy] if of_policy else settings.kubernetes.namespaces, causes)
            sections, has_tolerance = await installation_sections(
                cluster, settings, installation, hpas, settings_known=self.settings_known
            )
            causes = sections + causes
        listed = await self._read_policies() if cluster else []
        policies = [one.policy for one in listed if one.policy is not None]
        ways = await self._ways(policies)
        load = await self._load_sources(cluster.session, ways) if cluster is not None else []
        sections, probes = await self._registry_sections(policies)
        for way in ways:
            sections.append(self._policy_section(way, probes))
            if (wiring := way.wiring) is not None:
                is_certain = has_tolerance is None or wiring.has_tolerance
                sections.append(hpa_section(wiring if is_certain else replace(wiring, has_tolerance=has_tolerance)))
        sections = [section for section in sections if section.findings]
        if cluster:
            every = bool(self.policy)
            by_name = {section.about: section for section in sections}
            checked = [listed_policy for listed_policy in listed if f"policy {listed_policy}" in by_name]
            for checked_policy in checked:
                add_policy_error(by_name[f"policy {checked_policy}"], checked_policy, cluster.now(), every=every)
            sections += status_sections(checked, cluster.now(), written=settings.companion.features.status)
            # What was read with its policy is newer than the list: an HPA that failed in between is told once.
            newest = {(way.wiring.hpa.namespace, way.wiring.hpa.name): way.wiring.hpa for way in ways if way.wiring}
            hpas = [newest.get((hpa.namespace, hpa.name), hpa) for hpa in hpas or []]
            sections += self._hpa_sections(hpas, listed, sections)
            sections += await server_sections(cluster, settings)
        return causes + self.notes + load + sections

    def _hpa_sections(
        self, hpas: Sequence[Hpa], listed: Sequence[ListedPolicy], sections: Sequence[ReportSection]
    ) -> list[ReportSection]:
        if self.policy:  # where the policy is missing or not valid, the HPA has its error too
            name = self.policy.partition("/")[2]
            named = {listed_policy.policy.hpa for listed_policy in listed if listed_policy.policy is not None} or {name}
            asking = [hpa for hpa in hpas if any(metric.names(name) for metric in hpa.desired_metrics)]
            return hpa_sections(
                [hpa for hpa in hpas if hpa.name in named or hpa in asking], listed, sections, every=True
            )
        dangling = list(dangling_hpas(hpas, listed))
        return dangling + hpa_sections(hpas, listed, [*sections, *dangling])

    async def _read_policies(self) -> list[ListedPolicy]:
        """The policies to check. Notes those that are not valid, and refusals of the API server."""
        assert self.cluster is not None
        section, policies = ReportSection("cluster"), list[ListedPolicy]()
        try:
            if self.policy:
                namespace, _, name = self.policy.partition("/")
                policies = [await self.cluster.policy(namespace, name)]
            else:
                policies = await self.cluster.policies(self.settings.kubernetes.namespaces)
        except NotFound:
            text = "the API server knows no WatermarkPolicy: apply the definition (kubectl apply -k manifests/crd)"
            section.wrong(text)
        except (KubeError, ClusterError) as error:
            if isinstance(error, Forbidden) and not self.policy:
                section.skipped(f"policies and what follows from them, for {reason(error)}")
            else:
                section.wrong(f"policies cannot be read: {error}")
        for policy in policies:
            if policy.policy is None:
                section.wrong(f"policy {policy} is not valid: {policy.fault}")
                if self.policy:
                    section.skipped("its HPA, pods, sources and registry, which wait for a valid policy")
        if section.findings:
            self.notes.append(section)
        return policies

    async def _ways(self, policies: Iterable[Policy]) -> list[_Way]:
        """The HPA and the pods of each policy; what this account may not read is noted once."""
        ways, section = list[_Way](), ReportSection("pods")
        denied: dict[str, list[str]] = {}
        for policy in policies:
            assert self.cluster is not None
            way = _Way(policy)
            ways.append(way)
            try:
                way.wiring = await self.cluster.wiring(policy)
                way.target = await self.cluster.pods(policy)
            except Forbidden as error:
                denied.setdefault(reason(error), []).append(f"{policy.namespace}/{policy.name}")
            except (KubeError, ClusterError) as error:
                way.fault = str(error)
        for message, names in denied.items():
            section.skipped(f"the pods of {first_names(names, NAMED)}, for {message}")
        self.notes += [section] * bool(denied)
        return ways

    async def _load_sources(self, session: Session, ways: Iterable[_Way]) -> list[ReportSection]:
        """The findings about the sources; those about policies are added to the policies' ways."""
        scaled = [
            Scaled(way.policy, *((way.target.pods, way.target.target.name) if way.target else ((), "")), way.load)
            for way in ways
        ]
        sections = await check_metrics_server(session, self.settings, scaled)
        if self.settings_known:
            may_contact = self.may_contact_sources
            sections += await check_prometheus(self.settings, scaled, session.now, may_contact_sources=may_contact)
        return sections

    async def _registry_sections(
        self, policies: Sequence[Policy]
    ) -> tuple[list[ReportSection], Mapping[str, Sequence[ProbeResult]]]:
        """The findings about the registries and the policies' services, and what the registries answered."""
        if not self.may_contact_sources:
            sections = []
            for one in self.settings.registries:
                section = ReportSection(f"registry {one.name} ({one.type})", SubjectKind.REGISTRY)
                sections.append(section.skipped(ONLY_WITH_SETTINGS))
            return sections, {}
        registries = {registry.name: registry for registry in self.settings.registries}
        services = asked_services(registries, policies)
        if not self.policy:  # each is asked about one service at least, to test the connection
            services = {name: services.get(name) or {ServiceKey(name, PROBE_SERVICE)} for name in registries}
        answers = (probe(registries[name], keys, time.time) for name, keys in services.items())
        probes = dict(zip(services, await asyncio.gather(*answers), strict=True))
        sections = [registry_section(registries[name], probes[name]) for name in sorted(probes)]
        named = sorted(key for keys in services.values() for key in keys if key.service != PROBE_SERVICE)
        sections += [service_section(key, probes[key.registry]) for key in named]
        return sections, probes

    def _policy_section(self, way: _Way, probes: Mapping[str, Sequence[ProbeResult]]) -> ReportSection:
        """Findings about a policy: whether it may name its service, and its pods and their load."""
        policy = way.policy
        section = ReportSection(f"policy {policy.namespace}/{policy.name}", SubjectKind.POLICY)
        key = self._admitted_service(section, policy)
        if way.fault:
            section.wrong(way.fault)
            section.skipped("its pods, and what the registry and the sources know of them, which wait for that")
        elif way.target is not None:
            roster = fullest_list(key, probes.get(key.registry, ())) if key else None
            registry = service_registry(policy)
            pods = f"{len(way.target.pods)} pods of {way.target.target.kind} {way.target.target.name}"
            if registry is None:
                section.ok(f"it names no service registry: Kubernetes itself says which of the {pods} serve")
            elif roster is None:
                section.note(f"{pods} wait for a valid answer")
            else:
                add_pod_matches(section, registry, way.target.target, way.target.pods, roster)
        section.findings += way.load.findings
        if way.target is not None:
            serving = [pod for pod in way.target.pods if pod.is_ready and not pod.deleting]
            of_hpa = (text for _, text in targets_at_limit(way.target.wiring.hpa, serving))
            for text in (*at_limit(policy, serving).values(), *of_hpa):
                section.wrong(text)
        return section

    def _admitted_service(self, section: ReportSection, policy: Policy) -> ServiceKey | None:
        """The service that the policy names, if the settings let it; adds what they leave out of the policy."""
        service, settings = service_of(policy), self.settings
        namespaces = settings.kubernetes.namespaces
        if namespaces and policy.namespace not in namespaces:
            section.wrong(f"the settings leave namespace {policy.namespace} out (kubernetes.namespaces)")
        if not self.settings_known:
            if service is not None or any(metric.query is not None for metric in policy.metrics):
                section.skipped("whether the settings have its registry and queries, for they are not known")
        elif service is not None:
            if refusal := ServiceAllowlist(settings.registries).refusal(service, policy.namespace):
                section.wrong(refusal)
                return None
            section.ok(f"the settings let it name service {service.service} of registry {service.registry}")
        return service


@asynccontextmanager
async def _cluster(
    kubeconfig: str | None, given: Settings | None, policy: str, notes: list[ReportSection]
) -> AsyncIterator[Cluster | None]:
    """The cluster; None where it does not answer at all, though it may refuse.

    The latter is wrong only where the options name the cluster or a policy, or there is nothing else to check.
    """
    section, settings, silence = ReportSection("cluster"), given or Settings(), ""
    add = section.wrong if kubeconfig or policy or not settings.registries else section.note
    try:
        session = await Session.open(kubeconfig)
    except KubeError as error:
        notes.append(add(f"no cluster can be reached, so no policy is checked: {error}"))
        yield None
        return
    async with session:
        try:
            # Without its storage it answers these paths, and nothing else: every request would be waited for.
            for path in ("/version", "/readyz"):
                await session.get(path)
        except Unreachable as error:
            silence = str(error)
        except KubeError as error:
            if "[-]etcd failed" in str(error):
                silence = "its etcd fails (kubectl get --raw /readyz); look at the control plane"
        if silence:
            notes.append(add(f"the cluster does not answer, so no policy is checked: {silence}"))
        yield None if silence else Cluster(session, Fraction(settings.kubernetes.hpa_tolerance), kubeconfig)


def asked_services(registries: Mapping[str, Registry], policies: Iterable[Policy]) -> dict[str, set[ServiceKey]]:
    """The services that the policies may name, by their registry."""
    asked: dict[str, set[ServiceKey]] = {}
    admission = ServiceAllowlist(registries.values())
    for policy in policies:
        named = service_of(policy)
        if named is not None and not admission.refusal(named, policy.namespace):
            asked.setdefault(named.registry, set()).add(named)
    return asked
