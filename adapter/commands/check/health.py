"""The adapter's own health: silent watches, errors to HPAs, statuses that are not written, servers not ready."""

import asyncio
from collections.abc import Sequence

from adapter.commands.check.api_services import CAUSE as CUSTOM_METRICS
from adapter.commands.check.api_services import RESTART
from adapter.commands.check.load_sources import symptom_of
from adapter.commands.check.report import ReportSection, SubjectKind, all_ok, reason
from adapter.kube.api import PODS
from adapter.kube.cluster import Cluster, ListedPolicy
from adapter.kube.errors import KubeError
from adapter.load.conditions import ConditionType, Reason
from adapter.runtime.faults import first_names
from adapter.runtime.times import parse_time

STALE_STATUS_SECONDS = 180.0
"""The companion writes every status at least every two minutes, so one older than this is no longer written."""
NAMED = 5
"""How many policies a sentence names."""
_ASK_SECONDS = 3.0


def status_sections(policies: Sequence[ListedPolicy], now: float, *, written: bool) -> list[ReportSection]:
    """The silent watches that statuses report, and the statuses that are stale or missing.

    `written`: whether the settings have the companion write statuses.
    """
    return [one for one in (_silent(policies, now), _unwritten(policies, now, written=written)) if one.findings]


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
            text = f"its HPA gets an error{since} ({condition.reason}): {condition.message}"
            apis = (CUSTOM_METRICS,) if condition.reason == Reason.HPA_INACTIVE else ()
            section.wrong(text, symptom_of=("rights/server", *apis, "servers", *symptom_of(condition.message)))


async def server_sections(cluster: Cluster, namespace: str, service: str, port: int) -> list[ReportSection]:
    """The readiness of each pod of the Service, with reasons, read through the API server from the telemetry port.

    Raises KubeError where the pods cannot be listed; one note names the servers that cannot be asked.
    """
    names = await cluster.service_pods(namespace, service)
    replies = await asyncio.gather(*(_readiness(cluster, namespace, name, port) for name in names))
    sections = [_server(name, reply) for name, reply in zip(names, replies, strict=True) if isinstance(reply, str)]
    failures = {name: reply for name, reply in zip(names, replies, strict=True) if isinstance(reply, KubeError)}
    if not names:
        section = ReportSection("servers")
        section.note(f"Service {service} of namespace {namespace} has no pods")
        sections.append(section)
    if failures:
        section = ReportSection("servers")
        why = reason(next(iter(failures.values())))
        section.note(f"{', '.join(failures)} cannot be asked whether all watches are alive: {why}")
        sections.append(section)
    return sections


async def _readiness(cluster: Cluster, namespace: str, pod: str, port: int) -> str | KubeError:
    try:
        path = f"{PODS.path(namespace, pod)}:{port}/proxy/readyz"
        return (await cluster.session.get(path, params={"verbose": "", "report": ""}, timeout=_ASK_SECONDS)).decode()
    except KubeError as error:
        return error


def _server(pod: str, reply: str) -> ReportSection:
    section = ReportSection(f"server {pod}", SubjectKind.SERVER)
    for line in reply.splitlines():
        name, _, text = line[3:].partition(" ")
        if line.startswith("[-]"):
            text = f"it is not ready ({name}): {text.removeprefix('failed: ')}"
            section.wrong(text, cause="servers", symptom_of=("rights/server",))
        elif line.startswith("[!]settings: "):
            section.wrong(text, cause=RESTART)
        elif line.startswith("[!]"):  # a fault that every replica shares: it stays ready
            section.wrong(text)
    if not section.findings:
        section.ok("it is ready")
    return section


def _silent(policies: Sequence[ListedPolicy], now: float) -> ReportSection:
    section, concerned = ReportSection("watches"), dict[str, list[str]]()
    for policy in policies:
        if _age(policy, now) <= STALE_STATUS_SECONDS:
            silent = [
                condition
                for condition in policy.status.conditions
                if condition.reason == Reason.WATCH_SILENT and condition.status != "True"
            ]
            for text in dict.fromkeys(one.message for one in silent):
                concerned.setdefault(text, []).append(str(policy))
    for text, names in concerned.items():
        section.wrong(f"{text} (reported by the status of {first_names(names, NAMED)})")
    return section


def _unwritten(policies: Sequence[ListedPolicy], now: float, *, written: bool) -> ReportSection:
    section = ReportSection("companion")
    if not written:
        return section
    without = [str(policy) for policy in policies if not policy.status.assessed_at]
    old = [policy for policy in policies if policy.status.assessed_at and _age(policy, now) > STALE_STATUS_SECONDS]
    if old:
        oldest = max(_age(one, now) for one in old)
        section.wrong(
            f"it writes every status within two minutes, and these are older, up to {oldest:.0f} s: "
            f"{first_names([str(one) for one in old], NAMED)}; check that it runs, and its log"
        )
    if without:
        section.note(f"no status is written yet, so the adapter's view of it is unknown: {first_names(without, NAMED)}")
    return section


def _age(policy: ListedPolicy, now: float) -> float:
    """The age of a policy's status in seconds; 0 where it has none."""
    at = parse_time(policy.status.assessed_at)
    return 0.0 if at is None else now - at
