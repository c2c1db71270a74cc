"""The checks of a whole installation: the causes first."""

import asyncio
import contextlib
from collections.abc import Iterable, Mapping, Sequence

from cryptography import x509

from adapter.commands.check.installation import (
    Installation,
    api_service_sections,
    authority_of,
    installation_section,
    own_service,
)
from adapter.commands.check.report import ReportSection, SubjectKind, all_ok, reason
from adapter.commands.check.rights import Account, own_name, rights_section
from adapter.commands.cluster import GATE, Cluster, ListedPolicy, has_tolerance, parse_version, server_version
from adapter.kube.api import PODS
from adapter.kube.errors import Forbidden, KubeError
from adapter.kube.objects import ApiService
from adapter.kube.session import Session
from adapter.policy.conditions import ConditionType, Reason
from adapter.policy.hpa import Hpa
from adapter.runtime.faults import first_names
from adapter.runtime.times import parse_time
from adapter.settings import Settings

DAY = 86_400.0
SOON = 14 * DAY
"""Our own certificates live 90 days and are renewed a month before their end: one that ends sooner was not."""

_OLDEST = (1, 23)
"""The first version with autoscaling/v2."""
SKEW_SECONDS = 5.0
"""Clocks further apart are worth knowing; the Date header alone is a second wide."""
_WRONG_SECONDS = 60.0
STALE_STATUS_SECONDS = 180.0
"""The companion writes every status at least every two minutes, so one older than this is no longer written."""
NAMED = 5
"""How many policies a sentence names."""
_ASK_SECONDS = 3.0


async def read_hpas(cluster: Cluster, namespaces: Iterable[str], sections: list[ReportSection]) -> Sequence[Hpa] | None:
    """The HPAs of these namespaces (empty: of all); None, with a finding, where they cannot be read."""
    try:
        return await cluster.hpas(namespaces)
    except Forbidden as error:
        sections.append(ReportSection("HPAs").skipped(f"HPAs, for {reason(error)}"))
    except KubeError as error:
        sections.append(ReportSection("HPAs").wrong(f"HPAs cannot be read: {error}"))
    return None


async def installation_sections(
    cluster: Cluster,
    settings: Settings,
    installation: Installation,
    hpas: Sequence[Hpa] | None,
    *,
    settings_known: bool,
) -> tuple[list[ReportSection], bool | None]:
    """The API server, rights, APIServices and certificates; and whether HPAs have a tolerance here (None: unknown)."""
    session = cluster.session
    plane, has_tolerance = await control_plane_section(session, hpas)
    identity, accounts = await own_name(session), installation.accounts()
    prefix = f"system:serviceaccount:{installation.namespace}:"
    if not accounts and identity.startswith(prefix):  # the account that this process runs as
        name = identity.removeprefix(prefix)
        accounts[Account.COMPANION if "companion" in name else Account.SERVER] = name
    rights = await asyncio.gather(
        *(
            rights_section(session, settings, account, installation.namespace, name, identity)
            for account, name in accounts.items()
        )
    )
    api_sections, api_services = await api_service_sections(session, settings, settings_known=settings_known)
    ours = {
        name: api_service
        for name, api_service in api_services.items()
        if api_service.spec.service == own_service(settings)
    }
    certificates = certificate_section(session, ours)
    sections = [plane, *rights, certificates, installation_section(installation), *api_sections]
    return sections, has_tolerance


def hpa_sections(
    hpas: Sequence[Hpa], policies: Sequence[ListedPolicy], sections: Sequence[ReportSection], *, every: bool = False
) -> list[ReportSection]:
    """Adds the error of each HPA to the HPA's section; returns new ones.

    Unless `every` is asked for, those that a finding about the policy explains are left out.
    """
    of_policy = {(policy.namespace, policy.policy.hpa): policy for policy in policies if policy.policy is not None}
    by_name = {section.about: section for section in sections}
    found = []
    for hpa in hpas:
        if not hpa.inactive or not (every or hpa.desired_metrics):
            continue
        name = f"HPA {hpa.namespace}/{hpa.name}"
        policy = of_policy.get((hpa.namespace, hpa.name))
        explained = any(subject in by_name and not all_ok([by_name[subject]]) for subject in (name, f"policy {policy}"))
        if explained and not every:
            continue
        section = by_name.get(f"{name} of policy {policy.name}" if policy else name)
        if section is not None and hpa.ambiguous:  # said by its wiring
            continue
        if section is None:
            section = ReportSection(name, SubjectKind.HPA)
            found.append(section)
        section.wrong(hpa.inactive)
    return found


async def control_plane_section(session: Session, hpas: Iterable[Hpa] | None) -> tuple[ReportSection, bool | None]:
    """The findings about the API server, and whether its HPAs have a tolerance (None: unknown).

    `hpas`: those of the cluster; None where they cannot be read. One with a tolerance proves that the field is kept.
    """
    section, text = ReportSection("API server"), None
    try:
        text = await server_version(session)
    except KubeError as error:
        section.skipped(f"its version, for {reason(error)}")
    skew = session.skew
    if abs(skew) <= SKEW_SECONDS:
        section.ok(f"its clock and the one here are within {SKEW_SECONDS:g} s")
    else:
        ahead, add = "ahead of" if skew > 0 else "behind", section.wrong if abs(skew) > _WRONG_SECONDS else section.note
        add(
            f"the clock here is {abs(skew):.0f} s {ahead} the API server's; tokens, certificates and ages are judged "
            "by the one here: set both by NTP"
        )
    if text is None:
        return section, None
    version = parse_version(text)
    if version is not None and version < _OLDEST:
        section.wrong(f"it is Kubernetes {text}, which has no autoscaling/v2; 1.23 is the oldest that has")
        return section, False
    has_field = True if any(hpa.sets_tolerance for hpa in hpas or ()) else await has_tolerance(session, text)
    if has_field:
        section.ok(f"it is Kubernetes {text}, whose HPAs have a tolerance of their own")
    elif has_field is False:
        section.note(
            f"it is Kubernetes {text}, whose HPAs have no tolerance of their own ({GATE}: by default from 1.35 on): "
            "the controller's, 10 % by default, suppresses small steps; give policies that tolerance"
        )
    else:
        section.note(f"it says no version that can be read ({text!r}), so whether HPAs have a tolerance is unknown")
    return section, has_field


def certificate_section(session: Session, api_services: Mapping[str, ApiService]) -> ReportSection:
    """The ends of the CAs in the caBundle of our APIServices."""
    section, now = ReportSection("certificates"), session.now()
    bundles: dict[str, list[str]] = {}
    for name, api_service in api_services.items():
        if authority := authority_of(api_service):
            bundles.setdefault(authority, []).append(name)
    for pem, names in bundles.items():
        _add(section, f"the CA in the caBundle of APIService {' and '.join(names)}", _newest(pem), now)
    return section


def _newest(pem: str) -> x509.Certificate | None:
    """The certificate of a bundle that ends last: one that is valid is enough."""
    certificates: list[x509.Certificate] = []
    with contextlib.suppress(ValueError):
        certificates = x509.load_pem_x509_certificates(pem.encode())
    return max(certificates, key=lambda certificate: certificate.not_valid_after_utc, default=None)


def _add(section: ReportSection, what: str, certificate: x509.Certificate | None, now: float) -> None:
    remedy = "see serving_certificate_failed in the server's log"
    if certificate is None:
        section.wrong(f"{what} cannot be read; {remedy}")
        return
    end = certificate.not_valid_after_utc
    left, on = end.timestamp() - now, end.strftime("%Y-%m-%d")
    if left <= 0:
        section.wrong(f"{what} has expired on {on}: {remedy}")
    elif certificate.not_valid_before_utc.timestamp() > now:
        begins = certificate.not_valid_before_utc.strftime("%Y-%m-%d %H:%M:%S")
        section.wrong(f"{what} is valid from {begins} on only: clocks differ, set them by NTP")
    elif left < SOON:
        section.note(f"{what} ends in {left / DAY:.0f} days ({on}) and is not renewed yet: {remedy}")
    else:
        section.ok(f"{what} is valid until {on}")


def status_sections(policies: Sequence[ListedPolicy], now: float, *, written: bool) -> list[ReportSection]:
    """The silent watches that statuses report, and the statuses that are stale or missing.

    `written`: whether the settings have the companion write statuses.
    """
    watches, companion = ReportSection("watches"), ReportSection("companion")
    ages = {str(policy): _age(policy, now) for policy in policies if policy.status.assessed_at}
    concerned: dict[str, dict[str, None]] = {}
    for policy in policies:
        for condition in policy.status.conditions if ages.get(str(policy), 0.0) <= STALE_STATUS_SECONDS else ():
            if condition.reason == Reason.WATCH_SILENT and condition.status != "True":
                concerned.setdefault(condition.message, {})[str(policy)] = None
    for text, names in concerned.items():
        watches.wrong(f"{text} (reported by the status of {first_names([*names], NAMED)})")
    old = {name: age for name, age in ages.items() if age > STALE_STATUS_SECONDS}
    without = [str(policy) for policy in policies if not policy.status.assessed_at]
    if written and old:
        companion.wrong(
            f"it writes every status within two minutes, and these are older, up to {max(old.values()):.0f} s: "
            f"{first_names([*old], NAMED)}; check that it runs, and its log"
        )
    if written and without:
        companion.note(
            f"no status is written yet, so the adapter's view of it is unknown: {first_names(without, NAMED)}"
        )
    return [section for section in (watches, companion) if section.findings]


def add_policy_error(section: ReportSection, policy: ListedPolicy, now: float, *, every: bool = False) -> None:
    """Add the error that the policy's status reports, unless something else is wrong or the status is stale.

    With `every` other faults do not hide that nothing could be decided; all other errors they explain.
    """
    if _age(policy, now) > STALE_STATUS_SECONDS:
        return
    is_well = all_ok([section])
    for condition in policy.status.conditions:
        is_told = condition.reason == Reason.WATCH_SILENT or not (
            is_well or (every and condition.reason == Reason.NO_DECISION)
        )
        if (condition.type, condition.status) == (ConditionType.READY, "False") and not is_told:
            since = f" since {condition.last_transition_time}" if condition.last_transition_time else ""
            section.wrong(f"its HPA gets an error{since} ({condition.reason}): {condition.message}")


async def server_sections(cluster: Cluster, settings: Settings) -> list[ReportSection]:
    """The readiness of each pod of the Service, with reasons, read through the API server from the telemetry port.

    One note names the servers that cannot be asked.
    """
    namespace, service, port = settings.server.tls.namespace, settings.server.tls.service, settings.telemetry.port

    async def readiness(pod: str) -> str | KubeError:
        path = f"{PODS.path(namespace, pod)}:{port}/proxy/readyz"
        try:
            body = await cluster.session.get(path, params={"verbose": "", "report": ""}, timeout=_ASK_SECONDS)
        except KubeError as error:
            return error
        return body.decode()

    try:
        names = await cluster.service_pods(namespace, service)
    except KubeError as error:
        return [ReportSection("servers").skipped(f"whether they are ready, for {reason(error)}")]
    replies = dict(zip(names, await asyncio.gather(*map(readiness, names)), strict=True))
    sections = [_server_section(name, reply) for name, reply in replies.items() if isinstance(reply, str)]
    failures = {name: reply for name, reply in replies.items() if isinstance(reply, KubeError)}
    if not names:
        sections.append(ReportSection("servers").note(f"Service {service} of namespace {namespace} has no pods"))
    if failures:
        text = f"{', '.join(failures)} cannot be asked whether all watches are alive"
        sections.append(ReportSection("servers").note(f"{text}: {reason(next(iter(failures.values())))}"))
    return sections


def _server_section(pod: str, reply: str) -> ReportSection:
    section = ReportSection(f"server {pod}", SubjectKind.SERVER)
    for line in reply.splitlines():
        name, _, text = line[3:].partition(" ")
        if line.startswith("[-]"):
            section.wrong(f"it is not ready ({name}): {text.removeprefix('failed: ')}")
        elif line.startswith("[!]"):  # a fault that every replica shares: it stays ready
            section.wrong(text)
    if not section.findings:
        section.ok("it is ready")
    return section


def _age(policy: ListedPolicy, now: float) -> float:
    """The age of a policy's status in seconds; 0 where it has none."""
    at = parse_time(policy.status.assessed_at)
    return 0.0 if at is None else now - at
