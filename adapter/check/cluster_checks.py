"""The checks of a whole installation: the causes first, so that what follows from them can be left out."""

import asyncio
from collections.abc import Iterable, Sequence

from adapter.check import health
from adapter.check.api_services import CAUSE as CUSTOM_METRICS
from adapter.check.api_services import api_service_sections
from adapter.check.certificates import certificate_section
from adapter.check.control_plane import control_plane_section
from adapter.check.findings import dangling_hpas
from adapter.check.installation import CAUSE as SERVERS
from adapter.check.installation import Installation, installation_section
from adapter.check.load_sources import symptom_of
from adapter.check.refusals import reason
from adapter.check.report import ReportSection, SubjectKind, all_ok
from adapter.check.rights import Account, own_name, rights_section
from adapter.kube.cluster import Cluster, ListedPolicy
from adapter.kube.credentials import service_account_token_file
from adapter.kube.errors import Forbidden, KubeError
from adapter.kube.objects import Condition
from adapter.policy.hpa import Hpa
from adapter.settings import Settings

HpasRead = list[tuple[Hpa, Condition | None]]
_PAUSED = "ScalingDisabled"


async def read_hpas(cluster: Cluster, settings: Settings, sections: list[ReportSection]) -> HpasRead | None:
    """The HPAs of the watched namespaces; None, with a finding, where they cannot be read."""
    try:
        return await cluster.hpas_with_errors(settings.kubernetes.namespaces)
    except KubeError as error:
        section = ReportSection("HPAs")
        if isinstance(error, Forbidden):
            section.skipped(f"HPAs, for {reason(error)}")
        else:
            section.wrong(f"HPAs cannot be read: {error}")
        sections.append(section)
        return None


async def installation_sections(
    cluster: Cluster, settings: Settings, installation: Installation, hpas: HpasRead | None, *, settings_known: bool
) -> tuple[list[ReportSection], bool | None]:
    """The API server, rights, APIServices and certificates; and whether HPAs have a tolerance here (None: unknown)."""
    session = cluster.session
    plane, has_tolerance = await control_plane_section(session, None if hpas is None else [hpa for hpa, _ in hpas])
    own = await own_name(session)
    rights = await asyncio.gather(
        *(
            rights_section(session, settings, account, installation.namespace, name, own)
            for account, name in _accounts(installation, own).items()
        )
    )
    api_sections, api_services = await api_service_sections(session, settings, settings_known=settings_known)
    certificates = await certificate_section(session, api_services, await _addresses(cluster, settings))
    sections = [plane, *rights, installation_section(installation), *api_sections, certificates]
    return sections, has_tolerance


def _accounts(installation: Installation, own: str) -> dict[Account, str]:
    """The accounts to review: those of the installation, and the one that this process runs as."""
    accounts = installation.accounts()
    prefix = f"system:serviceaccount:{installation.namespace}:"
    if not accounts and own.startswith(prefix):
        name = own.removeprefix(prefix)
        accounts[Account.COMPANION if "companion" in name else Account.SERVER] = name
    return accounts


async def _addresses(cluster: Cluster, settings: Settings) -> list[str]:
    where = settings.server.tls
    try:
        return await cluster.addresses(where.namespace, where.service)
    except KubeError:
        return []


async def server_sections(cluster: Cluster, settings: Settings) -> list[ReportSection]:
    """The readiness of each server."""
    where, section = settings.server.tls, ReportSection("servers")
    try:
        addresses = await cluster.addresses(where.namespace, where.service)
    except KubeError as error:
        section.skipped(f"whether they are ready, for {reason(error)}")
        return [section]
    if not addresses:
        section.note(f"Service {where.service} of namespace {where.namespace} has no pods")
        return [section]
    return await health.server_sections(addresses, await _server_access(cluster, settings))


async def _server_access(cluster: Cluster, settings: Settings) -> health.ServerAccess | None:
    """The service account of this pod; None outside a pod: no other credential is sent to a server."""
    token_file, authority = service_account_token_file(cluster.kubeconfig), await cluster.authority()
    where = settings.server.tls
    if not token_file or not authority:
        return None
    return health.ServerAccess(token_file, authority, f"{where.service}.{where.namespace}.svc")


def hpa_sections(
    hpas: HpasRead, policies: Sequence[ListedPolicy], sections: Iterable[ReportSection]
) -> list[ReportSection]:
    """HPAs whose policy does not exist, and those that get an error which no finding about their policy explains."""
    faulty = {section.about for section in sections if not all_ok([section])}
    named = {
        (one.namespace, one.policy.hpa) for one in policies if one.policy is not None and f"policy {one}" in faulty
    }
    found = list(dangling_hpas([hpa for hpa, _ in hpas], policies))
    known = {section.about for section in found}
    for hpa, inactive in hpas:
        section = ReportSection(f"HPA {hpa.namespace}/{hpa.name}", SubjectKind.HPA)
        explained = (hpa.namespace, hpa.name) in named or section.about in known
        if inactive is None or inactive.reason == _PAUSED or not hpa.desired_metrics or explained:
            continue
        symptom = (CUSTOM_METRICS, SERVERS, "rights/server", *symptom_of(inactive.message))
        section.wrong(f"it does not act ({inactive.reason}): {inactive.message}", symptom_of=symptom)
        found.append(section)
    return found
